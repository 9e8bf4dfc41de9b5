"""How fast the logs of a group grow, and how fast it commits, between two snapshots."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipeline.analytics.keys import GROUP
from pipeline.analytics.series import by_snapshot

_STATE = ("partitions", "log_ends", "commits", "ends_at", "captured_at")


def compared_with(before: Mapping[int, int]) -> Column:
    """The snapshot that each row's snapshot is compared with: `before` maps one to the other. NULL if there is none."""
    return by_snapshot(before)


def with_rates(groups: DataFrame, earlier: DataFrame, before: Mapping[int, int]) -> DataFrame:
    """Adds written_per_s and committed_per_s to rows of GROUP_STATUS: offsets a second since an earlier snapshot.

    `earlier` are rows of GROUP_STATUS, `before` as for `compared_with`. A rate is NULL if the group reads other
    partitions than then, if a sum is not known, or if the value went back: a reset says nothing about the speed.
    """
    then = earlier.select(*GROUP, F.col("snapshot_id").alias("then_id"), F.struct(*_STATE).alias("then"))
    return (
        groups.withColumn("then_id", compared_with(before))
        .join(then, [*GROUP, "then_id"], how="left")
        .withColumns(
            {
                "written_per_s": _per_s("log_ends", "ends_at"),
                "committed_per_s": _per_s("commits", "captured_at"),
            }
        )
        .drop("then_id", "then")
    )


def _per_s(value: str, read_at: str) -> Column:
    then = F.col("then")
    moved = F.col(value).cast("double") - then[value]  # a sum times 1,000 may exceed a bigint
    passed_ms = F.unix_millis(read_at) - F.unix_millis(then[read_at])
    is_alike = (F.col("partitions") == then["partitions"]) & (passed_ms > 0) & (moved >= 0)
    return F.when(is_alike, moved * 1000 / passed_ms)
