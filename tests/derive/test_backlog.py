"""What is due, according to a ledger, its marks and the log index."""

from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipeline.common.epoch import utc_date
from pipeline.config import LakeConfig
from pipeline.derive import backlog
from pipeline.derive import log_index as index
from pipeline.derive.backlog import JOB, PASSED_OVER, Backlog, read_backlog
from pipeline.lake import Lake
from pipeline.tables import COMPUTED, LOG_INDEX, SNAPSHOTS
from tests.helpers.rows import frame

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
    lake.replace(SNAPSHOTS, frame(spark, SNAPSHOTS, LEDGER, *ledgers), "true")
    lake.replace(COMPUTED, frame(spark, COMPUTED, "cluster job snapshot_id", *marks), "true")
    names = "cluster topic partition through_snapshot_id"
    lake.replace(LOG_INDEX, frame(spark, LOG_INDEX, names, *indexed), "true")
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


def test_a_snapshot_has_the_numbers_of_the_ledger(lake: Lake) -> None:
    first, second = known(lake, "two").batch
    assert first == (2, "run-2", "complete", 0, 2, 0, 0, 2, 3)
    assert second == (3, "run-3", "partial", 0, 2, 0, 1, 3, 4)


def test_behind_a_partial_snapshot_the_newest_complete_one_is_used_too(lake: Lake) -> None:
    assert known(lake, "partial ones").up_to_complete == [5, 4, 3]


def test_the_look_back_is_limited(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backlog, "MAX_LOOKBACK", 2)
    assert [s.snapshot_id for s in known(lake, "one new").before] == [5, 4]


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
