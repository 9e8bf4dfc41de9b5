"""The problems `clock_ahead` and `clock_behind`: records of a topic have timestamps that cannot be right."""

from __future__ import annotations

import pyarrow as pa

from pipeline.analytics.findings.problem import PROBLEMS, distinct_sql, problem_rows
from pipeline.analytics.keys import PARTITION_AT, TOPIC_AT
from pipeline.common.arrow_sql import arrow_queries, epoch_ms_sql, names_sql, struct_sql
from pipeline.common.epoch import DAY_MS, MINUTE_MS
from pipeline.common.rows import Rows
from pipeline.kinds.brokers import ClockFacts
from pipeline.tables import WATERMARKS

AHEAD_MS = 5 * MINUTE_MS
"""Clocks that differ by less are usual."""
FIRST_SECOND = 1_000_000_000
"""9 September 2001 in seconds. In milliseconds, all seconds from here to today are days of January 1970."""
STAMPED = WATERMARKS.some((*PARTITION_AT, "captured_at", "max_timestamp_ms", "max_timestamp_offset"))
"""The columns of WATERMARKS that show these problems."""


def find_clocks(watermarks: Rows) -> Rows:
    """The rows of PROBLEMS from rows of WATERMARKS; see `clocks`."""
    return watermarks.chosen(STAMPED).grouped(TOPIC_AT, clocks, PROBLEMS)


def clocks(watermarks: pa.Table) -> pa.Table:
    """The rows of PROBLEMS of some topics: one of a kind for each topic and snapshot.

    `clock_ahead` is a warning from a day on: retention then keeps whole segments for so much longer. `clock_behind`
    means that the newest record has seconds in place of milliseconds. It is always a warning: retention deletes such
    records as if they were written in 1970. Other old timestamps may be right, for example those of records that are
    copied from elsewhere. Of several partitions, the `newest` record is the one that is off by most.
    """
    with arrow_queries({"watermarks": watermarks}) as queries:
        return problem_rows(queries.rows(_PROBLEMS), ClockFacts)


_READ_MS = epoch_ms_sql("captured_at")
# In the arithmetic of HUGEINT, because a producer may set any timestamp.
_AHEAD_MS = f"TRY_CAST(max_timestamp_ms::HUGEINT - {_READ_MS} AS bigint)"
_IS_IN_SECONDS = f"max_timestamp_ms BETWEEN {FIRST_SECOND} AND ({_READ_MS} + {DAY_MS}) / 1000"
_NEWEST = {name: f'"{name}"' for name in ("off_ms", "partition", "max_timestamp_ms", "max_timestamp_offset")}
_IS_WARNING = f"kind = 'clock_behind' OR newest['off_ms'] >= {DAY_MS}"
_PROBLEMS = f"""
    WITH named AS (SELECT *, {_AHEAD_MS} AS ahead_ms FROM watermarks WHERE topic IS NOT NULL),
    wrong AS (
        SELECT *, 'clock_ahead' AS kind, ahead_ms AS off_ms FROM named WHERE ahead_ms > {AHEAD_MS}
        UNION ALL
        SELECT *, 'clock_behind' AS kind, -ahead_ms AS off_ms FROM named WHERE {_IS_IN_SECONDS}
    ),
    summed AS (
        SELECT {names_sql(TOPIC_AT)}, kind, {distinct_sql("partition")} AS partitions,
            max({struct_sql(_NEWEST)}) AS newest
        FROM wrong GROUP BY {names_sql(TOPIC_AT)}, kind
    )
    SELECT {names_sql(TOPIC_AT)}, kind, partitions, newest['off_ms'] AS magnitude,
        CASE WHEN {_IS_WARNING} THEN 'warning' ELSE 'info' END AS severity,
        {struct_sql({"topic": "topic", "partitions": "len(partitions)", "newest": "newest"})} AS facts
    FROM summed
"""
