"""Service-level objectives over a lake: from snapshots to sums and findings, in whatever order they are computed."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipeline.common.epoch import MINUTE_MS, to_epoch_ms, utc, utc_date
from pipeline.config import LakeConfig
from pipeline.config.slo import SloConfig
from pipeline.derive import compute_cluster
from pipeline.derive.batches import Settings
from pipeline.lake import Lake, of_snapshots
from pipeline.lake.few_rows import for_few_rows
from pipeline.tables import COMMITTED_OFFSETS, COMPUTED, FINDING_HISTORY, FINDINGS, SLO, SNAPSHOTS, WATERMARKS, Table
from tests.helpers.copied import copied
from tests.helpers.stored import store, stored

FIRST_MS = 1_769_893_200_000  # 2026-01-31T21:00:00Z: the snapshots are in two date partitions
EVERY = 20 * MINUTE_MS
END = 1_000
Lags = Mapping[str, Sequence[int | None]]
"""The lag of each group in each of its partitions; None = it could not be read."""
FINE, LATE, UNKNOWN = (3, 4), (3, 40), (3, None)


def of(checkout: Sequence[int | None], orders: Sequence[int | None] = FINE) -> Lags:
    return {"checkout": checkout, "orders": orders, "other": LATE}


HISTORY: list[Lags] = [
    *([of(FINE)] * 4),
    of(LATE, FINE),
    of(LATE, UNKNOWN),
    of(UNKNOWN, LATE),
    of(LATE),
    of(FINE),
    of(FINE),
    {"orders": FINE, "other": LATE},  # `checkout` does not exist for one snapshot
    *([of(FINE)] * 12),
]
IDS = [FIRST_MS + number * EVERY for number in range(len(HISTORY))]
SLOS = {
    "prompt": SloConfig.model_validate(
        {"groups": "^(checkout|orders)$", "objective": "consumer_lag < 10", "target": 0.99, "window": "5d"}
    )
}


def make(spark: SparkSession, folder: Path, numbers: Sequence[int] = range(len(HISTORY))) -> Lake:
    lake = Lake(spark, LakeConfig(root=str(folder)))
    lake.prepare()
    land(lake, numbers)
    return lake


def land(lake: Lake, numbers: Sequence[int]) -> None:
    ids = [IDS[number] for number in numbers]
    rows: dict[Table, list[dict[str, Any]]] = {COMMITTED_OFFSETS: [], WATERMARKS: [], SNAPSHOTS: []}
    for number in numbers:
        found = bronze(number)
        for table, some in found.items():
            rows[table] += some
        at = {"cluster": "east", "snapshot_id": IDS[number], "snapshot_date": utc_date(IDS[number])}
        counts = {table.name: len(some) for table, some in found.items()}
        rows[SNAPSHOTS].append(
            at | {"run_id": "r", "status": "complete", "rows": counts, "groups": 3, "schedule_ms": EVERY}
        )
    for table, some in rows.items():
        store(lake, table, some, of_snapshots("east", ids))


def bronze(number: int) -> dict[Table, list[dict[str, Any]]]:
    at = {"cluster": "east", "snapshot_id": IDS[number], "snapshot_date": utc_date(IDS[number])}
    at |= {"captured_at": utc(IDS[number])}
    end = END + 10 * number
    commits = [
        at | {"group_id": group, "topic": f"t-{group}", "partition": partition} | commit(end, lag)
        for group, lags in HISTORY[number].items()
        for partition, lag in enumerate(lags)
    ]
    ends = {"log_start_offset": 0, "last_stable_offset": end, "high_watermark": end, "log_end_offset": end}
    topics = [(f"t-{group}", p) for group in ("checkout", "orders", "other") for p in (0, 1)]
    logs = [at | ends | {"topic": topic, "topic_id": topic, "partition": p} for topic, p in topics]
    return {COMMITTED_OFFSETS: commits, WATERMARKS: logs}


def commit(end: int, lag: int | None) -> dict[str, Any]:
    return {"error": "NOT_COORDINATOR"} if lag is None else {"committed_offset": end - lag}


def compute(lake: Lake, slos: Mapping[str, SloConfig] = SLOS, most: int | None = None) -> None:
    compute_cluster(lake, "east", lambda: utc(IDS[-1]), Settings(slo=slos), most)


def contents(lake: Lake, table: Table = SLO) -> dict[tuple[Any, ...], dict[str, Any]]:
    rows = [row.asDict() for row in stored(lake, table)]
    found = {tuple(row[name] for name in table.key): row for row in rows}
    assert len(found) == len(rows)
    return found


def burning(lake: Lake, table: Table = FINDINGS) -> list[dict[str, Any]]:
    """The findings about budgets."""
    return [row for row in contents(lake, table).values() if row["kind"] == "budget_burn"]


def series(lake: Lake, group: str, *names: str) -> dict[int, tuple[Any, ...]]:
    """The values of some columns by the number of the snapshot."""
    rows = stored(lake, SLO, f"group_id = '{group}'")
    return {IDS.index(row["snapshot_id"]): tuple(row[name] for name in names) for row in rows}


@pytest.fixture(scope="module")
def computed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """The whole history, computed at once."""
    with for_few_rows(spark):
        lake = make(spark, tmp_path_factory.mktemp("slo") / "lake")
        compute(lake)
    return lake


def test_each_snapshot_says_whether_the_objective_is_met(computed: Lake) -> None:
    assert {row["group_id"] for row in contents(computed).values()} == {"checkout", "orders"}
    met = {number: is_met for number, (is_met,) in series(computed, "checkout", "is_met").items()}
    missed = {4: False, 5: False, 6: None, 7: False}
    assert met == {number: missed.get(number, True) for number in range(len(HISTORY)) if number != 10}
    assert series(computed, "orders", "is_met", "partitions_missed", "partitions_unknown")[5] == (None, 0, 1)
    assert series(computed, "checkout", "worst", "topic", "partitions")[4] == (40, "t-checkout", 2)


def test_sums_and_windows(computed: Lake) -> None:
    minutes = ("met_ms", "missed_ms", "hour_missed_ms", "six_hours_missed_ms", "window_unknown_ms")
    found = {n: tuple(ms // MINUTE_MS for ms in of) for n, of in series(computed, "checkout", *minutes).items()}
    assert found[0] == (0, 0, 0, 0, 0)
    assert found[3] == (60, 0, 0, 0, 0)
    assert found[5] == (60, 40, 40, 40, 0)
    assert found[7] == (60, 60, 40, 60, 20)
    assert found[9] == (100, 60, 20, 60, 20)
    # It begins anew after a complete snapshot in which it did not exist.
    assert found[11] == (0, 0, 0, 0, 0)
    assert found[22] == (220, 0, 0, 0, 0)
    (begun_at,) = series(computed, "checkout", "begun_at")[22]
    assert to_epoch_ms(begun_at.astimezone()) == IDS[11]
    orders = series(computed, "orders", "missed_ms", "six_hours_missed_ms")
    assert orders[22] == (EVERY, EVERY)  # the snapshot 6 is 320 minutes old


def test_a_budget_that_burns_is_a_finding_until_the_group_is_well(computed: Lake) -> None:
    """1 % of 5 days are 72 minutes: 2 % are less than one snapshot, so the second one that misses makes a finding."""
    (finding,) = burning(computed)
    assert (finding["group_id"], finding["severity"], finding["topic"]) == ("checkout", "critical", "t-checkout")
    times = ("first_seen", "last_seen", "resolved_at")
    assert [IDS.index(to_epoch_ms(finding[name].astimezone())) for name in times] == [5, 7, 8]
    assert json.loads(finding["evidence"])["slos"] == ["prompt"]
    assert sorted(IDS.index(row["snapshot_id"]) for row in burning(computed, FINDING_HISTORY)) == [5, 6, 7]


@pytest.mark.parametrize("most", [pytest.param(1, marks=pytest.mark.lengthy), 7])
def test_smaller_batches_have_the_same_rows(spark: SparkSession, computed: Lake, tmp_path: Path, most: int) -> None:
    with for_few_rows(spark):
        lake = make(spark, tmp_path / "lake", range(13))
        compute(lake, most=most)
    assert contents(lake) == {key: row for key, row in contents(computed).items() if key[1] <= IDS[12]}
    assert burning(lake) == burning(computed)


@pytest.mark.thorough
def test_snapshots_that_are_computed_again_have_the_same_rows(
    spark: SparkSession, computed: Lake, tmp_path: Path
) -> None:
    lake = copied(spark, Path(str(computed._config.root)), tmp_path)
    with for_few_rows(spark):
        lake.delete(COMPUTED, of_snapshots("east", [IDS[number] for number in (0, 4, 5, *range(10, len(IDS)))]))
        compute(lake)
    assert contents(lake) == contents(computed)


@pytest.fixture(scope="module")
def two_absent(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Eight snapshots without two of them, computed at once."""
    with for_few_rows(spark):
        lake = make(spark, tmp_path_factory.mktemp("late") / "lake", [0, 1, 2, 3, 6, 7])
        compute(lake)
    return lake


@pytest.mark.thorough
@pytest.mark.parametrize("most", [pytest.param(None, marks=pytest.mark.lengthy), 1])
def test_a_late_snapshot_adds_nothing_to_the_sums(
    spark: SparkSession, two_absent: Lake, tmp_path: Path, most: int | None
) -> None:
    before = contents(two_absent)
    lake = copied(spark, Path(str(two_absent._config.root)), tmp_path)
    with for_few_rows(spark):
        land(lake, [4, 5])
        compute(lake, most=most)
        land(lake, [8, 9])
        compute(lake)
    after = contents(lake)
    assert {key: after[key] for key in before} == before
    sums = series(lake, "checkout", "is_met", "counted_ms", "met_ms", "missed_ms")
    minute = MINUTE_MS
    assert [sums[n] for n in (3, 4, 5)] == [
        (True, 20 * minute, 60 * minute, 0),
        (False, 0, 60 * minute, 0),
        (False, 0, 60 * minute, 0),
    ]
    # The snapshot 6 speaks for an hour, which is three intervals.
    assert [sums[n] for n in (6, 7, 9)] == [
        (None, 60 * minute, 60 * minute, 0),
        (False, 20 * minute, 60 * minute, 20 * minute),
        (True, 20 * minute, 100 * minute, 20 * minute),
    ]


def test_a_long_gap_is_unknown(spark: SparkSession, tmp_path: Path) -> None:
    with for_few_rows(spark):
        lake = make(spark, tmp_path / "lake", [0, 1, 9])
        compute(lake)
    found = series(lake, "checkout", "counted_ms", "met_ms", "missed_ms", "window_unknown_ms")
    assert found[9] == (3 * EVERY, 4 * EVERY, 0, 5 * EVERY)


@pytest.mark.thorough
def test_a_changed_objective_begins_anew_and_a_new_target_does_not(spark: SparkSession, tmp_path: Path) -> None:
    slo = SLOS["prompt"]
    with for_few_rows(spark):
        lake = make(spark, tmp_path / "lake", range(6))
        compute(lake)
        land(lake, [6])
        compute(lake, {"prompt": slo.model_copy(update={"target": 0.5})})
        land(lake, [7])
        compute(lake, {"prompt": slo.model_copy(update={"objective": "consumer_lag < 11"}), "second": slo})
        land(lake, [8])
        compute(lake, {})
    found = {
        (row["slo"], IDS.index(row["snapshot_id"])): (row["target"], row["missed_ms"] // MINUTE_MS)
        for row in contents(lake).values()
        if row["group_id"] == "checkout" and row["snapshot_id"] >= IDS[5]
    }
    assert found == {
        ("prompt", 5): (0.99, 40),
        ("prompt", 6): (0.5, 40),
        ("prompt", 7): (0.99, 0),
        ("second", 7): (0.99, 0),
    }


def test_without_objectives_nothing_is_written(spark: SparkSession, tmp_path: Path) -> None:
    with for_few_rows(spark):
        lake = make(spark, tmp_path / "lake", range(3))
        compute(lake, {})
    assert contents(lake) == {}
    assert [file.name for file in (tmp_path / "lake" / "slo" / "_delta_log").glob("*.json")] == [f"{0:020}.json"]
