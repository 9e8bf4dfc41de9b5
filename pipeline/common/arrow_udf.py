"""Functions of Arrow arrays and tables, which Spark's workers call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructField, StructType

OfRows = Callable[[pa.Table], pa.Table]
"""A function of some rows that returns others."""


def with_arrow_column(
    rows: DataFrame, name: str, function: Callable[..., Any], returns: DataType, *arguments: Column
) -> DataFrame:
    """Adds or replaces column `name`: the result of `function`, which gets the arguments as whole Arrow arrays."""
    if not hasattr(F, "arrow_udf"):  # before Spark 4.1
        return _mapped(rows, name, function, returns, arguments)
    # Declared nondeterministic, although it is not: otherwise Spark evaluates it again for each filter on its result.
    made = F.arrow_udf(function, returns).asNondeterministic()  # PySpark's stubs lack it
    return rows.withColumn(name, made(*arguments))


def _mapped(
    rows: DataFrame, name: str, function: Callable[..., Any], returns: DataType, arguments: Iterable[Column]
) -> DataFrame:
    """The same with mapInArrow and all columns: Spark 4.0 has no other way to pass Arrow arrays to Python unchanged."""
    kept = [field for field in rows.schema if field.name != name]
    given = rows.select(*rows.columns, *(a.alias(f"_argument_{i}") for i, a in enumerate(arguments)))
    names = [field.name for field in kept]

    def mapped(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            columns = dict(zip(batch.schema.names, batch.columns, strict=True))
            found = function(*(columns[each] for each in batch.schema.names if each.startswith("_argument_")))
            yield pa.RecordBatch.from_arrays([*(columns[each] for each in names), found], [*names, name])

    return given.mapInArrow(mapped, StructType([*kept, StructField(name, returns)]))
