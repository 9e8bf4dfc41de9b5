"""Rows for functions of Arrow tables: few rows are an Arrow table on the driver, many rows are a DataFrame."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from typing import Any, Protocol, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from pipeline.common.arrow_sql import queried, row_numbers
from pipeline.common.arrow_udf import OfRows
from pipeline.common.bad_values import bad_values
from pipeline.common.buckets import (
    PACKED,
    ROWS_A_BUCKET,
    Bucket,
    Form,
    OfBucket,
    Packed,
    Spread,
    exempt_modules,
    in_buckets,
    packed_rows,
)
from pipeline.common.columns import aligned
from pipeline.common.data_source import arrow_schema

_NUMBER = "_number"
_MOST_IN_PLAN = 1_000
"""So many values may be literals of a plan of Spark."""
"""The column with the number of a row, by which rows are put in an order."""
_ROWS_AS_PYTHON = 10_000
"""So many rows are Python's own values at a time, which need ten times the memory."""

T = TypeVar("T")

R = TypeVar("R", DataFrame, pa.Table)


class ComputeOnce(Protocol):
    """Keeps rows that several queries need: what Spark is to compute, or a table of the driver."""

    def __call__(self, rows: R) -> R:
        """The same rows."""


@dataclass(frozen=True)
class Rows:
    """Rows of a table: an Arrow table on the driver if they are few, else a DataFrame.

    Functions of few rows are called immediately, with all of them: that needs neither Spark nor a Python worker.
    `packed` are the same rows as a function in workers has packed them, for the functions that get them next.
    """

    rows: pa.Table | DataFrame
    packed: tuple[Packed, ...] = ()

    def mapped(self, function: OfRows, schema: StructType) -> Rows:
        """What the function makes of the rows, of some of them at a time. `schema` has the columns that it returns."""

        def of_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            exempt_modules()
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
            if len(values) <= _MOST_IN_PLAN:
                return Rows(self.rows.where(F.col(column).isin(*values)))
            wanted = self.rows.sparkSession.createDataFrame(
                [*zip(values, strict=True)], self.rows.select(column).schema
            )
            # Spark puts the column of the join first.
            found = self.rows.join(F.broadcast(wanted), column, how="left_semi")
            return Rows(found.select(*self.rows.columns))
        is_among = pc.is_in(self.rows[column], pa.array(values, self.rows.schema.field(column).type))
        return Rows(self.rows.filter(is_among))

    def where_among(self, others: DataFrame, key: Sequence[str]) -> Rows:
        """Of many rows, those whose key is among a few others. Few rows may have other keys."""
        if isinstance(self.rows, DataFrame):
            return Rows(self.rows.join(F.broadcast(others), [*key], how="left_semi"))
        return self

    def with_constants(self, values: Mapping[str, Any], schema: StructType) -> Rows:
        """The rows with more columns, each with one value for all rows; then with the columns of a schema only."""
        if isinstance(self.rows, DataFrame):
            return Rows(self.rows.withColumns({name: F.lit(value) for name, value in values.items()})).chosen(schema)
        rows, types = self.rows, arrow_schema(schema)
        for name, value in values.items():
            rows = rows.append_column(name, pa.repeat(pa.scalar(value, types.field(name).type), len(rows)))
        return Rows(rows).chosen(schema)

    def at_most(self, columns: Sequence[str], latest: datetime) -> Rows:
        """The rows with the instants in some columns, and `latest` in place of later ones."""
        if isinstance(self.rows, DataFrame):
            bound = F.lit(latest)
            return Rows(
                self.rows.withColumns({c: F.when(F.col(c) > bound, bound).otherwise(F.col(c)) for c in columns})
            )
        rows = self.rows
        for name in columns:
            bound = pa.scalar(latest, rows[name].type)
            values = pc.if_else(pc.greater(rows[name], bound), bound, rows[name])
            rows = rows.set_column(rows.column_names.index(name), name, values)
        return Rows(rows)

    def where_known(self, column: str) -> Rows:
        """The rows in which a column is not NULL."""
        if isinstance(self.rows, DataFrame):
            return Rows(self.rows.where(F.col(column).isNotNull()))
        if not self.rows[column].null_count:
            return self
        return Rows(self.rows.filter(self.rows[column].is_valid()))

    def where_unknown(self, column: str) -> Rows:
        """The rows in which a column is NULL."""
        if isinstance(self.rows, DataFrame):
            return Rows(self.rows.where(F.col(column).isNull()))
        return Rows(self.rows.filter(self.rows[column].is_null()))

    def collected_table(self) -> pa.Table:
        """All rows, on the driver, as an Arrow table."""
        return self.rows if isinstance(self.rows, pa.Table) else self.rows.toArrow()

    def grouped(self, key: Sequence[str], function: OfRows, schema: StructType) -> Rows:
        """What the function makes of the rows; all rows of a key are in one table. The key is SQL expressions."""
        if isinstance(self.rows, pa.Table):
            if {*key} <= {*self.rows.column_names}:  # many rows are computed in buckets, as those of Spark
                made = _on_driver({"rows": self.rows}, Spread(tuple(key)), lambda bucket: function(bucket["rows"]))
                return Rows(pa.concat_tables(made))
            with bad_values():
                return Rows(function(self.rows))
        names = [f"_key_{number}" for number in range(len(key))]
        rows = self.rows.withColumns({name: F.expr(part) for name, part in zip(names, key, strict=True)})

        def of_bucket(bucket: Bucket) -> pa.Table:
            return function(bucket["rows"].drop_columns(names))

        return bucketed({"rows": Rows(rows)}, {"rows": rows.schema}, names, of_bucket, schema)

    def collected_groups(self, key: Sequence[str], function: OfRows) -> pa.Table:
        """What the function makes of the rows, on the driver, in the order of the key, which are names of columns.

        All rows of a key are in one table. The function must make few rows of many, and the same columns of none.
        """
        schema = self.rows.schema if isinstance(self.rows, DataFrame) else from_arrow_schema(self.rows.schema)
        returns = from_arrow_schema(function(arrow_schema(schema).empty_table()).schema)
        made = bucketed({"rows": self}, {"rows": schema}, key, lambda bucket: function(bucket["rows"]), returns)
        return made.collected_table().sort_by([(name, "ascending") for name in key])

    def packed_for(self, spread: Spread, schema: StructType, spark: SparkSession) -> Packed:
        """The rows as packed for a spread, with the columns of the schema."""
        needed = {*schema.names}
        for packed in self.packed:
            # Without a key, any row may be in any bucket, however the rows are spread.
            if needed <= {*packed.form.schema.names} and (packed.form.spread == spread or not spread.key):
                return packed
        return Packed.of(self.chosen(schema).frame(spark, schema), Form(schema, spread))

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
        """All rows, on the driver. A map is a dictionary, a struct too."""
        found: list[dict[str, Any]] = self.collected_table().to_pylist(maps_as_pydicts="strict")
        return found

    def count(self) -> int:
        """How many rows there are."""
        return len(self.rows) if isinstance(self.rows, pa.Table) else self.rows.count()

    def in_order(self, order: str, most: int | None = None) -> Iterator[dict[str, Any]]:
        """The rows in an order, or the first `most` of them; they are fetched or put together part by part.

        Spark and DuckDB must both understand the order: it is SQL after ORDER BY, in which the rows are called `rows`.
        """
        ending = f"FROM {{rows}} AS rows ORDER BY {order}{'' if most is None else f' LIMIT {most}'}"
        if isinstance(self.rows, DataFrame):
            ordered = self.rows.sparkSession.sql(f"SELECT * {ending}", rows=self.rows)
            yield from (row.asDict() for row in ordered.toLocalIterator())
            return
        numbered = self.rows.append_column(_NUMBER, row_numbers(self.rows))
        numbers = queried(f"SELECT {_NUMBER} {ending.format(rows='given')}", given=numbered)[_NUMBER]
        for first in range(0, len(numbers), ROWS_A_BUCKET):
            for batch in self.rows.take(numbers.slice(first, ROWS_A_BUCKET)).to_batches(_ROWS_AS_PYTHON):
                yield from batch.to_pylist()

    def where_if_many(self, predicate: str) -> Rows:
        """Of many rows, those that satisfy a predicate, which Spark must understand. Few rows may be others."""
        return Rows(self.rows.where(predicate)) if isinstance(self.rows, DataFrame) else self

    @classmethod
    def all_of(cls, several: Sequence[Rows], schema: StructType) -> Rows:
        """The rows of several, with the columns of a schema: few rows if all of them are few."""
        frames = [aligned(rows.rows, schema) for rows in several if isinstance(rows.rows, DataFrame)]
        tables = [rows.chosen(schema).rows for rows in several if isinstance(rows.rows, pa.Table)]
        few = Rows(pa.concat_tables([arrow_schema(schema).empty_table(), *tables]))
        if frames and not few.is_empty():
            frames.append(few.frame(frames[0].sparkSession, schema))
        return Rows(reduce(DataFrame.unionByName, frames)) if frames else few


def bucketed(
    parts: Mapping[str, Rows],
    schemas: Mapping[str, StructType],
    key: Sequence[str],
    function: OfBucket,
    returns: StructType,
    buckets: int | None = None,
    keep: Callable[[pa.Table], pa.Table] | None = None,
) -> Rows:
    """What a function makes of the rows of several tables; all rows of a key are in one bucket.

    `schemas` has the columns of each part that the function gets. See `in_buckets` for many rows. On the driver, `keep`
    gets the rows of each bucket, and returns them so that they need little memory.
    """
    spread = Spread(tuple(key), buckets)
    if (few := _few_rows(parts, schemas)) is not None:
        compute = function if keep is None else lambda bucket: keep(function(bucket))
        return Rows(pa.concat_tables(_on_driver(few, spread, compute)))
    packed = _packed_parts(parts, schemas, spread)
    return Rows(in_buckets(packed, spread, schemas, lambda bucket: iter(function(bucket).to_batches()), returns))


def tables_in_buckets(
    parts: Mapping[str, Rows],
    schemas: Mapping[str, StructType],
    spread: Spread,
    function: Callable[[Bucket], Bucket],
    returns: Mapping[str, Sequence[Form]],
    compute_once: ComputeOnce,
) -> dict[str, Rows]:
    """The tables that a function makes of the rows of several tables, by their names; see `bucketed`.

    `returns` says in which forms each table travels on. The first form has all of its columns. `compute_once` gets
    packed rows, and returns them so that Spark computes them only once for all tables. On the driver, it gets the
    tables of each bucket, and returns them so that they need little memory.
    """
    if (few := _few_rows(parts, schemas)) is not None:
        made = _on_driver(few, spread, lambda bucket: {n: compute_once(rows) for n, rows in function(bucket).items()})
        return {name: Rows(pa.concat_tables(each[name] for each in made)) for name in returns}
    named = {name: {f"{name} {number}": form for number, form in enumerate(forms)} for name, forms in returns.items()}

    def packed_tables(bucket: Bucket) -> Iterator[pa.RecordBatch]:
        for name, rows in function(bucket).items():
            yield from packed_rows(rows, named[name])

    kept = compute_once(in_buckets(_packed_parts(parts, schemas, spread), spread, schemas, packed_tables, PACKED))
    tables = {}
    for name, forms in named.items():
        packed = tuple(Packed(kept, part, form) for part, form in forms.items())
        tables[name] = Rows(packed[0].unpacked(), packed)
    return tables


def _few_rows(parts: Mapping[str, Rows], schemas: Mapping[str, StructType]) -> dict[str, pa.Table] | None:
    """The parts, if all are few rows."""
    if not all(isinstance(rows.rows, pa.Table) for rows in parts.values()):
        return None
    return {name: rows.chosen(schemas[name]).rows for name, rows in parts.items()}


def _on_driver(parts: Bucket, spread: Spread, function: Callable[[Bucket], T]) -> list[T]:
    """What a function makes of few rows: of all together, or of a bucket for each core at a time.

    A bucket is made just before it is needed, so that not all rows are in memory twice.
    """
    count = max(spread.buckets or 1, 1 + max(map(len, parts.values()), default=0) // ROWS_A_BUCKET)
    with bad_values():
        if count == 1 or not spread.key:
            return [function(parts)]
        with ThreadPoolExecutor(os.cpu_count()) as threads:
            return [*threads.map(lambda bucket: function(bucket()), spread.split_tables(parts, count))]


def _packed_parts(parts: Mapping[str, Rows], schemas: Mapping[str, StructType], spread: Spread) -> dict[str, Packed]:
    spark = next(rows.rows.sparkSession for rows in parts.values() if isinstance(rows.rows, DataFrame))
    return {name: rows.packed_for(spread, schemas[name], spark) for name, rows in parts.items()}
