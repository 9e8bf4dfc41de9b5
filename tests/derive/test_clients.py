"""Findings in a lake: batch by batch, computed again, overtaken by another job; and as a report of the past shows them.

A Java consumer reads ten records a minute from one topic and none from another, while both logs grow by a hundred, and
hardly asks for more. This can be seen from minute 3 on. At minute 6 it has caught up: the first of five snapshots
without the problem.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipeline.common.epoch import to_epoch_ms, utc_date
from pipeline.config import LakeConfig
from pipeline.derive.backlog import Backlog, Snapshot
from pipeline.derive.clients import keep_clients
from pipeline.derive.findings import write_findings
from pipeline.derive.log_index import Index
from pipeline.lake import Lake, Merged, of_cluster, of_snapshots
from pipeline.lake.few_rows import MANY_ROWS
from pipeline.report.model.selection import Selection
from pipeline.report.read import details
from pipeline.report.read.excerpt import Excerpt
from pipeline.tables import (
    CLIENT_DIVERGENCE,
    CLIENT_POSITIONS,
    FINDING_HISTORY,
    FINDINGS,
    LAG,
    WATERMARKS,
    Table,
)
from tests.helpers.batches import NO_READERS, batch_of
from tests.helpers.rows import literal_rows
from tests.helpers.stored import store, stored

MINUTE_MS = 60_000
# Across midnight, so in two date partitions.
FIRST_MS = 1_769_903_700_000
LAST = 10
SLOW = (3, 4, 5)
OF_SNAPSHOT = "cluster snapshot_id snapshot_date"
APP = "http://app:9404"
SUMMARY = (
    f"app at {APP} hardly asks for records any more and has {{:,}} records unread: its application is slow with "
    "costly, and others wait."
)


def at_ms(minute: int) -> int:
    return FIRST_MS + minute * MINUTE_MS


def unread(minute: int) -> int:
    return 90 * minute + 100 * minute - 50


def land(lake: Lake, cluster: str) -> None:
    """Writes what clients reported, and `lag`, for all minutes."""
    positions: list[Any] = []
    lag: list[Any] = []
    for m in range(1, LAST + 1):
        of_snapshot = (cluster, at_ms(m), utc_date(at_ms(m)))
        requests = 10 * min(m, 5) + 200 * max(m - 5, 0)
        as_of = datetime.fromtimestamp(at_ms(m) / 1000, UTC)
        positions.append((*of_snapshot, as_of, "app", requests, "kafka_client_metrics", APP))
        for topic, slowly in (("costly", 10 * m), ("light", 50)):
            lag.append((*of_snapshot, "g", "app", topic, 0, slowly if m <= 5 else 100 * m, 100 * m))
    ids = of_snapshots(cluster, [at_ms(m) for m in range(1, LAST + 1)])
    reported = f"{OF_SNAPSHOT} as_of client_id requests_total source endpoint"
    store(lake, CLIENT_POSITIONS, literal_rows(reported, *positions), ids)
    readers = f"{OF_SNAPSHOT} group_id client_id topic partition consumed_offset high_watermark"
    store(lake, LAG, literal_rows(readers, *lag), ids)


def keep(lake: Lake, cluster: str, batch: Sequence[int]) -> None:
    snapshots, before = ([snapshot(m) for m in minutes] for minutes in (batch, range(batch[0] - 1, 0, -1)))
    backlog = Backlog(snapshots, before, Index(lake, cluster, (), None), has_more=False)
    one = batch_of(lake, cluster, backlog)
    keep_clients(one, NO_READERS)
    write_findings(one, one.problems)


def snapshot(minute: int) -> Snapshot:
    return Snapshot(at_ms(minute), "r", "complete", 0, 0, 0, positions=1, rows=0, groups=0)


def rows(lake: Lake, table: Table, cluster: str) -> list[dict[str, Any]]:
    """The rows by time, with instants as minutes."""
    found = [row.asDict() for row in stored(lake, table, of_cluster(cluster))]
    for row in found:
        times = {n: to_epoch_ms(at) for n, at in row.items() if isinstance(at, datetime)}
        if table is FINDING_HISTORY:
            times["snapshot_id"] = row["snapshot_id"]
        row |= {name: minute_of(at) for name, at in times.items()}
    return sorted(found, key=str)


def known_at(lake: Lake, cluster: str, minute: float | None) -> list[tuple[Any, ...]]:
    """The findings in a report up to an instant: summary, and the minutes of last_seen, worst_at and resolved_at."""
    until_ms = None if minute is None else FIRST_MS + int(minute * MINUTE_MS)
    excerpt = Excerpt(lake, Selection([cluster], to_ms=until_ms))
    found = details.findings(excerpt.findings(), 9).to_pylist()
    times = ("last_seen_ms", "worst_ms", "resolved_ms")
    return [(row["summary"], *(minute_of(row[name]) for name in times)) for row in found]


def minute_of(epoch_ms: int | None) -> float | None:
    return None if epoch_ms is None else (epoch_ms - FIRST_MS) / MINUTE_MS


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, few_rows: None) -> Lake:
    """A lake with the cluster `east`, whose minutes were computed in batches."""
    lake = Lake(spark, LakeConfig(root=str(tmp_path_factory.mktemp("clients") / "lake")))
    lake.prepare()
    land(lake, "east")
    for batch in ([1, 2, 3], [4], [5, 6, 7, 8, 9], [10]):
        keep(lake, "east", batch)
    return lake


def test_a_problem_is_one_finding_with_its_worst_and_a_row_for_each_snapshot_with_it(lake: Lake) -> None:
    (found,) = rows(lake, FINDINGS, "east")
    assert (found["kind"], found["topic"], found["partitions"]) == ("slow_consumer", "costly", [0])
    times = ("first_seen", "last_seen", "worst_at", "resolved_at", "resolution_confirmed_at")
    assert [found[name] for name in times] == [3, 5, 5, 6, 10]
    assert (found["summary"], found["magnitude"]) == (SUMMARY.format(unread(5)), unread(5))
    history = rows(lake, FINDING_HISTORY, "east")
    seen = sorted((r["snapshot_id"], r["summary"], r["magnitude"]) for r in history)
    assert seen == [(m, SUMMARY.format(unread(m)), unread(m)) for m in SLOW]
    assert {r["finding_id"] for r in history} == {found["finding_id"]}
    assert {str(r["snapshot_date"]) for r in history} == {str(utc_date(at_ms(m))) for m in SLOW}


@pytest.mark.parametrize(
    ("minute", "expected"),
    [
        pytest.param(2.9, [], id="before it began"),
        pytest.param(3, [(3, 3, None)], id="when it began"),
        pytest.param(4.5, [(4, 4, None)], id="while it lasted"),
        pytest.param(9.9, [(5, 5, None)], id="before it was known to have ended"),
        pytest.param(10, [(5, 5, 6)], id="when that was known"),
        pytest.param(None, [(5, 5, 6)], id="now"),
    ],
)
def test_a_report_on_the_past_shows_what_was_known_then(
    lake: Lake, minute: float | None, expected: list[tuple[int, int, int | None]]
) -> None:
    assert known_at(lake, "east", minute) == [
        (SUMMARY.format(unread(worst)), last, worst, end) for last, worst, end in expected
    ]


def test_snapshots_that_are_computed_again_change_nothing(lake: Lake) -> None:
    tables = FINDINGS, FINDING_HISTORY
    before = [rows(lake, table, "east") for table in tables]
    keep(lake, "east", [4, 5, 6])
    assert [rows(lake, table, "east") for table in tables] == before


def land_old(lake: Lake, cluster: str) -> None:
    """Writes what an old consumer reports for five minutes, and `lag`, and the ends of the logs.

    It waits for the full queue of `big.topic`. Its agent writes `_` for each `.` in its name and in those of topics.
    """
    positions: list[Any] = []
    lag: list[Any] = []
    ends: list[Any] = []
    for m in range(1, 6):
        of_snapshot = (cluster, at_ms(m), utc_date(at_ms(m)))
        said = (*of_snapshot, datetime.fromtimestamp(at_ms(m) / 1000, UTC), "kafka_client_metrics", APP, "old_1")
        positions.append((*said, "b:9092", None, None, 7, 7))
        for topic, chunks in (("big_topic", 2), ("small_topic", 0)):
            positions.append((*said, "0", topic, chunks, None, None))
        for topic in ("big.topic", "small.topic"):
            lag.append((*of_snapshot, "g", "old.1", "m", topic, 0, 100 * m))
            ends.append((*of_snapshot, topic, 0, 100 * m))
    ids = of_snapshots(cluster, [at_ms(m) for m in range(1, 6)])
    reported = "as_of source endpoint client_id fetcher topic queue_chunks requests_total bytes_total"
    readers = "group_id client_id member_id topic partition high_watermark"
    landed = (
        (CLIENT_POSITIONS, reported, positions),
        (LAG, readers, lag),
        (WATERMARKS, "topic partition high_watermark", ends),
    )
    for table, names, found in landed:
        store(lake, table, literal_rows(f"{OF_SNAPSHOT} {names}", *found), ids)


def test_a_large_cluster_has_the_same_findings_about_clients(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark reads the rows, and judges the clients in its workers. In the first batch, no verdict is known yet."""
    large = lake.for_one_cluster()
    for computed, cluster in ((lake, "small"), (large, "large")):
        land_old(computed, cluster)
        if computed is large:
            large.expect_rows(MANY_ROWS)
            monkeypatch.setattr("pipeline.lake.lake.FEW_FOR_SPARK", 1)
        for batch in ([1, 2, 3], [4, 5]):
            keep(computed, cluster, batch)
    monkeypatch.undo()
    for table in (FINDINGS, FINDING_HISTORY, CLIENT_DIVERGENCE):
        by_spark, by_driver = (anywhere(rows(lake, table, cluster)) for cluster in ("large", "small"))
        assert by_spark == by_driver
        assert {row["client_id"] for row in by_driver} == {"old.1"}
    found = {(row["kind"], row["topic"], row["first_seen"]) for row in rows(lake, FINDINGS, "large")}
    assert found == {("blocked_connector", "big.topic", 2), ("blind_gauge", None, 3)}


def anywhere(found: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows without the cluster and the ids that follow from it."""
    return sorted(({**row, "cluster": None, "finding_id": None} for row in found), key=str)


class Overtaken(Lake):
    """A lake in which another job computes these batches just before this job writes findings."""

    batches: Iterable[Sequence[int]] = ()

    def merge(self, table: Table, found: Sequence[Any], cluster: str, matched: str = "") -> Merged:
        batches, self.batches = self.batches, ()
        for batch in batches:
            keep(self, cluster, batch)
        return super().merge(table, found, cluster, matched)


def test_an_overtaken_job_does_not_reopen_a_resolved_finding(lake: Lake, spark: SparkSession) -> None:
    land(lake, "raced")
    slow = Overtaken(spark, lake._config)
    slow.batches = [1, 2, 3, 4, 5], [6, 7, 8, 9, 10]
    keep(slow, "raced", [1, 2, 3, 4])
    (found,) = rows(lake, FINDINGS, "raced")
    assert (found["last_seen"], found["worst_at"], found["resolved_at"]) == (5, 5, 6)
    assert [r["snapshot_id"] for r in rows(lake, FINDING_HISTORY, "raced")] == [3, 4, 5]


def test_no_number_that_a_client_may_report_ends_the_job(lake: Lake) -> None:
    """The largest possible positions, in several partitions, with commits of 2^63 − 1; then everything is 0 again."""
    most, commit = 2**62 - 1, 2**63 - 1
    positions: list[Any] = []
    lag: list[Any] = []
    for m in range(1, 6):
        of_snapshot = ("absurd", at_ms(m), utc_date(at_ms(m)))
        as_of, number = datetime.fromtimestamp(at_ms(m) / 1000, UTC), most * (m % 2)
        for n, source in enumerate(("kafka_client_metrics", "librdkafka_statistics", "kafka_request_log")):
            shared = (*of_snapshot, as_of, f"app-{n}", source, APP)
            positions += [
                (*shared, f"broker-{b}", None, None, None, None, number, number, None, number) for b in range(3)
            ]
            positions += [(*shared, None, "t", p, number, number, None, None, -number, None) for p in range(3)]
            positions += [
                (*shared, f"thread-{p}", f"t-{p}", None, None, None, None, None, number, number) for p in range(3)
            ]
            lags = number - commit, number - commit, commit - number, -number
            lag += [
                (*of_snapshot, "g", f"app-{n}", "t", p, commit, number, number, number, *lags, number) for p in range(3)
            ]
    ids = of_snapshots("absurd", [at_ms(m) for m in range(1, 6)])
    reported = "as_of client_id source endpoint fetcher topic partition fetched_offset consumed_offset requests_total "
    reported += "bytes_total reported_lag queue_chunks"
    store(lake, CLIENT_POSITIONS, literal_rows(f"{OF_SNAPSHOT} {reported}", *positions), ids)
    readers = "group_id client_id topic partition committed_offset consumed_offset fetched_offset high_watermark "
    readers += "consumer_lag divergence uncommitted fetcher_lag consumer_lag_bytes"
    store(lake, LAG, literal_rows(f"{OF_SNAPSHOT} {readers}", *lag), ids)
    keep(lake, "absurd", [1, 2, 3, 4, 5])
    keep(lake, "absurd", [5])
    assert {row["client_id"] for row in rows(lake, CLIENT_DIVERGENCE, "absurd")} == {"app-0", "app-1", "app-2"}
