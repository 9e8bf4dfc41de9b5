"""Forecasts by the same hours of earlier weeks in lakes of three weeks with holes, and in a young one."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipeline.common.epoch import DAY_MS, HOUR_MS, MINUTE_MS, utc, utc_date
from pipeline.config import LakeConfig
from pipeline.derive import compute_cluster
from pipeline.derive.backlog import JOB
from pipeline.lake import Lake, of_snapshots
from pipeline.lake.few_rows import for_few_rows
from pipeline.tables import COMMITTED_OFFSETS, COMPUTED, FORECASTS, SNAPSHOTS, WATERMARKS
from tests.helpers.rows import literal_rows
from tests.helpers.stored import store, stored

T0 = int(datetime(2026, 1, 26, 9, tzinfo=UTC).timestamp() * 1000)
"""Monday morning, a full hour: the last snapshot."""
IDS = [T0 - number * 5 * MINUTE_MS for number in range(14, -1, -1)]
LAST, LATE = IDS[-1], IDS[-2]
LEDGER = "cluster snapshot_id snapshot_date run_id status rows groups schedule_ms"
SLOW = "o'slow\\b"
"""A name with what an SQL literal must escape."""
HOLES = {(1, 9), (3, 3), (2, 20)}
"""Hours after T0 of earlier weeks without a snapshot."""


def written(hour: int) -> float:
    """Records per second at the hours after T0: 150 until eleven o'clock, then 50."""
    return 150.0 if hour <= 2 else 50.0


def weeks(holes: set[tuple[int, int]]) -> Iterator[tuple[int, float]]:
    """The full hours of three earlier weeks with the rates of the hours before them."""
    for week in (1, 2, 3):
        for hour in range(-3, 27):
            if (week, hour) not in holes:
                yield T0 + hour * HOUR_MS - 7 * week * DAY_MS, written(hour) / week


def bronze(snapshot_id: int) -> dict[Any, dict[str, Any]]:
    """A group that reads 100 a second while 150 are written, and one that keeps up."""
    passed = (snapshot_id - IDS[0]) // 1000
    end, at = 1_000_000 + 150 * passed, utc(snapshot_id)
    log = {"topic": "t", "partition": 0, "topic_id": "t", "captured_at": at, "leader": 1}
    ends = {"log_start_offset": 0, "last_stable_offset": end, "high_watermark": end, "log_end_offset": end}
    commit = {"topic": "t", "partition": 0, "captured_at": at}
    return {
        WATERMARKS: [log | ends],
        COMMITTED_OFFSETS: [
            commit | {"group_id": SLOW, "committed_offset": 900_000 + 100 * passed},
            commit | {"group_id": "well", "committed_offset": end - 5},
        ],
    }


def a_lake(spark: SparkSession, folder: Path, holes: set[tuple[int, int]]) -> Lake:
    """Snapshots without lag, and what is left of earlier weeks: the ledger, marks and forecasts."""
    lake = Lake(spark, LakeConfig(root=str(folder)))
    lake.prepare()
    old = list(weeks(holes))
    ledger = [("c", i, utc_date(i), "r", "complete", {}, 2, HOUR_MS) for i, _ in old]
    landed: dict[Any, list[dict[str, Any]]] = {}
    for snapshot_id in IDS:
        found = bronze(snapshot_id)
        for table, rows in found.items():
            of = {"cluster": "c", "snapshot_id": snapshot_id, "snapshot_date": utc_date(snapshot_id)}
            landed.setdefault(table, []).extend(of | row for row in rows)
        counts = {table.name: len(rows) for table, rows in found.items()}
        ledger.append(("c", snapshot_id, utc_date(snapshot_id), "r", "complete", counts, 2, 5 * MINUTE_MS))
    for table, rows in landed.items():
        store(lake, table, rows, of_snapshots("c", IDS))
    store(lake, SNAPSHOTS, literal_rows(LEDGER, *ledger), "true")
    marks = [("c", JOB, i, utc_date(i)) for i, _ in old]
    store(lake, COMPUTED, literal_rows("cluster job snapshot_id snapshot_date", *marks), "true")
    rates = [
        ("c", i, utc_date(i), group, topic, rate)
        for i, rate in old
        for group in (SLOW, "well")
        for topic in ("t", None)
    ]
    names = "cluster snapshot_id snapshot_date group_id topic written_per_s_1h"
    store(lake, FORECASTS, literal_rows(names, *rates), "true")
    return lake


def compute(lake: Lake, *again: int) -> dict[tuple[int, str, str | None], dict[str, Any]]:
    """The forecasts after all that is due was computed. The marks of some snapshots are removed before."""
    for snapshot_id in again:
        lake.delete(COMPUTED, of_snapshots("c", [snapshot_id]))
    with for_few_rows(lake.spark):
        compute_cluster(lake, "c", lambda: utc(T0 + HOUR_MS))
    rows = stored(lake, FORECASTS, of_snapshots("c", IDS))
    return {(row["snapshot_id"], row["group_id"], row["topic"]): row.asDict() for row in rows}


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return a_lake(spark, tmp_path_factory.mktemp("weeks"), HOLES)


def test_a_group_that_is_too_slow_on_monday_morning_catches_up_when_less_is_written(lake: Lake) -> None:
    together = compute(lake)
    for topic in ("t", None):
        row = together[LAST, SLOW, topic]
        # 310,000 are unread, 9,000 are written in a minute. For two hours 50 a second are added, then 50 fewer.
        # Commits are five minutes apart, so the next one is seen after 2.5 minutes on average.
        assert (row["reason"], row["basis"], row["net_per_s"]) == (None, "same_hour", -50)
        assert row["caught_up_in_ms"] == pytest.approx((7_200 + (301_000 + 360_000) / 50 + 150) * 1000, abs=2)
        assert together[LAST, "well", topic]["basis"] is None
        # An hour earlier, the lake knew less than an hour of traffic: so it takes that of now.
        assert together[IDS[5], SLOW, topic]["basis"] == "now"
        assert together[IDS[5], SLOW, topic]["reason"] == "never_at_this_rate"
    # The same rows come out if the snapshots are computed one by one, also if one is late.
    assert compute(lake, LAST) == together
    assert compute(lake, LATE) == together
    assert compute(lake, LATE, LAST) == together


def test_if_an_hour_is_known_of_one_week_alone_the_traffic_of_now_is_taken(lake: Lake) -> None:
    """As in a lake that is younger than two weeks, or whose rows were removed: what is there, is there by chance."""
    before = compute(lake)
    hour = T0 + 3 * HOUR_MS
    lake.delete(FORECASTS, of_snapshots("c", [hour - 7 * DAY_MS]))
    row = compute(lake, LAST)[LAST, SLOW, None]
    young = {"caught_up_in_ms": None, "caught_up_in_high_ms": None, "reason": "never_at_this_rate", "basis": "now"}
    changed = {name: value for name, value in row.items() if value != before[LAST, SLOW, None][name]}
    low = changed.pop("caught_up_in_low_ms")
    assert changed == young
    lake.delete(SNAPSHOTS, f"cluster = 'c' AND snapshot_id < {T0 - 13 * DAY_MS}")
    again = compute(lake, LAST)[LAST, SLOW, None]
    assert again == row
    assert again["caught_up_in_low_ms"] == low
