"""`partition_status` and `group_status`, from rows of `lag` and from what is known of earlier snapshots."""

from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from pipeline.common.epoch import MINUTE_MS
from pipeline.tables import GROUP_STATUS, LAG, PARTITION_STATUS
from tests.helpers import statuses as by_spark
from tests.helpers.rows import frame

T0 = int(datetime(2026, 1, 31, 12, tzinfo=UTC).timestamp() * 1000)
MINUTES = 12
NAMES = (
    "snapshot_id group_id topic topic_id partition captured_at committed_captured_at group_state committed_offset "
    "high_watermark consumer_lag consumer_lag_stable offset_status error"
)
LEFT_AT = 2
"""The newest minute at which the group `half` has members."""
LATE_MS = 2_000
"""How long after its scheduled instant a snapshot was read."""


def lag_rows(minute: int) -> list[tuple[Any, ...]]:
    """Groups that are ok, have stopped at minute 5, are not known, or have committed nothing, in one minute."""
    end, at = 100 * minute, T0 + minute * MINUTE_MS
    stopped = 100 * min(minute, 5)
    left = "Stable" if minute <= LEFT_AT else "Empty"
    read_at = datetime.fromtimestamp((at + LATE_MS) / 1000, UTC)

    def row(group: str, topic: str, committed: int | None, state: str | None, **odd: Any) -> tuple[Any, ...]:
        lag = None if committed is None else end - committed
        values = {
            "snapshot_id": at,
            "group_id": group,
            "topic": topic,
            "topic_id": topic,
            "partition": 0,
            "committed_captured_at": read_at,
            "captured_at": read_at,
            "group_state": state,
            "committed_offset": committed,
            "high_watermark": end,
            "consumer_lag": lag,
            "consumer_lag_stable": lag,
            "offset_status": "ok",
        }
        values |= odd
        return tuple(values.get(name) for name in NAMES.split())

    return [
        row("well", "a", end, "Stable"),
        row("well", "b", end, "Stable"),
        row("half", "a", end, left),
        row("half", "b", stopped, left),
        row("half", "c", 100 * min(minute, 6), left),
        row("hidden", "a", stopped, "Stable", consumer_lag_stable=0),
        row("unread", "a", 0, "Stable", consumer_lag=None, offset_status=None, error="NOT_COORDINATOR"),
        row("no-commit", "a", None, None, offset_status="no_commit"),
    ]


def judged(lag: DataFrame, known: DataFrame, buckets: int | None = None) -> dict[tuple[str, str, int], Row]:
    rows = by_spark.judged(lag, known, buckets=buckets).collect()
    found = {(row.group_id, row.topic, (row.snapshot_id - T0) // MINUTE_MS): row for row in rows}
    assert len(found) == len(rows)
    return found


@pytest.fixture(scope="module")
def lag(spark: SparkSession) -> DataFrame:
    return frame(spark, LAG, NAMES, *(row for minute in range(MINUTES) for row in lag_rows(minute)))


@pytest.fixture(scope="module")
def nothing(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame([], PARTITION_STATUS.schema)


@pytest.fixture(scope="module")
def statuses(lag: DataFrame, nothing: DataFrame) -> dict[tuple[str, str, int], Row]:
    return judged(lag, nothing)


def test_each_row_of_lag_has_a_status(statuses: dict[tuple[str, str, int], Row]) -> None:
    assert len(statuses) == 8 * MINUTES
    newest = {(group, topic): row for (group, topic, minute), row in statuses.items() if minute == MINUTES - 1}
    assert {key: (row.status, row.reason, row.has_members) for key, row in newest.items()} == {
        ("well", "a"): ("ok", None, True),
        ("well", "b"): ("ok", None, True),
        ("half", "a"): ("ok", None, False),
        ("half", "b"): ("stopped", "no_members", False),
        ("half", "c"): ("stopped", "no_members", False),
        ("hidden", "a"): ("not_progressing", "open_transaction", True),
        ("unread", "a"): ("unknown", "NOT_COORDINATOR", True),
        ("no-commit", "a"): ("not_committed", None, None),
    }


def test_a_wait_began_when_the_first_snapshot_that_shows_it_was_read(
    statuses: dict[tuple[str, str, int], Row],
) -> None:
    row = statuses["half", "b", MINUTES - 1]
    began = datetime.fromtimestamp((T0 + 6 * MINUTE_MS + LATE_MS) / 1000, UTC)
    assert (row.since.astimezone(UTC), row.waiting_since.astimezone(UTC)) == (began, began)
    assert row.captured_at.astimezone(UTC).timestamp() * 1000 == T0 + (MINUTES - 1) * MINUTE_MS + LATE_MS


def test_it_is_known_when_a_group_without_members_last_had_some(statuses: dict[tuple[str, str, int], Row]) -> None:
    seen = {
        (group, minute): row.members_seen_at and row.members_seen_at.astimezone(UTC).timestamp() * 1000 - T0 - LATE_MS
        for (group, topic, minute), row in statuses.items()
        if topic == "a"
    }
    last = MINUTES - 1
    assert [seen["well", minute] for minute in (0, last)] == [0, last * MINUTE_MS]
    assert [seen["half", minute] for minute in (1, LEFT_AT, last)] == [MINUTE_MS, *2 * [LEFT_AT * MINUTE_MS]]
    assert seen["no-commit", last] is None


@pytest.mark.parametrize("buckets", [1, 6])
def test_judging_snapshot_by_snapshot_gives_the_same(
    spark: SparkSession,
    lag: DataFrame,
    nothing: DataFrame,
    statuses: dict[tuple[str, str, int], Row],
    buckets: int,
) -> None:
    known = nothing
    for first, last in ((0, 4), (5, 7), (8, MINUTES - 1)):
        ids = [T0 + minute * MINUTE_MS for minute in range(first, last + 1)]
        rows = judged(lag.where(lag.snapshot_id.isin(ids)), known, buckets)
        assert rows == {key: row for key, row in statuses.items() if first <= key[2] <= last}
        known = spark.createDataFrame(list(rows.values()), PARTITION_STATUS.schema)


def test_the_status_of_a_group_is_that_of_its_worst_partition(
    spark: SparkSession, lag: DataFrame, statuses: dict[tuple[str, str, int], Row]
) -> None:
    partitions = spark.createDataFrame(list(statuses.values()), PARTITION_STATUS.schema)
    rows = by_spark.groups_of(lag, partitions).collect()
    assert rows[0].asDict().keys() == {*GROUP_STATUS.columns}
    newest = {row.group_id: row for row in rows if row.snapshot_id == T0 + (MINUTES - 1) * MINUTE_MS}
    assert {group: (row.status, row.reason, row.topic, row.partitions) for group, row in newest.items()} == {
        "well": ("ok", None, "a", 2),
        "half": ("stopped", "no_members", "b", 3),
        "hidden": ("not_progressing", "open_transaction", "a", 1),
        "unread": ("unknown", "NOT_COORDINATOR", "a", 1),
        "no-commit": ("not_committed", None, "a", 1),
    }
    half = newest["half"]
    assert half.members_seen_at.astimezone(UTC).timestamp() * 1000 == T0 + LEFT_AT * MINUTE_MS + LATE_MS
    assert (half.statuses, half.consumer_lag, half.has_members) == ({"ok": 1, "stopped": 2}, 600 + 500, False)
    assert half.since.astimezone(UTC).timestamp() * 1000 == T0 + 6 * MINUTE_MS + LATE_MS
    assert len(rows) == 5 * MINUTES


def test_a_group_is_ok_since_its_last_partition_became_ok(spark: SparkSession) -> None:
    at = [datetime(2026, 1, 31, 12, minute, tzinfo=UTC) for minute in (1, 9, 5)]
    rows = [(T0, "g", "t", number, "ok", since) for number, since in enumerate(at)]
    names = "snapshot_id group_id topic partition"
    lag = frame(spark, LAG, names, *(row[:4] for row in rows))
    found = by_spark.groups_of(lag, frame(spark, PARTITION_STATUS, f"{names} status since", *rows))
    assert found.collect()[0].since.astimezone(UTC) == at[1]


def test_an_open_transaction_is_not_the_reason_for_other_partitions(spark: SparkSession) -> None:
    rows = [
        (T0, "g", "t", 0, "not_progressing", "open_transaction", 1_000_000),
        (T0, "g", "t", 1, "not_progressing", None, 5_000),
        (T0, "hidden", "t", 0, "not_progressing", "open_transaction", 7),
    ]
    lag = frame(spark, LAG, "snapshot_id group_id topic partition", *(row[:4] for row in rows))
    partitions = frame(
        spark, PARTITION_STATUS, "snapshot_id group_id topic partition status reason consumer_lag", *rows
    )
    found = {row.group_id: (row.partition, row.reason) for row in by_spark.groups_of(lag, partitions).collect()}
    assert found == {"g": (1, None), "hidden": (0, "open_transaction")}


def test_without_rows_there_is_no_status(spark: SparkSession, nothing: DataFrame) -> None:
    empty = spark.createDataFrame([], LAG.schema)
    assert by_spark.judged(empty, nothing).collect() == []
    assert by_spark.groups_of(empty, nothing).collect() == []
