"""Keeps hours and days of the rows of `lag` that are about to be removed."""

from __future__ import annotations

from pyspark.sql import Window
from pyspark.sql import functions as F

from pipeline.analytics.lag.rollup import rolled_up
from pipeline.lake import Lake, of_dates
from pipeline.tables import LAG, LAG_ROLLUP, PARTITION_STATUS


def keep_rollup(lake: Lake, cluster: str, where: str) -> None:
    """Adds the hours and days of the rows of `lag` that satisfy `where` to `lag_rollup`. One commit.

    Where `lag_rollup` has a row already, that row stays: a job that was killed wrote it from the same rows, or most of
    its rows have been removed since.
    """
    lag = lake.read(LAG).where(where)
    days = [row["snapshot_date"] for row in lag.select("snapshot_date").distinct().collect()]
    there = lake.read(LAG_ROLLUP).where(of_dates(cluster, days)).withColumn("is_new", F.lit(False))
    added = rolled_up(lag, lake.read(PARTITION_STATUS).where(where)).withColumn("is_new", F.lit(True))
    first = F.row_number().over(Window.partitionBy(*LAG_ROLLUP.key).orderBy("is_new"))
    rows = there.unionByName(added).withColumn("number", first).where("number = 1")
    lake.replace(LAG_ROLLUP, rows, of_dates(cluster, days))
