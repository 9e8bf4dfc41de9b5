"""The table `lag_histograms`: distributions of lag by cluster, broker, topic and group, for a snapshot, hour or day.

Any two histograms of one measure merge exactly, in any order: all buckets are the same, counts and sums are integers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from decimal import Decimal
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from pipeline.analytics.histograms.buckets import (
    SCALE,
    Groups,
    Values,
    group_rows,
    merge_counts,
    tally_values,
    values_by_kind,
)
from pipeline.analytics.keys import GROUP
from pipeline.common.buckets import Bucket
from pipeline.common.data_source import arrow_schema
from pipeline.common.epoch import DAY_MS
from pipeline.common.rows import Rows, bucketed
from pipeline.tables import LAG, LAG_HISTOGRAMS

MEASURES = (
    "consumer_lag",
    "consumer_lag_bytes",
    "consumer_lag_ms",
    "consumer_age_ms",
    "fetcher_lag",
    "fetcher_lag_bytes",
    "fetcher_lag_ms",
    "divergence",
    "kip532_bytes",
    "kip532_ms",
    "reuse_bytes",
)
"""The columns of `lag` that are counted. A `reuse_bytes` whose method is `at_least` counts as NULL."""

SCOPES = {"cluster": "cluster", "broker": "leader", "topic": "topic", "group": "group_id"}
"""The scopes, and the column of `lag` that has the values of each."""

COUNTED = LAG.some(("cluster", "snapshot_id", "leader", "topic", "group_id", "reuse_method", *MEASURES))
"""The columns of `lag` that histograms are made of."""
_IDENTITY = ("cluster", "window_start", "measure", "scope", "scope_value")
_BIGINT = (2**63 - 1, pa.int64())
_TOTALS: dict[str, tuple[int, pa.DataType]] = {
    "zero_count": _BIGINT,
    "negative_count": _BIGINT,
    "null_count": _BIGINT,
    "count": _BIGINT,
    "sum": (10**38 - 1, pa.decimal128(38, 0)),
}
"""The columns that are summed, each with its greatest value and its type."""
TALLIES = LAG_HISTOGRAMS.some((*_IDENTITY, *_TOTALS, "bucket_offset", "bucket_counts", "min", "max"))
"""The columns of histograms that are merged. They do not say how long the windows are."""
_TOGETHER = ("measure", "scope_value")
"""The key of the buckets in which histograms are merged. It need not be their whole identity."""
_WIDE = pa.decimal256(76, 0)
"""The type of sums, before it is known whether they fit into their columns. No lake has rows for sums beyond it."""
Keep = Callable[[pa.Table], pa.Table] | None
"""See `bucketed`."""
_AGGREGATIONS = (
    *((name, "sum", pc.ScalarAggregateOptions(skip_nulls=False)) for name in _TOTALS),
    ("bucket_offset", "min"),
    ("min", "min"),
    ("max", "max"),
)


def histograms(lag: DataFrame) -> DataFrame:
    """The rows of `lag_histograms` for the snapshots in `lag`, with window_ms = 0.

    Each value of a scope has a row for each measure, even if all of the measure's values are NULL, so that null_count
    stays correct when histograms are merged. A partition without a leader is in no row of the scope broker.
    """
    return histograms_of_snapshots(Rows(lag)).frame(lag.sparkSession, LAG_HISTOGRAMS.schema)


def histograms_of_snapshots(lag: Rows, buckets: int | None = None, keep: Keep = None) -> Rows:
    """What `histograms` returns, from rows that have the columns COUNTED, which are spread by group.

    Most histograms are those of groups. If the rows were spread in another way, each bucket would have a part of each.
    """
    parts = bucketed({"lag": lag}, {"lag": COUNTED}, GROUP, _tally_bucket, TALLIES, buckets, keep)
    return _merged(parts, 0, keep)


def rolled_up(histograms: DataFrame, window_ms: int, from_ms: int = 0) -> DataFrame:
    """The rows of `lag_histograms` for windows of `window_ms` (in UTC), merged from its rows with windows of `from_ms`.

    By default they are merged from single snapshots. Days can also be merged from hours, with the same result. A
    snapshot at a boundary belongs to the window that begins there. Raises ValueError if a day is not a multiple of
    `window_ms`, or `window_ms` not of `from_ms`.
    """
    merged = histograms_of_windows(Rows(histograms), window_ms, from_ms)
    return merged.frame(histograms.sparkSession, LAG_HISTOGRAMS.schema)


def histograms_of_windows(histograms: Rows, window_ms: int, from_ms: int = 0, keep: Keep = None) -> Rows:
    """What `rolled_up` returns, from rows that have the columns TALLIES and window_ms. Raises ValueError like it."""
    if window_ms <= from_ms or DAY_MS % window_ms or (from_ms and window_ms % from_ms):
        raise ValueError(f"{window_ms} ms must be a multiple of {from_ms} ms, and a day a multiple of {window_ms} ms")
    return _merged(histograms.where_in("window_ms", [from_ms]), window_ms, keep)


def tally_lag(lag: pa.Table, scopes: Iterable[str] = SCOPES) -> pa.Table:
    """Histograms of these rows of `lag`, for each snapshot, value of a scope, and measure.

    `lag` has the columns COUNTED, of any snapshots and clusters; the result has the columns TALLIES. window_start is
    the snapshot's instant. Each value of a scope has a row for each measure. A row of `lag` is in no histogram of a
    scope whose column is NULL in it.
    """
    groups = {}
    for scope in scopes:
        key = dict.fromkeys(("cluster", "snapshot_id", SCOPES[scope]))  # the scope cluster has no column of its own
        groups[scope] = group_rows(lag.select([*key]), [*key])
    tallies = [arrow_schema(TALLIES).empty_table()]
    for measure in MEASURES:
        values = values_by_kind(_measured(lag, measure))
        tallies += [_tally(values, measure, scope, of_scope) for scope, of_scope in groups.items()]
    return pa.concat_tables(tallies)


def merge_histograms(parts: pa.Table, window_ms: int) -> pa.Table:
    """The rows of `lag_histograms` for windows of `window_ms` (in UTC; 0: for single snapshots), from rows of TALLIES.

    Merging is exact, in any order and in any number of steps. A count or sum that its column cannot hold is NULL; so is
    a total with a part that is NULL.
    """
    windows = _window_starts(parts["window_start"], window_ms)
    wide = {name: parts[name].cast(_WIDE) for name in _TOTALS}
    columns = dict(zip(parts.column_names, parts.columns, strict=True)) | wide | {"window_start": windows}
    counts = columns.pop("bucket_counts")
    groups = group_rows(pa.Table.from_pydict(columns), _IDENTITY, _AGGREGATIONS)
    merged = groups.keys
    starts = merged["window_start"]
    found = {
        **{name: merged[name] for name in _IDENTITY},
        **{name: _total_or_null(merged[f"{name}_sum"], *limit) for name, limit in _TOTALS.items()},
        "snapshot_date": starts.cast(pa.date32()),
        "window_ms": pa.repeat(window_ms, len(merged)),
        "scale": pa.repeat(SCALE, len(merged)),
        "bucket_offset": merged["bucket_offset_min"],
        "bucket_counts": merge_counts(parts["bucket_offset"], counts, groups),
        "min": merged["min_min"],
        "max": merged["max_max"],
    }
    return pa.Table.from_pydict(found).select(LAG_HISTOGRAMS.columns).cast(arrow_schema(LAG_HISTOGRAMS.schema))


def _tally(values: Values, measure: str, scope: str, groups: Groups) -> pa.Table:
    """The rows of TALLIES for one measure and scope."""
    keys = groups.keys
    columns = tally_values(values, groups) | {
        "cluster": keys["cluster"],
        "window_start": keys["snapshot_id"].cast(pa.timestamp("ms", "UTC")),
        "measure": pa.repeat(measure, len(keys)),
        "scope": pa.repeat(scope, len(keys)),
        "scope_value": keys[SCOPES[scope]].cast(pa.string()),
    }
    tally = pa.Table.from_pydict(columns).select(TALLIES.names).cast(arrow_schema(TALLIES))
    if not tally["scope_value"].null_count:
        return tally
    return tally.filter(tally["scope_value"].is_valid())  # which copies all lists


def _tally_bucket(bucket: Bucket) -> pa.Table:
    return tally_lag(bucket["lag"])


def _merge_bucket(bucket: Bucket, window_ms: int) -> pa.Table:
    return merge_histograms(bucket["parts"], window_ms)


def _merged(parts: Rows, window_ms: int, keep: Keep) -> Rows:
    merge = partial(_merge_bucket, window_ms=window_ms)
    return bucketed({"parts": parts}, {"parts": TALLIES}, _TOGETHER, merge, LAG_HISTOGRAMS.schema, keep=keep)


def _measured(lag: pa.Table, measure: str) -> pa.Array:
    """The values of a measure that are counted."""
    if measure == "reuse_bytes":
        is_known = pc.not_equal(lag["reuse_method"], "at_least").fill_null(False)
        return pc.if_else(is_known, lag[measure], None).combine_chunks()
    return lag[measure].combine_chunks()


def _window_starts(instants: pa.ChunkedArray, window_ms: int) -> pa.ChunkedArray:
    """The beginning of the window of each instant; the instant itself for single snapshots."""
    if not window_ms:
        return instants
    at_us = instants.cast(pa.int64()).to_numpy()
    return pa.chunked_array([at_us - at_us % (1000 * window_ms)]).cast(instants.type)


def _total_or_null(totals: pa.ChunkedArray, greatest: int, column: pa.DataType) -> pa.ChunkedArray:
    """The totals as values of a column; NULL for those that are above its greatest value."""
    fits = pc.less_equal(totals, pa.scalar(Decimal(greatest), _WIDE))
    return pc.if_else(fits, totals, pa.scalar(None, totals.type)).cast(column)
