"""The problem `clock_ahead`: records of a topic have timestamps in the future."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipeline.analytics.findings.problem import problem
from pipeline.analytics.keys import TOPIC_AT
from pipeline.common.epoch import DAY_MS, MINUTE_MS

AHEAD_MS = 5 * MINUTE_MS
"""Clocks that differ by less are usual."""


def clock_ahead(watermarks: DataFrame) -> DataFrame:
    """One problem for each topic and snapshot, with the columns of `problem`, from rows of `watermarks`.

    From a day on, it is a warning: retention then keeps whole segments for so much longer.
    """
    ahead = F.try_subtract("max_timestamp_ms", F.unix_millis("captured_at"))
    rows = watermarks.where(F.col("topic").isNotNull()).withColumn("ahead_ms", ahead)
    newest = F.struct("ahead_ms", "partition", "max_timestamp_ms", "max_timestamp_offset")
    found = (
        rows.where(F.col("ahead_ms") > AHEAD_MS)
        .groupBy(*TOPIC_AT)
        .agg(F.sort_array(F.collect_set("partition")).alias("partitions"), F.max(newest).alias("newest"))
    )
    ahead = F.col("newest.ahead_ms")
    return problem(
        found,
        kind=F.lit("clock_ahead"),
        topic=F.col("topic"),
        partitions=F.col("partitions"),
        severity=F.when(ahead >= DAY_MS, "warning").otherwise("info"),
        magnitude=ahead,
        facts=("topic", F.size("partitions").alias("partitions"), "newest"),
    )
