"""The table `client_divergence`: a client's own lag gauge beside its true lag.

The old consumer's MaxLag is its fetchers' lag: it does not count records in the queues of its threads, and does not
change while these are full. The Java consumer's records-lag is updated only when records arrive.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from pipeline.analytics.clients.buffer_bound import (
    FETCH_MESSAGE_MAX_BYTES,
    QUEUED_MAX_MESSAGE_CHUNKS,
    Kind,
    buffer_bound,
    consumer_settings,
)
from pipeline.analytics.clients.counters import MOVED_SQL, TOTALS_SQL
from pipeline.analytics.clients.settings import settings_table, with_settings_sql
from pipeline.analytics.keys import MEMBER, MEMBER_AT, MEMBER_PARTITION, PROCESS_AT
from pipeline.analytics.lag.ladder import counted_lag
from pipeline.analytics.series import begins_run_sql, change_sql, holds_twice_sql, read_ms_sql
from pipeline.common.arrow_sql import arrow_queries, columns_sql, names_sql, struct_sql, sum_if_fits_sql
from pipeline.common.data_source import arrow_schema
from pipeline.config.consumers import KAFKA_NAMES, ConsumerSettings
from pipeline.tables import CLIENT_DIVERGENCE

COMMIT_MS = 60_000
"""auto.commit.interval.ms of the old consumer, by default. Commits may be this late without a gauge being wrong."""
FEWEST_RECORDS = 100
"""How many records a client must have fetched before their mean size is used."""
KNOWN = CLIENT_DIVERGENCE.some((*MEMBER_AT, "verdict", "since", "record_bytes"))
"""What earlier rows of `client_divergence` say that does not change any more."""
_LARGEST_BIGINT = 2**63 - 1
_LAGS = ("fetcher_lag", "consumer_lag", "divergence")


def client_divergence(
    reported: pa.Table, lag: pa.Table, previous: pa.Table, settings: Mapping[str, ConsumerSettings]
) -> pa.Table:
    """The rows of `client_divergence` for the successive snapshots of `reported` and `lag`.

    `reported` are `observed` rows, `lag` are rows from `with_instance`; all rows of a process must be there.

    The application's lag counts from consumed_offset if it is known, else from the committed offset; a commit may be
    late by what the log grows in auto.commit.interval.ms. The verdict is `stale` if no fetch was answered for two
    snapshots, although the client's logs have grown; `blind` if the gauge shows less than half of the application's
    lag, and late commits do not explain the difference; else `truthful`. It is NULL if the gauge, the lag or the growth
    is not known, as at the first snapshot. `previous` are rows of KNOWN; their verdicts do not change.
    """
    tables = {"reported": reported, "lag": lag, "previous": previous, "settings": settings_table(settings)}
    with arrow_queries(tables) as queries:
        rows = queries.rows(_DIVERGENCE)
        bounds = pa.array([_bound_of(**values) for values in rows["bounded"].to_pylist()], pa.int64())
        queries.add(judged=rows.drop_columns("bounded").append_column("buffer_bound_bytes", bounds))
        shown = queries.rows("SELECT *, buffer_bound_bytes / heap_bytes AS heap_share FROM judged")
    return shown.select(CLIENT_DIVERGENCE.columns).cast(arrow_schema(CLIENT_DIVERGENCE.schema))


_SERIES = f"(PARTITION BY {names_sql(MEMBER)} ORDER BY snapshot_id)"
"""A process in a group, from snapshot to snapshot."""
_OF_CLIENT = "topic IS NULL AND fetcher IS NULL"
_GAUGES = f"""
    SELECT {names_sql(PROCESS_AT)}, max(snapshot_date) AS snapshot_date,
        coalesce(max(reported_lag) FILTER ({_OF_CLIENT}), max(reported_lag)) AS max_lag,
        max(buffered_bytes) AS reported_buffered,
        nullif(count(DISTINCT {struct_sql({"topic": "topic", "fetcher": "fetcher"})})
            FILTER (queue_chunks IS NOT NULL), 0) AS threads,
        -- A request log does not show which kind of client it is.
        max(source) FILTER (source <> 'kafka_request_log') AS source
    FROM reported GROUP BY {names_sql(PROCESS_AT)}
"""
"""What each process reports of itself."""


def _whole_sum(value: str) -> str:
    """The sum of a column; NULL if one of its values is NULL."""
    return f"CASE WHEN count({value}) = count(*) THEN {sum_if_fits_sql(value)} END"


_LATE_MS = f"coalesce(settings.auto_commit_interval_ms, {COMMIT_MS})"
_READERS = f"""
    SELECT *, {change_sql("high_watermark", "series")} AS grown,
        {read_ms_sql()} - lag({read_ms_sql()}) OVER series AS interval_ms,
        -- For read_committed clients the log ends at the last stable offset.
        CASE WHEN consumed_offset IS NOT NULL THEN coalesce(last_stable_offset, high_watermark) - consumed_offset
            ELSE consumer_lag END AS app_lag,
        CASE WHEN consumed_offset IS NOT NULL THEN grown
            ELSE grown * (1 + {_LATE_MS} / (CASE WHEN interval_ms > 0 THEN interval_ms END)) END AS noise
    FROM ({with_settings_sql("lag", "client_id", "group_id")})
    WINDOW series AS (PARTITION BY {names_sql(MEMBER_PARTITION)} ORDER BY snapshot_id)
"""
"""Each partition of a process with the application's lag, and by how much less a correct gauge may show (noise)."""
_RECORD_BYTES = " / ".join(
    (sum_if_fits_sql(counted_lag("consumer_lag_bytes")), f"nullif({sum_if_fits_sql(counted_lag('consumer_lag'))}, 0)")
)
_OF_TOPIC = {
    "captured_at": "max(captured_at)",
    **{f"max_{name}": f"max({name})" for name in (*_LAGS, "app_lag")},
    **{f"sum_{name}": _whole_sum(counted_lag(name)) for name in _LAGS},
    "fetched_offsets": _whole_sum("fetched_offset"),
    "sum_buffered_bytes": _whole_sum("buffered_bytes"),
    "noise": "max(noise)",
    "judged_lag": "max(app_lag) FILTER (noise IS NOT NULL)",
    "grown": sum_if_fits_sql("grown"),
    "partitions": "count(*)",
    "leaders": "list(DISTINCT leader) FILTER (leader IS NOT NULL)",
    "record_bytes": _RECORD_BYTES,
}
_OF_PROCESS = {
    "captured_at": "max(captured_at)",
    **{f"max_{name}": f"max(max_{name})" for name in (*_LAGS, "app_lag")},
    **{f"sum_{name}": _whole_sum(f"sum_{name}") for name in _LAGS},
    "fetched_offsets": _whole_sum("fetched_offsets"),
    "sum_buffered_bytes": _whole_sum("sum_buffered_bytes"),
    "noise": "max(noise)",
    "judged_lag": "max(judged_lag)",
    "grown": sum_if_fits_sql("grown"),
    "partitions": "sum(partitions)::bigint",
    "brokers": "len(list_distinct(flatten(list(leaders))))",
    "log_record_bytes": "min(record_bytes)",
}
"""The lags of each process and group: those in the table, and those that the verdict needs.

max_app_lag: the largest lag of the application. judged_lag: the same, for partitions that the process has read since
the previous snapshot. noise: by how much less a correct gauge may show.
"""
_LAGS_OF_PROCESS = f"""
    SELECT {names_sql(MEMBER_AT)}, {columns_sql(_OF_PROCESS)} FROM (
        SELECT {names_sql(MEMBER_AT)}, topic, {columns_sql(_OF_TOPIC)} FROM ({_READERS})
        GROUP BY {names_sql(MEMBER_AT)}, topic
    ) GROUP BY {names_sql(MEMBER_AT)}
"""
_KNOWN = f"""
    SELECT {names_sql(MEMBER_AT)}, verdict AS known_verdict, since AS known_since, record_bytes AS known_record_bytes
    FROM previous
"""
_VERDICT = """
    CASE WHEN max_lag IS NULL OR judged_lag IS NULL OR noise IS NULL THEN NULL
        WHEN judged_lag::HUGEINT - max_lag > noise AND 2 * max_lag < judged_lag THEN 'blind' ELSE 'truthful' END
"""
_FIRST_FETCHED = f"""
    first_value(CASE WHEN fetched_offsets IS NOT NULL THEN {{}} END IGNORE NULLS) OVER {_SERIES}
"""
_JUDGED = {
    "is_still": "grown > 0 AND NOT any_moved AND is_new_report",
    "fetched_bytes": f"bytes - {_FIRST_FETCHED.format('bytes')}",
    "fetched": f"fetched_offsets - {_FIRST_FETCHED.format('fetched_offsets')}",
    # The mean bytes of the records that a client has fetched since its fetched offsets were first known.
    "own_record_bytes": f"CASE WHEN fetched >= {FEWEST_RECORDS} THEN fetched_bytes / fetched END",
    # The mean bytes of a record at this snapshot.
    "size": "nullif(round(coalesce(known_record_bytes, log_record_bytes, own_record_bytes)), 0)",
}
_WITH_VERDICT = {
    "verdict": f"coalesce(known_verdict, CASE WHEN {holds_twice_sql('is_still', _SERIES)} THEN 'stale' "
    f"ELSE {_VERDICT} END)",
    # While a fetcher is blocked, the last known size is used.
    "record_bytes": f"last_value(size IGNORE NULLS) OVER {_SERIES}",
    "begun_at": "coalesce(captured_at, make_timestamptz(snapshot_id * 1000))",
}
# The most bytes that the queue of an old consumer's thread holds: by default, two chunks of 1 MiB.
_QUEUE_BYTES = f"""
    (coalesce(settings.queued_max_message_chunks, {QUEUED_MAX_MESSAGE_CHUNKS})
        * coalesce(settings.fetch_message_max_bytes, {FETCH_MESSAGE_MAX_BYTES}))
"""
_KIND = """
    CASE WHEN source = 'librdkafka_statistics' THEN 'librdkafka' WHEN source IS NULL THEN NULL
        WHEN is_old THEN 'scala' ELSE 'java' END
"""
_BOUNDED = {
    "kind": _KIND,
    "settings": "settings",
    "threads": "threads",
    "partitions": "partitions",
    "brokers": "nullif(brokers, 0)",
}
_SHOWN = {
    "captured_at": "begun_at",
    "hidden_lag": "TRY_CAST(max_app_lag::HUGEINT - max_lag AS bigint)",
    "queue_records": f"CASE WHEN is_old THEN floor({_QUEUE_BYTES} / record_bytes) END",
    "buffered_bytes": "coalesce(reported_buffered, sum_buffered_bytes)",
    "since": "CASE WHEN verdict IS NOT NULL THEN "
    f"min(coalesce(known_since, begun_at)) OVER (PARTITION BY {names_sql(MEMBER)}, run) END",
    "heap_bytes": "settings.heap_bytes",
    "bounded": struct_sql(_BOUNDED),
}
_DIVERGENCE = f"""
    WITH gauges AS ({_GAUGES}), counters AS ({MOVED_SQL}), totals AS ({TOTALS_SQL}),
    lags AS ({_LAGS_OF_PROCESS}), known AS ({_KNOWN}),
    processes AS (
        SELECT * FROM gauges LEFT JOIN counters USING ({names_sql(PROCESS_AT)})
        LEFT JOIN totals USING ({names_sql(PROCESS_AT)})
        LEFT JOIN lags USING ({names_sql(PROCESS_AT)}) LEFT JOIN known USING ({names_sql(MEMBER_AT)})
    ),
    judged AS (SELECT *, {columns_sql(_JUDGED)} FROM ({with_settings_sql("processes", "client_id", "group_id")})),
    with_verdict AS (SELECT *, {columns_sql(_WITH_VERDICT)} FROM judged),
    begun AS (SELECT *, {begins_run_sql("verdict", _SERIES)} AS begins FROM with_verdict),
    runs AS (SELECT *, sum(begins) OVER {_SERIES} AS run FROM begun)
    SELECT * EXCLUDE (captured_at), {columns_sql(_SHOWN)} FROM runs
"""


def _bound_of(
    kind: Kind | None,
    settings: Mapping[str, Any],
    threads: int | None,
    partitions: int | None,
    brokers: int | None,
) -> int | None:
    """`buffer_bound` of a client; NULL if its kind, threads or brokers are not known, or if it exceeds a bigint."""
    configured = {KAFKA_NAMES[name]: value for name, value in settings.items() if value is not None}
    if kind == "scala":
        configured.setdefault("threads", threads)
    if kind is None or partitions is None or (configured["threads"] if kind == "scala" else brokers) is None:
        return None
    bound = buffer_bound(kind, consumer_settings(configured, kind), partitions, brokers or 0).bound_bytes
    return bound if bound <= _LARGEST_BIGINT else None
