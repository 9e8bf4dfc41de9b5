"""What a ledger, its marks and the log index say is to be computed."""

from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipeline import backlog, index
from pipeline.backlog import JOB, Backlog, read_backlog
from pipeline.config import LakeConfig
from pipeline.lake import Lake, utc_date
from pipeline.tables import COMPUTED, LOG_INDEX, SNAPSHOTS
from tests.helpers.rows import frame

LEDGER = "snapshot_id snapshot_date run_id status rows"
MOST = 3


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    lake = Lake(spark, LakeConfig(root=str(tmp_path_factory.mktemp("backlog"))))
    lake.prepare()
    return lake


def known(lake: Lake, ledger: dict[int, str], marked: list[int], through: int | None = None) -> Backlog:
    """The backlog of such snapshots (id → status), of those that are marked, and of an index up to one."""
    spark = lake.spark
    rows: list[tuple[Any, ...]] = [
        (i, utc_date(i), f"run-{i}", status, {"watermarks": 2, "fetch_positions": i % 2})
        for i, status in ledger.items()
    ]
    lake.replace(SNAPSHOTS, frame(spark, SNAPSHOTS, LEDGER, *rows), "true")
    marks = [("east", JOB, i) for i in marked] + [(cluster, job, i) for cluster, job in OTHERS for i in ledger]
    lake.replace(COMPUTED, frame(spark, COMPUTED, "cluster job snapshot_id", *marks), "true")
    indexed = [] if through is None else [("t", 0, through), ("t", 1, through - 1)]
    lake.replace(LOG_INDEX, frame(spark, LOG_INDEX, "topic partition through_snapshot_id", *indexed), "true")
    return read_backlog(lake, "east", MOST)


OTHERS = [("west", JOB), ("east", "something else")]
"""Whose marks are not these."""
ALL = dict.fromkeys(range(1, 7), "complete")
# Case → ledger, marks; ids of the batch, of those before it, is there more?
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


@pytest.mark.parametrize("case", CASES)
def test_the_oldest_without_lag_are_taken_up_to_the_first_that_has_it(lake: Lake, case: str) -> None:
    ledger, marked, batch, before, has_more = CASES[case]
    found = known(lake, ledger, marked)
    assert [s.snapshot_id for s in found.batch] == batch
    assert [s.snapshot_id for s in found.before] == before
    assert found.has_more == has_more


def test_a_snapshot_is_as_the_ledger_has_it(lake: Lake) -> None:
    first, second = known(lake, {2: "complete", 3: "partial"}, []).batch
    assert first == (2, "run-2", "complete", False, 2)
    assert second == (3, "run-3", "partial", True, 3)


def test_a_partial_one_is_looked_past_to_the_newest_that_is_complete(lake: Lake) -> None:
    found = known(lake, ALL | {4: "partial", 5: "partial"}, [1, 2, 3, 4, 5])
    assert found.up_to_complete == [5, 4, 3]


def test_no_more_are_looked_at_than_is_set(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backlog, "MEMORY", 2)
    assert [s.snapshot_id for s in known(lake, ALL, [1, 2, 3, 4, 5]).before] == [5, 4]


# Case → index written through, marks; the snapshots that it does not know, up to the batch, and is it to be made?
TAILS: dict[str, tuple[int | None, list[int], list[int], bool]] = {
    "no index yet": (None, [1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 6], True),
    "an index": (4, [1, 2, 3, 4, 5], [5, 6], False),
    "a late snapshot that the index knows": (5, [1, 2, 4, 5, 6], [], False),
    "a late one that it does not know": (2, [1, 2, 4, 5, 6], [3], False),
}


@pytest.mark.parametrize("case", TAILS)
def test_the_index_knows_what_it_was_written_from(lake: Lake, case: str) -> None:
    through, marked, tail, is_new = TAILS[case]
    found = known(lake, ALL, marked, through).index
    assert (list(found.tail), found.through is None) == (tail, is_new)


def test_of_a_long_tail_the_newest_are_read(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (backlog, index):
        monkeypatch.setattr(module, "LONGEST_TAIL", 2)
    assert list(known(lake, ALL, [1, 2, 3, 4, 5]).index.tail) == [5, 6]
    # But all of the batch.
    assert list(known(lake, ALL, [1, 2, 3]).index.tail) == [4, 5, 6]


@pytest.mark.parametrize(("snapshot_id", "tail"), [(7, [5, 6, 7]), (5, [5]), (4, []), (2, [])])
def test_a_snapshot_that_is_running_is_of_the_tail_unless_the_index_knows_newer_ones(
    lake: Lake, snapshot_id: int, tail: list[int]
) -> None:
    known(lake, ALL | {7: "running"}, [], through=4)
    assert list(index.Index.while_running(lake, "east", snapshot_id).tail) == tail
