"""The problem `under_replicated`: partitions whose replicas have not all been in sync for some time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipeline.analytics.findings.problem import problem, some
from pipeline.analytics.keys import PARTITION, PARTITION_AT, SNAPSHOT
from pipeline.analytics.series import by_snapshot
from pipeline.common.epoch import MINUTE_MS

LASTS_MS = 5 * MINUTE_MS
"""How long a broker must be missing: longer than a restart usually takes."""


def seen_before(snapshot_ids: Sequence[int], batch: Sequence[int], most: int) -> dict[int, int]:
    """For each snapshot of a batch, the newest one that is LASTS_MS older, or else the one `most` before it.

    `snapshot_ids` are those of the batch and at least `most` before it, ascending. A snapshot without such a one is
    left out.
    """
    found: dict[int, int] = {}
    for snapshot_id in batch:
        before = [i for i in snapshot_ids if i < snapshot_id][-most:]
        older = [i for i in before if i <= snapshot_id - LASTS_MS]
        if older or len(before) == most:
            found[snapshot_id] = older[-1] if older else before[0]
    return found


def under_replicated(
    watermarks: DataFrame, lag: DataFrame, before: Mapping[int, int], previous: Mapping[int, int]
) -> DataFrame:
    """One problem for each snapshot with such partitions, with the columns of `problem`.

    `watermarks` are the rows of the snapshots of a batch, and of those that `before` (`seen_before`) and `previous`
    (the snapshot just before) map them to. A replica counts if its broker was missing from the partition in both
    snapshots; of a partition without a leader, which nobody can read, the previous snapshot is enough. `lag` has the
    groups that read these partitions.
    """
    missing = watermarks.where(F.col("topic").isNotNull()).select(
        *PARTITION, "snapshot_id", F.explode(_missing()).alias("broker"), _is_critical().alias("is_critical"),
        F.col("leader").isNull().alias("has_no_leader"),
    )  # fmt: skip
    without_leader = _lasting(missing.where("has_no_leader"), previous)
    lasting = _lasting(missing, before).unionByName(without_leader).distinct()
    place = F.struct("topic", "partition")
    by_broker = lasting.groupBy(*SNAPSHOT, "broker").agg(
        F.count(F.lit(1)).alias("partitions"), F.collect_set(place).alias("places"),
        F.collect_set(F.when(F.col("is_critical"), place)).alias("critical"),
        F.collect_set(F.when(F.col("has_no_leader"), place)).alias("without_leader"),
    )  # fmt: skip
    unread = lag.join(without_leader.select(*PARTITION_AT).distinct(), PARTITION_AT)
    groups = unread.groupBy(*SNAPSHOT).agg(F.sort_array(F.collect_set("group_id")).alias("groups"))
    return _described(_summed(by_broker).join(groups, [*SNAPSHOT], how="left"))


def _lasting(missing: DataFrame, earlier: Mapping[int, int]) -> DataFrame:
    """The replicas that are also missing in the snapshot that `earlier` maps theirs to."""
    then = missing.select(*PARTITION, "broker", F.col("snapshot_id").alias("then_id"))
    now = missing.withColumn("then_id", by_snapshot(earlier))
    return now.join(then, [*PARTITION, "broker", "then_id"], how="left_semi").drop("then_id")


def _missing() -> Column:
    """The brokers that are missing: those out of sync; without a leader, those in sync, which alone could lead."""
    could_lead = F.when(F.size("isr") > 0, F.col("isr")).otherwise(F.col("replicas"))
    return F.when(F.col("leader").isNull(), could_lead).otherwise(F.array_except("replicas", "isr"))


def _is_critical() -> Column:
    return F.col("leader").isNull() | (2 * F.size("isr") < F.size("replicas"))


def _summed(by_broker: DataFrame) -> DataFrame:
    """One row for each snapshot, with the broker that is missing from most partitions."""

    def all_of(name: str) -> Column:
        return F.array_distinct(F.flatten(F.collect_list(name)))

    return by_broker.groupBy(*SNAPSHOT).agg(
        F.size(all_of("places")).alias("partitions"),
        F.array_sort(F.array_distinct(F.flatten(F.collect_list("places.topic")))).alias("topics"),
        F.size(all_of("critical")).alias("critical"),
        F.size(all_of("without_leader")).alias("without_leader"),
        F.max(F.struct("partitions", (-F.col("broker")).alias("negative"))).alias("worst"),
        F.sort_array(F.collect_set("broker")).alias("brokers"),
    )


def _described(rows: DataFrame) -> DataFrame:
    return problem(
        rows,
        kind=F.lit("under_replicated"),
        severity=F.when(F.col("critical") > 0, "critical").otherwise("warning"),
        magnitude=F.col("partitions"),
        facts=(
            "partitions",
            some("topics"),
            F.size("topics").alias("topics_affected"),
            "worst",
            some("brokers"),
            "without_leader",
            "critical",
            some("groups"),
            F.size(F.coalesce("groups", F.array().cast("array<string>"))).alias("groups_affected"),
        ),
    )
