"""What is due, according to a ledger, its marks and the log index."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from pipeline.common.epoch import utc_date
from pipeline.config import LakeConfig
from pipeline.derive import backlog
from pipeline.derive import log_index as index
from pipeline.derive.backlog import JOB, PASSED_OVER, Backlog, Snapshot, read_backlog
from pipeline.lake import Lake, of_snapshots, predicates
from pipeline.lake import ledger as the_ledger
from pipeline.tables import COMPUTED, LOG_INDEX, SNAPSHOTS, Table
from tests.helpers.copied import copied
from tests.helpers.rows import frame, literal_rows
from tests.helpers.stored import append, store, stored

LEDGER = "cluster snapshot_id snapshot_date run_id status rows groups expected"
MOST = 3

Scenario = tuple[dict[int, str], list[int], int | None]
"""A ledger (id → status), the marked ids, and the snapshot through which the index was written."""
ALL = dict.fromkeys(range(1, 7), "complete")
# Case → ledger, marks; ids of the batch, ids of those before it, and whether there are more.
CASES: dict[str, tuple[dict[int, str], list[int], list[int], list[int], bool]] = {
    "nothing at all": ({}, [], [], [], False),
    "nothing new": (ALL, [1, 2, 3, 4, 5, 6], [], [], False),
    "one new": (ALL, [1, 2, 3, 4, 5], [6], [5, 4, 3, 2, 1], False),
    "as many as are taken at once": (ALL, [1, 2, 3], [4, 5, 6], [3, 2, 1], False),
    "more than that": (ALL, [1, 2], [3, 4, 5], [2, 1], True),
    "all": (ALL, [], [1, 2, 3], [], True),
    "a late one": (ALL, [1, 2, 4, 5, 6], [3], [2, 1], False),
    "a late one and a new one": (ALL, [1, 2, 4, 5], [3], [2, 1], True),
    "one is running, one has failed": (ALL | {4: "running", 6: "failed"}, [1, 2], [3, 5], [2, 1], False),
    "one was marked twice": (ALL, [1, 2, 3, 3, 4], [5, 6], [4, 3, 2, 1], False),
}

# Case → index written through, marks; the snapshots up to the batch that it lacks, and whether it must be created.
TAILS: dict[str, tuple[int | None, list[int], list[int], bool]] = {
    "no index yet": (None, [1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 6], True),
    "an index": (4, [1, 2, 3, 4, 5], [5, 6], False),
    "a late snapshot that the index knows": (5, [1, 2, 4, 5, 6], [], False),
    "a late one that it does not know": (2, [1, 2, 4, 5, 6], [3], False),
}

SCENARIOS: dict[str, Scenario] = {
    **{case: (ledger, marked, None) for case, (ledger, marked, *_) in CASES.items()},
    **{case: (ALL, marked, through) for case, (through, marked, *_) in TAILS.items()},
    "two": ({2: "complete", 3: "partial"}, [], None),
    "partial ones": (ALL | {4: "partial", 5: "partial"}, [1, 2, 3, 4, 5], None),
    "three to do": (ALL, [1, 2, 3], None),
    "one was passed over": (ALL, [1, 2, 3, 4], 2),
    "three rows and two": (dict.fromkeys(range(1, 6), "complete"), [1, 2], None),
    "one is running": (ALL | {7: "running"}, [], 4),
}
"""Each scenario is a separate cluster in one lake."""


def cluster_of(scenario: str) -> str:
    return f"c{list(SCENARIOS).index(scenario)}"


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    lake = Lake(spark, LakeConfig(root=str(tmp_path_factory.mktemp("backlog"))))
    lake.prepare()
    ledgers: list[tuple[Any, ...]] = []
    marks: list[tuple[Any, ...]] = []
    indexed: list[tuple[Any, ...]] = []
    for scenario, (ledger, marked, through) in SCENARIOS.items():
        cluster = cluster_of(scenario)
        for i, status in ledger.items():
            rows = {"watermarks": 2, "client_positions": i % 2}
            ledgers.append((cluster, i, utc_date(i), f"run-{i}", status, rows, 3, {"groups": 4} if i % 2 else None))
        marks += [(cluster, JOB, i) for i in marked] + [(cluster, "something else", i) for i in ledger]
        if through is not None:
            indexed += [(cluster, "t", 0, through), (cluster, "t", 1, through - 1)]
    marks += [("west", JOB, i) for i in ALL]
    marks += [(cluster_of("one was passed over"), PASSED_OVER, 5)]
    store(lake, SNAPSHOTS, literal_rows(LEDGER, *ledgers), "true")
    store(lake, COMPUTED, literal_rows("cluster job snapshot_id", *marks), "true")
    names = "cluster topic partition through_snapshot_id"
    store(lake, LOG_INDEX, literal_rows(names, *indexed), "true")
    return lake


def known(lake: Lake, scenario: str) -> Backlog:
    return read_backlog(lake, cluster_of(scenario), MOST)


@pytest.mark.parametrize("case", CASES)
def test_a_batch_has_the_oldest_snapshots_without_lag_up_to_one_with_lag(lake: Lake, case: str) -> None:
    _, _, batch, before, has_more = CASES[case]
    found = known(lake, case)
    assert [s.snapshot_id for s in found.batch] == batch
    assert [s.snapshot_id for s in found.before] == before
    assert found.has_more == has_more


@pytest.mark.parametrize(
    ("case", "newest"), [("a late one", 6), ("a late one and a new one", 5), ("more than that", 2), ("all", None)]
)
def test_the_newest_snapshot_with_lag_shows_whether_a_batch_is_late(lake: Lake, case: str, newest: int | None) -> None:
    assert known(lake, case).newest == newest


def test_a_snapshot_has_the_numbers_of_the_ledger(lake: Lake) -> None:
    first, second = known(lake, "two").batch
    assert first == (2, "run-2", "complete", 0, 2, 0, 0, 2, 3, [], None)
    assert second == (3, "run-3", "partial", 0, 2, 0, 1, 3, 4, [], None)


@pytest.mark.parametrize(
    ("unread", "is_whole", "lists_all_groups"),
    [
        ([], True, True),
        (["client_positions", "lag"], True, True),
        (["watermarks"], False, True),
        (["committed_offsets"], False, False),
        (["client_positions", "group_members"], False, False),
        (["broker"], False, False),
        (["quarantine"], False, False),
    ],
)
def test_what_could_not_be_read_says_who_can_be_judged(
    unread: list[str], is_whole: bool, lists_all_groups: bool
) -> None:
    snapshot = Snapshot(1, "r", "partial", 0, 0, 0, 0, 0, 0, unread)
    assert (snapshot.is_whole, snapshot.lists_all_groups) == (is_whole, lists_all_groups)


@pytest.mark.parametrize(
    ("unread", "is_complete"),
    [(["client_positions"], True), (["client_positions", "group_members"], False), (["broker"], False), ([], False)],
)
def test_a_partial_snapshot_that_only_lacks_what_clients_report_has_all_groups(
    unread: list[str], is_complete: bool
) -> None:
    middle = Snapshot(2, "r", "partial", 0, 0, 0, 0, 0, 0, unread)
    first, last = (Snapshot(number, "r", "complete", 0, 0, 0, 0, 0, 0) for number in (1, 3))
    backlog = Backlog([last], [middle, first], cast(Any, None), has_more=False)
    assert middle.is_complete is is_complete
    assert backlog.up_to_complete == ([2] if is_complete else [2, 1])
    assert backlog.reach == {3: 2 if is_complete else 1}


def test_what_could_not_be_read_is_in_the_ledger(lake: Lake) -> None:
    errors = [("watermarks", "t-0", "E", 1), ("client_positions", "a", "E", 2), ("watermarks", "t-1", "F", 1)]
    names = "cluster snapshot_id snapshot_date status errors"
    of_errors = frame(lake.spark, SNAPSHOTS, names, ("errors", 1, utc_date(1), "partial", errors))
    lake.merge(SNAPSHOTS, [tuple(row) for row in of_errors.collect()], "errors")
    (snapshot,) = read_backlog(lake, "errors", MOST).batch
    assert snapshot.unread == ["watermarks", "client_positions"]


def test_behind_a_partial_snapshot_the_newest_complete_one_is_used_too(lake: Lake) -> None:
    assert known(lake, "partial ones").up_to_complete == [5, 4, 3]


def test_there_are_enough_buckets_for_readers_and_the_rows_from_which_they_continue(lake: Lake) -> None:
    """A partial snapshot may have few rows, but its readers continue from a complete one: the third of those before."""
    found = known(lake, "partial ones")
    sizes = (70_000, 90_000, 1_000_000, 5_000_000)
    before = [s._replace(commits=rows, members=9) for s, rows in zip(found.before, sizes, strict=False)]
    batch = [found.batch[0]._replace(commits=9, members=rows) for rows in (50_000, 60_000)]
    assert replace(found, batch=batch, before=before).buckets == 1 + (110 + 1_160) // 100
    assert replace(found, batch=batch, before=[]).buckets == 1 + 110 // 100


def test_there_are_enough_buckets_for_rulers_and_watermarks(lake: Lake) -> None:
    found = known(lake, "partial ones")
    before = [s._replace(ends=300_000) for s in found.before]
    tail = replace(found.index, tail=range(9))
    batch = found.batch[:1]
    assert replace(found, batch=batch, before=before, index=tail).buckets == 1 + 300_000 * 2 // 20_000
    tail = replace(found.index, tail=range(60))
    assert replace(found, batch=batch, before=before, index=tail).buckets == 1 + 300_000 * 60 // 100_000


@pytest.mark.parametrize(
    ("many", "ids", "has_more"), [(10, [3, 4, 5], False), (9, [3, 4, 5], False), (8, [3, 4], True), (1, [3], True)]
)
def test_more_rows_than_fit_into_memory_are_left_to_the_next_batch(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, many: int, ids: list[int], has_more: bool
) -> None:
    """Snapshots with an odd id have three rows, the others two. A single snapshot is not divided."""
    monkeypatch.setattr(backlog, "ROWS_TOGETHER", many)
    monkeypatch.setattr(backlog, "RULER_AS_ROWS", 0)
    found = known(lake, "three rows and two")
    assert ([s.snapshot_id for s in found.batch], found.has_more) == (ids, has_more)


def test_rulers_that_do_not_fit_into_memory_are_left_to_the_next_batch(lake: Lake) -> None:
    """With n snapshots, each partition has n + 1 rulers, which count for ten rows each."""
    due = known(lake, "three rows and two").batch
    for partitions, number in ((62_499, 3), (62_500, 2), (83_333, 2), (83_334, 1), (1_000_000, 1)):
        batch = backlog._as_many_as_fit([s._replace(ends=partitions) for s in due])
        assert len(batch) == number, partitions


def test_the_look_back_is_limited(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backlog, "MAX_LOOKBACK", 2)
    assert [s.snapshot_id for s in known(lake, "one new").before] == [5, 4]


def test_the_history_reaches_as_far_back_as_is_looked(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(known(lake, "one new").history) == [1, 2, 3, 4, 5]
    assert list(known(lake, "one was passed over").history) == [1, 2, 3, 4]
    assert list(known(lake, "all").history) == []
    monkeypatch.setattr(backlog, "LONGEST_TAIL", 2)
    assert list(known(lake, "one new").history) == [4, 5]


@pytest.mark.parametrize("case", TAILS)
def test_the_tail_begins_after_the_snapshots_that_the_index_includes(lake: Lake, case: str) -> None:
    _, _, tail, is_new = TAILS[case]
    found = known(lake, case).index
    assert (list(found.tail), found.through is None) == (tail, is_new)


def test_only_the_newest_snapshots_of_a_long_tail_are_read(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (backlog, index):
        monkeypatch.setattr(module, "LONGEST_TAIL", 2)
    assert list(known(lake, "one new").index.tail) == [5, 6]
    # But the whole batch.
    assert list(known(lake, "three to do").index.tail) == [4, 5, 6]


@pytest.mark.parametrize(("snapshot_id", "tail"), [(7, [5, 6, 7]), (5, [5]), (4, []), (2, [])])
def test_a_running_snapshot_is_in_the_tail_unless_the_index_is_newer(
    lake: Lake, snapshot_id: int, tail: list[int]
) -> None:
    found = index.Index.while_running(lake, cluster_of("one is running"), snapshot_id)
    assert list(found.tail) == tail


def test_a_snapshot_that_was_passed_over_is_not_used_for_later_ones(lake: Lake) -> None:
    found = known(lake, "one was passed over")
    assert [s.snapshot_id for s in found.batch] == [6]
    assert [s.snapshot_id for s in found.before] == [4, 3, 2, 1]
    assert found.up_to_complete == [4]
    assert list(found.index.tail) == [3, 4, 6]


MINUTE = 60_000
MORNING = 1_769_860_800_000  # a midnight, and 12 hours
OLD = MORNING + 5 * MINUTE
EVERY_MINUTE = [MORNING + n * MINUTE for n in range(300)]


@pytest.fixture(scope="module")
def history(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Snapshots each minute, all but OLD and the last with lag; the index was written from the last but five."""
    root = tmp_path_factory.mktemp("history") / "lake"
    lake = Lake(spark, LakeConfig(root=str(root)))
    lake.prepare()
    land(lake, EVERY_MINUTE)
    mark(lake, [i for i in EVERY_MINUTE[:-1] if i != OLD])
    names = "cluster topic partition through_snapshot_id"
    store(lake, LOG_INDEX, literal_rows(names, ("east", "t", 0, EVERY_MINUTE[-6])), "true")
    return root


@pytest.fixture(params=["by driver", "by Spark"])
def long(
    request: pytest.FixtureRequest, spark: SparkSession, history: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Lake:
    """The history in a lake of the test's own, which the driver reads and writes, or Spark does."""
    monkeypatch.setattr(predicates, "LOOKED_BACK_MS", (120 * MINUTE, 300 * MINUTE))
    lake = copied(spark, history, tmp_path)
    if request.param == "by Spark":
        vars(lake)["_driver"] = None
    return lake


def ledger_rows(ids: list[int]) -> list[dict[str, Any]]:
    rows = [("east", i, utc_date(i), f"run-{i}", "complete", {"watermarks": 2}, 3, None) for i in ids]
    return literal_rows(LEDGER, *rows)


def land(lake: Lake, ids: list[int]) -> None:
    store(lake, SNAPSHOTS, ledger_rows(ids), of_snapshots("east", ids))


def mark(lake: Lake, ids: list[int]) -> None:
    rows = [("east", JOB, i, utc_date(i)) for i in ids]
    names = "cluster job snapshot_id snapshot_date"
    store(lake, COMPUTED, literal_rows(names, *rows), of_snapshots("east", ids))


def pending(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> tuple[list[int], list[str]]:
    """The ids of the batch, and how far back each query of the ledger has looked."""
    asked: list[str] = []
    query = Lake.query

    def noted(self: Lake, text: str, *tables: Table) -> list[dict[str, Any]]:
        asked.extend(re.findall(r"status IN .*? AND (.*?)\) s", text))
        return query(self, text, *tables)

    with monkeypatch.context() as patch:
        patch.setattr(Lake, "query", noted)
        found = read_backlog(lake, "east", MOST)
    assert len(found.before) == min(backlog.MAX_LOOKBACK, EVERY_MINUTE.index(found.batch[0].snapshot_id))
    return [s.snapshot_id for s in found.batch], asked


def test_a_run_reads_only_the_newest_of_a_long_history(long: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    two_hours_before = f"snapshot_id >= {EVERY_MINUTE[-6] - 120 * MINUTE}"
    assert pending(long, monkeypatch) == ([EVERY_MINUTE[-1]], [two_hours_before])
    mark(long, [EVERY_MINUTE[-1]])
    assert pending(long, monkeypatch) == ([OLD], [two_hours_before, "true"])


def test_with_the_first_snapshot_of_a_day_the_whole_history_is_read(
    long: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backlog, "utc_date", lambda i: i == EVERY_MINUTE[-1])
    assert pending(long, monkeypatch)[0] == [OLD]


def test_where_snapshots_are_rare_a_run_looks_further_back(long: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predicates, "LOOKED_BACK_MS", (MINUTE, 120 * MINUTE))
    ids, asked = pending(long, monkeypatch)
    assert (ids, len(asked)) == ([EVERY_MINUTE[-1]], 2)


def test_the_files_of_newer_snapshots_are_joined_where_they_are_many(
    long: Lake, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setattr(the_ledger, "MOST_FILES", 5)
    newer = [EVERY_MINUTE[-1] + number * MINUTE for number in range(1, 7)]
    for i in newer:
        append(long, SNAPSHOTS, ledger_rows([i]))
    before = {row["snapshot_id"]: row for row in stored(long, SNAPSHOTS)}
    the_ledger.compact_newer(long, "east", newer[-1])
    after = long.read(SNAPSHOTS)
    assert {row["snapshot_id"]: row for row in stored(long, SNAPSHOTS)} == before
    assert after.count() == len(EVERY_MINUTE) + len(newer)
    files = after.where(f"snapshot_id >= {newer[0]}").select("_metadata.file_path").distinct().count()
    assert files == (6 if "driver" in request.node.name else 1)


def test_rows_since_a_day_are_found_by_their_ids_too() -> None:
    """Delta skips files by the ids, and not by the day, where a table is not partitioned by it."""
    first = predicates.since_days({"east": utc_date(MORNING)}, "snapshot_date")
    assert f"snapshot_id >= {MORNING - MORNING % (24 * 60 * MINUTE)}" in first
    assert "snapshot_id" not in predicates.since_days({"east": utc_date(MORNING)}, "CAST(last_seen AS DATE)")


def test_a_snapshot_that_lacks_its_watermarks_does_not_make_the_cluster_small() -> None:
    """Rulers are extended in as many buckets as the cluster's partitions need."""
    whole, lacking = (Snapshot(at, "r", "partial", 5, ends, 5, 0, 10 + ends, 1) for at, ends in ((1, 100_000), (2, 0)))
    tail = index.Index(cast(Any, None), "c", [2], None)
    assert Backlog([lacking], [whole], tail, has_more=False).buckets == 1 + 2 * 100_000 // 20_000
    assert Backlog([lacking], [], tail, has_more=False).buckets == 1
