"""The table `lag`: one row for each snapshot, group, topic and partition with a commit or an assignment."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipeline.analytics.keys import GROUP_AT, PARTITION_AT
from pipeline.analytics.lag.bytes_and_time import reader_age, unit_columns
from pipeline.analytics.lag.ladder import lags, offset_status
from pipeline.analytics.lag.readers import readers
from pipeline.analytics.lag.recreated_topics import verified_epoch
from pipeline.analytics.lag.rung_readings import Locate, gathered, kip532_from, rungs, with_readings
from pipeline.analytics.log_index.index import known_end
from pipeline.analytics.page_cache.reuse_distance import with_reuse
from pipeline.common.columns import aligned
from pipeline.tables import LAG

NOT_IN_CLUSTER = "UNKNOWN_TOPIC_OR_PARTITION"
"""Kafka's error for a partition that its metadata does not list, and that is not proven to be deleted."""


def lag_table(
    committed_offsets: DataFrame,
    watermarks: DataFrame,
    group_members: DataFrame,
    previous: DataFrame | None,
    rulers: DataFrame,
    locate: Locate | None = None,
    reported: DataFrame | None = None,
    reach: Mapping[int, int] = MappingProxyType({}),
) -> DataFrame:
    """The rows of `lag`, with the columns of LAG, for the snapshots in the bronze DataFrames.

    `previous` are rows of `lag` of earlier snapshots, None if no topic has moved (`moved_topics`). `rulers` have
    PARTITION_AT and ruler. `locate` finds offsets in log files. `reported` is what clients report (`reader_positions`).
    `reach` is as for `commits_of_moved_topics`. Rungs that were not observed are NULL, and so is every value that needs
    them. A partition of a deleted topic has no rows, even if a member of a group still holds it.
    """
    # Rulers are used twice and are expensive to compute. With a shuffle of their own, Spark computes them only once.
    rulers = rulers.repartition(*PARTITION_AT)
    partitions = (
        gathered(readers(committed_offsets, watermarks, group_members, previous, reported, reach), PARTITION_AT)
        .join(_rungs(watermarks), PARTITION_AT, how="left")
        .where(~_is_deleted())
        .join(rulers, PARTITION_AT, how="left")
    )
    groups = F.broadcast(_group_facts(committed_offsets, group_members))
    rows = with_readings(partitions, locate).join(groups, GROUP_AT, how="left")
    return aligned(with_reuse(_with_lags(_with_identity(_with_own_ends(rows))), rulers, watermarks), LAG.schema)


def _is_deleted() -> Column:
    """Whether a partition with its `readers` is proven to be deleted; if not, its lag is unknown, with an error.

    The metadata of the snapshot does not list it. A broker that was asked for it by name said that it does not exist,
    and the commits in it are not denied: the row of a commit has `ends_at`, but no end. A member may hold a deleted
    topic for minutes, until it refreshes its metadata. Its group was unknown, and the cluster unreadable.
    """

    def is_absent(reader: Column) -> Column:
        return reader["ends_at"].isNotNull() & reader["end_offset"].isNull()

    return F.col("is_listed").isNull() & F.exists("readers", is_absent)


def _with_own_ends(rows: DataFrame) -> DataFrame:
    """Replaces the ends in the partition's own row by those that were read with the commit.

    The partition's own ends are kept as log_high_watermark, log_after and log_end, because these are compared with each
    other. If the end read with the commit is beyond the partition's own, beyond_ms and beyond_records are the time and
    the records between the two; otherwise they are 0.
    """
    has_own, end = F.col("end_offset").isNotNull(), known_end()
    zero = F.lit(0).cast("bigint")
    later_ms = F.unix_millis("ends_at") - F.unix_millis("captured_at")
    is_beyond = has_own & (F.col("end_offset") > end)
    has_own_start = F.coalesce(F.col("start_offset") == F.col("log_start_offset"), F.lit(True))
    return rows.withColumns(
        {
            "log_high_watermark": F.col("high_watermark"),
            "log_after": F.col("high_watermark_after"),
            "log_end": F.col("log_end_offset"),
            "beyond_records": F.when(is_beyond, F.col("end_offset") - end).otherwise(zero),
            "beyond_ms": F.when(is_beyond, F.greatest(later_ms, zero)).otherwise(zero),
        }
    ).withColumns(
        {
            "captured_at": F.coalesce("ends_at", "captured_at"),
            "log_start_offset": F.coalesce("start_offset", "log_start_offset"),
            "log_start_reading": F.when(has_own_start, F.col("log_start_reading")),
            "high_watermark": F.coalesce("end_offset", "high_watermark"),
            "high_watermark_after": F.when(has_own, F.col("end_after")).otherwise(F.col("high_watermark_after")),
            "last_stable_offset": F.when(has_own, F.col("stable_offset")).otherwise(F.col("last_stable_offset")),
            "log_end_offset": F.when(is_beyond & F.col("log_end").isNotNull(), F.col("end_offset")).otherwise(
                F.col("log_end")
            ),
            "high_watermark_reading": F.coalesce("end_reading", "high_watermark_reading"),
            "high_watermark_on_ruler": F.coalesce("end_on_ruler", "high_watermark_on_ruler"),
        }
    )


def _with_identity(rows: DataFrame) -> DataFrame:
    """Sets the errors, and which log a commit belongs to (committed_topic_id, verified_epoch)."""
    topic_id = F.when(F.col("committed_offset").isNotNull(), F.coalesce("committed_topic_id", "topic_id"))
    return rows.withColumns(
        {
            "committed_error": F.coalesce("committed_error", "group_error"),
            "watermark_error": F.when(F.col("is_listed"), F.col("watermark_error")).otherwise(NOT_IN_CLUSTER),
            "committed_topic_id": topic_id,
            "verified_epoch": F.coalesce("verified_epoch", verified_epoch("committed_epoch", "log_epoch")),
        }
    )


def _with_lags(rows: DataFrame) -> DataFrame:
    """Adds the lags in records, bytes and time, offset_status and error."""
    captured_ms = F.unix_millis("captured_at")
    return rows.withColumn("kip532_from", kip532_from()).withColumns(
        {
            **lags(),
            **unit_columns(rungs(), captured_ms),
            **reader_age(rungs(), captured_ms),
            "offset_status": offset_status(),
            "error": F.coalesce("watermark_error", "committed_error"),
        }
    )


def _group_facts(committed_offsets: DataFrame, group_members: DataFrame) -> DataFrame:
    """The state and type of each group, and the error if its commits could not be read at all.

    If there is an error, the commits in its assigned partitions are unknown, not absent.
    """
    unread = committed_offsets.where(F.col("topic").isNull()).select(*GROUP_AT, "error")
    described = group_members.select(*GROUP_AT, "state", "group_type")
    return (
        described.distinct()
        .unionByName(unread, allowMissingColumns=True)
        .where(F.col("group_id").isNotNull())
        .groupBy(*GROUP_AT)
        .agg(
            F.max("state").alias("group_state"),
            F.max("group_type").alias("group_type"),
            F.min("error").alias("group_error"),
        )
    )


def _rungs(watermarks: DataFrame) -> DataFrame:
    return watermarks.where(F.col("topic").isNotNull()).select(
        *PARTITION_AT,
        "captured_at",
        "topic_id",
        "leader",
        F.col("leader_epoch").alias("log_epoch"),
        "log_start_offset",
        "last_stable_offset",
        "high_watermark",
        "log_end_offset",
        "high_watermark_after",
        F.try_divide("log_bytes", known_end() - F.col("log_start_offset")).alias("record_bytes"),
        F.coalesce(F.col("cleanup_policy").contains("compact"), F.lit(False)).alias("is_compacted"),
        F.col("error").alias("watermark_error"),
        F.lit(True).alias("is_listed"),
    )
