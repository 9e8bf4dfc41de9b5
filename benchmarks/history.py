"""How long `lag` of one more snapshot takes in a lake with a longer history."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from benchmarks.lag import at, commits_of, partitions_of, snapshot_id, watermarks_of, whole
from benchmarks.timing import timed
from pipeline.config import LakeConfig
from pipeline.derive import compute_cluster
from pipeline.lake import Lake, of_snapshots
from pipeline.tables import COMMITTED_OFFSETS, SNAPSHOTS, WATERMARKS

PARTITIONS = 2_000
"""Each partition has ten readers."""
NOT_COUNTED = 2


def seconds(spark: SparkSession, folder: Path, history: int, runs: int = 4) -> list[float]:
    """The seconds that `lag` took for each of `runs` snapshots, after a history of `history` others."""
    lake = Lake(spark, LakeConfig(root=str(folder.absolute())))
    lake.prepare()
    land(lake, range(history), PARTITIONS)
    compute_cluster(lake, "bench", now)
    found = []
    for number in range(history, history + NOT_COUNTED + runs):
        land(lake, range(number, number + 1), PARTITIONS)
        found.append(timed(lambda: compute_cluster(lake, "bench", now)))
    return found[NOT_COUNTED:]


def land(lake: Lake, minutes: range, number: int) -> None:
    """Writes snapshots of `number` partitions as runs do, each in its own file, but in one commit."""
    partitions = partitions_of(lake.spark, number)
    where = of_snapshots("bench", [snapshot_id(m) for m in minutes])
    ledger = lake.spark.range(1).withColumns(
        {"status": F.lit("complete"), "run_id": F.lit("bench"), "started_at": F.lit(now())}
    )
    for table, rows in (
        (COMMITTED_OFFSETS, commits_of(partitions)),
        (WATERMARKS, watermarks_of(at(partitions, *minutes))),
        (SNAPSHOTS, ledger),
    ):
        each = rows if "minute" in rows.columns else at(rows, *minutes)
        lake.replace(table, whole(table, each).repartition(len(minutes), "snapshot_id"), where)


def now() -> datetime:
    """The time at which rows are computed."""
    return datetime.now(UTC)
