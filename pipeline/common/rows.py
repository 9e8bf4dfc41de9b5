"""Rows for functions of Arrow tables: few rows are an Arrow table on the driver, many rows are a DataFrame."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from pipeline.common.arrow_udf import OfRows, in_buckets
from pipeline.common.bad_values import bad_values
from pipeline.common.buckets import OfBucket, parts_in_buckets
from pipeline.common.columns import aligned
from pipeline.common.data_source import arrow_schema


@dataclass(frozen=True)
class Rows:
    """Few rows need neither Spark nor a Python worker: functions are called immediately, with all of them."""

    rows: pa.Table | DataFrame

    def mapped(self, function: OfRows, schema: StructType) -> Rows:
        """What the function makes of the rows, of some of them at a time. `schema` has the columns that it returns."""

        def of_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                with bad_values():
                    yield from function(pa.Table.from_batches([batch])).to_batches()

        if isinstance(self.rows, pa.Table):
            with bad_values():
                return Rows(function(self.rows))
        return Rows(self.rows.mapInArrow(of_batches, schema))

    def chosen(self, schema: StructType) -> Rows:
        """The columns of a schema; columns that the rows lack are NULL."""
        if isinstance(self.rows, DataFrame):
            return Rows(aligned(self.rows, schema))
        lacking = [field for field in arrow_schema(schema) if field.name not in self.rows.column_names]
        rows = self.rows
        for field in lacking:
            rows = rows.append_column(field, pa.nulls(len(rows), field.type))
        return Rows(rows.select(schema.names).cast(arrow_schema(schema)))

    def where_in(self, column: str, values: Sequence[Any]) -> Rows:
        """The rows in which a column has one of the values."""
        if isinstance(self.rows, DataFrame):
            return Rows(self.rows.where(F.col(column).isin(*values)))
        is_among = pc.is_in(self.rows[column], pa.array(values, self.rows.schema.field(column).type))
        return Rows(self.rows.filter(is_among))

    def where_among(self, others: DataFrame, key: Sequence[str]) -> Rows:
        """Of many rows, those whose key is among a few others. Few rows may have other keys."""
        if isinstance(self.rows, DataFrame):
            return Rows(self.rows.join(F.broadcast(others), [*key], how="left_semi"))
        return self

    def where_known(self, column: str) -> Rows:
        """The rows in which a column is not NULL."""
        if isinstance(self.rows, DataFrame):
            return Rows(self.rows.where(F.col(column).isNotNull()))
        return Rows(self.rows.filter(self.rows[column].is_valid()))

    def where_unknown(self, column: str) -> Rows:
        """The rows in which a column is NULL."""
        if isinstance(self.rows, DataFrame):
            return Rows(self.rows.where(F.col(column).isNull()))
        return Rows(self.rows.filter(self.rows[column].is_null()))

    def collected_table(self) -> pa.Table:
        """All rows, on the driver, as an Arrow table."""
        return self.rows if isinstance(self.rows, pa.Table) else self.rows.toArrow()

    def grouped(self, key: Sequence[str], function: OfRows, schema: StructType, buckets: int | None = None) -> Rows:
        """The same, with all rows of a key in one table. See `in_buckets` for many rows."""
        if isinstance(self.rows, pa.Table):
            with bad_values():
                return Rows(function(self.rows))
        return Rows(in_buckets(self.rows, key, function, schema, buckets))

    def frame(self, spark: SparkSession, schema: StructType) -> DataFrame:
        """The rows as a DataFrame. Few rows have the columns of `schema`, and Spark keeps them in its plan.

        They are one partition. So Spark need not exchange them to group, join or sort them.
        """
        if isinstance(self.rows, DataFrame):
            return self.rows
        # Spark does not accept arrays in an empty Arrow table, but it accepts an empty list.
        return spark.createDataFrame(self.rows if self.rows.num_rows else [], schema).coalesce(1)

    def is_empty(self) -> bool:
        """Whether there are no rows."""
        return not (self.rows.num_rows if isinstance(self.rows, pa.Table) else self.rows.limit(1).collect())

    def distinct(self, column: str) -> set[Any]:
        """The distinct values of a column."""
        if isinstance(self.rows, pa.Table):
            return {*self.rows[column].to_pylist()}
        return {row[column] for row in self.rows.select(column).distinct().collect()}

    def collected(self) -> list[dict[str, Any]]:
        """All rows, on the driver."""
        found: list[dict[str, Any]] = self.collected_table().to_pylist()
        return found


def bucketed(
    parts: Mapping[str, Rows],
    schemas: Mapping[str, StructType],
    key: Sequence[str],
    function: OfBucket,
    returns: StructType,
    buckets: int | None = None,
) -> Rows:
    """What a function makes of the rows of several tables; all rows of a key are in one bucket.

    `schemas` has the columns of each part that the function gets. If all parts are few rows, they are one bucket. See
    `parts_in_buckets` for many rows.
    """
    chosen = {name: rows.chosen(schemas[name]) for name, rows in parts.items()}
    few = {name: rows.rows for name, rows in chosen.items() if isinstance(rows.rows, pa.Table)}
    if len(few) == len(chosen):
        with bad_values():
            return Rows(function(few))
    spark = next(rows.rows.sparkSession for rows in chosen.values() if isinstance(rows.rows, DataFrame))
    frames = {name: rows.frame(spark, schemas[name]) for name, rows in chosen.items()}
    return Rows(parts_in_buckets(frames, schemas, key, function, returns, buckets))


def together(spark: SparkSession, parts: Mapping[str, tuple[Rows, StructType]]) -> Rows:
    """The rows of several tables, each given with its schema, as rows of one; its name is in the column `part`.

    A column that a table lacks is NULL.
    """
    tables = {name: rows.rows for name, (rows, _) in parts.items() if isinstance(rows.rows, pa.Table)}
    if len(tables) == len(parts):
        named = [rows.append_column("part", pa.repeat(name, len(rows))) for name, rows in tables.items()]
        return Rows(pa.concat_tables(named, promote_options="permissive"))
    frames = [
        rows.frame(spark, schema).select(*schema.names, F.lit(name).alias("part"))
        for name, (rows, schema) in parts.items()
    ]
    return Rows(reduce(partial(DataFrame.unionByName, allowMissingColumns=True), frames))
