"""The lag of each group, over all of its partitions: the part of the table `group_status` that is summed from `lag`.

An expression here is SQL text for DuckDB. Its columns are those of a row of `lag`; an expression of a sum also has
those of `_OF_PARTITION`.
"""

from __future__ import annotations

from pipeline.analytics.keys import GROUP_AT
from pipeline.analytics.lag.ladder import DELETED_UNREAD_OFFSETS, counted_lag
from pipeline.common.arrow_sql import columns_sql, epoch_ms_sql, names_sql, struct_sql, sum_if_fits_sql
from pipeline.tables import DATA_LOSS, UNKNOWN_OFFSET

GROUP_ROW = [*GROUP_AT, "snapshot_date"]
"""The columns that each row of a group in a snapshot has."""
SUMMED_LAG = (
    *(*GROUP_ROW, "partition", "captured_at", "committed_captured_at", "group_state", "group_type", "member_id"),
    *("client_id", "error", "offset_status", "committed_offset", "consumed_offset", "log_start_offset"),
    *("high_watermark", "consumer_lag", "consumer_lag_stable", "transaction_lag", "headroom", "consumer_lag_bytes"),
    *("bytes_error", "consumer_lag_ms", "time_error_ms", "consumer_age_ms"),
)
"""The columns of `lag` that the sums need."""


def group_sums_sql() -> str:
    """The query for a row for each snapshot and group in `lag`: GROUP_ROW, and columns of GROUP_STATUS that are sums.

    A sum is NULL if no value is known, or if it exceeds a bigint; how many values it lacks is in a column beside it. A
    negative lag counts as 0: `offset_statuses` counts the partitions with a commit beyond the end. It counts an
    offset_status of NULL as UNKNOWN_OFFSET, and has no statuses that no partition has.
    """
    sums = {
        "offset_statuses": "histogram(named_status)::MAP(VARCHAR, BIGINT)",
        **_records(),
        **_members(),
        **_bytes_and_time(),
        **_moves(),
    }
    return f"""
        SELECT {names_sql(GROUP_ROW)}, {columns_sql(sums)}
        FROM (SELECT *, {columns_sql(_OF_PARTITION)} FROM lag)
        GROUP BY {names_sql(GROUP_ROW)}
    """


_NOT_COMMITTED = counted_lag("(high_watermark - greatest(log_start_offset, consumed_offset))")
_OF_PARTITION = {
    "named_status": f"coalesce(offset_status, '{UNKNOWN_OFFSET}')",
    "has_no_commit": "offset_status IS NOT DISTINCT FROM 'no_commit'",
    "unread_offsets": f"CASE WHEN offset_status = '{DATA_LOSS}' THEN {DELETED_UNREAD_OFFSETS} END",
    # The most records that a group may still read where it has no commit.
    "not_committed_offsets": f"CASE WHEN has_no_commit THEN {_NOT_COMMITTED} END",
    # Nobody has read beyond the end. With the commit itself, the rate would be what the commit was wrong by.
    "read_up_to": "CASE WHEN offset_status = 'beyond_end' THEN high_watermark ELSE committed_offset END",
}
"""The values of one partition that are summed or counted, and are not columns of `lag`."""


def _records() -> dict[str, str]:
    """The sums over the partitions of a group in records."""
    return {
        "partitions": 'count("partition")',
        "partitions_unknown": _count_unknown("consumer_lag"),
        "consumer_lag": sum_if_fits_sql(counted_lag("consumer_lag")),
        "max_consumer_lag": "max(consumer_lag)",
        "consumer_lag_stable": sum_if_fits_sql(counted_lag("consumer_lag_stable")),
        "stable_unknown": _count_unknown("consumer_lag_stable"),
        "transaction_lag": sum_if_fits_sql(counted_lag("transaction_lag")),
        "min_headroom": "min(headroom)",
        "unread_offsets": sum_if_fits_sql("unread_offsets"),
        "not_committed_offsets": _sum_if_all_known("not_committed_offsets", where="has_no_commit"),
    }


def _members() -> dict[str, str]:
    """The state of a group, its members, and its rows that could not be read."""
    return {
        "group_state": "max(group_state)",
        "group_type": "max(group_type)",
        "members": "count(DISTINCT member_id)",
        "clients": "count(DISTINCT client_id)",
        "client_id": "min(client_id)",
        "rows_with_error": "count(error)",
        "error": "min(error)",
    }


def _bytes_and_time() -> dict[str, str]:
    """The lag of a group in bytes and time, and its age."""
    return {
        "consumer_lag_bytes": sum_if_fits_sql(counted_lag("consumer_lag_bytes")),
        "bytes_error": sum_if_fits_sql("bytes_error"),
        "bytes_unknown": _count_lacking("consumer_lag_bytes"),
        "consumer_lag_ms": "max(consumer_lag_ms)",
        "time_error_ms": _error_of_greatest("consumer_lag_ms"),
        "ms_unknown": _count_lacking("consumer_lag_ms"),
        "consumer_age_ms": "max(consumer_age_ms)",
        # The age needs only one end of the span; its error is included in time_error_ms.
        "age_error_ms": _error_of_greatest("consumer_age_ms"),
        "age_unknown": _count_lacking("consumer_age_ms"),
    }


def _moves() -> dict[str, str]:
    """The values by which two snapshots are compared: log ends, commits, and when each was read."""
    return {
        "log_ends": _sum_if_all_known("high_watermark"),
        "commits": _sum_if_all_known("read_up_to"),
        "ends_at": _mean_instant("captured_at"),
        "captured_at": _mean_instant("committed_captured_at"),
    }


def _sum_if_all_known(value: str, where: str = "true") -> str:
    """The sum of a value, over all partitions or some of them; NULL if one of their values is NULL."""
    return f"CASE WHEN count_if({where} AND {value} IS NULL) = 0 THEN {sum_if_fits_sql(value)} END"


def _count_unknown(measure: str) -> str:
    """How many partitions have a commit, but not this lag. Without a commit there is no lag."""
    return f"count_if({measure} IS NULL AND NOT has_no_commit)"


def _count_lacking(measure: str) -> str:
    """How many partitions have a lag in records, but not in the unit of `measure`."""
    return f"count_if(consumer_lag IS NOT NULL AND {measure} IS NULL)"


def _error_of_greatest(measure: str) -> str:
    """The time_error_ms of the partition with the greatest value; of several such partitions the greatest."""
    # DuckDB sorts NULL within a struct above all numbers, so a flag before it sorts it below them.
    order = {"value": measure, "is_known": "time_error_ms IS NOT NULL", "error_ms": "time_error_ms"}
    return f"max(CASE WHEN {measure} IS NOT NULL THEN {struct_sql(order)} END)['error_ms']"


def _mean_instant(instant: str) -> str:
    """The mean time at which the rows of a group in a snapshot were read: the time of sums over these rows.

    It is rounded to whole milliseconds: half a millisecond, away from the scheduled instant. NULL if no row has it.
    """
    mean_late_ms = f"round(avg({epoch_ms_sql(instant)} - snapshot_id))::BIGINT"
    return f"make_timestamp((snapshot_id + {mean_late_ms}) * 1000)"
