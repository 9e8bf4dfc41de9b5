"""The problems of clients at each snapshot: rows of PROBLEMS. Their kinds are declared in `kinds.clients`."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from pipeline.analytics.clients.instances import HERE
from pipeline.analytics.findings.problem import problem_rows
from pipeline.analytics.keys import MEMBER_AT, PROCESS_AT
from pipeline.analytics.lag.ladder import counted_lag
from pipeline.common.arrow_sql import arrow_queries, columns_sql, list_sql, names_sql, struct_sql, sum_if_fits_sql
from pipeline.kinds.clients import BufferFacts, ClientFacts, FetcherFacts, GaugeFacts, PausedFacts, PollFacts

LARGEST_HEAP_SHARE = 0.5
"""The part of its heap that a client may buffer before this counts as a problem."""


def problems(divergence: pa.Table, fetchers: pa.Table, polls: pa.Table, lag: pa.Table) -> pa.Table:
    """All problems in some snapshots, from rows of `client_divergence`, `fetcher_states`, `poll_states` and `lag`."""
    tables = {"divergence": divergence, "fetchers": fetchers, "polls": polls, "lag": lag}
    with arrow_queries(tables) as queries:
        return pa.concat_tables([problem_rows(queries.rows(text), facts) for facts, text in _PROBLEMS.items()])


def _problems_sql(rows: str, columns: Mapping[str, str], facts: type[ClientFacts]) -> str:
    """The query for a problem of each row, with these columns and facts."""
    # So that the words name the process only if it says more.
    said = {name: name for name in facts.model_fields} | {"instance": f"nullif(instance, '{HERE}')"}
    return f"SELECT {names_sql(MEMBER_AT)}, {columns_sql(columns)}, {struct_sql(said)} AS facts FROM ({rows})"


_UNREAD = sum_if_fits_sql(counted_lag("unread"))
_PARTITIONS = list_sql('"partition"')
_HOSTS = "list(DISTINCT host ORDER BY host) FILTER (host IS NOT NULL)"
"""The addresses of the members concerned; NULL if none is known."""

_OF_PROCESS = ("culprits", "threads", "victims", "sum_fetcher_lag", "max_lag", "record_bytes")
_BLOCKED = f"""
    WITH clients AS (SELECT {names_sql(MEMBER_AT)}, max_lag, sum_fetcher_lag, record_bytes FROM divergence),
    blocked AS (
        SELECT {names_sql(MEMBER_AT)},
            CASE WHEN NOT has_fetched AND max_lag > 0 THEN 'too_large_message' ELSE 'blocked_connector' END AS problem,
            {list_sql("fetcher")} AS fetchers, {columns_sql({name: f"first({name})" for name in _OF_PROCESS})}
        FROM fetchers LEFT JOIN clients USING ({names_sql(PROCESS_AT)})
        WHERE state = 'blocked' GROUP BY {names_sql(MEMBER_AT)}, problem
    ),
    -- The first topic with a full queue.
    named AS (SELECT *, CASE WHEN problem = 'blocked_connector' THEN culprits[1] END AS culprit FROM blocked),
    partitions AS (
        SELECT {names_sql(PROCESS_AT)}, topic AS culprit, {_PARTITIONS} AS partitions FROM lag GROUP BY ALL
    )
    SELECT * FROM named LEFT JOIN partitions USING ({names_sql(PROCESS_AT)}, culprit)
"""
"""Old consumers whose fetcher waits for a topic's thread, or whose buffer is too small for a message."""
_IS_CONNECTOR = "problem = 'blocked_connector'"
_BLOCKED_PROBLEMS = _problems_sql(
    _BLOCKED,
    {
        "kind": "problem",
        "topic": "culprit",
        "partitions": "partitions",
        "severity": f"CASE WHEN len(victims) > 0 OR NOT {_IS_CONNECTOR} THEN 'critical' ELSE 'warning' END",
        "magnitude": f"CASE WHEN {_IS_CONNECTOR} THEN sum_fetcher_lag ELSE max_lag END",
    },
    FetcherFacts,
)
_SLOW = f"""
    WITH of_topic AS (
        SELECT {names_sql(MEMBER_AT)}, topic, bool_or(moved > 0) AS moves,
            bool_and(is_waiting AND NOT is_paused) AS waits, {_PARTITIONS} AS partitions, {_UNREAD} AS unread
        FROM polls WHERE is_slow GROUP BY {names_sql(MEMBER_AT)}, topic
    ),
    hosts AS (
        SELECT {names_sql(MEMBER_AT)}, {_HOSTS} AS hosts FROM polls WHERE is_slow GROUP BY {names_sql(MEMBER_AT)}
    ),
    slow AS (
        SELECT {names_sql(MEMBER_AT)}, {list_sql("CASE WHEN moves THEN topic END")} AS moving,
            {list_sql("CASE WHEN waits THEN topic END")} AS waiting, {sum_if_fits_sql("unread")} AS unread,
            -- The topic is the one that moves while all partitions of another wait.
            CASE WHEN len(moving) = 1 AND len(waiting) > 0 THEN moving[1] END AS culprit
        FROM of_topic GROUP BY {names_sql(MEMBER_AT)}
    )
    SELECT slow.*, hosts, partitions FROM slow JOIN hosts USING ({names_sql(MEMBER_AT)})
    LEFT JOIN (SELECT {names_sql(MEMBER_AT)}, topic AS culprit, partitions FROM of_topic)
        USING ({names_sql(MEMBER_AT)}, culprit)
"""
"""Poll loops that hardly send requests, with the topics that move and those that wait."""
_PAUSED = f"""
    SELECT {names_sql(MEMBER_AT)}, topic, {_PARTITIONS} AS partitions, {_UNREAD} AS unread, {_HOSTS} AS hosts
    FROM polls WHERE is_paused GROUP BY {names_sql(MEMBER_AT)}, topic
"""
_PROBLEMS: Mapping[type[ClientFacts], str] = {
    FetcherFacts: _BLOCKED_PROBLEMS,
    PollFacts: _problems_sql(
        _SLOW,
        {
            "kind": "'slow_consumer'",
            "topic": "culprit",
            "partitions": "partitions",
            "severity": "'warning'",
            "magnitude": "unread",
        },
        PollFacts,
    ),
    PausedFacts: _problems_sql(
        _PAUSED,
        {
            "kind": "'paused_partition'",
            "topic": "topic",
            "partitions": "partitions",
            "severity": "'warning'",
            "magnitude": "unread",
        },
        PausedFacts,
    ),
    # Gauges that cannot be trusted.
    GaugeFacts: _problems_sql(
        "SELECT * FROM divergence WHERE verdict IN ('blind', 'stale')",
        {"kind": "'blind_gauge'", "severity": "'warning'", "magnitude": "hidden_lag"},
        GaugeFacts,
    ),
    # Clients whose heap is too small for their buffers.
    BufferFacts: _problems_sql(
        f"SELECT * FROM divergence WHERE heap_share > {LARGEST_HEAP_SHARE}",
        {"kind": "'buffer_too_large'", "severity": "'warning'", "magnitude": "heap_share"},
        BufferFacts,
    ),
}
"""The query for the problems of each type of facts."""
