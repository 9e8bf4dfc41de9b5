"""The problems of groups, topics and the cluster, from rows of `lag` and statuses: one row for each cause."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipeline.analytics.findings.group_problems import OF_GROUPS, find_group_problems
from pipeline.analytics.findings.rates import with_rates
from pipeline.analytics.findings.suspects import SUSPECTS
from pipeline.common.rows import Rows
from pipeline.config.status import StatusConfig
from pipeline.tables import GROUP_STATUS
from tests.helpers.rows import few_rows
from tests.helpers.scene import (
    HOUR_MS,
    NOW,
    NOW_MS,
    SINCE,
    THEN,
    THEN_MS,
    Scene,
    groups_of,
    moved,
    problems,
    suspects_of,
)

TO = " --bootstrap-server $BOOTSTRAP"


@pytest.fixture
def scene() -> Iterator[Scene]:
    return Scene()


def test_a_group_that_keeps_up_has_no_problem(scene: Scene) -> None:
    scene.add(("busy", "t", 0), consumer_lag=5)
    scene.add(("new", "t", 0), "not_committed", offset_status="no_commit", committed_offset=None)
    scene.add(("young", "t", 0), "unknown", "too_few_snapshots", consumer_lag=5, high_watermark=105)
    assert problems(scene) == {}


def test_partitions_of_one_group_that_wait_are_one_problem(scene: Scene) -> None:
    scene.waiting(("g", "t", 0), 300, reason="no_members")
    scene.waiting(("g", "t", 2), 1_200, reason="no_members", consumer_age_ms=90_000)
    for number in (0, 2):
        scene.without_members(("g", "t", number), NOW - timedelta(hours=3))
    scene.add(("g", "t", 1))
    (key,) = found = problems(scene)
    assert key == ("no_progress", "g", "t")
    row = found[key]
    assert row["summary"] == (
        "Nothing has been committed since 2026-01-31 10:00 UTC in 2 of 3 partitions, and the group has no members "
        "(it last had some at 2026-01-31 09:00 UTC); unread: 1,500 records (1.5 MB), the oldest 2 h old."
    )
    assert (row["partitions"], row["severity"], row["magnitude"]) == ([0, 2], "critical", 1_500.0)
    assert row["evidence"] == {
        "status": "stopped",
        "reason": "no_members",
        "since": "2026-01-31T10:00:00Z",
        "partitions": 2,
        "partitions_of_group": 3,
        "topics": ["t"],
        "worst_topic": "t",
        "worst_partition": 2,
        "consumer_lag": 1_500,
        "consumer_lag_bytes": 1_500_000,
        "consumer_age_ms": 2 * HOUR_MS,
        "written_per_s": 10.0,
        "committed_per_s": 5.0,
        "members_seen_at": "2026-01-31T09:00:00Z",
    }
    assert row["advice"].endswith(f"delete it: kafka-consumer-groups{TO} --delete --group g")


def test_a_name_that_a_shell_would_split_is_in_no_command(scene: Scene) -> None:
    reader = ("g; rm -rf /\n", "t", 0)
    scene.waiting(reader, 300, reason="no_members", group_type="streams")
    scene.without_members(reader, NOW - timedelta(hours=3))
    ((key, row),) = problems(scene).items()
    assert key == ("no_progress", "g; rm -rf /\n", "t")
    assert row["advice"].endswith(f"kafka-streams-groups{TO} --delete --group GROUP")


def test_a_group_that_was_never_seen_with_members_may_run(scene: Scene) -> None:
    scene.waiting(("g", "t", 0), 300, reason="no_members")
    ((_, row),) = problems(scene).items()
    assert "and the group has no members (none was ever seen); unread" in row["summary"]
    assert row["advice"].startswith("The group may commit without being a member")
    assert "delete" not in row["advice"]


UNREAD = [
    # The log start, bytes and their error, and what is said of 1,000 records from offset 100 on.
    (100, 2_500_000, None, "1,000 records (2.5 MB)"),
    (100, 2_500_000, 0, "1,000 records (2.5 MB)"),
    (101, 2_500_000, 0, "1,000 records, of which 999 still exist (2.5 MB)"),
    (1_100, 0, 0, "1,000 records, of which 0 still exist (0 B)"),
    (None, 2_500_000, 0, "1,000 records (2.5 MB)"),
    # Rounding adds to the error: 2.54 MB are written as 2.5 MB.
    (100, 2_540_000, 100_000, "1,000 records (2.5 MB ± 0.2 MB)"),
    (100, 2_500_000, 2_500_000, "1,000 records (2.5 MB ± 2.5 MB)"),
    (100, 2_500_000, 2_500_001, "1,000 records (< 5.1 MB)"),
    (100, 2_500_000, 6_000_000, "1,000 records (< 8.5 MB)"),
    (100, 0, 900, "1,000 records (< 900 B)"),
    (100, None, None, "1,000 records"),
]


@pytest.mark.parametrize("start", {case[0] for case in UNREAD})
def test_what_is_unread_says_what_still_exists_and_the_error_of_its_bytes(scene: Scene, start: int | None) -> None:
    cases = [case for case in UNREAD if case[0] == start]
    for number, (_, in_bytes, error, _) in enumerate(cases):
        known = {"consumer_lag_bytes": in_bytes, "bytes_error": error, "log_start_offset": start}
        scene.waiting((f"g{number}", "t", number), 1_000, **known)
    found = problems(scene)
    said = [found["no_progress", f"g{number}", "t"]["summary"] for number in range(len(cases))]
    assert [text.split("unread: ")[1].removesuffix(", the oldest 2 h old.") for text in said] == [
        case[3] for case in cases
    ]


def test_partitions_that_wait_since_different_times_are_distinguished(scene: Scene) -> None:
    scene.waiting(("g", "t", 0), 300)
    scene.waiting(("g", "t", 1), 300)
    scene.status["g", "t", 1]["since"] = NOW - timedelta(hours=1)
    ((_, row),) = problems(scene).items()
    assert row["summary"].startswith(
        "Nothing has been committed since 2026-01-31 11:00 UTC, in some partitions since 2026-01-31 10:00 UTC; unread"
    )


def test_a_wait_in_several_topics_names_no_single_topic(scene: Scene) -> None:
    scene.waiting(("g", "a", 0), 10, status="not_progressing")
    scene.waiting(("g", "b", 0), 20, status="not_progressing")
    (key,) = found = problems(scene)
    assert key == ("no_progress", "g", None)
    assert found[key]["partitions"] is None
    evidence = found[key]["evidence"]
    assert (evidence["topics"], evidence["worst_topic"]) == (["a", "b"], "b")
    assert found[key]["summary"].startswith("Commits have not moved since 2026-01-31 10:00 UTC; unread: 30 records")


def test_each_status_that_needs_someone_is_a_kind_of_its_own(scene: Scene) -> None:
    scene.waiting(("slow", "t", 0), 10, status="warning")
    scene.waiting(("back", "t", 0), 10, status="rewound")
    found = problems(scene)
    assert {kind: (group, row["severity"]) for (kind, group, _), row in found.items()} == {
        "falling_behind": ("slow", "warning"),
        "rewound": ("back", "warning"),
    }
    assert found["falling_behind", "slow", "t"]["summary"] == (
        "The group makes progress but falls behind: its oldest unread record keeps getting older (10 records/s are "
        "written, 5 are committed); unread: 10 records (10 kB), the oldest 2 h old."
    )


HOT = [
    # The lag of partition 1, that of the group, the records of this partition in ten minutes of the 6,000 of the group,
    # how many partitions the group has, the shares of lag and records, and whether the partition is hot.
    (800, 1_000, 4_000, 2, (0.8, 0.667), True),
    (800, 1_000, 3_998, 2, (0.8, 0.666), False),
    (800, 1_000, 3_000, 3, (0.8, 0.5), True),
    (800, 1_000, 2_999, 3, (0.8, 0.5), False),
    (800, 1_000, None, 2, (0.8, None), False),
    (799, 1_000, 6_000, 2, (None, None), False),
    (1_000, 1_000, 9_000, 2, (1.0, 1.0), True),
]


@pytest.mark.parametrize(("lag", "of", "written", "partitions", "shares", "is_hot"), HOT)
def test_a_partition_with_most_of_the_lag_is_named_in_the_finding_of_its_group(
    scene: Scene,
    lag: int,
    of: int,
    written: int | None,
    partitions: int,
    shares: tuple[float | None, float | None],
    is_hot: bool,
) -> None:
    """It is hot if it gets at least twice as many records as the others do on average."""
    reader = ("g", "t", 1)
    scene.waiting(reader, lag, "warning", topic_id="A", client_id="slow-1", host="/10.0.0.1")
    for number in range(2, 1 + partitions):
        scene.add(("g", "t", number))
    scene.group_lag["g"] = of
    if written is not None:
        scene.then[reader] = moved(0, 50, high_watermark=100 + lag - written)
    ((key, row),) = problems(scene).items()
    evidence = row["evidence"]
    names = ("worst_partition_lag_share", "worst_partition_write_share")
    assert (key, *(evidence.get(name) for name in names)) == (("falling_behind", "g", "t"), *shares)
    assert evidence.get("is_hot_partition", False) is is_hot
    said = {
        4_000: "; partition 1 of topic t has 80 % of the lag, and gets 67 % of the records that are written.",
        None: "; partition 1 of topic t has 80 % of the lag.",
    }
    if written in said:
        assert row["summary"].endswith(said[written])
    if shares[0] is None:
        assert row["advice"].startswith("Add consumers")
    elif is_hot:
        assert "Look at their keys" in row["advice"]
    else:
        assert "Look at the member that owns it: client slow-1 at /10.0.0.1." in row["advice"]


def test_the_only_partition_of_a_group_is_not_hot(scene: Scene) -> None:
    scene.waiting(("g", "t", 1), 10, "warning")
    scene.group_lag["g"] = 10
    ((_, row),) = problems(scene).items()
    assert "worst_partition_lag_share" not in row["evidence"]
    assert row["summary"].endswith("the oldest 2 h old.")


def test_an_open_transaction_is_one_problem_of_its_topic_and_names_who_waits(scene: Scene) -> None:
    for group in ("a", "b"):
        scene.waiting((group, "t", 3), 7, status="not_progressing", reason="open_transaction")
    (key,) = found = problems(scene)
    assert key == ("open_transaction", None, "t")
    assert found[key]["summary"] == (
        "An open transaction hides all unread records of 1 partition from read_committed readers since 2026-01-31 "
        "10:00 UTC; waiting: 2 groups (a, b)."
    )
    evidence = found[key]["evidence"]
    assert (evidence["groups"], evidence["groups_affected"], found[key]["partitions"]) == (["a", "b"], 2, [3])


HANGING = f"in each partition that is listed as hanging: kafka-transactions{TO} find-hanging --topic t"
LAST = ", which last wrote at 2026-01-31 11:58 UTC,"
HELD = [
    ((7, 93, NOW_MS - 90_000), f" of the producer with id 7{LAST}"),
    ((7, 93, None), " of the producer with id 7"),
    ((7, 93, 2**62), " of the producer with id 7"),
    ((None, None, None), ""),
]


@pytest.mark.parametrize(("held", "whose"), HELD)
def test_the_producer_of_an_open_transaction_is_named(scene: Scene, held: tuple[Any, ...], whose: str) -> None:
    scene.waiting(("a", "t", 3), 7, status="not_progressing", reason="open_transaction")
    scene.held["t", 3] = held
    ((_, row),) = problems(scene).items()
    assert row["summary"].startswith(f"An open transaction{whose} hides all unread records of 1 partition")
    assert row["advice"].endswith(HANGING)
    assert "abort --" not in row["advice"]
    names = ("transaction_producer_id", "transaction_start_offset")
    assert tuple(row["evidence"].get(name) for name in names) == held[:2]


def test_a_topic_that_was_recreated_and_a_log_that_was_cut_are_problems_of_the_topic(scene: Scene) -> None:
    for number in range(25):
        scene.add((f"g{number:02}", "new", 0), "unknown", "recreated", offset_status="recreated")
    scene.add(("h", "cut", 0), "unknown", "truncated", offset_status="truncated")
    scene.add(("h", "cut", 1), "unknown", "beyond_end", offset_status="beyond_end")
    found = problems(scene)
    assert set(found) == {("recreated_topic", None, "new"), ("truncated_log", None, "cut")}
    new = found["recreated_topic", None, "new"]
    names = ", ".join(f"g{number:02}" for number in range(20))
    assert new["summary"] == f"The topic was recreated; not committed since: 25 groups ({names}, …)."
    assert (len(new["evidence"]["groups"]), new["evidence"]["groups_affected"]) == (25, 25)
    cut = found["truncated_log", None, "cut"]
    assert (cut["partitions"], cut["severity"]) == ([0, 1], "critical")


CUT = (
    "The log of 2 partitions ends or was cut off before commits of 1 group (h): other records may have these offsets "
    "now."
)
BEYOND = (
    "Commits of 1 group (h) are beyond the end of the log of 2 partitions, and no snapshot has seen them within it: "
    "the commits are wrong, or the log was cut off just after them."
)
BOTH = (
    "The log of 2 partitions ends or was cut off before commits of 1 group (h); 1 of the 2 commits was never seen "
    "within the log, and may be wrong."
)
HISTORIES = {
    # The offset_status of each partition, since when it has its status, and since when its commit is the same.
    "the log was cut": ((("truncated", 0, 0), ("beyond_end", 0, -3)), CUT, (2, None)),
    "the commits are wrong": ((("beyond_end", 0, 0), ("beyond_end", -3, 0)), BEYOND, (None, 2)),
    "both": ((("beyond_end", 0, -3), ("beyond_end", 0, 0)), BOTH, (1, 1)),
    "it is not known when the commit was made": ((("beyond_end", 0, None), ("beyond_end", 0, 0)), BEYOND, (None, 2)),
}


@pytest.mark.parametrize("history", HISTORIES)
def test_a_commit_that_was_never_within_the_log_is_not_blamed_on_the_log(scene: Scene, history: str) -> None:
    rows, summary, counts = HISTORIES[history]
    for number, (status, since, made) in enumerate(rows):
        scene.add(("h", "t", number), "unknown", status, offset_status=status, consumer_lag=100 - 2**62)
        scene.status["h", "t", number] |= {
            "since": SINCE + timedelta(minutes=since),
            "commit_since": None if made is None else SINCE + timedelta(minutes=made),
        }
    found = problems(scene)["truncated_log", None, "t"]
    assert found["summary"] == summary
    assert tuple(found["evidence"].get(name) for name in ("commits_cut_off", "commits_never_within")) == counts
    assert found["evidence"]["consumer_lag"] == 0


def test_deleted_records_are_counted_from_what_the_group_has_read(scene: Scene) -> None:
    lost = {"log_start_offset": 150, "high_watermark": 200, "offset_status": "deleted_unread", "consumer_lag": 100}
    scene.add(("g", "t", 0), "ok", **lost)
    scene.add(("g", "t", 1), "ok", **lost, consumed_offset=130)
    (key,) = found = problems(scene)
    assert key == ("deleted_unread", "g", "t")
    evidence = found[key]["evidence"]
    assert (found[key]["magnitude"], evidence["deleted_offsets"], evidence["readable_offsets"]) == (70.0, 70, 100)
    assert found[key]["summary"] == (
        "Deleted before the group had read them: 70 offsets; 100 offsets can still be read there."
    )


RATES = [
    ("as many partitions", (2, 7_000, 5_000), (10.0, 5.0)),
    ("more partitions", (3, 7_000, 5_000), (None, None)),
    ("commits went back", (2, 7_000, 1_999), (10.0, None)),
    ("nothing moved", (2, 1_000, 2_000), (0.0, 0.0)),
    ("an end that is not known", (2, None, 5_000), (None, 5.0)),
]


@pytest.mark.parametrize(("now", "rates"), [case[1:] for case in RATES], ids=[case[0] for case in RATES])
def test_rates_compare_the_same_partitions(
    now: tuple[int, int | None, int], rates: tuple[float | None, float | None]
) -> None:
    names = "snapshot_id group_id partitions log_ends commits ends_at captured_at"
    groups = few_rows(GROUP_STATUS, names, (NOW_MS, "g", *now, NOW, NOW), (THEN_MS, "g", 2, 1_000, 2_000, THEN, THEN))
    rated = with_rates(groups.collected_table(), {NOW_MS: THEN_MS})
    found = {row["snapshot_id"]: (row["written_per_s"], row["committed_per_s"]) for row in rated.to_pylist()}
    assert found == {NOW_MS: rates, THEN_MS: (None, None)}


def test_no_number_that_a_broker_or_client_may_report_ends_the_job(scene: Scene) -> None:
    """Anyone who may commit can commit 2^63 − 1, in all partitions; logs end at 2^62 at most."""
    commit, end = 2**63 - 1, 2**62
    scene.topics["t"] = ("delete", 2**63 - 1)
    for number in range(3):
        absurd = {"committed_offset": commit, "high_watermark": end, "consumer_lag": end - commit, "topic_id": "A"}
        scene.add(("absurd", "t", number), "unknown", "beyond_end", offset_status="beyond_end", **absurd)
        lost = {"log_start_offset": end, "committed_offset": 0, "high_watermark": end, "consumer_lag": end}
        scene.add(("lost", "t", number), "stopped", offset_status="deleted_unread", consumer_age_ms=-end, **lost)
        scene.waiting(("waits", "t", number), 5, consumer_lag=end, consumer_lag_bytes=end, consumer_age_ms=-end)
        scene.then["absurd", "t", number] = moved(0, 0)
        scene.then["waits", "t", number] = moved(0, commit)
    found = problems(scene)
    assert {kind for kind, *_ in found} == {"truncated_log", "deleted_unread", "no_progress"}
    assert found["deleted_unread", "lost", "t"]["summary"].startswith("Deleted before the group had read them")
    assert "consumer_lag" not in found["no_progress", "waits", "t"]["evidence"]


def test_of_partitions_with_as_much_lag_the_first_is_the_worst(scene: Scene) -> None:
    for topic, number in (("u", 0), ("t", 3), ("t", 2)):
        scene.waiting(("g", topic, number), 300, reason="no_members" if number == 3 else None)
    ((_, row),) = problems(scene).items()
    assert (row["evidence"]["worst_topic"], row["evidence"]["worst_partition"]) == ("t", 2)
    assert "reason" not in row["evidence"]  # that of the same partition


def test_many_suspects_have_the_same_problems_as_few(spark: SparkSession, scene: Scene) -> None:
    for group in ("g", "h", "i", "j"):
        for topic in ("t", "u", "v"):
            scene.waiting((group, topic, 0), 300)
            scene.add((group, topic, 1), "unknown", offset_status="truncated", committed_offset=900)
    suspects, groups = suspects_of(scene), groups_of(scene)
    few = find_group_problems(suspects, groups, {NOW_MS: THEN_MS}, StatusConfig()).collected()
    frames = (Rows(suspects.frame(spark, SUSPECTS).repartition(3)), Rows(groups.frame(spark, OF_GROUPS)))
    many = find_group_problems(*frames, {NOW_MS: THEN_MS}, StatusConfig(), 3)
    assert sorted(many.collected(), key=str) == sorted(few, key=str)
    assert {(row["group_id"], row["topic"]) for row in few} == {
        *((group, None) for group in ("g", "h", "i", "j")),
        *((None, topic) for topic in ("t", "u", "v")),
    }
