"""Rows of `lag` as forecasts need them, and the forecasts from them."""

from datetime import UTC, datetime
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession

from pipeline.analytics.forecasts.forecasts import OF_KNOWN, OF_SUMS
from pipeline.analytics.forecasts.sums import sums
from pipeline.common.epoch import utc
from pipeline.common.rows import Rows
from pipeline.config import StatusConfig
from pipeline.derive.forecasts import forecast_rows
from pipeline.tables import FORECASTS

T0 = int(datetime(2026, 1, 31, 12, tzinfo=UTC).timestamp() * 1000)
NAMES = (
    "snapshot_id group_id topic topic_id partition captured_at committed_captured_at committed_offset high_watermark "
    "consumer_lag offset_status"
)


def lag_row(
    at_ms: int, group: str, topic: str, partition: int, committed: int | None, end: int, **odd: Any
) -> tuple[Any, ...]:
    """A row of `lag` that was read one or two seconds after the scheduled instant."""
    values = {
        "snapshot_id": at_ms,
        "group_id": group,
        "topic": topic,
        "topic_id": topic,
        "partition": partition,
        "captured_at": utc(at_ms + 1_000 * (partition + 1)),
        "committed_captured_at": utc(at_ms + 2_000 * (partition + 1)),
        "committed_offset": committed,
        "high_watermark": end,
        "consumer_lag": None if committed is None else end - committed,
        "offset_status": "no_commit" if committed is None else "ok",
    }
    return tuple((values | odd).get(name) for name in NAMES.split())


def followed(spark: SparkSession, lag: DataFrame, known: DataFrame, reach: dict[int, int]) -> list[Row]:
    """The forecasts after some rows of `lag`, continuing from `known` rows."""
    summed, before = Rows(sums(lag).select(*OF_SUMS)), Rows(known.select(*OF_KNOWN))
    return forecast_rows(spark, summed, before, StatusConfig(), 1, reach).frame(spark, FORECASTS.schema).collect()
