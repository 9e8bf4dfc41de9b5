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
        # Both sides are grouped by these columns, so a join by hash sends no row anywhere.
        rows = rows.join(_worst(partitions).hint("shuffle_hash"), GROUP_ROW, how="left")
    return aligned(rows, GROUP_STATUS.schema)


def _worst(partitions: DataFrame) -> DataFrame:
    """The status of each group: GROUP_ROW, and the columns of GROUP_STATUS that come from its partitions' statuses."""
    rank, counts = _rank(), {name: F.count_if(F.col("status") == name) for name in STATUSES}
    groups = partitions.groupBy(*GROUP_ROW).agg(
        F.max_by(
            F.struct("status", "topic", "partition", "reason"),
            # An open transaction does not explain why other partitions wait. The hash decides between equal lags.
            F.struct(
                -rank,
                ~F.col("reason").eqNullSafe("open_transaction"),
                F.coalesce("consumer_lag", F.lit(-1)),
                F.xxhash64("topic", "partition"),
            ),
        ).alias("worst"),
        F.min(F.struct(rank, F.col("since").isNull(), "since"))["since"].alias("earliest"),
        F.max("since").alias("latest"),
        F.some("has_members").alias("has_members"),
        *(F.max(name).alias(name) for name in ("members_seen_at", "commit_since")),
        *(count.alias(name) for name, count in counts.items()),
    )
    # A group has been ok since its last partition became ok. It has another status since its first partition got it.
    since = F.when(F.col("worst.status") == OK, F.col("latest")).otherwise(F.col("earliest"))
    pairs = [column for name in sorted(counts) for column in (F.lit(name), F.col(name))]
    statuses = F.map_filter(F.create_map(*pairs), lambda _, count: count > 0)
    chosen = {name: F.col(f"worst.{name}") for name in ("status", "topic", "partition", "reason")}
    return groups.withColumns(chosen | {"since": since, "statuses": statuses}).drop("worst", *counts)


def _rank() -> Column:
    """The number of a status among STATUSES, the worst of which is 1."""
    return F.array_position(F.array(*map(F.lit, STATUSES)), F.col("status"))
