"""Hours and days of the rows that `maintain` removes from `lag`."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipeline.analytics.lag.rollup import rolled_up
from pipeline.common.epoch import DAY_MS, HOUR_MS, to_epoch_ms, utc_date
from pipeline.config import RetentionConfig
from pipeline.lake import Lake
from pipeline.maintain import maintain
from pipeline.maintain.rollup import keep_rollup
from pipeline.tables import LAG, LAG_ROLLUP, PARTITION_STATUS, SNAPSHOTS
from tests.helpers.rows import frame, literal_rows
from tests.helpers.stored import store, stored

NOW = datetime(2026, 6, 30, 12, tzinfo=UTC)
OLD = datetime(2026, 3, 1, tzinfo=UTC)
NAMES = "snapshot_id snapshot_date group_id topic partition consumer_lag headroom committed_offset offset_status"
STATUS_NAMES = "snapshot_id snapshot_date group_id topic partition status"


def row(at: datetime, lag: int | None, offset: int, status: str = "ok", group: str = "g") -> tuple[Any, ...]:
    return (to_epoch_ms(at), at.date(), group, "t", 0, lag, 7, offset, status)


ROWS = (
    row(OLD + timedelta(minutes=5), 10, 100),
    row(OLD + timedelta(minutes=35), 30, 200, "deleted_unread"),
    row(OLD + timedelta(minutes=55), None, 250, "recreated"),
    row(OLD + timedelta(hours=2), 4, 300),
)


def test_a_window_has_the_smallest_the_greatest_and_the_last_value(spark: SparkSession) -> None:
    statuses = frame(spark, PARTITION_STATUS, STATUS_NAMES, (*ROWS[1][:5], "stopped"), (*ROWS[3][:5], "ok"))
    rows = rolled_up(frame(spark, LAG, NAMES, *ROWS), statuses)
    assert set(rows.columns) == set(LAG_ROLLUP.columns)
    found = {(row["window_ms"], row["window_start"].hour): row for row in rows.collect()}
    assert set(found) == {(HOUR_MS, 0), (HOUR_MS, 2), (DAY_MS, 0)}
    hour, day = found[HOUR_MS, 0], found[DAY_MS, 0]
    assert (hour["snapshots"], day["snapshots"]) == (3, 4)
    assert (hour["min_consumer_lag"], hour["max_consumer_lag"], hour["last_consumer_lag"]) == (10, 30, None)
    assert (day["min_consumer_lag"], day["max_consumer_lag"], day["last_consumer_lag"]) == (4, 30, 4)
    assert (day["first_committed_offset"], day["last_committed_offset"]) == (100, 300)
    assert (hour["first_offset_status"], hour["last_offset_status"]) == ("ok", "recreated")
    assert (day["first_status"], day["last_status"]) == (None, "ok")
    assert (day["min_fetcher_lag"], day["max_headroom"]) == (None, 7)


def put(lake: Lake, *rows: tuple[Any, ...]) -> None:
    where = f"cluster = 'east' AND snapshot_id IN ({', '.join(str(r[0]) for r in rows)})"
    store(lake, LAG, literal_rows(NAMES, *rows), where)


@pytest.fixture
def old_lake(lake: Lake) -> Lake:
    put(lake, *ROWS, row(NOW, 1, 900))
    ledger = (to_epoch_ms(NOW), utc_date(to_epoch_ms(NOW)), "complete")
    store(lake, SNAPSHOTS, literal_rows("snapshot_id snapshot_date status", ledger), "cluster = 'east'")
    return lake


def windows(lake: Lake) -> list[tuple[Any, ...]]:
    columns = ("window_ms", "window_start", "snapshots", "max_consumer_lag")
    return sorted(tuple(row) for row in stored(lake, LAG_ROLLUP, "true", *columns))


EXPECTED = [
    (HOUR_MS, OLD, 3, 30),
    (HOUR_MS, OLD + timedelta(hours=2), 1, 4),
    (DAY_MS, OLD, 4, 30),
]


def test_rows_that_are_removed_are_rolled_up_if_that_is_configured(old_lake: Lake) -> None:
    where = f"cluster = 'east' AND snapshot_date = DATE'{OLD.date()}'"
    keep_rollup(old_lake, "east", where)  # by a job that was killed before it removed them
    assert windows(old_lake) == EXPECTED
    maintain(old_lake, RetentionConfig(rollup=True), ["east"], lambda: NOW)
    assert windows(old_lake) == EXPECTED
    assert len(stored(old_lake, LAG)) == 1
    # A row that turns up later does not replace the windows of the others.
    put(old_lake, row(OLD + timedelta(minutes=7), 1, 1), row(OLD + timedelta(hours=5), 2, 2))
    maintain(old_lake, RetentionConfig(rollup=True), ["east"], lambda: NOW)
    assert windows(old_lake) == sorted([*EXPECTED, (HOUR_MS, OLD + timedelta(hours=5), 1, 2)])
    # The hours have a retention, days have none.
    maintain(old_lake, RetentionConfig.model_validate({"hours": "30d"}), ["east"], lambda: NOW)
    assert windows(old_lake) == EXPECTED[2:]


def test_without_the_setting_nothing_is_rolled_up(old_lake: Lake) -> None:
    maintain(old_lake, RetentionConfig(), ["east"], lambda: NOW)
    assert len(stored(old_lake, LAG)) == 1
    assert windows(old_lake) == []
