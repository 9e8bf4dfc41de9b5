"""Rows of a lake, stored and read by the driver if it can: a job of Spark for each table would take most of a test."""

from collections.abc import Iterable, Mapping
from typing import Any

from deltalake import write_deltalake
from pyspark.sql import Row

from pipeline.lake import Lake
from pipeline.lake.driver_tables import arrow_rows
from pipeline.tables import Table
from tests.helpers.deltas import delta


def store(lake: Lake, table: Table, rows: Iterable[Mapping[str, Any]], where: str = "true") -> None:
    """Replaces the rows that satisfy `where`, in one commit. Columns that a row does not name are NULL."""
    lake.replace_rows(table, _tuples(table, rows), where)


def stored(lake: Lake, table: Table, where: str = "true", *columns: str) -> list[Row]:
    """The rows that satisfy `where`, or some of their columns. Instants are in UTC."""
    return [Row(**row) for row in lake.rows(table, where, *columns).collected()]


def append(lake: Lake, table: Table, rows: Iterable[Mapping[str, Any]]) -> None:
    """Adds rows as one more file, in one commit."""
    write_deltalake(delta(lake, table), arrow_rows(table, _tuples(table, rows)), mode="append")


def _tuples(table: Table, rows: Iterable[Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    return [tuple(row.get(name) for name in table.columns) for row in rows]
