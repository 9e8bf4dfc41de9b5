"""Which offsets are looked for in the brokers' log files, so that lag in bytes and time is exact."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from pipeline.analytics.keys import PARTITION_AT
from pipeline.common.columns import aligned
from pipeline.tables.columns import INT, LONG, STRING

Locate = Callable[[DataFrame], DataFrame]
"""Finds offsets in log files: rows of (topic, partition, offset) → rows of `log_segments.source.OFFSET_LOCATIONS`."""
FILES = (
    StructType()
    .add("topic", STRING)
    .add("partition", INT)
    .add("files_topic_id", STRING)
    .add("offset", LONG)
    .add("position_bytes", LONG)
    .add("timestamp_ms", LONG)
    .add("log_end_offset", LONG)
    .add("newest_timestamp_ms", LONG)
    .add("markers_to_end", LONG)
)
"""What log files have at an offset."""


def located_offsets(
    committed_offsets: DataFrame,
    watermarks: DataFrame,
    group_members: DataFrame,
    reported: DataFrame | None,
    locate: Locate,
) -> DataFrame:
    """What `locate` finds at all rungs, and at the last record before each end of a log: rows of FILES.

    Only the files of partitions that somebody reads are opened.
    """
    readers = [committed_offsets, group_members, *([] if reported is None else [reported])]
    read = reduce(DataFrame.union, (rows.select(*PARTITION_AT) for rows in readers)).distinct()
    before_the_ends = (F.col(name) - 1 for name in ("high_watermark", "log_end_offset"))
    ends = watermarks.join(read, PARTITION_AT, how="left_semi").select(
        "topic", "partition", F.array("log_start_offset", "high_watermark", "log_end_offset", *before_the_ends)
    )
    commits = committed_offsets.select(
        "topic", "partition", F.array("committed_offset", "earlier_offset", "high_watermark", "log_start_offset")
    )
    parts = [ends, commits]
    if reported is not None:
        parts.append(reported.select("topic", "partition", F.array("consumed_offset", "fetched_offset")))
    offsets = reduce(DataFrame.union, parts).toDF("topic", "partition", "offsets")
    asked = offsets.select("topic", "partition", F.explode("offsets").alias("offset")).where(F.col("offset") >= 0)
    return aligned(locate(asked.distinct()).withColumnRenamed("topic_id", "files_topic_id"), FILES)
