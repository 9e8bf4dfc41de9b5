"""Series of rows from snapshot to snapshot: when a row was read, how a value changes, and how long it stays the same.

Rates and durations use the time at which rows were read, because a snapshot may be read later than its scheduled
instant.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F

from pipeline.common.arrow_sql import epoch_ms_sql


def read_ms(captured_at: str = "captured_at") -> Column:
    """When a row was read, epoch ms; if not known, as for a row without a watermark, the scheduled instant."""
    return F.coalesce(F.unix_millis(captured_at), F.col("snapshot_id"))


def read_ms_sql(captured_at: str = "captured_at") -> str:
    """The same as SQL text for DuckDB."""
    return f"coalesce({epoch_ms_sql(captured_at)}, snapshot_id)"


def change(value: Column, series: WindowSpec) -> Column:
    """By how much a value has changed since the row before; NULL at the first row, or if one value is not known."""
    return value - F.lag(value).over(series)


def holds_twice(name: str, series: WindowSpec) -> Column:
    """Whether a condition holds at a row and held at the row before. If it is not known before, it did not hold."""
    return F.col(name) & F.coalesce(F.lag(name).over(series), F.lit(False))


def run_number(is_first: Column, series: WindowSpec) -> Column:
    """The number of the run that a row belongs to. `is_first`, which must not be NULL: whether a run begins there."""
    return F.sum(is_first.cast("int")).over(series)


def runs_of(name: str, series: WindowSpec) -> Column:
    """The number of the run of equal values in a column, for each row. NULL equals NULL."""
    is_same = F.col(name).eqNullSafe(F.lag(name).over(series))
    return run_number(F.coalesce(~is_same, F.lit(True)), series)


def in_stretches(rows: DataFrame, by: list[str]) -> DataFrame:
    """Adds `stretch`, a number that is the same for rows of successive snapshots with the same key `by`.

    `rows` have `nth`, the number of the snapshot; if it is NULL, each row counts as successive to the one before. Rows
    must not be compared across a missing snapshot: the result would depend on which snapshots are computed together.
    """
    number = F.row_number().over(Window.partitionBy(*by).orderBy("snapshot_id"))
    return rows.withColumn("stretch", F.coalesce(F.col("nth") - number, F.lit(0)))


def carried_forward(value: Column, is_news: Column, series: WindowSpec) -> Column:
    """The value of the newest row so far for which `is_news` holds, NULL if it is NULL there."""
    # In a struct, because a struct with a NULL value is itself not NULL. A window for each run would sort again.
    news = F.when(is_news, F.struct(value.alias("value")))
    return F.last(news, ignorenulls=True).over(series)["value"]
