"""Queries on Arrow tables in this process, with DuckDB: how functions of one bucket join, compare and sum rows.

The rules are those of Spark's ANSI mode: an overflow is an error, a sum of NULLs is NULL, `least` and `greatest` pass
over NULL, and NULL equals nothing. A query has one thread, because a Spark worker has one core.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from threading import local
from typing import TYPE_CHECKING

import pyarrow as pa

from pipeline.common.errors import BadValueError, LakeError, first_line

if TYPE_CHECKING:
    import duckdb

_SETTINGS: dict[str, str | bool | int | float | list[str]] = {
    "threads": 1,
    # By default, each of a machine's workers might take most of its memory, and write to the folder that it runs in.
    "memory_limit": "1GB",
    "temp_directory": "",
    # Executors often have no way out, and a job must not change what it runs with.
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
}
_of_thread = local()
"""The database of each thread. To open one takes longer than most queries of few rows."""


class ArrowQueries:
    """The tables that queries may name."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection

    def add(self, **tables: pa.Table) -> None:
        """Adds tables, or replaces those of the same name."""
        for name, rows in tables.items():
            self._connection.register(name, rows)

    def rows(self, text: str) -> pa.Table:
        """The rows of a query. Raises BadValueError if a value fits no type, and LakeError if memory is too small."""
        import duckdb

        try:
            return self._connection.sql(text).to_arrow_table()
        except duckdb.DataError as exc:
            raise BadValueError(first_line(exc)) from exc
        except duckdb.OperationalError as exc:
            raise LakeError(f"a query of some rows failed: {first_line(exc)}") from exc


@contextmanager
def arrow_queries(tables: Mapping[str, pa.Table]) -> Iterator[ArrowQueries]:
    """Queries on these tables, until the end of the `with` statement. Others in the same thread do not see them."""
    import duckdb  # only here, because `make try` imports this module, and needs no queries

    if not hasattr(_of_thread, "database"):
        _of_thread.database = duckdb.connect(":memory:", config=_SETTINGS)
    with _of_thread.database.cursor() as connection:
        queries = ArrowQueries(connection)
        queries.add(**tables)
        yield queries


def queried(text: str, **tables: pa.Table) -> pa.Table:
    """The rows of one query on these tables. Raises as `ArrowQueries.rows`."""
    with arrow_queries(tables) as queries:
        return queries.rows(text)


def columns_sql(columns: Mapping[str, str]) -> str:
    """The columns of a SELECT, given as name → expression."""
    return ", ".join(f'{expression} AS "{name}"' for name, expression in columns.items())


def epoch_ms_sql(instant: str) -> str:
    """The epoch ms of an instant since 1970, rounded down. DuckDB's own `epoch_ms` rounds half a millisecond up."""
    return f"epoch_us({instant}) // 1000"


def sum_if_fits_sql(value: str) -> str:
    """The sum of the known integers; NULL if none is known, or if the sum exceeds a bigint."""
    return f"TRY_CAST(sum({value}) AS bigint)"


def names_sql(names: Iterable[str]) -> str:
    """The names of columns, for a SELECT or USING."""
    return ", ".join(f'"{name}"' for name in names)


def struct_sql(fields: Mapping[str, str]) -> str:
    """A struct with these fields, given as name → expression. Structs are compared field by field; NULL is greatest."""
    pairs = ", ".join(f"'{name}': {expression}" for name, expression in fields.items())
    return f"{{{pairs}}}"


def list_sql(value: str) -> str:
    """The distinct known values of an expression in a group, in order; an empty list if none is known."""
    return f"coalesce(list(DISTINCT {value} ORDER BY {value}) FILTER ({value} IS NOT NULL), [])"


def row_numbers(rows: pa.Table) -> pa.Array:
    """The numbers of the rows, by which the rows of a query are put in the same order."""
    return pa.array(range(len(rows)), pa.int64())


def numbered(rows: pa.Table, name: str) -> pa.Table:
    """The rows with their numbers in place of a column of large values: a query of few columns is all in memory.

    `with_values` puts the values back into the rows of the query.
    """
    place = rows.column_names.index(name)
    return rows.set_column(place, name, row_numbers(rows))


def with_values(rows: pa.Table, name: str, values: pa.ChunkedArray) -> pa.Table:
    """The rows with the values that have the numbers in a column; NULL for NULL."""
    place = rows.column_names.index(name)
    return rows.set_column(place, name, values.take(rows[name]))
