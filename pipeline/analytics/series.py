"""Series of rows from snapshot to snapshot: when a row was read, how a value changes, and how long it stays the same.

Rates and durations use the time at which rows were read, because a snapshot may be read later than its scheduled
instant.
"""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.common.arrow_sql import epoch_ms_sql, names_sql


def read_ms_sql(captured_at: str = "captured_at") -> str:
    """When a row was read, epoch ms; if not known, as for a row without a watermark, the scheduled instant."""
    return f"coalesce({epoch_ms_sql(captured_at)}, snapshot_id)"


def change_sql(value: str, series: str) -> str:
    """By how much a value has changed since the row before in a window; NULL at the first row, or if one is NULL."""
    return f"{value} - lag({value}) OVER {series}"


def holds_twice_sql(name: str, series: str) -> str:
    """Whether a condition holds at a row and held at the row before. If it is not known before, it did not hold."""
    return f"({name} AND coalesce(lag({name}) OVER {series}, false))"


def begins_run_sql(name: str, series: str) -> str:
    """1 at a row whose value differs from the one before, else 0; NULL equals NULL. Its sum numbers the runs."""
    return f"CAST({name} IS DISTINCT FROM lag({name}) OVER {series} AS int)"


def stretch_sql(key: Sequence[str]) -> str:
    """A number that is the same for rows of successive snapshots with the same key.

    Rows have `nth`, the number of the snapshot; if it is NULL, each row counts as successive to the one before. Rows
    must not be compared across a missing snapshot: the result would depend on which snapshots are computed together.
    """
    return f"coalesce(nth - row_number() OVER (PARTITION BY {names_sql(key)} ORDER BY snapshot_id), 0)"


def series_sql(key: Sequence[str]) -> str:
    """The window of the rows of successive snapshots with the same key; `stretch` is that of `stretch_sql`."""
    return f"(PARTITION BY {names_sql(key)}, stretch ORDER BY snapshot_id)"


def carried_forward_sql(value: str, is_news: str, series: str) -> str:
    """The value of the newest row so far for which `is_news` holds, NULL if it is NULL there."""
    # In a struct, because a struct with a NULL value is itself not NULL. A window for each run would sort again.
    return f"(last_value(CASE WHEN {is_news} THEN {{'value': {value}}} END IGNORE NULLS) OVER {series})['value']"
