"""Computes `lag` from literal bronze rows: the columns that tests give, and the observations for a ruler."""

from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from pipeline.analytics.lag.lag import lag_of_readers
from pipeline.analytics.log_index.index import rulers
from pipeline.analytics.log_index.index import rulers_of as rulers_from
from pipeline.common.rows import Rows
from pipeline.tables import COMMITTED_OFFSETS, GROUP_MEMBERS, LAG, LOG_INDEX, LOG_SAMPLES, WATERMARKS
from tests.helpers.rows import few_rows, frame

COMMITTED = "snapshot_id group_id topic partition committed_offset error"
WATERMARK = (
    "snapshot_id topic partition topic_id log_start_offset last_stable_offset high_watermark log_end_offset error"
)
BRACKETED = "snapshot_id group_id topic partition earlier_offset committed_offset high_watermark last_stable_offset"
MEMBER = "snapshot_id group_id group_type state member_id client_id host topic partition"
PREVIOUS = "snapshot_id group_id topic partition topic_id committed_topic_id committed_offset offset_status"


def lag_of(
    spark: SparkSession,
    committed: list[tuple[Any, ...]] = (),
    watermarks: list[tuple[Any, ...]] = (),
    members: list[tuple[Any, ...]] = (),
    previous: list[tuple[Any, ...]] = (),
    reported: DataFrame | None = None,
    *,
    commit: str = COMMITTED,
    watermark: str = WATERMARK,
) -> DataFrame:
    """`lag` computed from such rows on the driver; `commit` and `watermark` name their columns."""
    seen = few_rows(WATERMARKS, watermark, *watermarks)
    nothing = {"stored": few_rows(LOG_INDEX, "topic"), "samples": few_rows(LOG_SAMPLES, "topic")}
    parts = {
        "commits": few_rows(COMMITTED_OFFSETS, commit, *committed),
        "watermarks": seen,
        "members": few_rows(GROUP_MEMBERS, MEMBER, *members),
        "rulers": rulers_from({"watermarks": seen, **nothing}, asked_from=0),
        "previous": few_rows(LAG, PREVIOUS, *previous),
    }
    if reported is not None:
        parts["reported"] = Rows(reported.toArrow())
    return lag_of_readers(parts, {}).frame(spark, LAG.schema)


def rulers_of(spark: SparkSession, watermarks: DataFrame) -> DataFrame:
    return rulers(frame(spark, LOG_INDEX, "topic"), watermarks, frame(spark, LOG_SAMPLES, "topic"), asked_from=0)


RULED = (
    "snapshot_id captured_at topic partition topic_id leader log_start_offset last_stable_offset high_watermark "
    "log_end_offset max_timestamp_ms max_timestamp_offset log_bytes log_bytes_error"
)
START = datetime(2026, 1, 31, tzinfo=UTC)
START_MS = 1_769_817_600_000
MINUTE = 60_000


def ruled(minute: int, start: int, end: int, size: int | None, *, high_watermark: int | None = None) -> tuple[Any, ...]:
    """An observation of a log whose newest record is half a minute old."""
    captured = START + timedelta(minutes=minute)
    newest_ms = START_MS + minute * MINUTE - 30_000
    up_to = high_watermark or end
    return (minute, captured, "t", 0, "A", 1, start, up_to, up_to, end, newest_ms, end - 1, size, 0)
