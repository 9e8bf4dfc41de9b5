"""Rolls the rows of `lag` up to hours and days: the smallest, greatest and last lags, and the first and last rungs."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipeline.common.epoch import DAY_MS, HOUR_MS
from pipeline.tables import LAG, ROLLED_UP, ROLLED_UP_ENDS


def rolled_up(lag: DataFrame, statuses: DataFrame) -> DataFrame:
    """The rows of `lag_rollup` for all hours and days of rows of `lag`, with their `statuses` (`partition_status`)."""
    rows = lag.join(statuses.select(*LAG.key, "status"), [*LAG.key], how="left")
    window_ms = F.explode(F.array(F.lit(HOUR_MS), F.lit(DAY_MS)))
    start_ms = F.col("snapshot_id") - F.pmod("snapshot_id", "window_ms")
    windows = rows.withColumn("window_ms", window_ms).withColumn("window_start", F.timestamp_millis(start_ms))
    keys = ("cluster", "snapshot_date", "window_start", "window_ms", "group_id", "topic", "partition")
    return windows.groupBy(*keys).agg(
        F.count(F.lit(1)).alias("snapshots"),
        *(F.min(name).alias(f"min_{name}") for name in ROLLED_UP),
        *(F.max(name).alias(f"max_{name}") for name in ROLLED_UP),
        *(F.max_by(name, "snapshot_id").alias(f"last_{name}") for name in ROLLED_UP),
        *(F.min_by(name, "snapshot_id").alias(f"first_{name}") for name in ROLLED_UP_ENDS),
        *(F.max_by(name, "snapshot_id").alias(f"last_{name}") for name in ROLLED_UP_ENDS),
    )
