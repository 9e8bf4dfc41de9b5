"""The problem `snapshots_missing`: snapshots failed or were not taken, so that the history has a hole."""

from __future__ import annotations

from collections.abc import Collection

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipeline.analytics.findings.problem import problem, some
from pipeline.common.epoch import HOUR_MS

WINDOW_MS = HOUR_MS
FEWEST = 3
"""How many must be missing within the window: one or two are usual, for example while brokers restart."""


def snapshots_missing(ledger: DataFrame, snapshot_ids: Collection[int]) -> DataFrame:
    """One problem for each of the snapshots before which others are missing, with the columns of `problem`.

    `ledger` are the rows of SNAPSHOTS from WINDOW_MS before the first of them on.
    """
    at = F.col("at")
    ids = F.array(*map(F.lit, sorted(snapshot_ids))).cast("array<bigint>")
    these = F.filter(ids, lambda i: (i >= F.col("snapshot_id")) & (i - WINDOW_MS < F.col("snapshot_id")))
    missed = F.coalesce(F.element_at("warnings", "missed_instants"), F.lit(0))
    rows = ledger.withColumn("missed", missed).withColumn("at", F.explode(these))
    error = F.when(F.col("status") == "failed", F.get("errors", F.lit(0))["error"])
    sums = rows.groupBy("cluster", at.alias("snapshot_id")).agg(
        F.count_if(F.col("status") == "failed").alias("failed"),
        F.sum("missed").alias("missed"),
        F.min(F.when((F.col("status") == "failed") | (F.col("missed") > 0), F.col("snapshot_id"))).alias("first_ms"),
        F.sort_array(F.collect_set(error)).alias("errors"),
    )
    found = sums.where(F.col("failed") + F.col("missed") >= FEWEST)
    return problem(
        found,
        kind=F.lit("snapshots_missing"),
        severity=F.lit("warning"),
        magnitude=F.col("failed") + F.col("missed"),
        facts=("failed", "missed", "first_ms", some("errors")),
    )
