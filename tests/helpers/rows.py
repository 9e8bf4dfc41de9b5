"""Literal rows as DataFrames: name the columns that matter; the others are NULL."""

from collections.abc import Sequence
from datetime import date
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from pipeline.common.data_source import arrow_schema
from pipeline.common.rows import Rows
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
    values = literal_rows(names, *rows)
    return spark.createDataFrame([tuple(v.get(c) for c in table.columns) for v in values], table.schema)


def few_rows(table: Table, names: str, *rows: Sequence[Any]) -> Rows:
    """The same rows as functions of Arrow tables take them, without Spark."""
    return Rows(pa.Table.from_pylist(literal_rows(names, *rows), arrow_schema(table.schema)))


def literal_rows(names: str, *rows: Sequence[Any]) -> list[dict[str, Any]]:
    """The same rows as dictionaries."""
    given = names.split()
    defaults = {"cluster": "east", "snapshot_date": SNAPSHOT_DATE}
    return [defaults | dict(zip(given, row, strict=True)) for row in rows]
