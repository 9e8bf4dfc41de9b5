"""Columns that several folders need: those of a schema, and the date of an instant."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from pipeline.common.epoch import DAY_MS


def columns_of(schema: StructType) -> list[Column]:
    """The columns of a schema, cast to their types. Rows from which they are selected must have all of them."""
    return [F.col(f.name).cast(f.dataType).alias(f.name) for f in schema]


def aligned(rows: DataFrame, schema: StructType) -> DataFrame:
    """The rows with the columns of a schema, cast to their types. A column that the rows lack is NULL."""
    present = set(rows.columns)
    found = ((f, F.col(f.name) if f.name in present else F.lit(None)) for f in schema)
    return rows.select(*(column.cast(f.dataType).alias(f.name) for f, column in found))


def date_of(epoch_ms: str) -> Column:
    """The UTC date of a column of epoch ms, whatever the session's time zone is."""
    return F.date_from_unix_date(F.floor(F.col(epoch_ms) / DAY_MS).cast("int"))
