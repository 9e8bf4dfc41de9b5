"""How long `lag` of one more snapshot takes in a lake with a longer history."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from benchmarks.lag import (
    GROUPS,
    READERS,
    at,
    commits_of,
    members_of,
    partitions_of,
    read_on,
    snapshot_id,
    watermarks_of,
    whole,
)
from benchmarks.timing import timed
from pipeline.config import LakeConfig
from pipeline.derive import compute_cluster
from pipeline.lake import Lake, of_snapshots
from pipeline.tables import COMMITTED_OFFSETS, GROUP_MEMBERS, SNAPSHOTS, WATERMARKS

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
    """Writes snapshots of `number` partitions as runs do, each in its own file, but in one commit.

    One in ten groups has stopped, the others keep up; each group has one member.
    """
    partitions = partitions_of(lake.spark, number)
    where = of_snapshots("bench", [snapshot_id(m) for m in minutes])
    # Runs plan their work by the numbers of rows in the ledger.
    readers = number * READERS
    counts = {COMMITTED_OFFSETS: readers, GROUP_MEMBERS: readers, WATERMARKS: number}
    counted = F.create_map(*(F.lit(value) for table, count in counts.items() for value in (table.name, count)))
    ledger = lake.spark.range(1).withColumns(
        {
            "status": F.lit("complete"),
            "run_id": F.lit("bench"),
            "started_at": F.lit(now()),
            "rows": counted.cast(SNAPSHOTS.schema["rows"].dataType),
            "groups": F.lit(GROUPS),
        }
    )
    for table, rows in (
        (COMMITTED_OFFSETS, read_on(at(commits_of(partitions), *minutes))),
        (GROUP_MEMBERS, members_of(commits_of(partitions).drop("committed_offset"))),
        (WATERMARKS, watermarks_of(at(partitions, *minutes))),
        (SNAPSHOTS, ledger),
    ):
        each = rows if "minute" in rows.columns else at(rows, *minutes)
        lake.replace(table, whole(table, each).repartition(len(minutes), "snapshot_id"), where)


def now() -> datetime:
    """The time at which rows are computed."""
    return datetime.now(UTC)
