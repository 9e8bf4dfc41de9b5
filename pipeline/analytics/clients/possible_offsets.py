"""The offsets that clients report themselves, without those that cannot be true.

A client fetches nothing below log start, and commits what it has consumed. So a report is wrong, or from an earlier
assignment, if its consumed offset is below log start, or if it is below the group's commit and nothing is buffered that
would explain it. The two exceptions are records that were deleted after they had been fetched, and a partition where
the client stands still, such as a paused one.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F

from pipeline.analytics.keys import PROCESS_PARTITION
from pipeline.analytics.series import carried_forward


def possible_offsets(rows: DataFrame) -> DataFrame:
    """`rows` with reported_consumed and reported_fetched NULL if the consumed offset cannot be true.

    `rows` have one row for each PROCESS_PARTITION and snapshot_id, in stretches (`in_stretches`), with as_of, the
    partition's log_start_offset, the group's committed_offset and committed_captured_at. known_consumed is the consumed
    offset that `lag` has for the snapshot before, if any.
    """
    series = Window.partitionBy(*PROCESS_PARTITION, "stretch").orderBy("snapshot_id")
    is_possible = F.coalesce(~(_is_deleted(series) | _is_committed_beyond(series)), F.lit(True))
    return rows.withColumn("is_possible", is_possible).withColumns(
        {name: F.when(F.col("is_possible"), F.col(name)) for name in ("reported_consumed", "reported_fetched")}
    )


def _is_deleted(series: WindowSpec) -> Column:
    """Below log start, with nothing buffered from log start on, and not where the client stood before the deletion."""
    consumed, start = F.col("reported_consumed"), F.col("log_start_offset")
    is_below = (consumed < start) & ~F.coalesce(F.col("reported_fetched") >= start, F.lit(False))
    has_moved = ~consumed.eqNullSafe(F.lag(consumed).over(series))
    was_known = F.when(~is_below | (F.col("known_consumed") == consumed), consumed)
    return is_below & carried_forward(was_known, has_moved, series).isNull()


def _is_committed_beyond(series: WindowSpec) -> Column:
    """Below the group's commit with nothing buffered, although the commit is older than the report.

    A commit that was read after the report may be newer. It is older if the snapshot before has a commit beyond, too.
    """
    consumed, committed = F.col("reported_consumed"), F.col("committed_offset")
    is_empty = F.col("reported_fetched") <= consumed
    may_be_newer = F.coalesce(F.col("committed_captured_at") > F.col("as_of"), F.lit(False))
    was_beyond = F.coalesce(consumed < F.lag(committed).over(series), F.lit(False))
    return is_empty & (consumed < committed) & (was_beyond | ~may_be_newer)
