"""The lag of each group, over all of its partitions: the part of the table `group_status` that is summed from `lag`."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipeline.analytics.keys import GROUP_AT
from pipeline.analytics.lag.ladder import DELETED_UNREAD_OFFSETS, counted_lag
from pipeline.analytics.series import mean_read_ms
from pipeline.tables import DATA_LOSS, OFFSET_STATUSES, UNKNOWN_OFFSET

GROUP_ROW = [*GROUP_AT, "snapshot_date"]
"""The columns that each row of a group in a snapshot has."""


def group_sums(lag: DataFrame) -> DataFrame:
    """A row for each snapshot and group in `lag`: GROUP_ROW, and those columns of GROUP_STATUS that are sums.

    A sum is NULL if no value is known; how many values it lacks is in a column beside it. A negative lag counts as 0:
    `offset_statuses` counts the partitions with a commit beyond the end. It counts an offset_status of NULL as
    UNKNOWN_OFFSET, and leaves out statuses that no partition has.
    """
    status = F.coalesce("offset_status", F.lit(UNKNOWN_OFFSET))
    names = (*OFFSET_STATUSES, UNKNOWN_OFFSET)
    counts = [F.count_if(status == name).alias(name) for name in names]
    pairs = [column for name in names for column in (F.lit(name), F.col(name))]
    statuses = F.map_filter(F.create_map(*pairs), lambda _, count: count > 0)
    sums = (*_records(), *counts, *_members(), *_bytes_and_time(), *_moves())
    return lag.groupBy(*GROUP_ROW).agg(*sums).withColumn("offset_statuses", statuses).drop(*names)


def is_loss() -> Column:
    """Whether records were deleted unread, for a row of `lag`."""
    return F.col("offset_status") == DATA_LOSS


def whole_sum(value: Column) -> Column:
    """The sum of a column; NULL if one of its values is NULL."""
    return F.when(F.count(value) == F.count(F.lit(1)), F.try_sum(value))


def _records() -> list[Column]:
    """The sums over the partitions of a group in records."""
    unread = F.when(is_loss(), F.expr(DELETED_UNREAD_OFFSETS))
    return [
        F.count("partition").alias("partitions"),
        F.count_if(_is_unknown("consumer_lag")).alias("partitions_unknown"),
        F.try_sum(F.expr(counted_lag("consumer_lag"))).alias("consumer_lag"),
        F.max("consumer_lag").alias("max_consumer_lag"),
        F.try_sum(F.expr(counted_lag("consumer_lag_stable"))).alias("consumer_lag_stable"),
        F.count_if(_is_unknown("consumer_lag_stable")).alias("stable_unknown"),
        F.try_sum(F.expr(counted_lag("transaction_lag"))).alias("transaction_lag"),
        F.min("headroom").alias("min_headroom"),
        F.try_sum(unread).alias("unread_offsets"),
        _most_not_committed().alias("not_committed_offsets"),
    ]


def _members() -> list[Column]:
    """The state of a group, its members, and its rows that could not be read."""
    return [
        F.max("group_state").alias("group_state"),
        F.max("group_type").alias("group_type"),
        F.size(F.collect_set("member_id")).alias("members"),
        F.size(F.collect_set("client_id")).alias("clients"),
        F.min("client_id").alias("client_id"),
        F.count("error").alias("rows_with_error"),
        F.min("error").alias("error"),
    ]


def _bytes_and_time() -> list[Column]:
    """The lag of a group in bytes and time, and its age."""
    return [
        F.try_sum(F.expr(counted_lag("consumer_lag_bytes"))).alias("consumer_lag_bytes"),
        F.try_sum("bytes_error").alias("bytes_error"),
        _lacking("consumer_lag_bytes").alias("bytes_unknown"),
        F.max("consumer_lag_ms").alias("consumer_lag_ms"),
        _error_of_greatest("consumer_lag_ms").alias("time_error_ms"),
        _lacking("consumer_lag_ms").alias("ms_unknown"),
        F.max("consumer_age_ms").alias("consumer_age_ms"),
        # The age needs only one end of the span; its error is included in time_error_ms.
        _error_of_greatest("consumer_age_ms").alias("age_error_ms"),
        _lacking("consumer_age_ms").alias("age_unknown"),
    ]


def _moves() -> list[Column]:
    """The values by which two snapshots are compared: log ends, commits, and when each was read."""
    # Nobody has read beyond the end. With the commit itself, the rate would be what the commit was wrong by.
    is_beyond_end = F.col("offset_status") == "beyond_end"
    read_up_to = F.when(is_beyond_end, F.col("high_watermark")).otherwise(F.col("committed_offset"))
    return [
        whole_sum(F.col("high_watermark")).alias("log_ends"),
        whole_sum(read_up_to).alias("commits"),
        F.timestamp_millis(mean_read_ms()).alias("ends_at"),
        F.timestamp_millis(mean_read_ms("committed_captured_at")).alias("captured_at"),
    ]


def _is_unknown(measure: str) -> Column:
    """Whether a lag is unknown although there is a commit; without a commit there is no lag."""
    return F.col(measure).isNull() & ~F.col("offset_status").eqNullSafe("no_commit")


def _error_of_greatest(measure: str) -> Column:
    """The time_error_ms of the row with the greatest value; of several such rows the greatest."""
    return F.max(F.when(F.col(measure).isNotNull(), F.struct(measure, "time_error_ms")))["time_error_ms"]


def _lacking(measure: str) -> Column:
    """How many partitions have a lag in records, but not in the unit of `measure`."""
    return F.count_if(F.col("consumer_lag").isNotNull() & F.col(measure).isNull())


def _most_not_committed() -> Column:
    """The most records that a group may still read in its partitions without a commit; NULL if one log is not known."""
    is_not_committed = F.col("offset_status") == "no_commit"
    most = F.col("high_watermark") - F.greatest("log_start_offset", "consumed_offset")
    is_known = F.count_if(is_not_committed & most.isNull()) == 0
    return F.when(is_known, F.try_sum(F.when(is_not_committed, F.greatest(most, F.lit(0)))))
