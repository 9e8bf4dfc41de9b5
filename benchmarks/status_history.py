"""How long the status and the findings of a million group-partitions take in a lake, and in one with ten times the age.

Unlike `status`, it measures the steps of a run: they read tables of the lake and write theirs.
"""

from __future__ import annotations

from functools import reduce
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.added import spent_in_steps
from benchmarks.history import land, now
from benchmarks.lag import PARTITIONS, snapshot_id
from pipeline.common.columns import date_of
from pipeline.config import LakeConfig
from pipeline.derive import compute_cluster
from pipeline.lake import Lake, of_snapshots
from pipeline.tables import FINDINGS, TABLES, Table

COMPUTED_FIRST = 3
"""So many snapshots are computed before the last of them is copied, so that it has a rate and a forecast."""
NOT_COUNTED = 1
AT_ONCE = 30
"""The snapshots that are copied in one commit."""


def seconds(
    spark: SparkSession, folder: Path, histories: tuple[int, int], runs: int, partitions: int = PARTITIONS
) -> list[list[float]]:
    """The seconds that STEPS took for each of `runs` snapshots, after a shorter and after a longer history."""
    lake = Lake(spark, LakeConfig(root=str(folder)))
    lake.prepare()
    land(lake, range(COMPUTED_FIRST), partitions)
    compute_cluster(lake, "bench", now)
    first, newest, found = 0, COMPUTED_FIRST, []
    for history in histories:
        _copy_back(lake, newest - history, first)
        first = min(first, newest - history)
        took = []
        for minute in range(newest, newest + NOT_COUNTED + runs):
            land(lake, range(minute, minute + 1), partitions)
            took.append(spent_in_steps(lambda: compute_cluster(lake, "bench", now)))
        newest += NOT_COUNTED + runs
        found.append(took[NOT_COUNTED:])
    return found


def _copy_back(lake: Lake, first: int, before: int) -> None:
    """Gives each table the rows of the last snapshot that was computed first, for the minutes from `first` on."""
    of, minutes = snapshot_id(COMPUTED_FIRST - 1), range(first, before)
    for start in minutes[::AT_ONCE]:
        for table in TABLES:
            if table is not FINDINGS and "snapshot_id" in table.schema.names:
                _copy(lake, table, of, [snapshot_id(m) for m in range(start, min(start + AT_ONCE, before))])


def _copy(lake: Lake, table: Table, of: int, to: list[int]) -> None:
    """Gives other snapshots the rows of one; each gets a file of its own, as if a run had written it."""
    rows = lake.frame(table, of_snapshots("bench", [of])).coalesce(1)
    copies = (
        rows.withColumn("snapshot_id", F.lit(one)).withColumn("snapshot_date", date_of("snapshot_id")) for one in to
    )
    lake.replace(table, reduce(DataFrame.union, copies), of_snapshots("bench", to), most=10**9)
