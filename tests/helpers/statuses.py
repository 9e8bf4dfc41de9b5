"""Rows of `partition_status` from literal rows of the tables that it depends on."""

from __future__ import annotations

from pyspark.sql import DataFrame

from pipeline.analytics.status.observed import OF_LAG
from pipeline.analytics.status.partition_status import OF_KNOWN
from pipeline.common.rows import Rows
from pipeline.config import StatusConfig
from pipeline.derive.status import OF_COMMIT, statuses
from pipeline.tables import COMMITTED_OFFSETS, PARTITION_STATUS


def judged(lag: DataFrame, known: DataFrame, plain: DataFrame | None = None, most: int = 1) -> DataFrame:
    """The statuses of rows of `lag`, judged by Spark's workers; see `derive.status.statuses`."""
    spark = lag.sparkSession
    if plain is None:
        plain = spark.createDataFrame([], COMMITTED_OFFSETS.schema)
    parts = (lag.select(*OF_LAG), known.select(*OF_KNOWN), plain.select(*OF_COMMIT))
    return statuses(spark, *map(Rows, parts), StatusConfig(), most).frame(spark, PARTITION_STATUS.schema)
