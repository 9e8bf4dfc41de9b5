"""The table `group_status`: the status of a group is that of its worst partition."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipeline.analytics.status.rules import OK, STATUSES
from pipeline.tables import GROUP_STATUS

GROUP_AT = ["cluster", "snapshot_id", "snapshot_date", "group_id"]


def group_status(partitions: DataFrame) -> DataFrame:
    """The rows of GROUP_STATUS for the snapshots that `partitions`, rows of PARTITION_STATUS, has.

    Of the partitions with the worst status the one with the most lag gives its topic, partition and reason.
    """
    by_status = partitions.groupBy(*GROUP_AT, "status").agg(
        F.count(F.lit(1)).alias("partitions"),
        F.try_sum("consumer_lag").alias("consumer_lag"),
        F.max("consumer_age_ms").alias("consumer_age_ms"),
        F.max("captured_at").alias("captured_at"),
        F.some("has_members").alias("has_members"),
        F.min("since").alias("earliest"),
        F.max("since").alias("latest"),
        F.max_by(
            F.struct("topic", "partition", "reason"),
            # The first by name of several with the same lag, in any order of rows.
            F.struct(F.coalesce("consumer_lag", F.lit(-1)), F.xxhash64("topic", "partition")),
        ).alias("worst"),
    )
    groups = by_status.groupBy(*GROUP_AT).agg(
        F.min_by(F.struct("status", "earliest", "latest", "worst"), _rank()).alias("of"),
        F.sum("partitions").alias("partitions"),
        F.map_from_entries(F.array_sort(F.collect_list(F.struct("status", "partitions")))).alias("statuses"),
        F.try_sum("consumer_lag").alias("consumer_lag"),
        F.max("consumer_age_ms").alias("consumer_age_ms"),
        F.max("captured_at").alias("captured_at"),
        F.some("has_members").alias("has_members"),
    )
    # A group is well since the last of its partitions is, and not since the first was not.
    since = F.when(F.col("of.status") == OK, F.col("of.latest")).otherwise(F.col("of.earliest"))
    chosen = {"status": F.col("of.status"), "since": since}
    chosen |= {name: F.col(f"of.worst.{name}") for name in ("topic", "partition", "reason")}
    return groups.withColumns(chosen).select(*GROUP_STATUS.columns)


def _rank() -> Column:
    return F.array_position(F.array(*map(F.lit, STATUSES)), F.col("status"))
