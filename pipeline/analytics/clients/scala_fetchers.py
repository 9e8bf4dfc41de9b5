"""Whether the old consumer's fetchers are blocked, and by which topic.

A connector's topics share one fetcher thread for each broker. It puts the fetched records into the queue of each
topic's thread, and waits if a queue is full: then no topic of the connector is read. MaxLag and every ConsumerLag keep
their last value meanwhile, because they change only when a fetch is answered. A fetcher is blocked if its counters of
fetches do not increase although logs grow: one with nothing to fetch sends a request every fetch.wait.max.ms.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from pipeline.analytics.clients.buffer_bound import QUEUED_MAX_MESSAGE_CHUNKS
from pipeline.analytics.clients.counters import IS_NEW_REPORT
from pipeline.analytics.clients.settings import settings_table, with_settings_sql
from pipeline.analytics.keys import FETCHER, PROCESS_AT, TOPIC, TOPIC_AT
from pipeline.analytics.series import begins_run_sql
from pipeline.common.arrow_sql import arrow_queries, list_sql, names_sql, sum_if_fits_sql
from pipeline.common.data_source import arrow_schema
from pipeline.config.consumers import ConsumerSettings
from pipeline.tables import WATERMARKS

GROWING = WATERMARKS.some(TOPIC_AT)
"""The topics whose logs have grown since the previous snapshot."""


def growing_topics(log_ends: pa.Table) -> pa.Table:
    """The rows of GROWING from rows of `watermarks` (TOPIC_AT, high_watermark) of successive snapshots.

    All rows of a topic must be there.
    """
    with arrow_queries({"log_ends": log_ends}) as queries:
        return queries.rows(_GROWING).cast(arrow_schema(GROWING))


_GROWING = f"""
    WITH ends AS (
        SELECT {names_sql(TOPIC_AT)}, {sum_if_fits_sql("high_watermark")} AS end_of_logs
        FROM log_ends WHERE topic IS NOT NULL GROUP BY {names_sql(TOPIC_AT)}
    )
    SELECT {names_sql(TOPIC_AT)} FROM ends
    QUALIFY end_of_logs > lag(end_of_logs) OVER (PARTITION BY {names_sql(TOPIC)} ORDER BY snapshot_id)
"""


def fetcher_states(reported: pa.Table, growing: pa.Table, settings: Mapping[str, ConsumerSettings]) -> pa.Table:
    """The state of each fetcher at each snapshot but the first, and the topics that explain it.

    The columns are PROCESS_AT, fetcher, and:

    - state: `fetching`; `idle` if it sends fetch requests and gets nothing; `blocked` if it sends none although a log
      grows, and a queue is full or no fetcher of its process sends any; NULL otherwise, or if its counters are
      not from a new report.
    - since_snapshot_id: the first snapshot of the run in this state.
    - culprits: topics with a full queue. threads: the threads of these queues.
    - victims: topics with empty queues whose logs grow.
    - has_fetched: whether it has ever got a whole message.

    A blocked fetcher with culprits and victims is a blocked connector; without victims it is one slow consumer.

    `reported` are `observed` rows of successive snapshots, `growing` are rows of GROWING, `settings` are those of the
    consumers.
    """
    tables = {"reported": reported, "growing": growing, "settings": settings_table(settings)}
    with arrow_queries(tables) as queries:
        return queries.rows(_STATES)


_MOST_CHUNKS = f"coalesce(settings.queued_max_message_chunks, {QUEUED_MAX_MESSAGE_CHUNKS})"
_QUEUES = f"""
    SELECT {names_sql(TOPIC_AT)}, client_id, instance, max(queue_chunks) AS chunks,
        {list_sql(f"CASE WHEN queue_chunks >= {_MOST_CHUNKS} THEN fetcher END")} AS full_threads
    FROM ({with_settings_sql("queues", "client_id")}) GROUP BY ALL
"""
"""The queues of each process and topic."""
_EXPLAINED = f"""
    SELECT {names_sql(PROCESS_AT)}, bool_or(is_growing) AS is_growing,
        {list_sql("CASE WHEN len(full_threads) > 0 THEN topic END")} AS culprits,
        list_sort(list_distinct(flatten(list(full_threads)))) AS threads,
        {list_sql("CASE WHEN chunks = 0 AND is_growing THEN topic END")} AS victims
    FROM ({_QUEUES}) LEFT JOIN (SELECT *, true AS is_growing FROM growing) USING ({names_sql(TOPIC_AT)})
    GROUP BY {names_sql(PROCESS_AT)}
"""
"""The queues of each process: PROCESS_AT, is_growing (the log of any of its topics), culprits, threads, victims."""
_STATE = """
    CASE WHEN asked AND got THEN 'fetching' WHEN asked THEN 'idle'
        -- Some versions keep the counters of a fetcher that has ended (KAFKA-3632), while others of its process move.
        WHEN NOT asked AND is_growing AND (len(culprits) > 0 OR NOT bool_or(asked) OVER of_process) THEN 'blocked' END
"""
_STATES = f"""
    WITH queues AS (SELECT * FROM reported WHERE queue_chunks IS NOT NULL),
    counters AS (
        -- Two agents may report the same fetcher.
        SELECT {names_sql(PROCESS_AT)}, fetcher, max(requests_total) AS requests_total,
            max(bytes_total) AS bytes_total, max(captured_at) AS captured_at
        FROM reported WHERE topic IS NULL AND fetcher IS NOT NULL AND requests_total IS NOT NULL GROUP BY ALL
    ),
    moved AS (
        SELECT *, lag(requests_total) OVER series AS asked_before, {IS_NEW_REPORT} AS is_new,
            -- Whether requests and bytes have changed; NULL if they are not from a new report.
            CASE WHEN is_new THEN requests_total <> asked_before END AS asked,
            CASE WHEN is_new THEN bytes_total <> lag(bytes_total) OVER series END AS got
        FROM counters JOIN ({_EXPLAINED}) USING ({names_sql(PROCESS_AT)})
        WINDOW series AS (PARTITION BY {names_sql(FETCHER)} ORDER BY snapshot_id)
    ),
    judged AS (
        SELECT *, {_STATE} AS state FROM moved WHERE asked_before IS NOT NULL
        WINDOW of_process AS (PARTITION BY {names_sql(PROCESS_AT)})
    ),
    begun AS (
        SELECT *, {begins_run_sql("state", "series")} AS begins FROM judged
        WINDOW series AS (PARTITION BY {names_sql(FETCHER)} ORDER BY snapshot_id)
    ),
    runs AS (
        SELECT *, sum(begins) OVER (PARTITION BY {names_sql(FETCHER)} ORDER BY snapshot_id) AS run FROM begun
    )
    SELECT {names_sql(PROCESS_AT)}, fetcher, state,
        min(snapshot_id) OVER (PARTITION BY {names_sql(FETCHER)}, run) AS since_snapshot_id,
        culprits, threads, victims, bytes_total > 0 AS has_fetched
    FROM runs
"""
