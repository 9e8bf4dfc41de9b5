"""Whether the poll loops of Java and librdkafka clients keep up, and which topic delays the others.

Such a client sends no fetch requests for partitions whose records it has buffered. With nothing buffered, it sends each
broker a request at least every fetch.max.wait.ms. With a slow application it sends hardly any requests, and its
records-lag does not show that, because it is updated only when records arrive. A partition whose consumed offset does
not move while its client sends requests is paused. So is one that does not move while all others do, however few
requests a slow client sends, because a client returns the fetched records of its partitions in turn. Each process is
judged by its own counters and partitions, because several may share a client.id.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import pyarrow as pa

from pipeline.analytics.clients.counters import ASKING_SQL
from pipeline.analytics.clients.settings import settings_table, with_settings_sql
from pipeline.analytics.keys import MEMBER_AT, MEMBER_PARTITION, PROCESS_AT, TOPIC_PARTITION
from pipeline.analytics.lag.ladder import counted_lag
from pipeline.analytics.series import change_sql, holds_twice_sql, read_ms_sql
from pipeline.common.arrow_sql import arrow_queries, columns_sql, names_sql
from pipeline.config.consumers import ConsumerSettings

FETCH_MAX_WAIT_MS = 500
"""fetch.max.wait.ms of the Java consumer, and fetch.wait.max.ms of librdkafka, by default."""
ASKING_SHARE = 0.25
"""A client counts as asking if it sends at least this share of the fetches of a client with nothing buffered."""
TURNS = 3
"""A partition is passed over if all others had this many turns, one in each interval between snapshots. Fewer turns
prove nothing: in one the client may return records that it had buffered, and in the next those that it had already
requested, both from the time before the partition had records."""


def asking(reported: pa.Table) -> pa.Table:
    """PROCESS_AT and asked_per_s of ASKING_SQL. `reported` are `observed` rows of successive snapshots."""
    with arrow_queries({"reported": reported}) as queries:
        return queries.rows(f"SELECT {names_sql(PROCESS_AT)}, asked_per_s FROM ({ASKING_SQL})")


def poll_states(
    lag: pa.Table, reported: pa.Table, settings: Mapping[str, ConsumerSettings] = MappingProxyType({})
) -> pa.Table:
    """The progress of each process in each partition whose consumed offset is known, at each snapshot but the first.

    The columns are MEMBER_PARTITION, snapshot_id, host (the member's address), and:

    - unread: records from consumed_offset to last_stable_offset.
    - moved, grown: by how much consumed_offset and last_stable_offset have moved since the previous snapshot.
    - is_waiting: consumed_offset has not moved, although the log has grown.
    - is_slow: for two intervals the process has hardly sent fetch requests, has fallen behind, and has more unread than
      was written since the previous snapshot and in the time that a fetch may wait.
    - is_paused: the client says so; or else, the partition has waited for two intervals while its process sent
      requests, or got nothing while its process got records of other partitions, or has waited for TURNS intervals in
      each of which all others moved.

    `lag` (`with_instance`) and `reported` (`observed`) are rows of successive snapshots; all rows of a process must be
    there. `settings` of the consumers have how long a fetch may wait, FETCH_MAX_WAIT_MS by default.
    """
    tables = {"lag": lag, "reported": reported, "settings": settings_table(settings)}
    with arrow_queries(tables) as queries:
        return queries.rows(_STATES)


_PARTITION_AT = names_sql([*PROCESS_AT, *TOPIC_PARTITION])
_SERIES, _OF_PROCESS = "series", "of_process"
_WINDOWS = f"""
    WINDOW {_SERIES} AS (PARTITION BY {names_sql(MEMBER_PARTITION)} ORDER BY snapshot_id),
        {_OF_PROCESS} AS (PARTITION BY {names_sql(MEMBER_AT)})
"""
"""A partition of a process, from snapshot to snapshot; and all partitions of a process at one snapshot."""
_PAUSED = f"""
    SELECT {_PARTITION_AT},
        arg_max(is_paused, {{'as_of': as_of, 'is_paused': is_paused}}) FILTER (as_of IS NOT NULL) AS reported_paused
    FROM reported WHERE is_paused IS NOT NULL AND "partition" IS NOT NULL GROUP BY {_PARTITION_AT}
"""
"""Whether a client itself reports a partition as paused: PROCESS_AT, topic, partition, reported_paused."""
_READERS = f"""
    SELECT configured.*, asked_per_s, reported_paused,
        -- librdkafka has another name for this setting.
        coalesce(settings.fetch_max_wait_ms, settings.fetch_wait_max_ms, {FETCH_MAX_WAIT_MS}) AS wait_ms,
        -- Some clients cannot read beyond an open transaction, so records after it are not counted as unread.
        coalesce(last_stable_offset, high_watermark) AS log_end, log_end - consumed_offset AS unread,
        {read_ms_sql()} AS read_ms,
        -- Even if a fetch may wait only for a short time, a client sends no more than a few requests per second.
        asked_per_s >= {ASKING_SHARE * 1000} / greatest(wait_ms, {FETCH_MAX_WAIT_MS}) AS is_asking
    FROM ({with_settings_sql("known", "client_id", "group_id")}) AS configured
    LEFT JOIN asking USING ({names_sql(PROCESS_AT)}) LEFT JOIN paused USING ({_PARTITION_AT})
"""
"""The readers whose consumed offset is known, with what their process reports."""
_PROGRESS = {
    "moved": change_sql("consumed_offset", _SERIES),
    "fetched": change_sql("fetched_offset", _SERIES),
    "grown": change_sql("log_end", _SERIES),
    "interval_ms": change_sql("read_ms", _SERIES),
    "is_waiting": "moved = 0 AND grown > 0 AND unread > 0",
    # librdkafka discards what a paused partition had buffered, and fetches only from the others.
    "is_empty": "fetched_offset = consumed_offset AND unread > 0",
    "was_empty": f"lag(fetched_offset = consumed_offset AND unread > 0) OVER {_SERIES}",
    "unread_before_turns": f"lag(unread, {TURNS}) OVER {_SERIES}",
}
"""The changes since the previous snapshot, in records and ms; each is NULL at the first snapshot."""
_INTERVAL_MS = "CASE WHEN interval_ms > 0 THEN interval_ms END"
_UNREAD = f"CASE WHEN grown IS NOT NULL THEN {counted_lag('unread')} END"
# What was written since the previous snapshot, plus what is written while a fetch waits.
_ALLOWED = f"grown * (1 + wait_ms / ({_INTERVAL_MS}))"


def _sum_of_process(value: str) -> str:
    """The sum over the partitions of a process at a snapshot; NULL if no value is known, or if it exceeds a bigint."""
    return f"TRY_CAST(sum({value}) OVER {_OF_PROCESS} AS bigint)"


_JUDGED = {
    "hardly_asks": "coalesce(NOT is_asking, false)",
    "falls_behind": f"{_sum_of_process('moved')} < {_sum_of_process('grown')}",
    "has_too_much": f"{_sum_of_process(_UNREAD)} > sum({_ALLOWED}) OVER {_OF_PROCESS}",
    # The process hardly sends requests, falls behind, and has more unread than was just written.
    "is_behind": "hardly_asks AND (falls_behind AND has_too_much)",
    "is_left_out": f"coalesce(is_waiting AND is_empty AND was_empty AND max(fetched) OVER {_OF_PROCESS} > 0, false)",
    # Each row without a wait is a run of its own, together with the wait that follows it.
    "run": f"sum(CAST(coalesce(NOT is_waiting, true) AS int)) OVER {_SERIES}",
    "waits_while_asking": "coalesce(is_waiting AND is_asking, false)",
    "has_moved": f"count_if(moved > 0) OVER recent = {TURNS}",
    "has_waited": f"coalesce(count_if(is_waiting) OVER recent = {TURNS} AND unread_before_turns > 0, false)",
    "has_nothing": "coalesce(unread <= 0, false)",
}
_SHOWN = {
    # The number of intervals, since the partition began to wait, in which only others got records.
    "left_out": f"sum(CAST(is_left_out AS int)) OVER "
    f"(PARTITION BY {names_sql(MEMBER_PARTITION)}, run ORDER BY snapshot_id)",
    "is_slow": holds_twice_sql("is_behind", _SERIES),
    # The partition has waited for TURNS intervals, and all others have moved in each of them. The others are all
    # partitions with unread records, except those that have waited for as long and so are passed over, too. At least
    # two of them must have moved, because the client may return the records of a single one repeatedly.
    "is_passed_over": f"has_waited AND bool_and(has_waited OR has_moved OR has_nothing) OVER {_OF_PROCESS} "
    f"AND count_if(has_moved) OVER {_OF_PROCESS} >= 2",
    "is_paused": "coalesce(reported_paused AND unread > 0, "
    f"{holds_twice_sql('waits_while_asking', _SERIES)} OR (is_waiting AND left_out > 0) OR is_passed_over)",
}
_RETURNED = (*MEMBER_PARTITION, "host", "snapshot_id", "unread", "moved", "grown", "is_waiting", "is_slow", "is_paused")
_STATES = f"""
    WITH asking AS ({ASKING_SQL}), paused AS ({_PAUSED}),
    known AS (SELECT * FROM lag WHERE consumed_offset IS NOT NULL),
    readers AS ({_READERS}),
    progress AS (SELECT *, {columns_sql(_PROGRESS)} FROM readers {_WINDOWS}),
    judged AS (
        SELECT *, {columns_sql(_JUDGED)} FROM progress
        {_WINDOWS}, recent AS (series ROWS BETWEEN {TURNS - 1} PRECEDING AND CURRENT ROW)
    ),
    shown AS (SELECT *, {columns_sql(_SHOWN)} FROM judged {_WINDOWS})
    SELECT {names_sql(_RETURNED)} FROM shown WHERE moved IS NOT NULL
"""
