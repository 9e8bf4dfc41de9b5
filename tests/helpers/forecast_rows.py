"""Rows of `lag` as forecasts need them, and the forecasts from them."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

import pyarrow as pa
from pyspark.sql import Row

from pipeline.analytics.forecasts.forecasts import FORECAST_PARTS, forecasts
from pipeline.analytics.forecasts.sums import FORECAST_LAG, summed_lag
from pipeline.common.data_source import arrow_schema
from pipeline.common.epoch import utc
from pipeline.config import StatusConfig
from pipeline.tables import LAG
from tests.helpers.rows import few_rows

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


def lag_of(names: str, *rows: Sequence[Any]) -> pa.Table:
    """Rows of `lag` with the columns that sums are computed from; `names` are those that are given."""
    return few_rows(LAG, names, *rows).chosen(FORECAST_LAG).collected_table()


def summed(names: str, *rows: Sequence[Any]) -> dict[tuple[str, str | None], Row]:
    """The sums of some rows of `lag`, by group and topic."""
    found = [Row(**row) for row in summed_lag(lag_of(names, *rows)).to_pylist()]
    by_topic = {(row.group_id, row.topic): row for row in found}
    assert len(by_topic) == len(found)
    return by_topic


def known_of(rows: Sequence[Row]) -> pa.Table:
    """What later forecasts are computed from, of forecasts."""
    known = FORECAST_PARTS["known"]
    values = [{name: row[name] for name in known.names} for row in rows]
    return pa.Table.from_pylist(values, arrow_schema(known))


def followed(lag: pa.Table, known: Sequence[Row] = (), reach: Mapping[int, int] = MappingProxyType({})) -> list[Row]:
    """The forecasts after some rows of `lag`, continuing from `known` ones."""
    found = forecasts({"lag": lag, "known": known_of(known)}, StatusConfig(), reach)
    return [Row(**row) for row in found.to_pylist()]
