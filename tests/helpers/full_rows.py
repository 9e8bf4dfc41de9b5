"""Rows of any table, with a value in each column or in none."""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

from pipeline.tables import Table

ID = 1_769_860_800_000
DAY = date(2026, 1, 31)
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
VALUES: dict[type[DataType], Any] = {
    BinaryType: b"\x00\xff",
    BooleanType: True,
    DateType: DAY,
    DecimalType: Decimal(10**37),
    DoubleType: -0.1,
    IntegerType: -(2**31),
    LongType: 2**63 - 1,
    StringType: "'a\\ \U0001f600\n\"",
    TimestampType: datetime(2026, 3, 29, 1, 30, 0, 999_999, tzinfo=UTC),  # an hour that some zones skip
}
NAMED = {"cluster": "east", "snapshot_id": ID, "snapshot_date": DAY, "window_start": NOON, "window_ms": 0}

Row = tuple[Any, ...]


def value(of: DataType) -> Any:
    if isinstance(of, StructType):
        return tuple(value(f.dataType) for f in of)
    if isinstance(of, ArrayType):
        return [value(of.elementType)]
    if isinstance(of, MapType):
        return {"a key": value(of.valueType)}
    return VALUES[type(of)]


def full_row(table: Table) -> Row:
    """A row with a value in each column."""
    return tuple(NAMED.get(f.name, value(f.dataType)) for f in table.schema)


def empty_row(table: Table) -> Row:
    """A row with NULL wherever it is allowed."""
    full = full_row(table)
    return tuple(
        old if f.name in table.key or f.name in NAMED else None for f, old in zip(table.schema, full, strict=True)
    )


def with_values(of: Table, row: Row, **values: Any) -> Row:
    return tuple(values.get(name, old) for name, old in zip(of.columns, row, strict=True))


def found(rows: DataFrame) -> list[str]:
    return sorted(map(str, rows.collect()))
