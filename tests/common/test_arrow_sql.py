"""Queries on Arrow tables follow the rules of Spark's ANSI mode."""

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from pipeline.common.arrow_sql import arrow_queries, columns_sql, epoch_ms_sql, names_sql
from pipeline.common.errors import BadValueError

NOTHING = pa.table({"value": pa.array([None, None], pa.int64())})


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("sum(value)", None),
        ("max(value)", None),
        ("least(max(value), 3)", 3),
        ("greatest(max(value), 3)", 3),
        ("count(value)", 0),
    ],
)
def test_null_is_passed_over_and_a_sum_of_nulls_is_null(query: str, expected: int | None) -> None:
    with arrow_queries({"given": NOTHING}) as queries:
        assert queries.rows(f"SELECT {query} AS found FROM given").to_pylist() == [{"found": expected}]


@pytest.mark.parametrize("value", ["most + 1", "-2 - most", "most * 2", "CAST(1e19 AS bigint)", "CAST('x' AS bigint)"])
def test_a_value_that_fits_no_type_is_an_error(value: str) -> None:
    rows = pa.table({"most": pa.array([2**63 - 1], pa.int64())})
    with arrow_queries({"given": rows}) as queries, pytest.raises(BadValueError):
        queries.rows(f"SELECT {value} FROM given")


def test_an_instant_is_rounded_down_to_milliseconds() -> None:
    start = datetime(2026, 1, 31, tzinfo=UTC)
    instants = [start + timedelta(microseconds=us) for us in (0, 499, 500, 1_500, 1_999)]
    with arrow_queries({"given": pa.table({"seen": pa.array(instants, pa.timestamp("us", "UTC"))})}) as queries:
        found = queries.rows(f"SELECT {epoch_ms_sql('seen')} AS ms FROM given")["ms"].to_pylist()
    assert [ms - round(start.timestamp() * 1000) for ms in found] == [0, 0, 0, 1, 1]


def test_nothing_is_installed_for_a_query() -> None:
    """With its defaults, DuckDB fetches what a function needs from its own server."""
    with arrow_queries({}) as queries:
        settings = queries.rows("SELECT name, value FROM duckdb_settings() WHERE name LIKE 'auto%known_extensions'")
    assert {row["name"]: row["value"] for row in settings.to_pylist()} == {
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
    }


def test_names_of_columns_may_be_words_of_sql() -> None:
    rows = pa.table({"partition": [1], "offset": [2]})
    with arrow_queries({"given": rows}) as queries:
        found = queries.rows(f"SELECT {names_sql(rows.column_names)}, {columns_sql({'end': '3'})} FROM given")
    assert found.to_pylist() == [{"partition": 1, "offset": 2, "end": 3}]
