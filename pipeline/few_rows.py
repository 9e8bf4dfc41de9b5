"""How Spark runs queries on few rows: to compile them, and to plan each of their stages anew, takes longer than to run.

A job begins like that, and goes over to what the session had before as soon as it knows of many rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakKeyDictionary

from pyspark.sql import SparkSession

from pipeline.databricks import is_databricks

FEW_ROWS = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
}
MANY_ROWS = 50_000
"""From so many rows on compiled code gives back what it costs, even in a process that runs it once."""

_before: WeakKeyDictionary[SparkSession, dict[str, str | None]] = WeakKeyDictionary()


@contextmanager
def for_few_rows(spark: SparkSession) -> Iterator[None]:
    """Run queries as is best for few rows, until `expect_rows` knows better. Databricks' sessions stay as they are."""
    if not is_databricks():
        _before[spark] = {name: spark.conf.get(name) for name in FEW_ROWS}
        for name, value in FEW_ROWS.items():
            spark.conf.set(name, value)
    try:
        yield
    finally:
        expect_rows(spark, MANY_ROWS)


def expect_rows(spark: SparkSession, rows: int) -> None:
    """Say how many rows the queries to come will read. If these are many, the session's own settings are put back."""
    if rows >= MANY_ROWS:
        for name, value in _before.pop(spark, {}).items():
            if value is not None:
                spark.conf.set(name, value)
