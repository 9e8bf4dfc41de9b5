"""Every reader (a group at a partition) in a snapshot: its commit, the topic id of that commit, and its member."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipeline.analytics.keys import READER_AT
from pipeline.analytics.lag.ladder import has_overtaken
from pipeline.analytics.lag.recreated_topics import commits_of_moved_topics

OF_ITS_LOG = {
    "committed_topic_id": "string",
    "verified_epoch": "int",
    "is_recreated": "boolean",
    "is_truncated": "boolean",
}
"""The columns that `commits_of_moved_topics` adds to a commit."""
REPORTED = ("consumed_offset", "fetched_offset", "stale_lag")
"""The columns that only clients report."""


def readers(
    committed_offsets: DataFrame,
    watermarks: DataFrame,
    group_members: DataFrame,
    previous: DataFrame | None,
    reported: DataFrame | None = None,
    reach: Mapping[int, int] = MappingProxyType({}),
) -> DataFrame:
    """A row for each group and partition that the group has committed in, or that its members or clients read.

    `previous` are rows of `lag` of earlier snapshots, None if no topic has moved (`moved_topics`). `reach` is as for
    `commits_of_moved_topics`.

    The columns are READER_AT, snapshot_date, committed_offset, earlier_offset and the ends read with them (end_offset,
    stable_offset, start_offset, end_after, ends_at), committed_epoch, epoch_end_offset, committed_at,
    committed_captured_at, committed_error; committed_topic_id, verified_epoch and is_truncated, if
    `commits_of_moved_topics` knows them; valid_offset, the committed offset at the time when end_offset was read, NULL
    if it belongs to another incarnation of the topic or to a truncated log; member_id, client_id, host; and if
    `reported` is given, instance, consumed_offset, fetched_offset and stale_lag of `reader_positions`.
    """
    commits = _commits(committed_offsets)
    if previous is None:
        commits = commits.withColumns({name: F.lit(None).cast(kind) for name, kind in OF_ITS_LOG.items()})
    else:
        moved = commits_of_moved_topics(committed_offsets, watermarks, previous, reach)
        commits = commits.join(moved.hint("shuffle_hash"), READER_AT, how="left")
    is_gone = F.coalesce(F.col("is_recreated") | F.col("is_truncated"), F.lit(False))
    # A hash join, like all joins here: sorting a million rows by five strings takes longer than everything else.
    rows = (
        commits.withColumn("valid_offset", F.when(~is_gone, _as_of_end()))
        .join(_members(group_members).hint("shuffle_hash"), READER_AT, how="full")
        .withColumn("snapshot_date", F.coalesce("committed_date", "assigned_date"))
        .drop("committed_date", "assigned_date", "is_recreated")
    )
    if reported is None:
        return rows.withColumns(dict.fromkeys(REPORTED, F.lit(None).cast("bigint")))
    return _with_reported(rows, reported)


def _commits(committed_offsets: DataFrame) -> DataFrame:
    """The commits of groups with the columns of `readers`: READER_AT, committed_date, committed_offset to error."""
    return committed_offsets.where(F.col("topic").isNotNull()).select(
        *READER_AT,
        F.col("snapshot_date").alias("committed_date"),
        "committed_offset",
        "earlier_offset",
        F.col("high_watermark").alias("end_offset"),
        F.col("last_stable_offset").alias("stable_offset"),
        F.col("log_start_offset").alias("start_offset"),
        F.col("high_watermark_after").alias("end_after"),
        "ends_at",
        F.col("leader_epoch").alias("committed_epoch"),
        "epoch_end_offset",
        "committed_at",
        F.col("captured_at").alias("committed_captured_at"),
        F.col("error").alias("committed_error"),
    )


def _with_reported(rows: DataFrame, reported: DataFrame) -> DataFrame:
    """Adds instance and REPORTED, and rows for readers that only a client reports."""
    return (
        rows.join(reported.hint("shuffle_hash"), READER_AT, how="full")
        .withColumns(
            {
                "snapshot_date": F.coalesce("snapshot_date", "reported_date"),
                "client_id": F.coalesce("client_id", "reported_client_id"),
            }
        )
        .withColumnRenamed("reported_instance", "instance")
        .drop("reported_date", "reported_client_id")
    )


def _as_of_end() -> Column:
    """The committed offset, but at most the end if the group has committed beyond the end after it was read."""
    return F.when(has_overtaken("end_offset"), F.col("end_offset")).otherwise(F.col("committed_offset"))


def _members(group_members: DataFrame) -> DataFrame:
    """The member of each assigned partition."""
    member = F.struct("member_id", "client_id", "host")
    assigned = group_members.where(F.col("topic").isNotNull())
    return (
        assigned.groupBy(*READER_AT)
        # During a rebalance, two members may have a partition. The row has the first of them by name.
        .agg(F.min(member).alias("member"), F.min("snapshot_date").alias("assigned_date"))
        .select(*READER_AT, "assigned_date", "member.*")
    )
