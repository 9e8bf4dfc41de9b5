"""What is kept of `lag` when its rows are removed."""

from collections.abc import Iterator

from pipeline.tables.columns import CLUSTER, DATE, GROUP, LONG, PARTITION, TIMESTAMP, TOPIC, Column, Table, schema
from pipeline.tables.groups import PARTITION_STATUS
from pipeline.tables.lag import LAG

ROLLED_UP = (
    *("consumer_lag", "consumer_lag_bytes", "consumer_lag_ms", "consumer_age_ms"),
    *("fetcher_lag", "fetcher_lag_bytes", "headroom"),
)
"""The lags of which `lag_rollup` has the smallest, the greatest and the last value."""

_WITH_STATUS = {field.name: field for field in (*LAG.schema, PARTITION_STATUS.schema["status"])}

ROLLED_UP_ENDS = ("captured_at", "committed_offset", "high_watermark", "offset_status", "status")
"""The columns of which it has the first and the last value."""


def _of_window(which: str, about: str, names: tuple[str, ...]) -> Iterator[Column]:
    """The columns of a window for columns of `lag`: `max_consumer_lag`, for example."""
    return ((f"{which}_{name}", _WITH_STATUS[name].dataType, about.format(name)) for name in names)


LAG_ROLLUP = Table(
    "lag_rollup",
    "Hours and days of those rows that the job `maintain` has removed from `lag`, where `[retention] rollup` is set.",
    schema(
        CLUSTER,
        ("snapshot_date", DATE, "UTC date of window_start"),
        ("window_start", TIMESTAMP, "the beginning of the window"),
        ("window_ms", LONG, "length of the window: an hour or a day"),
        GROUP,
        TOPIC,
        PARTITION,
        ("snapshots", LONG, "number of rows of lag in the window"),
        *_of_window("min", "smallest {} in the window; NULL = never known", ROLLED_UP),
        *_of_window("max", "greatest {} in the window; NULL = never known", ROLLED_UP),
        *_of_window("last", "{} at the last snapshot of the window; NULL = not known then", ROLLED_UP),
        *_of_window("first", "{} at the first snapshot of the window", ROLLED_UP_ENDS),
        *_of_window("last", "{} at the last snapshot of the window", ROLLED_UP_ENDS),
    ),
    key=("cluster", "window_start", "window_ms", "group_id", "topic", "partition"),
    partitioned_by=("cluster", "snapshot_date"),
)
