"""The expectations (of Great Expectations) that every row of a bronze table must meet, and oddities that are allowed.

Each rule is written once, as an expectation: `offends` turns it into a condition for the rows that fail it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence

# Great Expectations reads this when it is imported: it must not send usage statistics from a data platform.
os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")

import great_expectations.expectations as gxe
from great_expectations.expectations.expectation import Expectation
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pipeline.tables import COMMITTED_OFFSETS, GROUP_MEMBERS, WATERMARKS, Table

logging.getLogger("great_expectations.data_context.types.base").setLevel(logging.WARNING)  # it sets itself to INFO

MAX_PARTITION = 1_000_000
"""Far more partitions than a topic can have. A larger partition number was read wrongly."""
MAX_OFFSET = 2**62
"""No log has this many records or bytes. Below it, the distance from any committed offset to the end is a bigint."""


ROWS_OF_KEY = "rows_of_key"
"""A column for `judge`: the number of rows with the row's key. ExpectCompoundColumnsToBeUnique is half as fast."""


def with_rows_of_key(rows: DataFrame, table: Table) -> DataFrame:
    """Adds ROWS_OF_KEY to the judged rows of a table."""
    return rows.withColumn(ROWS_OF_KEY, F.count(F.lit(1)).over(Window.partitionBy(*table.key)))


def _not_null(*columns: str) -> list[Expectation]:
    return [gxe.ExpectColumnValuesToNotBeNull(column=c) for c in columns]


def _ends(*columns: str) -> list[Expectation]:
    return [gxe.ExpectColumnValuesToBeBetween(column=c, min_value=0, max_value=MAX_OFFSET) for c in columns]


_UNIQUE = gxe.ExpectColumnValuesToBeBetween(column=ROWS_OF_KEY, max_value=1)
_PARTITION = gxe.ExpectColumnValuesToBeBetween(column="partition", min_value=0, max_value=MAX_PARTITION)

EXPECTATIONS: Mapping[str, Sequence[Expectation]] = {
    COMMITTED_OFFSETS.name: [
        *_not_null(*COMMITTED_OFFSETS.key, "captured_at"),
        _UNIQUE,
        _PARTITION,
        *(gxe.ExpectColumnValuesToBeBetween(column=c, min_value=0) for c in ("committed_offset", "earlier_offset")),
        *_ends("log_start_offset", "last_stable_offset", "high_watermark", "high_watermark_after"),
    ],
    WATERMARKS.name: [
        *_not_null(*WATERMARKS.key, "captured_at"),
        _UNIQUE,
        _PARTITION,
        *_ends("log_start_offset", "local_log_start_offset", "last_stable_offset", "high_watermark", "log_end_offset"),
        *_ends("high_watermark_after", "max_timestamp_offset", "log_bytes", "log_bytes_error"),
    ],
    GROUP_MEMBERS.name: [
        *_not_null("cluster", "snapshot_id", "group_id", "captured_at"),
        _UNIQUE,
        _PARTITION,
    ],
}


def oddities() -> dict[str, Column]:
    """The oddities of watermarks, by name: rungs in the wrong order, as may be read during a failover."""
    start, stable, high, end = (
        F.col(c) for c in ("log_start_offset", "last_stable_offset", "high_watermark", "log_end_offset")
    )
    return {
        "log_start_above_last_stable": start > stable,
        "last_stable_above_high_watermark": stable > high,
        "high_watermark_above_log_end": high > end,
    }


def offends(expectation: Expectation) -> Column:
    """The condition for rows that fail an expectation. NULL fails only `not null`, as in Great Expectations."""
    if isinstance(expectation, gxe.ExpectColumnValuesToNotBeNull):
        return F.col(expectation.column).isNull()
    if isinstance(expectation, gxe.ExpectColumnValuesToBeBetween):
        value = F.col(expectation.column)
        too_small = value < F.lit(expectation.min_value)  # NULL, which does not fail, if there is no bound
        too_large = value > F.lit(expectation.max_value)
        return F.coalesce(too_small, F.lit(False)) | F.coalesce(too_large, F.lit(False))
    raise TypeError(f"no rule for {type(expectation).__name__}")


def label(expectation: Expectation) -> str:
    """The name of an expectation and its column, as in `quarantine`."""
    return f"{expectation.expectation_type}({getattr(expectation, 'column', '')})"
