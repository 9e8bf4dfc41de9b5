"""The consumed rung of a Java consumer: its position, which none of its metrics gives.

Its `records-lead` is position − log start, its `records-lag` is log end − position. Both are set when a poll returns
records and, like the position, do not change on a paused or slow partition. Log start and log end are those of the
fetch response that had the records. So position = log start of that response + lead, and log end of that response =
its log start + lead + lag. The log start of the snapshot is used only if this sum can have been the log end; otherwise
the position is NULL.
"""

from __future__ import annotations

from pipeline.analytics.keys import PROCESS_PARTITION
from pipeline.analytics.series import carried_forward_sql, series_sql
from pipeline.common.arrow_sql import columns_sql

_STILL = ("reported_lag", "reported_lead", "log_start_offset", "committed_offset")
_READ = {
    **{f"same_{name}": f"{name} IS NOT DISTINCT FROM lag({name}) OVER series" for name in _STILL},
    "same_log": "same_log_start_offset OR (same_committed_offset AND committed_offset IS NOT NULL)",
    "is_unread": "same_reported_lag AND same_reported_lead AND same_log",
    "answered_end": "log_start_offset + reported_lead + reported_lag",
    "is_its_end": "answered_end >= lag(last_stable_offset) OVER series AND answered_end <= high_watermark",
    "same_start": "log_start_offset = lag(log_start_offset) OVER series",
    "is_clear": "log_start_offset = 0 OR (same_start AND is_its_end)",
    "read_offset": "coalesce(known_consumed, CASE WHEN is_clear THEN log_start_offset + reported_lead END)",
}


def consumed_by_lead_sql(rows: str) -> str:
    """The query for `rows` with `consumed_offset`, NULL while the log start that the lead counts from is not known.

    `rows` have one row for each PROCESS_PARTITION and snapshot_id, in stretches (`stretch_sql`), with reported_lag,
    reported_lead, the group's committed_offset, and the partition's log_start_offset, last_stable_offset and
    high_watermark. known_consumed is the offset that this query returned for the snapshot before, if any; so an offset
    that is known stays known.

    If a log starts at 0, its start has never moved. Otherwise the log start must be the same as at the previous
    snapshot, and log start + lead + lag must be between the log's end at that snapshot (for a read_committed reader,
    its last stable offset) and its end now. If lead and lag have not changed, no records were handed out, and the
    position stays. If log start has moved meanwhile, it stays only if nothing was committed either, because a reader
    may have read exactly as much as was deleted.
    """
    series = series_sql(PROCESS_PARTITION)
    consumed = carried_forward_sql("read_offset", "NOT is_unread", "series")
    return f"""
        SELECT * EXCLUDE ({", ".join(_READ)}), {consumed} AS consumed_offset
        FROM (SELECT *, {columns_sql(_READ)} FROM {rows} WINDOW series AS {series})
        WINDOW series AS {series}
    """
