"""The problem `unreadable`: brokers do not say how far groups are behind, in two successive snapshots."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from operator import and_

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipeline.analytics.findings.problem import problem, some
from pipeline.analytics.findings.rates import compared_with
from pipeline.analytics.keys import PARTITION_AT, READER, READER_AT, SNAPSHOT


def errors_of(lag: DataFrame, unread_groups: DataFrame) -> DataFrame:
    """READER_AT and error of readers whose lag is not known because of an error.

    `unread_groups` are the rows of `committed_offsets` of groups that could not be read at all. They have no topic. If
    not even the names of the groups are known, they have no group either, but the partition of __consumer_offsets.
    """
    unknown = lag.where(F.col("error").isNotNull() & F.col("consumer_lag").isNull())
    return unknown.select(*READER_AT, "error").unionByName(unread_groups.select(*READER_AT, "error"))


def repeated_errors(errors: DataFrame, previous: Mapping[int, int]) -> DataFrame:
    """The errors of readers that also had one in the snapshot just before, which `previous` names.

    A single error is usual, for example while a broker restarts. Of groups whose names are not known, not even the
    partition of __consumer_offsets, it is not known whether they are the same.
    """
    errors = errors.where(F.coalesce("group_id", "topic", F.col("partition").cast("string")).isNotNull())
    names = (*READER, "snapshot_id")
    before = errors.select(*(F.col(name).alias(f"then_{name}") for name in names)).distinct()
    now = errors.withColumn("previous_id", compared_with(previous))
    same = [F.col(name).eqNullSafe(F.col(f"then_{name}")) for name in READER]
    at_once = F.col("previous_id") == F.col("then_snapshot_id")
    return now.join(before, reduce(and_, same, at_once), how="left_semi").drop("previous_id")


def unreadable(errors: DataFrame, leaderless: DataFrame) -> DataFrame:
    """One problem for each snapshot with such errors, with the columns of `problem`.

    Errors of partitions without a leader do not count: `under_replicated` has the cause, and the groups.
    """
    place = F.struct("topic", "partition")
    others = errors.join(leaderless, PARTITION_AT, how="left_anti")
    rows = others.groupBy(*SNAPSHOT).agg(
        F.count_distinct(F.when(F.col("topic").isNotNull(), place)).alias("partitions"),
        F.count_if(F.col("topic").isNull()).alias("whole_groups"),
        F.sort_array(F.collect_set("group_id")).alias("groups"),
        F.sort_array(F.collect_set("topic")).alias("topics"),
        F.sort_array(F.collect_set("error")).alias("errors"),
        F.count(F.lit(1)).alias("rows"),
    )
    return problem(
        rows,
        kind=F.lit("unreadable"),
        severity=F.lit("warning"),
        magnitude=F.col("rows"),
        facts=(
            "partitions",
            "whole_groups",
            some("topics"),
            some("groups"),
            F.size("groups").alias("groups_affected"),
            some("errors"),
        ),
    )
