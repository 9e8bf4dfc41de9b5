"""How far back `group_changes` looks; and a lake has the same rows whenever and however often they are computed."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from pipeline.common.epoch import MINUTE_MS, utc, utc_date
from pipeline.config import LakeConfig
from pipeline.derive import compute_cluster
from pipeline.derive.backlog import Backlog, Snapshot
from pipeline.derive.group_changes import keep_group_changes, reach_of
from pipeline.derive.log_index import Index
from pipeline.lake import Lake, lake_tables, of_cluster, of_snapshots
from pipeline.lake.few_rows import FEW_FOR_SPARK, for_few_rows
from pipeline.tables import COMMITTED_OFFSETS, COMPUTED, GROUP_CHANGES, GROUP_MEMBERS, SNAPSHOTS, WATERMARKS, Table
from tests.helpers.batches import NO_READERS, batch_of
from tests.helpers.deltas import delta
from tests.helpers.stored import store, stored

FIRST_MS = 1_769_903_820_000  # 2026-01-31T23:57:00Z: the snapshots are in two date partitions
FEW, MANY = 10, FEW_FOR_SPARK
STATUSES = {"c": "complete", "p": "partial"}


def backlog_of(statuses: str, rows: Sequence[int], first: int) -> Backlog:
    """Snapshots 0, 1, 2, …, the batch of which begins with `first`."""
    found = [
        Snapshot(number, "r", STATUSES[status], 0, 0, 0, 0, some, 0)
        for number, (status, some) in enumerate(zip(statuses, rows, strict=True))
    ]
    return Backlog(found[first:], found[:first][::-1][:10], cast(Any, None), has_more=False)


@pytest.mark.parametrize(
    ("statuses", "rows", "oldest"),
    [
        ("c", [FEW], [0]),
        ("ccc", [FEW] * 3, [0, 0, 0]),
        ("c" * 14, [FEW] * 14, [0] * 11 + [1, 2, 3]),
        ("ccc", [MANY] * 3, [0, 0, 1]),
        ("cppc", [MANY] * 4, [0, 0, 0, 0]),
        ("pppp", [MANY] * 4, [0, 0, 0, 0]),
        # The rows of the snapshot itself do not count.
        ("ccccc", [FEW, MANY, FEW, FEW, MANY], [0, 0, 1, 2, 2]),
        ("cccc", [MANY // 2, MANY // 2, FEW, FEW], [0, 0, 1, 1]),
    ],
)
@pytest.mark.parametrize("first", [0, 1, 2])
def test_up_to_ten_snapshots_are_looked_back_as_long_as_they_have_few_rows(
    statuses: str, rows: list[int], oldest: list[int], first: int
) -> None:
    assert reach_of(backlog_of(statuses, rows, first)) == dict(list(enumerate(oldest))[first:])


# --- A lake with one cluster. A partial snapshot has read neither the members of `orders` nor the group `audit`.

Rows = list[dict[str, Any]]
TOPIC = "it's {a} \\ {{ topic }}"
"""Kafka allows no such name, but a lake may have rows of other brokers."""
# Minute → the status of the snapshot, and the members of `orders` with their partitions.
HISTORY: list[tuple[str, dict[str, tuple[int, ...]]]] = [
    ("complete", {"a-1": (0, 1)}),
    ("complete", {"a-1": (0,), "b-1": (1,)}),
    ("partial", {}),
    ("complete", {"a-1": (0,), "b-2": (1,)}),
    ("complete", {"a-1": (0, 1)}),
    ("complete", {"a-1": (0, 1)}),
]
IDS = [FIRST_MS + minute * MINUTE_MS for minute in range(len(HISTORY))]
EXPECTED = {
    (1, 0, "orders", "joined", None, "b-1", None),
    (1, 0, "orders", "moved", "a-1", "b-1", (1,)),
    (3, 1, "orders", "restarted", "b-1", "b-2", None),
    (4, 3, "orders", "left", "b-2", None, None),
    (4, 3, "orders", "moved", "b-2", "a-1", (1,)),
    (4, 3, "orders", "commits_removed", None, None, (1,)),
    (5, 4, "audit", "vanished", "Empty", None, None),
}
"""Minute of the snapshot, minute of the earlier one, group, change, before, after, partitions."""


def bronze(minute: int) -> dict[Table, Rows]:
    status, members = HISTORY[minute]
    at = {"cluster": "east", "snapshot_id": IDS[minute], "snapshot_date": utc_date(IDS[minute])}
    at |= {"captured_at": utc(IDS[minute])}
    orders = at | {"group_id": "orders", "group_type": "classic", "state": "Stable"}
    described = [
        orders | {"member_id": name, "client_id": name[0], "host": "h", "topic": TOPIC, "partition": partition}
        for name, partitions in members.items()
        for partition in partitions
    ]
    described += [] if described else [orders | {"error": "NOT_COORDINATOR"}]
    if status == "complete" and minute < len(HISTORY) - 1:
        described.append(at | {"group_id": "audit", "state": "Empty"})
    commit = at | {"group_id": "orders", "topic": TOPIC, "committed_offset": 7}
    ends = {"log_start_offset": 0, "last_stable_offset": 9, "high_watermark": 9, "log_end_offset": 9}
    return {
        GROUP_MEMBERS: described,
        COMMITTED_OFFSETS: [commit | {"partition": partition} for partition in ((0, 1) if minute < 4 else (0,))],
        WATERMARKS: [at | ends | {"topic": TOPIC, "topic_id": "id", "partition": partition} for partition in (0, 1)],
    }


def land(lake: Lake, minutes: Sequence[int]) -> None:
    for minute in minutes:
        rows = bronze(minute)
        for table, some in rows.items():
            store(lake, table, some, of_snapshots("east", [IDS[minute]]))
        counts = {table.name: len(some) for table, some in rows.items()}
        at = {"cluster": "east", "snapshot_id": IDS[minute], "snapshot_date": utc_date(IDS[minute])}
        ledger = at | {"run_id": "r", "status": HISTORY[minute][0], "rows": counts, "groups": 2}
        lake.merge(SNAPSHOTS, [tuple(ledger.get(name) for name in SNAPSHOTS.columns)], "east")


def compute(lake: Lake, most: int | None = None) -> None:
    compute_cluster(lake, "east", lambda: utc(IDS[-1]), most=most)


def contents(lake: Lake) -> set[tuple[Any, ...]]:
    rows = stored(lake, GROUP_CHANGES)
    minute = {snapshot_id: number for number, snapshot_id in enumerate(IDS)}
    found = [
        (
            minute[row.snapshot_id],
            minute[row.earlier_snapshot_id],
            *(row.group_id, row.change, row.before, row.after),
            tuple(row.partitions) if row.partitions else None,
        )
        for row in rows
    ]
    assert len({*found}) == len(found)
    assert all(row.snapshot_date == utc_date(row.snapshot_id) for row in rows)
    return {*found}


@pytest.fixture
def empty(spark: SparkSession, tmp_path: Path) -> Lake:
    lake = Lake(spark, LakeConfig(root=str(tmp_path / "lake")))
    with for_few_rows(spark):
        lake.prepare()
    return lake


@pytest.mark.parametrize("most", [None, 2])
def test_a_lake_has_the_changes_of_each_snapshot_however_many_are_computed_together(
    spark: SparkSession, empty: Lake, most: int | None
) -> None:
    with for_few_rows(spark):
        land(empty, range(len(IDS)))
        compute(empty, most)
    assert contents(empty) == EXPECTED


@pytest.mark.thorough
def test_a_snapshot_that_is_computed_again_has_the_same_rows(spark: SparkSession, empty: Lake) -> None:
    with for_few_rows(spark):
        land(empty, range(len(IDS)))
        compute(empty)
        empty.delete(COMPUTED, of_snapshots("east", [IDS[1], IDS[4]]))
        compute(empty)
        assert contents(empty) == EXPECTED
        empty.delete(COMPUTED, of_cluster("east"))
        compute(empty)
    assert contents(empty) == EXPECTED


@pytest.mark.thorough
def test_a_late_snapshot_has_its_own_rows(spark: SparkSession, empty: Lake) -> None:
    """Its successor was compared with the snapshot before it, and keeps its rows."""
    with for_few_rows(spark):
        land(empty, [0, 1, 2, 3, 5])
        compute(empty)
        before = contents(empty)
        land(empty, [4])
        compute(empty)
    late = {row for row in EXPECTED if row[0] == 4}
    assert late
    assert contents(empty) == before | late
    assert {row[:2] for row in before if row[0] == 5} == {(5, 3)}


def backlog_from(lake: Lake, first: int, end: int) -> Backlog:
    """The snapshots of the lake from one minute to another as a batch, as if there were none before."""
    snapshots = [
        Snapshot(snapshot_id, "r", status, 0, 0, 0, 0, FEW, 0)
        for snapshot_id, (status, _) in zip(IDS[first:end], HISTORY[first:end], strict=True)
    ]
    return Backlog(snapshots, [], Index(lake, "east", (), None), has_more=False)


def executions(spark: SparkSession) -> int:
    """How many queries the session has executed."""
    session = spark._jsparkSession
    session.sparkContext().listenerBus().waitUntilEmpty()
    newest = session.sharedState().statusStore().executionsList()
    return newest.last().executionId() + 1 if newest.nonEmpty() else 0


@pytest.mark.parametrize(
    "by_spark", [False, pytest.param(True, marks=pytest.mark.thorough)], ids=["the driver", "Spark"]
)
def test_many_rows_give_the_same_changes_as_few_and_replace_those_of_before(
    spark: SparkSession, empty: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, by_spark: bool
) -> None:
    with for_few_rows(spark):
        land(empty, range(len(IDS)))
        if by_spark:
            monkeypatch.setattr(lake_tables, "driver_tables", lambda *_: None)
        lake = Lake(spark, LakeConfig(root=str(tmp_path / "lake")))
        before = executions(spark), delta(lake, GROUP_CHANGES).version()
        keep_group_changes(batch_of(lake, "east", backlog_from(lake, 0, len(IDS))), NO_READERS)
        assert (executions(spark) > before[0]) is by_spark, "few rows need no query, even if groups change"
        assert delta(lake, GROUP_CHANGES).version() == before[1] + 1
        assert contents(empty) == EXPECTED
        keep_group_changes(batch_of(lake, "east", backlog_from(lake, 4, 5)), NO_READERS)  # now compared with nothing
    assert contents(empty) == {row for row in EXPECTED if row[0] != 4}
