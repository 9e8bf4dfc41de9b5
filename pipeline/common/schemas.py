"""Brings rows into the columns and the types of a schema."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType


def columns_of(schema: StructType) -> list[Column]:
    """The columns of a schema, cast to their types. Rows from which they are selected must have all of them."""
    return [F.col(f.name).cast(f.dataType).alias(f.name) for f in schema]


def aligned(rows: DataFrame, schema: StructType) -> DataFrame:
    """The rows with the columns of a schema, cast to their types. A column that the rows lack is NULL."""
    present = set(rows.columns)
    missing = {f.name: F.lit(None) for f in schema if f.name not in present}
    return rows.select("*", *(column.alias(name) for name, column in missing.items())).select(*columns_of(schema))
