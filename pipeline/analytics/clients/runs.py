"""Series of rows in which a value lasts: runs of equal values, and values that hold until a newer one is known."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F


def runs_of(name: str, series: WindowSpec) -> Column:
    """The number of the run of equal values in a column, for each row. NULL equals NULL."""
    is_new = F.coalesce(~F.col(name).eqNullSafe(F.lag(name).over(series)), F.lit(True))
    return F.sum(is_new.cast("int")).over(series)


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
