"""The bytes of a row after `maintain`: a day of snapshots of 2,000 group-partitions each minute, half of them idle."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.lag import NOON_MS, whole
from benchmarks.timing import timed
from pipeline.config import LakeConfig, RetentionConfig
from pipeline.derive import compute_cluster
from pipeline.lake import Lake, of_snapshots
from pipeline.maintain import maintain
from pipeline.tables import (
    COMMITTED_OFFSETS,
    GROUP_MEMBERS,
    GROUP_STATUS,
    LAG,
    PARTITION_STATUS,
    SNAPSHOTS,
    WATERMARKS,
    Table,
)

MIDNIGHT_MS = 1_769_817_600_000
MINUTE_MS = 60_000
MINUTES = 1_440
GROUPS, PARTITIONS = 20, 100
"""Each group reads its own topic."""
_ENDS = ("last_stable_offset", "high_watermark_after", "log_end_offset")
MEASURED = (COMMITTED_OFFSETS, GROUP_MEMBERS, WATERMARKS, LAG, PARTITION_STATUS, GROUP_STATUS)
NEXT_DAY = datetime(2026, 2, 1, 12, tzinfo=UTC)


class Stored(NamedTuple):
    """How much storage a table takes."""

    table: str
    rows: int
    files: int
    bytes_per_row: float


def make(spark: SparkSession, folder: Path, minutes: int = MINUTES) -> Lake:
    """The lake after a day of runs, each of which has written its own files, and after `maintain`."""
    lake = Lake(spark, LakeConfig(root=str(folder)))
    lake.prepare()
    _land(lake, minutes)
    compute_cluster(lake, "bench", lambda: NEXT_DAY)
    maintain(lake, RetentionConfig(), ["bench"], lambda: NEXT_DAY)
    return lake


def stored(lake: Lake) -> list[Stored]:
    """The measured tables."""
    found = []
    for table in MEASURED:
        (detail,) = lake.spark.sql(f"DESCRIBE DETAIL {lake.identifier(table)}").collect()
        rows = lake.read(table).count()
        found.append(Stored(table.name, rows, detail["numFiles"], detail["sizeInBytes"] / max(rows, 1)))
    return found


def query_of_a_group(lake: Lake) -> tuple[list[float], int]:
    """The seconds of each run of a query for one group over the day, and how many files it reads."""
    where = "cluster = 'bench' AND snapshot_date = DATE'2026-01-31' AND group_id = 'group-of-some-team-07'"
    rows = lake.read(LAG).where(where).groupBy("snapshot_id").agg(F.sum("consumer_lag"), F.max("consumer_age_ms"))
    seconds = [timed(rows.collect) for _ in range(5)][2:]
    plan: Any = rows._jdf.queryExecution().executedPlan()  # noqa: SLF001 – only Spark's JVM counts the files
    return seconds, _files(plan)


def _files(plan: Any) -> int:
    """The files that the scans below a plan have read. With adaptive execution, each stage has a plan of its own."""
    kind = plan.getClass().getSimpleName()
    if kind == "AdaptiveSparkPlanExec":
        return _files(plan.executedPlan())
    if kind.endswith("QueryStageExec"):
        return _files(plan.plan())
    leaves = plan.collectLeaves()
    below = [leaves.apply(n) for n in range(leaves.size())]
    if any(not leaf.equals(plan) for leaf in below):
        return sum(_files(leaf) for leaf in below)
    count = plan.metrics().get("numFiles")
    return int(count.get().value()) if count.isDefined() else 0


def _land(lake: Lake, minutes: int) -> None:
    instants = [MIDNIGHT_MS + n * MINUTE_MS for n in range(minutes)]
    where = of_snapshots("bench", instants)
    rows = (
        lake.spark.range(minutes * GROUPS * PARTITIONS)
        .withColumn("nth", F.floor(F.col("id") / (GROUPS * PARTITIONS)))
        .withColumn("reader", F.col("id") % (GROUPS * PARTITIONS))
        .transform(_read)
    )
    number = (F.col("partition") / 10).cast("int")
    named = {name: F.concat(F.lit(f"{name}-"), "group_id", number) for name in ("member_id", "client_id", "host")}
    of_group = {"state": F.lit("Stable"), "group_type": F.lit("classic"), "protocol": F.lit("consumer")}
    members = rows.withColumns(named | of_group)
    readers = GROUPS * PARTITIONS
    counts = {table.name: readers for table in (COMMITTED_OFFSETS, GROUP_MEMBERS, WATERMARKS)}
    ledger = lake.spark.range(minutes).withColumns(
        {
            "nth": F.col("id"),
            "status": F.lit("complete"),
            "run_id": F.lit("bench"),
            "started_at": F.lit(NEXT_DAY),
            "groups": F.lit(GROUPS),
            "partitions": F.lit(readers),
            "rows": F.create_map(*(F.lit(value) for pair in counts.items() for value in pair)),
        }
    )
    landed: tuple[tuple[Table, DataFrame], ...] = (
        (COMMITTED_OFFSETS, rows),
        (WATERMARKS, rows),
        (GROUP_MEMBERS, members),
        (SNAPSHOTS, ledger),
    )
    for table, frame in landed:
        lake.replace(table, _whole(table, frame).repartition(minutes, "snapshot_id"), where)


def _read(rows: DataFrame) -> DataFrame:
    """What a snapshot reads about each reader. Each busy partition has its own write rate, which varies by a tenth."""
    group, partition = F.floor(F.col("reader") / PARTITIONS), F.col("reader") % PARTITIONS
    rate = F.when(F.col("reader") % 2 == 0, 0).otherwise(20 + F.abs(F.hash("reader")) % 3_000)
    end = 1_000_000 + rate * F.col("nth") + _noise(F.greatest(F.floor(rate / 10), F.lit(1)), "reader", "nth")
    arrived_ms = MIDNIGHT_MS + MINUTE_MS * F.col("nth") + 500 + _noise(F.lit(400), "group_id", "nth")
    is_busy = rate > 0
    return (
        rows.withColumns(
            {
                "group_id": F.format_string("group-of-some-team-%02d", group),
                "topic": F.format_string("topic-of-some-length-%02d", group),
                "partition": partition.cast("int"),
                "high_watermark": end,
            }
        )
        .withColumns(
            {
                "captured_at": F.timestamp_millis(arrived_ms),
                "ends_at": F.timestamp_millis(arrived_ms - 7),
                "committed_offset": end - F.when(is_busy, _noise(F.lit(200), "reader", "nth")).otherwise(0),
                **{name: F.col("high_watermark") for name in _ENDS},
                "log_start_offset": F.lit(0),
                "leader_epoch": F.lit(3),
                "metadata": F.lit(""),
                "source": F.lit("offset_fetch"),
                "topic_id": F.sha1("topic").substr(1, 22),
                "leader": (F.col("reader") % 6).cast("int"),
                **{name: F.array(*((F.col("reader") + n) % 6 for n in range(3))) for name in ("replicas", "isr")},
                "max_timestamp_ms": F.when(is_busy, arrived_ms - 20).otherwise(MIDNIGHT_MS),
                "max_timestamp_offset": F.col("high_watermark") - 1,
                "log_bytes": F.col("high_watermark") * 350,
                "log_bytes_error": F.lit(0),
                "cleanup_policy": F.lit("delete"),
                "timestamp_type": F.lit("CreateTime"),
            }
        )
        .withColumn("earlier_offset", F.col("committed_offset"))
    )


def _noise(below: Column, *names: str) -> Column:
    return F.abs(F.hash(*names)) % below


def _whole(table: Table, rows: DataFrame) -> DataFrame:
    return whole(table, rows.withColumn("minute", F.col("nth") + (MIDNIGHT_MS - NOON_MS) // MINUTE_MS))
