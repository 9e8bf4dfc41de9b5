"""The table `lag_histograms`: distributions of lag by cluster, broker, topic and group, for a snapshot, hour or day.

Any two histograms of one measure merge exactly, in any order: all buckets are the same, counts and sums are integers.
"""

from __future__ import annotations

from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, LongType, StructType

from pipeline.analytics.histograms.buckets import SCALE, merged_counts, tallies
from pipeline.common.arrow_udf import with_arrow_column
from pipeline.common.columns import columns_of, date_of
from pipeline.common.epoch import DAY_MS
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


_IDENTITY = ["cluster", "start_ms", "measure", "scope", "scope_value"]
_PARTIAL = [LAG.schema["cluster"], LAG.schema["snapshot_id"]]
_PARTIAL += [
    LAG_HISTOGRAMS.schema[name]
    for name in (
        "scope",
        "scope_value",
        "measure",
        "zero_count",
        "negative_count",
        "null_count",
        "bucket_offset",
        "bucket_counts",
        "count",
        "sum",
        "min",
        "max",
    )
]


def histograms(lag: DataFrame) -> DataFrame:
    """The rows of `lag_histograms` for the snapshots in `lag`, with window_ms = 0.

    Each value of a scope has a row for each measure, even if all of the measure's values are NULL, so that null_count
    stays correct when histograms are merged. A partition without a leader is in no row of the scope broker.
    """
    count = partial(tallies, scopes=SCOPES, measures=MEASURES, names=[f.name for f in _PARTIAL])
    return _merged(
        # Workers count chunks of rows. Spark's own columns took more than 3 times as long, for a part of this.
        lag.withColumn("reuse_bytes", F.when(F.col("reuse_method") != "at_least", F.col("reuse_bytes")))
        .select("snapshot_id", *SCOPES.values(), *MEASURES)
        .mapInArrow(count, StructType(_PARTIAL))
        .where(F.col("scope_value").isNotNull())
        .withColumnRenamed("snapshot_id", "start_ms"),
        window_ms=0,
    )


def rolled_up(histograms: DataFrame, window_ms: int, from_ms: int = 0) -> DataFrame:
    """The rows of `lag_histograms` for windows of `window_ms` (in UTC), merged from its rows with windows of `from_ms`.

    By default they are merged from single snapshots. Days can also be merged from hours, with the same result. A
    snapshot at a boundary belongs to the window that begins there. Raises ValueError if a day is not a multiple of
    `window_ms`, or `window_ms` not of `from_ms`.
    """
    if window_ms <= from_ms or DAY_MS % window_ms or (from_ms and window_ms % from_ms):
        raise ValueError(f"{window_ms} ms must be a multiple of {from_ms} ms, and a day a multiple of {window_ms} ms")
    at_ms = F.unix_millis("window_start")
    rows = histograms.where(F.col("window_ms") == from_ms)
    return _merged(rows.withColumn("start_ms", at_ms - F.pmod(at_ms, F.lit(window_ms))), window_ms)


def _merged(parts: DataFrame, window_ms: int) -> DataFrame:
    """Merges histograms with the same measure, scope and start_ms."""
    has_buckets = F.col("bucket_offset").isNotNull()
    totals = ["zero_count", "negative_count", "null_count", "count", "sum"]
    together = parts.groupBy(*_IDENTITY).agg(
        *(F.try_sum(name).alias(name) for name in totals),
        F.min("min").alias("min"),
        F.max("max").alias("max"),
        F.min("bucket_offset").alias("bucket_offset"),
        F.collect_list(F.when(has_buckets, F.struct("bucket_offset", "bucket_counts"))).alias("parts"),
    )
    columns = {
        "snapshot_date": date_of("start_ms"),
        "window_start": F.timestamp_millis("start_ms"),
        "window_ms": F.lit(window_ms),
        "scale": F.lit(SCALE),
    }
    merged = with_arrow_column(together, "bucket_counts", merged_counts, ArrayType(LongType()), F.col("parts"))
    return merged.withColumns(columns).select(*columns_of(LAG_HISTOGRAMS.schema))
