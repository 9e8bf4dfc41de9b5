"""Groups of a real broker that stop, go back and recover: `group_status` says so in time, and nothing else."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from time import sleep, time

import pytest
from kafka import KafkaAdminClient, KafkaProducer
from pyspark.sql import Row, SparkSession

from demo.embedded_kafka.broker import EmbeddedKafka
from demo.embedded_kafka.topics import create_topics
from demo.workload.seeding import commit_offsets
from jobs import report
from pipeline.config import load_config
from pipeline.derive import compute_lag
from pipeline.kinds.causes import with_causes_merged
from pipeline.lake import Lake
from pipeline.lake.few_rows import for_few_rows
from pipeline.report.cards.attention import needs_attention
from pipeline.report.model.selection import Selection
from pipeline.report.read.collect import collect, collect_partitions
from pipeline.report.read.excerpt import Excerpt
from pipeline.report.read.worst_partitions import read_newest
from pipeline.snapshot import take_snapshots
from pipeline.tables import FINDINGS, GROUP_STATUS, PARTITION_STATUS
from tests.helpers.quiet import write_config

ORDERS, QUIET, SHARED = "judged-orders", "judged-quiet", "judged-shared"
TOGETHER = ("one", "two", "three")
STEPS = 11
RECORDS = 3
"""Records written to each partition before each snapshot."""
OWNERS = """
[[owners]]
group = "half|back"
owner = "those"
tier = "1"
channel = "pager"
[[owners]]
topic = "judged"
owner = "others"
[channels.pager]
type = "webhook"
url = "http://127.0.0.1:9"
[channels.chat]
type = "webhook"
url = "http://127.0.0.1:9"
[notifications]
channel = "chat"
"""
COMPUTED_AFTER = (4, 8, STEPS - 1)
"""The steps after which the lag of all new snapshots is computed."""


def committed(step: int) -> Iterator[tuple[str, dict[tuple[str, int], int]]]:
    """What groups commit before the snapshot of a step."""
    end = RECORDS * (step + 1)
    yield "judged-well", {(ORDERS, 0): end, (ORDERS, 1): end}
    yield "judged-late", {(ORDERS, 0): end - 2}
    if step < 3:
        yield "judged-stops", {(ORDERS, 0): end}
    yield "judged-half", {(ORDERS, 0): end, **({(ORDERS, 1): end} if step < 3 else {})}
    if step < 3 or step > 7:
        yield "judged-heals", {(ORDERS, 0): end}
    yield "judged-back", {(ORDERS, 0): end if step < 4 else 1 + step}
    yield "judged-slips", {(ORDERS, 0): 1 if step == 5 else end}
    if step < 3 or step > 7:
        for name in TOGETHER:
            yield f"judged-{name}", {(SHARED, 0): end}
    if step == 0:
        yield "judged-quiet", {(QUIET, 0): 1}  # after the only record, but before the marker of its transaction


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("judged")


@pytest.fixture(scope="module")
def lake(spark: SparkSession, kafka: EmbeddedKafka, folder: Path) -> Lake:
    file = write_config(folder, "judged", {"c": kafka.bootstrap_servers})
    file.write_text(f'[status]\nwindow = "10m"\ntolerance = "1s"\n{OWNERS}{file.read_text()}')
    config = load_config(file, {})
    with KafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers) as admin, for_few_rows(spark):
        create_topics(admin, {ORDERS: 2, QUIET: 1, SHARED: 1})
        transaction = KafkaProducer(bootstrap_servers=kafka.bootstrap_servers, transactional_id="judged")
        transaction.init_transactions()
        transaction.begin_transaction()
        transaction.send(QUIET, b"x", partition=0)
        transaction.commit_transaction()
        transaction.close()
        producer = KafkaProducer(bootstrap_servers=kafka.bootstrap_servers)
        for step in range(STEPS):
            for _ in range(RECORDS):
                for partition in (0, 1):
                    producer.send(ORDERS, b"x", partition=partition)
                producer.send(SHARED, b"x", partition=0)
            producer.flush()
            for group, offsets in committed(step):
                commit_offsets(admin, group, offsets)
            sleep(1 - time() % 1)  # a snapshot takes less than a second, and that is the schedule
            (outcome,) = take_snapshots(spark, config, ["c"], None, lambda: datetime.now(UTC))
            assert outcome.status == "complete"
            if step in COMPUTED_AFTER:
                compute_lag(spark, config, ["c"], lambda: datetime.now(UTC))
        producer.close()
    return Lake(spark, config.lake)


@pytest.fixture(scope="module")
def statuses(lake: Lake) -> dict[str, list[Row]]:
    """The status of each group at each snapshot."""
    found: dict[str, list[Row]] = {}
    for row in lake.spark.table(lake.identifier(GROUP_STATUS)).orderBy("snapshot_id").collect():
        found.setdefault(row.group_id.removeprefix("judged-"), []).append(row)
    return found


def test_each_group_has_a_status_at_each_snapshot(lake: Lake, statuses: dict[str, list[Row]]) -> None:
    assert {group: len(rows) for group, rows in statuses.items()} == dict.fromkeys(
        ("well", "late", "stops", "half", "heals", "back", "slips", "quiet", *TOGETHER), STEPS
    )
    assert lake.frame(PARTITION_STATUS).count() == STEPS * 13


@pytest.mark.parametrize("group", ["well", "late", "slips", "quiet"])
def test_healthy_groups_never_have_a_bad_status(statuses: dict[str, list[Row]], group: str) -> None:
    """Not a group that is always a little late, goes back for one snapshot, or is before a marker."""
    first, *others = statuses[group]
    # A single snapshot cannot show whether a late group makes progress.
    at_first = ("unknown", "too_few_snapshots") if group == "late" else ("ok", None)
    assert (first.status, first.reason) == at_first
    assert {row.status for row in others} == {"ok"}


def test_a_group_that_stops_is_found_by_the_third_snapshot_with_the_same_commit(statuses: dict[str, list[Row]]) -> None:
    rows = statuses["stops"]
    assert [row.status for row in rows] == ["ok"] * 5 + ["stopped"] * (STEPS - 5)
    assert {(row.reason, row.since, row.has_members) for row in rows[5:]} == {
        ("no_members", rows[3].captured_at, False)
    }


def test_a_group_is_judged_by_its_worst_partition(statuses: dict[str, list[Row]]) -> None:
    newest = statuses["half"][-1]
    assert (newest.status, newest.topic, newest.partition, newest.statuses) == (
        "stopped",
        ORDERS,
        1,
        {"ok": 1, "stopped": 1},
    )


def test_groups_that_stop_together_are_one_finding(lake: Lake, statuses: dict[str, list[Row]]) -> None:
    assert {row.status for name in TOGETHER for row in statuses[name][5:8]} == {"stopped"}
    rows = lake.query("SELECT * FROM {findings} WHERE topic = 'judged-shared'", FINDINGS)
    assert {(row["kind"], row["group_id"].removeprefix("judged-")) for row in rows} == {
        ("no_progress", name) for name in TOGETHER
    }
    found = with_causes_merged(rows)
    assert [(row["kind"], row["group_id"], row["partitions"]) for row in found] == [("stopped_together", None, [0])]
    at = [row.snapshot_at for row in statuses["well"]]
    assert (found[0]["first_seen"], found[0]["resolved_at"]) == (at[5].astimezone(UTC), at[8].astimezone(UTC))
    evidence = json.loads(found[0]["evidence"])
    assert evidence["groups"] == sorted(f"judged-{name}" for name in TOGETHER)
    # At the worst moment, five times three records had been written since each of the groups committed.
    assert evidence["consumer_lag"] == len(TOGETHER) * 5 * RECORDS


def test_a_group_that_continues_is_ok_at_the_next_snapshot(statuses: dict[str, list[Row]]) -> None:
    found = [row.status for row in statuses["heals"]]
    assert found == ["ok"] * 5 + ["stopped"] * 3 + ["ok"] * 3


def test_a_group_that_goes_back_is_rewound(statuses: dict[str, list[Row]]) -> None:
    rows = statuses["back"]
    assert [row.status for row in rows] == ["ok"] * 5 + ["rewound"] * (STEPS - 5)
    assert {row.since for row in rows[5:]} == {rows[4].captured_at}


def test_each_problem_is_one_finding_and_healthy_groups_have_none(lake: Lake, statuses: dict[str, list[Row]]) -> None:
    at = [row.snapshot_at for row in statuses["well"]]
    found = {
        row.group_id.removeprefix("judged-"): (
            *(row.kind, row.topic, row.partitions, row.owner, row.tier, row.channel),
            *(row.first_seen, row.resolved_at),
        )
        for row in lake.frame(FINDINGS).collect()
        if row.cause_id is None
    }
    assert found == {
        "stops": ("no_progress", ORDERS, [0], "others", None, "chat", at[5], None),
        "half": ("no_progress", ORDERS, [1], "those", "1", "pager", at[5], None),
        "heals": ("no_progress", ORDERS, [0], "others", None, "chat", at[5], at[8]),
        "back": ("rewound", ORDERS, [0], "those", "1", "pager", at[5], None),
    }


def test_a_group_has_the_owner_of_a_rule_for_groups(statuses: dict[str, list[Row]]) -> None:
    owned = {group: {(row.owner, row.tier, row.channel) for row in rows} for group, rows in statuses.items()}
    assert {group for group, whose in owned.items() if whose == {("those", "1", "pager")}} == {"half", "back"}
    assert {whose for group in owned.keys() - {"half", "back"} for whose in owned[group]} == {(None, None, "chat")}


def test_a_finding_has_a_page_and_a_text_of_its_own(lake: Lake, folder: Path) -> None:
    (found,) = lake.query("SELECT * FROM {findings} WHERE group_id = 'judged-heals'", FINDINGS)
    page, config = folder / "incident.html", folder / "laglake.toml"
    arguments = ["--config", str(config), "--incident", found["finding_id"][:8], "--output", str(page)]
    assert report.main(arguments) == 0
    lines = page.with_suffix(".md").read_text().splitlines()
    assert lines[0] == "# Incident: no progress, group judged-heals"
    assert f"| Resolved | {found['resolved_at']:%Y-%m-%d %H:%M:%S} UTC |" in lines
    assert "| Owner | others |" in lines
    assert f"- {found['first_seen']:%Y-%m-%d %H:%M:%S} UTC: no progress begins" in lines
    lags = [line for line in lines if line.startswith(f"| {found['first_seen']:%Y-}")]
    assert len(lags) == STEPS, "the lag at each snapshot: half an hour before and after are shown"
    html = page.read_text()
    assert "<title>Incident: no progress, group judged-heals</title>" in html
    assert "judged-stops" not in html
    assert html.count('<th scope="row" class="name">') == 2, "one cluster and one group"


def test_a_group_and_a_time_have_a_page_and_a_text_of_their_own(statuses: dict[str, list[Row]], folder: Path) -> None:
    """From the fourth snapshot to the seventh, in which the group has stopped; a minute lies between two snapshots."""
    since, until = (f"{statuses['heals'][number].snapshot_at:%Y-%m-%dT%H:%M:%SZ}" for number in (3, 6))
    page = folder / "window.html"
    window = ["--incident", "--group", "^judged-heals$", "--from", since, "--to", until]
    assert report.main(["--config", str(folder / "laglake.toml"), *window, "--output", str(page)]) == 0
    text, html = page.with_suffix(".md").read_text(), page.read_text()
    begins = f"{statuses['heals'][5].snapshot_at:%Y-%m-%d %H:%M:%S} UTC"
    assert f"- {begins}: no progress begins" in text
    shown = [row.snapshot_at for row in statuses["heals"] if f"| {row.snapshot_at:%Y-%m-%d %H:%M:%S}" in text]
    assert shown == [row.snapshot_at for row in statuses["heals"][3:7]]
    for other in ("judged-stops", "judged-half", "judged-well"):
        assert other not in text
        assert other not in html


def test_a_page_about_a_finding_is_not_overwritten_by_its_text(folder: Path) -> None:
    arguments = ["--config", str(folder / "laglake.toml"), "--incident", "abcdef", "--output", str(folder / "x.md")]
    assert report.main(arguments) == 2


def test_show_reads_the_same_partitions_without_spark(lake: Lake, folder: Path) -> None:
    expected, total = collect_partitions(Excerpt(lake), 5)
    found = read_newest(folder / "lake", Selection(), 5)
    assert (list(found.partitions), found.left_out) == (expected, total - 5)
    assert found.partitions[0].consumer_lag


def test_the_report_names_these_groups_and_no_others(lake: Lake) -> None:
    found = collect(Excerpt(lake), datetime.now(UTC), "title")
    named = {item.subject: item.sentence for item in needs_attention(found)}
    assert named.keys() == {"judged-stops", "judged-half", "judged-back"}
    assert "the group has no members" in named["judged-stops"]
    assert "in 1 of 2 partitions" in named["judged-half"]
