"""Literal rows as DataFrames: name the columns that matter; the others are NULL."""

from collections.abc import Sequence
from datetime import date
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from pipeline.tables import Table

SNAPSHOT_DATE = date(2026, 1, 31)
WHO_AND_WHEN = {
    "run_id",
    "captured_at",
    "committed_captured_at",
    "ends_at",
    "started_at",
    "finished_at",
    "computed_at",
    "consumer_age_ms",  # as of captured_at
}
"""The columns in which two runs on the same cluster differ."""


def frame(spark: SparkSession, table: Table, names: str, *rows: Sequence[Any]) -> DataFrame:
    """A DataFrame with the table's schema. `names` are the given columns, separated by blanks. The default cluster is
    `east`.
    """
    given = names.split()
    defaults = {"cluster": "east", "snapshot_date": SNAPSHOT_DATE}
    values = [defaults | dict(zip(given, row, strict=True)) for row in rows]
    return spark.createDataFrame([tuple(v.get(c) for c in table.columns) for v in values], table.schema)
