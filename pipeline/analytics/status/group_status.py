"""The table `group_status`: the status of a group is that of its worst partition, its lag is the sum over all."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipeline.analytics.lag.group_sums import GROUP_ROW, group_sums
from pipeline.analytics.status.rules import OK, STATUSES
from pipeline.common.columns import aligned
from pipeline.tables import GROUP_STATUS


def group_status(lag: DataFrame, partitions: DataFrame | None = None) -> DataFrame:
    """The rows of GROUP_STATUS for the snapshots of `lag`. `partitions` are PARTITION_STATUS for the same snapshots.

    Topic, partition and reason are those of the partition with the most lag among those with the worst status. A
    partition that waits for an open transaction is chosen only if all of these do. Without `partitions`, these columns
    and the status are NULL.
    """
    rows = group_sums(lag)
    if partitions is not None:
        rows = rows.join(_worst(partitions), GROUP_ROW, how="left")
    return aligned(rows, GROUP_STATUS.schema)


def _worst(partitions: DataFrame) -> DataFrame:
    """The status of each group: GROUP_ROW, and the columns of GROUP_STATUS that come from its partitions' statuses."""
    by_status = partitions.groupBy(*GROUP_ROW, "status").agg(
        F.count(F.lit(1)).alias("partitions"),
        F.some("has_members").alias("has_members"),
        *(F.max(name).alias(name) for name in ("members_seen_at", "commit_since")),
        F.min("since").alias("earliest"),
        F.max("since").alias("latest"),
        F.max_by(
            F.struct("topic", "partition", "reason"),
            # An open transaction does not explain why other partitions wait. The hash decides between equal lags.
            F.struct(
                ~F.col("reason").eqNullSafe("open_transaction"),
                F.coalesce("consumer_lag", F.lit(-1)),
                F.xxhash64("topic", "partition"),
            ),
        ).alias("worst"),
    )
    groups = by_status.groupBy(*GROUP_ROW).agg(
        F.min_by(F.struct("status", "earliest", "latest", "worst"), _rank()).alias("of"),
        F.map_from_entries(F.array_sort(F.collect_list(F.struct("status", "partitions")))).alias("statuses"),
        F.some("has_members").alias("has_members"),
        *(F.max(name).alias(name) for name in ("members_seen_at", "commit_since")),
    )
    # A group has been ok since its last partition became ok. It has another status since its first partition got it.
    since = F.when(F.col("of.status") == OK, F.col("of.latest")).otherwise(F.col("of.earliest"))
    chosen = {"status": F.col("of.status"), "since": since}
    chosen |= {name: F.col(f"of.worst.{name}") for name in ("topic", "partition", "reason")}
    return groups.withColumns(chosen).drop("of")


def _rank() -> Column:
    return F.array_position(F.array(*map(F.lit, STATUSES)), F.col("status"))
