"""The offsets that clients report themselves, without those that cannot be true.

A client fetches nothing below log start, and commits what it has consumed. So a report is wrong, or from an earlier
assignment, if its consumed offset is below log start, or if it is below the group's commit and nothing is buffered that
would explain it. The two exceptions are records that were deleted after they had been fetched, and a partition where
the client stands still, such as a paused one.
"""

from __future__ import annotations

from pipeline.analytics.keys import PROCESS_PARTITION
from pipeline.analytics.series import carried_forward_sql, series_sql
from pipeline.common.arrow_sql import columns_sql

_COMPARED = {
    "is_below": "reported_consumed < log_start_offset AND NOT coalesce(reported_fetched >= log_start_offset, false)",
    "has_moved": "reported_consumed IS DISTINCT FROM lag(reported_consumed) OVER series",
    "may_be_newer": "coalesce(committed_captured_at > as_of, false)",
    "was_beyond": "coalesce(reported_consumed < lag(committed_offset) OVER series, false)",
}
_WAS_KNOWN = "CASE WHEN NOT is_below OR known_consumed = reported_consumed THEN reported_consumed END"
_IMPOSSIBLE = {
    # Below log start, with nothing buffered from log start on, and not where the client stood before the deletion.
    "is_deleted": f"is_below AND {carried_forward_sql(_WAS_KNOWN, 'has_moved', 'series')} IS NULL",
    # Below the group's commit with nothing buffered, although the commit is older than the report. A commit that was
    # read after the report may be newer. It is older if the snapshot before has a commit beyond, too.
    "is_committed_beyond": (
        "reported_fetched <= reported_consumed AND reported_consumed < committed_offset "
        "AND (was_beyond OR NOT may_be_newer)"
    ),
    "is_possible": "coalesce(NOT (is_deleted OR is_committed_beyond), true)",
}
_POSSIBLE = {
    name: f"CASE WHEN is_possible THEN {name} END"  # an impossible report is as good as none
    for name in ("reported_consumed", "reported_fetched")
}


def possible_offsets_sql(rows: str) -> str:
    """The query for `rows` with reported_consumed and reported_fetched NULL if the consumed offset cannot be true.

    `rows` have one row for each PROCESS_PARTITION and snapshot_id, in stretches (`stretch_sql`), with as_of, the
    partition's log_start_offset, the group's committed_offset and committed_captured_at. known_consumed is the consumed
    offset that `lag` has for the snapshot before, if any.
    """
    series = series_sql(PROCESS_PARTITION)
    return f"""
        SELECT * EXCLUDE ({", ".join((*_COMPARED, *_IMPOSSIBLE))}) REPLACE ({columns_sql(_POSSIBLE)})
        FROM (
            SELECT *, {columns_sql(_IMPOSSIBLE)}
            FROM (SELECT *, {columns_sql(_COMPARED)} FROM {rows} WINDOW series AS {series})
            WINDOW series AS {series}
        )
    """
