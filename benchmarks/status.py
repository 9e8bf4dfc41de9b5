"""How fast the status of 1,000,000 group-partitions is judged, continuing from the previous snapshot."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.timing import computed
from pipeline.analytics.findings.group_problems import OF_GROUPS, find_group_problems
from pipeline.analytics.findings.problem import PROBLEMS
from pipeline.analytics.findings.suspects import find_suspects
from pipeline.analytics.status.group_status import group_status
from pipeline.analytics.status.partition_status import statuses_of_readers
from pipeline.common.buckets import ROWS_A_BUCKET
from pipeline.common.columns import aligned, date_of
from pipeline.common.rows import Rows
from pipeline.config import StatusConfig
from pipeline.tables import COMMITTED_OFFSETS, GROUP_STATUS, LAG, PARTITION_STATUS, WATERMARKS

READERS, GROUPS = 1_000_000, 2_500
STOPPED_LAG = 100
NOON_MS = 1_769_860_800_000
MINUTE_MS = 60_000


def seconds(spark: SparkSession, folder: Path, runs: int) -> tuple[list[float], list[float], list[float]]:
    """The seconds of each run of `partition_status`, of `group_status` and of `group_problems` for as many rows."""
    for minute in (0, 1):
        _lag(spark, minute).repartition(8).write.mode("overwrite").parquet(str(folder / f"status-lag-{minute}"))
    lag = [spark.read.schema(LAG.schema).parquet(str(folder / f"status-lag-{minute}")) for minute in (0, 1)]
    nothing = spark.createDataFrame([], PARTITION_STATUS.schema)
    judged = _judged(lag[0], nothing)
    judged.write.mode("overwrite").parquet(str(folder / "status-known"))
    known = spark.read.schema(PARTITION_STATUS.schema).parquet(str(folder / "status-known"))
    _groups(lag[0], known).write.mode("overwrite").parquet(str(folder / "status-groups"))
    groups = spark.read.parquet(str(folder / "status-groups"))
    return (
        computed(partial(_judged, lag[1], known), runs),
        computed(partial(_groups, lag[0], known), runs),
        computed(partial(_problems, lag[1], lag[0], known, groups), runs),
    )


def _problems(lag: DataFrame, earlier: DataFrame, known: DataFrame, groups: DataFrame) -> DataFrame:
    """The problems of the second snapshot, with the statuses of the first; one in ten readers has stopped.

    Like a run, it reads the sums of groups that `group_status` has computed.
    """
    spark, minute_ms = lag.sparkSession, NOON_MS + MINUTE_MS
    is_stopped = F.col("consumer_lag") > STOPPED_LAG
    statuses = known.withColumns(
        {"snapshot_id": F.lit(minute_ms), "status": F.when(is_stopped, "stopped").otherwise("ok")}
    )
    now = groups.withColumn("snapshot_id", F.lit(minute_ms)).withColumn("snapshot_date", date_of("snapshot_id"))
    topics = aligned(lag.select("cluster", "snapshot_id", "topic", "partition").distinct(), WATERMARKS.schema)
    parts = {"lag": Rows(lag), "statuses": Rows(statuses), "watermarks": Rows(topics), "earlier": Rows(earlier)}
    buckets = 1 + 2 * READERS // ROWS_A_BUCKET
    suspects = find_suspects(parts, {minute_ms: NOON_MS}, StatusConfig(), buckets)
    found = find_group_problems(suspects, Rows(now).chosen(OF_GROUPS), {}, StatusConfig(), buckets)
    return found.frame(spark, PROBLEMS)


def _groups(lag: DataFrame, known: DataFrame) -> DataFrame:
    return group_status({"lag": Rows(lag), "statuses": Rows(known)}).frame(lag.sparkSession, GROUP_STATUS.schema)


def _judged(lag: DataFrame, known: DataFrame) -> DataFrame:
    spark = lag.sparkSession
    commits = spark.createDataFrame([], COMMITTED_OFFSETS.schema)
    parts = {"lag": Rows(lag), "known": Rows(known), "commits": Rows(commits)}
    buckets = 1 + 2 * READERS // ROWS_A_BUCKET
    return statuses_of_readers(parts, StatusConfig(), {}, buckets).frame(spark, PARTITION_STATUS.schema)


def _lag(spark: SparkSession, minute: int) -> DataFrame:
    """One snapshot in which one in ten groups has stopped. In one topic in ten, records were deleted."""
    end = F.lit(1_000 * (minute + 1)).cast("bigint")
    committed = F.when(F.col("id") % 10 == 0, 500).otherwise(end - F.col("id") % 7)
    at = F.timestamp_millis(F.lit(NOON_MS + minute * MINUTE_MS))
    values = {
        "cluster": F.lit("bench"),
        "snapshot_id": F.lit(NOON_MS + minute * MINUTE_MS),
        "snapshot_date": F.to_date(at),
        "captured_at": at,
        "committed_captured_at": at,
        "group_id": F.format_string("group-%05d", F.col("id") % GROUPS),
        "topic": F.format_string("topic-%03d", F.floor(F.col("id") / GROUPS) % 100),
        "topic_id": F.format_string("id-%03d", F.floor(F.col("id") / GROUPS) % 100),
        "partition": F.floor(F.col("id") / GROUPS).cast("int"),
        "group_state": F.lit("Stable"),
        "log_start_offset": F.when(F.col("id") % (10 * GROUPS) < GROUPS, 10 * minute).otherwise(0).cast("bigint"),
        "committed_offset": committed,
        "high_watermark": end,
        "consumer_lag": end - committed,
        "consumer_lag_stable": end - committed,
        "consumer_age_ms": 60 * (end - committed),  # a thousand records a minute
        "offset_status": F.lit("ok"),
    }
    return aligned(spark.range(READERS).withColumns(values), LAG.schema)
