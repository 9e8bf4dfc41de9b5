"""Rows of `partition_status` and `group_status` from literal rows of the tables that it depends on."""

from __future__ import annotations

from pyspark.sql import DataFrame

from pipeline.analytics.status.group_status import group_status
from pipeline.analytics.status.partition_status import statuses_of_readers
from pipeline.common.rows import Rows
from pipeline.config import StatusConfig
from pipeline.tables import COMMITTED_OFFSETS, GROUP_STATUS, PARTITION_STATUS


def judged(lag: DataFrame, known: DataFrame, commits: DataFrame | None = None, buckets: int | None = None) -> DataFrame:
    """The statuses of rows of `lag`, judged by Spark's workers; see `statuses_of_readers`."""
    spark = lag.sparkSession
    if commits is None:
        commits = spark.createDataFrame([], COMMITTED_OFFSETS.schema)
    parts = {"lag": Rows(lag), "known": Rows(known), "commits": Rows(commits)}
    return statuses_of_readers(parts, StatusConfig(), {}, buckets).frame(spark, PARTITION_STATUS.schema)


def groups_of(lag: DataFrame, statuses: DataFrame) -> DataFrame:
    """The rows of `group_status` for rows of `lag` and `partition_status`, computed by Spark's workers."""
    found = group_status({"lag": Rows(lag), "statuses": Rows(statuses)})
    return found.frame(lag.sparkSession, GROUP_STATUS.schema)
