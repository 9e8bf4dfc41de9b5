"""What the job `lag` needs in a new process that spark-submit.sh starts, for one more snapshot.

As a program, it is the process to compare with, which copies the rows of `lag`:
`python -m benchmarks.lag_job LAKE COPY`.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.history import land
from benchmarks.lag import snapshot_id
from benchmarks.processes import Needs, needs_of
from pipeline.config import LakeConfig
from pipeline.lake import Lake, of_snapshots
from pipeline.session import spark_session
from pipeline.tables import LAG

_CONFIG = """\
[lake]
root = "{lake}"
[snapshot]
schedule = "1m"
[clusters.bench]
bootstrap_servers = ["127.0.0.1:1"]
"""
_MEMORY = ("--driver-memory", "4g")
_JAVA = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseParallelGC"
"""The options that spark-submit.sh gives to a job that ends."""


def measure(spark: SparkSession, folder: Path, partitions: int) -> tuple[Needs, Needs]:
    """What the job `lag` needs for a second snapshot of `partitions` partitions, and a process that copies its rows.

    Each partition has ten readers. The job reads bronze, extends the log index, and computes and writes all tables.
    """
    folder.mkdir(parents=True, exist_ok=True)
    root, config, log = folder / "lake", folder / "config.toml", folder / "log"
    config.write_text(_CONFIG.format(lake=root.absolute()))
    lake = Lake(spark, LakeConfig(root=str(root.absolute())))
    lake.prepare()
    job = ["./spark-submit.sh", "--master", "local[2]", *_MEMORY, "--", "lag", "--config", str(config)]
    needed = []
    for minute in range(2):
        land(lake, range(minute, minute + 1), partitions)
        needed.append(needs_of(job, log))
    copy = [sys.executable, "-m", "benchmarks.lag_job", str(root.absolute()), str((folder / "copy").absolute())]
    return needed[-1], needs_of(copy, log)


def main(root: str, copy: str) -> int:
    """Copies the newest rows of `lag` in a lake to a Delta table in a folder."""
    settings = {"spark.master": "local[2]", "spark.driver.memory": "4g", "spark.driver.defaultJavaOptions": _JAVA}
    spark = spark_session("copy", settings)
    rows = Lake(spark, LakeConfig(root=root)).read(LAG).where(of_snapshots("bench", [snapshot_id(1)]))
    rows.write.format("delta").save(copy)
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
