"""The fetched rung of the old Scala consumer, which reports no offset: the end of the log minus its ConsumerLag.

AbstractFetcherThread sets the lag of a partition when a fetch is answered, as the distance to the high watermark in
that answer. So the lag counts to the current high watermark only while answers come in. While a fetcher waits for a
full queue, neither its lag nor its fetched offset changes. The counters of FetcherStats show whether answers have come
in.
"""

from __future__ import annotations

from pipeline.analytics.keys import PROCESS_PARTITION
from pipeline.analytics.series import carried_forward_sql, series_sql

_READ = "coalesce(known_fetched, CASE WHEN all_moved THEN high_watermark - reported_lag END)"
# A known offset stays only while no counter has moved.
_HAS_MOVED = "coalesce(any_moved, true)"


def fetched_by_lag_sql(rows: str) -> str:
    """The query for `rows` with `fetched_offset`, NULL until the fetchers of a client have been seen at work.

    `rows` have one row for each PROCESS_PARTITION and snapshot_id, in stretches (`stretch_sql`), with reported_lag,
    high_watermark, and all_moved and any_moved from `client_counters`. known_fetched is the offset that this query
    returned for the snapshot before, if any.

    The log may have grown after the last answer; then the offset is too large, by at most this growth. If some of a
    client's fetchers make no progress and others do, it is not known which of them reads the partition, and the offset
    is NULL.
    """
    fetched = carried_forward_sql(_READ, _HAS_MOVED, "series")
    return f"SELECT *, {fetched} AS fetched_offset FROM {rows} WINDOW series AS {series_sql(PROCESS_PARTITION)}"
