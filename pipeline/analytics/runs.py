"""Series of rows in which a value lasts: runs of equal values, and values that stay until a newer one is known."""

from __future__ import annotations

from pyspark.sql import Column, WindowSpec
from pyspark.sql import functions as F


def runs_of(name: str, series: WindowSpec) -> Column:
    """The number of the run of equal values of a column that a row belongs to; NULL equals NULL."""
    is_new = F.coalesce(~F.col(name).eqNullSafe(F.lag(name).over(series)), F.lit(True))
    return F.sum(is_new.cast("int")).over(series)


def carried_forward(value: Column, is_news: Column, series: WindowSpec) -> Column:
    """The value of the newest row so far for which `is_news` holds, NULL if it is NULL there."""
    # A struct is not NULL where its value is. A window for each run would sort all rows once more.
    news = F.when(is_news, F.struct(value.alias("value")))
    return F.last(news, ignorenulls=True).over(series)["value"]
