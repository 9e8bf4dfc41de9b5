"""Rows for functions of Arrow tables: few rows are an Arrow table on the driver, many rows are a DataFrame."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from pipeline.common.arrow_udf import OfRows, in_buckets


@dataclass(frozen=True)
class FewOrMany:
    """Few rows need neither Spark nor a Python worker: functions are called immediately, with all of them."""

    rows: pa.Table | DataFrame

    def mapped(self, function: OfRows, schema: StructType) -> FewOrMany:
        """What the function makes of the rows, of some of them at a time. `schema` has the columns that it returns."""

        def of_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                yield from function(pa.Table.from_batches([batch])).to_batches()

        if isinstance(self.rows, pa.Table):
            return FewOrMany(function(self.rows))
        return FewOrMany(self.rows.mapInArrow(of_batches, schema))

    def grouped(
        self, key: Sequence[str], function: OfRows, schema: StructType, buckets: int | None = None
    ) -> FewOrMany:
        """The same, with all rows of a key in one table. See `in_buckets` for many rows."""
        if isinstance(self.rows, pa.Table):
            return FewOrMany(function(self.rows))
        return FewOrMany(in_buckets(self.rows, key, function, schema, buckets))

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
        found: list[dict[str, Any]] = (
            self.rows if isinstance(self.rows, pa.Table) else self.rows.toArrow()
        ).to_pylist()
        return found


def together(spark: SparkSession, parts: Mapping[str, tuple[FewOrMany, StructType]]) -> FewOrMany:
    """The rows of several tables, each given with its schema, as rows of one; its name is in the column `part`.

    A column that a table lacks is NULL.
    """
    tables = {name: rows.rows for name, (rows, _) in parts.items() if isinstance(rows.rows, pa.Table)}
    if len(tables) == len(parts):
        named = [rows.append_column("part", pa.repeat(name, len(rows))) for name, rows in tables.items()]
        return FewOrMany(pa.concat_tables(named, promote_options="permissive"))
    frames = [
        rows.frame(spark, schema).select(*schema.names, F.lit(name).alias("part"))
        for name, (rows, schema) in parts.items()
    ]
    return FewOrMany(reduce(partial(DataFrame.unionByName, allowMissingColumns=True), frames))
