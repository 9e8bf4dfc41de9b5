"""`lag` in bytes and time, from literal bronze rows. Every expected number is written out by hand."""

from typing import Any

import pytest
from chispa import assert_df_equality
from pyspark.sql import SparkSession

from pipeline.analytics.lag.lag import lag_table
from pipeline.tables import COMMITTED_OFFSETS, GROUP_MEMBERS, LAG, WATERMARKS
from tests.helpers.lag_rows import BRACKETED, COMMITTED, MEMBER, PREVIOUS, RULED, lag_of, ruled, rulers_of
from tests.helpers.rows import frame

UNITS: dict[str, tuple[int | None, dict[str, Any]]] = {
    "at a point of the ruler": (
        200,
        {
            "consumer_lag_bytes": 500,
            "bytes_error": 0,
            "headroom_bytes": 3_000,
            # The record came after the second snapshot's newest, so its time is taken as half way to the third's.
            "consumer_lag_ms": 59_400,
            "consumer_age_ms": 89_400,
            "time_error_ms": 59_400,
        },
    ),
    "between two points": (
        150,
        {
            "consumer_lag_bytes": 1_500,
            "bytes_error": 1_000,
            "headroom_bytes": 2_000,
            "consumer_lag_ms": 89_400,
            "consumer_age_ms": 119_400,
            "time_error_ms": 30_600,
            "bytes_method": "interpolated",
            "time_method": "interpolated",
            "kip532_from": "committed",
            "kip532_bytes": 1_500,
            "kip532_ms": 89_400,
        },
    ),
    "below the first point, times are not known": (
        50,
        {"consumer_lag_bytes": 3_000, "bytes_error": 500, "consumer_lag_ms": None, "time_method": None},
    ),
    "nothing unread": (
        300,
        {
            "consumer_lag_bytes": 0,
            "bytes_error": 0,
            "bytes_method": "exact",
            "consumer_lag_ms": 0,
            "consumer_age_ms": 0,
            "time_error_ms": 0,
            "kip532_bytes": 0,
            "headroom_bytes": 3_500,
        },
    ),
    "beyond the end": (301, {"consumer_lag_bytes": None, "bytes_error": None, "consumer_lag_ms": None}),
    "no commit": (None, {"consumer_lag_bytes": None, "consumer_age_ms": None, "bytes_method": None}),
}


@pytest.mark.parametrize(
    ("log_bytes", "expected"),
    [
        # 100 records take 1,000 bytes, so ten more take 100, ± 100.
        pytest.param(1_000, (1_100, 100), id="known"),
        pytest.param(None, (None, None), id="unknown"),
    ],
)
def test_bytes_beyond_the_end_of_the_ruler_are_estimated_from_the_mean_record_size(
    spark: SparkSession, log_bytes: int | None, expected: tuple[int | None, int | None]
) -> None:
    seen = [ruled(1, 0, 100, log_bytes)]
    (row,) = lag_of(spark, [(1, "g", "t", 0, 0, 0, 110, 110)], seen, commit=BRACKETED, watermark=RULED).collect()
    assert (row.consumer_lag, row.consumer_lag_bytes, row.bytes_error) == (110, *expected)
    assert (row.bytes_method is None) == (log_bytes is None)


def test_lag_in_bytes_and_time_is_read_from_the_ruler(spark: SparkSession) -> None:
    logs = frame(spark, WATERMARKS, RULED, ruled(1, 0, 100, 1_000), ruled(2, 0, 200, 3_000), ruled(3, 0, 300, 3_500))
    commits = [(3, name, "t", 0, offset, None) for name, (offset, _) in UNITS.items()]
    rows = lag_table(
        frame(spark, COMMITTED_OFFSETS, COMMITTED, *commits),
        logs.where("snapshot_id = 3"),
        frame(spark, GROUP_MEMBERS, MEMBER),
        frame(spark, LAG, PREVIOUS),
        rulers_of(spark, logs),
    )
    found = {row.group_id: row.asDict() for row in rows.collect()}
    for name, (_, expected) in UNITS.items():
        assert {column: found[name][column] for column in expected} == expected, name


def test_without_clients_lag_is_the_same_as_with_clients_that_report_nothing(spark: SparkSession) -> None:
    logs = frame(spark, WATERMARKS, RULED, ruled(1, 0, 100, 1_000), ruled(2, 0, 200, 3_000), ruled(3, 0, 300, 3_500))
    commits = frame(
        spark, COMMITTED_OFFSETS, COMMITTED, *((3, name, "t", 0, at, None) for name, (at, _) in UNITS.items())
    )
    members = frame(spark, GROUP_MEMBERS, MEMBER, (3, "only assigned", "consumer", "Stable", "m", "c", "/h", "t", 0))
    watermarks, rulers = logs.where("snapshot_id = 3"), rulers_of(spark, logs).localCheckpoint()
    silent = spark.createDataFrame(
        [],
        "cluster string, snapshot_id bigint, topic string, partition int, group_id string, reported_date date, "
        "reported_client_id string, reported_instance string, consumed_offset bigint, fetched_offset bigint, "
        "stale_lag bigint",
    )
    without, with_silent = (
        lag_table(commits, watermarks, members, None, rulers, reported=reported).localCheckpoint()
        for reported in (None, silent)
    )
    assert without.count() == len(UNITS) + 1
    assert_df_equality(without, with_silent, ignore_row_order=True)


def test_bytes_count_to_the_high_watermark_and_for_kip_532_to_the_log_end(spark: SparkSession) -> None:
    logs = frame(spark, WATERMARKS, RULED, ruled(1, 0, 100, 1_000), ruled(2, 0, 200, 3_000, high_watermark=150))
    rows = lag_table(
        frame(spark, COMMITTED_OFFSETS, COMMITTED, (2, "g", "t", 0, 100, None)),
        logs.where("snapshot_id = 2"),
        frame(spark, GROUP_MEMBERS, MEMBER),
        frame(spark, LAG, PREVIOUS),
        rulers_of(spark, logs),
    )
    row = rows.collect()[0]
    assert (row.consumer_lag_bytes, row.bytes_error, row.kip532_bytes) == (1_000, 1_000, 2_000)
    assert (row.consumer_lag_ms, row.kip532_ms) == (29_400, 59_400)


def test_lag_of_a_commit_before_log_start_counts_only_existing_records(spark: SparkSession) -> None:
    logs = frame(spark, WATERMARKS, RULED, ruled(1, 0, 100, 1_000), ruled(2, 0, 200, 3_000), ruled(3, 100, 200, 2_000))
    commits = [(3, name, "t", 0, offset, None) for name, offset in (("lost", 50), ("next", 100))]
    found = lag_table(
        frame(spark, COMMITTED_OFFSETS, COMMITTED, *commits),
        logs.where("snapshot_id = 3"),
        frame(spark, GROUP_MEMBERS, MEMBER),
        frame(spark, LAG, PREVIOUS),
        rulers_of(spark, logs),
    )
    lost, at_start = sorted(found.collect(), key=lambda row: row.group_id)
    assert (lost.consumer_lag, lost.headroom, lost.offset_status) == (150, -50, "deleted_unread")
    assert (lost.consumer_lag_bytes, lost.consumer_lag_ms, lost.consumer_age_ms) == (2_000, 59_400, 149_400)
    same = ("consumer_lag_bytes", "bytes_error", "bytes_method", "consumer_lag_ms", "consumer_age_ms", "time_error_ms")
    assert [lost[name] for name in same] == [at_start[name] for name in same]
    assert (lost.headroom_bytes, lost.kip532_bytes) == (None, None)


def test_the_position_of_the_end_grows_by_what_is_written_even_while_retention_deletes(spark: SparkSession) -> None:
    """From minute 1 to 2, 2,000 bytes are written. From 2 to 3, 500 are written and 1,000 deleted."""
    logs = frame(spark, WATERMARKS, RULED, ruled(1, 0, 100, 1_000), ruled(2, 0, 200, 3_000), ruled(3, 100, 250, 2_500))
    rows = [(n, "g", "t", 0, 100, None) for n in (1, 2, 3)]
    found = lag_table(
        frame(spark, COMMITTED_OFFSETS, COMMITTED, *rows),
        logs,
        frame(spark, GROUP_MEMBERS, MEMBER),
        frame(spark, LAG, PREVIOUS),
        rulers_of(spark, logs),
    )
    ends = {row.snapshot_id: (row.high_watermark_bytes, row.high_watermark_error_bytes) for row in found.collect()}
    assert [ends[n] for n in (1, 2)] == [(1_000, 0), (3_000, 0)]
    # The 50 records are taken to have 15 bytes each, as the 200 before them, and may have none or twice as many.
    assert ends[3] == (3_750, 750)


def test_the_ruler_of_a_compacted_log_says_nothing_about_what_was_written(spark: SparkSession) -> None:
    logs = frame(spark, WATERMARKS, f"{RULED} cleanup_policy", (*ruled(1, 0, 100, 1_000), "compact,delete"))
    found = lag_table(
        frame(spark, COMMITTED_OFFSETS, COMMITTED, (1, "g", "t", 0, 50, None)),
        logs,
        frame(spark, GROUP_MEMBERS, MEMBER),
        frame(spark, LAG, PREVIOUS),
        rulers_of(spark, logs),
    )
    (row,) = found.collect()
    assert (row.consumer_lag_bytes, row.high_watermark_bytes, row.high_watermark_error_bytes) == (500, None, None)
