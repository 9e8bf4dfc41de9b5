"""The same rows as tables of Spark and of DuckDB."""

from collections.abc import Mapping
from typing import Any

import duckdb
from pyspark.sql import SparkSession

from pipeline.lake.lake_tables import stored_columns
from pipeline.tables import Table
from tests.helpers.reports import frame


def with_views(
    spark: SparkSession, rows: Mapping[str, tuple[Table, list[dict[str, Any]]]]
) -> duckdb.DuckDBPyConnection:
    """Makes each table a temporary view in Spark, and a view of the same name in the DuckDB that is returned."""
    duck = duckdb.connect()
    duck.execute("SET TimeZone = 'UTC'")
    for name, (table, some) in rows.items():
        of_table = frame(spark, table, *some).select(*stored_columns(table))
        of_table.createOrReplaceTempView(name)
        duck.register(name, of_table.toArrow())
    return duck
