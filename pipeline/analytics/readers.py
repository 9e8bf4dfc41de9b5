"""Every reader of every partition in a snapshot: what it has committed, since when, and the member that reads.

All that is known of a partition's readers is brought together once, by partition; what follows needs no other shuffle.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

SNAPSHOT = ["cluster", "snapshot_id", "snapshot_date"]
PARTITION = ["topic", "partition"]
SERIES = ["cluster", *PARTITION, "group_id"]
"""What names one reader of one partition across snapshots."""
UNOBSERVED = ("consumed_offset", "fetched_offset")
"""Rungs that no source has observed yet."""


def readers(committed_offsets: DataFrame, group_members: DataFrame, previous: DataFrame) -> DataFrame:
    """A row for each partition that a group has committed in, or that one of its members is assigned.

    SERIES, SNAPSHOT, committed_offset, committed_at, committed_captured_at, committed_error, consumed_offset,
    fetched_offset, member_id, client_id, host, commit_since (the first of the snapshots at hand that saw the commit),
    inherited_topic_id (under which `previous`, rows of `lag` before, saw it first; NULL if they did not).
    """
    commits = committed_offsets.where(F.col("topic").isNotNull()).select(
        *SERIES,
        *SNAPSHOT[1:],
        "committed_offset",
        "committed_at",
        F.col("captured_at").alias("committed_captured_at"),
        F.col("error").alias("committed_error"),
    )
    assigned = group_members.where(F.col("topic").isNotNull()).select(
        *SERIES, *SNAPSHOT[1:], F.struct("member_id", "client_id", "host").alias("member")
    )
    known_id = F.coalesce("committed_topic_id", "topic_id").alias("known_topic_id")
    earlier = previous.select(*SERIES, *SNAPSHOT[1:], "committed_offset", known_id, F.lit(True).alias("is_earlier"))
    rows = (
        commits.unionByName(assigned, allowMissingColumns=True)
        .unionByName(earlier, allowMissingColumns=True)
        .repartition("cluster", *PARTITION)
        .groupBy(*SERIES, *SNAPSHOT[1:])
        .agg(
            *(F.max(name).alias(name) for name in commits.columns if name not in (*SERIES, *SNAPSHOT)),
            *(F.max(name).alias(name) for name in ("known_topic_id", "is_earlier")),
            # While members hand a partition over, two of them may have it: the first by name stands for both.
            F.min("member").alias("member"),
        )
    )
    return (
        _with_history(rows)
        .where(F.col("is_earlier").isNull())
        .select("*", "member.*", *(F.lit(None).cast("bigint").alias(name) for name in UNOBSERVED))
        .drop("known_topic_id", "is_earlier", "member")
    )


def _with_history(rows: DataFrame) -> DataFrame:
    """A commit that is unknown in between (NULL) does not count as a change."""
    series = Window.partitionBy(*SERIES).orderBy("snapshot_id")
    before = F.last("committed_offset", ignorenulls=True).over(series.rowsBetween(Window.unboundedPreceding, -1))
    is_new = F.col("committed_offset").isNotNull() & ~F.col("committed_offset").eqNullSafe(before)
    commit = Window.partitionBy(*SERIES, "commits").orderBy("snapshot_id")
    so_far = commit.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    return (
        rows.withColumn("commits", F.sum(is_new.cast("int")).over(series))
        .withColumn("inherited_topic_id", F.first("known_topic_id", ignorenulls=True).over(so_far))
        .withColumn("commit_since", F.min("snapshot_id").over(so_far))
        .drop("commits")
    )


def committed_topic_id() -> Column:
    """The topic id at the first snapshot that saw the row's commit; NULL without a commit, or topic ids (before 2.8).

    A topic that is deleted and created again has the same name and a new id: a commit belongs to the incarnation under
    which it was first seen. Needs `topic_ids`, an array of (snapshot_id, topic_id) by time.
    """
    seen = F.filter("topic_ids", lambda x: x["snapshot_id"].between(F.col("commit_since"), F.col("snapshot_id")))
    first_seen = F.coalesce("inherited_topic_id", F.get(seen, F.lit(0))["topic_id"])
    return F.when(F.col("committed_offset").isNotNull(), first_seen)
