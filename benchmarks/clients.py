"""The cost of clients' positions: reading them from scrapes and from request logs, and joining them with readers."""

from __future__ import annotations

import shutil
import tarfile
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.lag import whole
from benchmarks.timing import computed, timed
from pipeline.analytics.clients.clients import reader_positions
from pipeline.analytics.lag.lag import LAG_PARTS
from pipeline.common.epoch import utc_date
from pipeline.common.rows import Rows
from pipeline.config import LakeConfig
from pipeline.lake import Lake, of_snapshots
from pipeline.tables import CLIENT_POSITIONS, COMMITTED_OFFSETS, GROUP_MEMBERS, LAG, WATERMARKS, Table

RECORDINGS = Path("tests/data/recordings")
SNAPSHOT_ID = 1_795_339_680_000
READERS, PARTITIONS = 1_000_000, 400
CLIENTS = 2_000
"""The number of scrapes, one for each client of a fleet."""
PLACES = 2
COPIES = 10
"""The number of request logs, and how often each repeats the recorded one."""


def samples_per_min(spark: SparkSession, folder: Path) -> float:
    """Prometheus samples per minute, from files of real scrapes to rows in Delta, on all cores."""
    scrapes = (_unpacked("modern-b", folder) / "aggregator" / "prom").iterdir()
    # The longest scrape, because before partitions are assigned there are no metrics about them.
    scrape = max((file.read_text() for file in scrapes), key=len)
    folders = folder / "scrapes"
    folders.mkdir(exist_ok=True)
    for number in range(CLIENTS):
        (folders / f"{number}-{SNAPSHOT_ID}.prom").write_text(scrape.replace("shop-agg-1", f"client-{number}"))
    samples = CLIENTS * sum(not line.startswith("#") for line in scrape.splitlines())
    lake = Lake(spark, LakeConfig(root=f"{folder.absolute()}/lake-{time.time_ns()}"))
    lake.prepare()
    rows = spark.read.format("kafka_client_metrics").option("path", str(folders)).load()
    seconds = [timed(lambda: lake.replace(CLIENT_POSITIONS, _of_snapshot(rows), _WHERE)) for _ in range(3)]
    return samples / min(seconds[1:]) * 60


def lines_per_s(spark: SparkSession, folder: Path) -> float:
    """Lines of request logs per second, for two brokers at once, to rows that are not written."""
    recorded = (_unpacked("request-log", folder) / "request.log").read_text()
    folders = []
    for broker in range(PLACES):
        file = folder / f"broker-{broker}"
        shutil.rmtree(file, ignore_errors=True)
        file.mkdir()
        for copy in range(COPIES):
            # Each copy has another day, so that the log continues.
            (file / f"request.log.{copy}").write_text(recorded.replace("[2026-11-21", f"[2026-10-{copy + 1:02}"))
        folders.append(str(file))
    lines = PLACES * COPIES * recorded.count("\n")
    read = spark.read.format("kafka_request_log").option("path", ",".join(folders))
    return lines / min(computed(read.load, 2))


def joined(spark: SparkSession, folder: Path) -> Callable[[], DataFrame]:
    """Positions of clients in a million partitions, joined with as many commits and members, for `computed`."""
    reader = spark.range(READERS).withColumns(
        {
            "group": F.floor(F.col("id") / PARTITIONS),
            "group_id": F.concat(F.lit("group-"), "group"),
            "client_id": F.concat(F.lit("client-"), "group", F.lit("-"), F.col("id") % 4),
            "topic": F.concat(F.lit("topic-"), F.floor(F.col("id") % PARTITIONS / 20)),
            "partition": (F.col("id") % 20).cast("int"),
            "minute": F.lit(0),
            "committed_offset": F.col("id") % 1_000,
            "log_start_offset": F.lit(0),
            "last_stable_offset": F.lit(2_000),
            "high_watermark": F.lit(2_000),
            "reported_lag": F.lit(100),
            "reported_lead": F.lit(900),
            "as_of": F.timestamp_millis(F.lit(SNAPSHOT_ID)),
            "source": F.lit("kafka_client_metrics"),
            "endpoint": F.concat(F.lit("http://app-"), "group", F.lit(":9404/metrics")),
        }
    )
    frames: dict[Table, DataFrame] = {
        CLIENT_POSITIONS: reader.drop("group_id"),
        WATERMARKS: reader.where("group = 0"),
        COMMITTED_OFFSETS: reader,
        GROUP_MEMBERS: reader,
    }
    for table, rows in frames.items():
        whole(table, rows).write.mode("overwrite").parquet(f"{folder}/{table.name}")
    names = ("positions", "watermarks", "commits", "members")
    parts = {
        name: Rows(spark.read.parquet(f"{folder}/{table.name}")) for name, table in zip(names, frames, strict=True)
    }
    parts["before"] = Rows(spark.createDataFrame([], LAG.schema))
    return lambda: reader_positions(parts, [SNAPSHOT_ID], {}).frame(spark, LAG_PARTS["reported"])


_WHERE = of_snapshots("bench", [SNAPSHOT_ID])


def _of_snapshot(rows: DataFrame) -> DataFrame:
    date = F.lit(utc_date(SNAPSHOT_ID))
    return rows.withColumns({"cluster": F.lit("bench"), "snapshot_id": F.lit(SNAPSHOT_ID), "snapshot_date": date})


def _unpacked(name: str, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(RECORDINGS / f"{name}.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder / name
