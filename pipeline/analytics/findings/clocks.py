"""The problems `clock_ahead` and `clock_behind`: records of a topic have timestamps that cannot be right."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipeline.analytics.findings.problem import problem
from pipeline.analytics.keys import TOPIC_AT
from pipeline.common.epoch import DAY_MS, MINUTE_MS

AHEAD_MS = 5 * MINUTE_MS
"""Clocks that differ by less are usual."""
FIRST_SECOND = 1_000_000_000
"""9 September 2001 in seconds. In milliseconds, all seconds from here to today are days of January 1970."""


def clock_ahead(watermarks: DataFrame) -> DataFrame:
    """One problem for each topic and snapshot, with the columns of `problem`, from rows of `watermarks`.

    From a day on, it is a warning: retention then keeps whole segments for so much longer.
    """
    ahead_ms = F.try_subtract("max_timestamp_ms", F.unix_millis("captured_at"))
    ahead = F.col("newest.off_ms")
    return problem(
        _by_topic(watermarks, ahead_ms, F.col("off_ms") > AHEAD_MS),
        kind=F.lit("clock_ahead"),
        topic=F.col("topic"),
        partitions=F.col("partitions"),
        severity=F.when(ahead >= DAY_MS, "warning").otherwise("info"),
        magnitude=ahead,
        facts=("topic", F.size("partitions").alias("partitions"), "newest"),
    )


def clock_behind(watermarks: DataFrame) -> DataFrame:
    """One problem for each topic and snapshot whose newest record has seconds in place of milliseconds.

    It is a warning: retention deletes such records as if they were written in 1970. Other old timestamps may be right,
    for example those of records that are copied from elsewhere.
    """
    behind_ms = F.unix_millis("captured_at") - F.col("max_timestamp_ms")
    now_s = F.unix_millis("captured_at") / 1_000
    is_in_seconds = F.col("max_timestamp_ms").between(F.lit(FIRST_SECOND), now_s + DAY_MS / 1_000)
    return problem(
        _by_topic(watermarks, behind_ms, is_in_seconds),
        kind=F.lit("clock_behind"),
        topic=F.col("topic"),
        partitions=F.col("partitions"),
        severity=F.lit("warning"),
        magnitude=F.col("newest.off_ms"),
        facts=("topic", F.size("partitions").alias("partitions"), "newest"),
    )


def _by_topic(watermarks: DataFrame, off_ms: Column, is_wrong: Column) -> DataFrame:
    """The partitions of each topic whose newest timestamp is wrong, and the `newest` record that is off by most."""
    newest = F.struct("off_ms", "partition", "max_timestamp_ms", "max_timestamp_offset")
    return (
        watermarks.where(F.col("topic").isNotNull())
        .withColumn("off_ms", off_ms)
        .where(is_wrong)
        .groupBy(*TOPIC_AT)
        .agg(F.sort_array(F.collect_set("partition")).alias("partitions"), F.max(newest).alias("newest"))
    )
