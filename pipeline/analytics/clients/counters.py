"""The counters of processes: of their fetch requests and of the bytes that they got, and whether these have moved.

The SQL here reads `reported`, which are `observed` rows of successive snapshots; all rows of a process must be there.
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.types import BooleanType, StructField, StructType

from pipeline.analytics.clients.known_names import AGENTS_SOURCE
from pipeline.analytics.keys import PROCESS, PROCESS_AT
from pipeline.analytics.series import change_sql, read_ms_sql, series_sql, stretch_sql
from pipeline.common.arrow_sql import arrow_queries, names_sql, sum_if_fits_sql
from pipeline.common.data_source import arrow_schema
from pipeline.tables import CLIENT_DIVERGENCE

MOVED = ("is_old", "all_moved", "any_moved", "is_new_report")
COUNTERS = StructType(
    [*(CLIENT_DIVERGENCE.schema[name] for name in PROCESS_AT), *(StructField(name, BooleanType()) for name in MOVED)]
)
"""What `client_counters` returns."""
_FETCHER = [*PROCESS, "agent", "origin", "fetcher"]
_AGENT = [*PROCESS_AT, "agent", "source"]

# Among the clients of this source, only the old consumer has queues by topic and counters by fetcher.
_IS_OLD = f"""
    (source = '{AGENTS_SOURCE}'
        AND (queue_chunks IS NOT NULL OR (fetcher IS NOT NULL AND requests_total IS NOT NULL)))
"""
IS_NEW_REPORT = "coalesce(captured_at > lag(captured_at) OVER series, true)"
"""Whether a row is from a newer report than the row before. A file may be written less often than it is read."""
MOVED_SQL = f"""
    WITH counted AS (
        SELECT {names_sql(_FETCHER)}, snapshot_id, bool_or({_IS_OLD}) AS is_old, max(requests_total) AS requests_total,
            max(bytes_total) AS bytes_total, max(captured_at) AS captured_at, max(nth) AS nth
        FROM reported WHERE "partition" IS NULL GROUP BY ALL
    ),
    in_stretches AS (SELECT *, {stretch_sql(_FETCHER)} AS stretch FROM counted),
    moved AS (
        SELECT *, requests_total <> lag(requests_total) OVER series AS asked,
            bytes_total <> lag(bytes_total) OVER series AS got, coalesce(asked OR got, asked, got) AS has_moved,
            {IS_NEW_REPORT} AS is_new
        FROM in_stretches WINDOW series AS {series_sql(_FETCHER)}
    )
    SELECT {names_sql(PROCESS_AT)}, bool_or(is_old) AS is_old, bool_and(has_moved) AS all_moved,
        bool_or(has_moved) AS any_moved, bool_and(is_new) AS is_new_report
    FROM moved GROUP BY {names_sql(PROCESS_AT)}
"""
"""The query of `client_counters`."""
_GREATEST = "max(requests) AS requests, max(bytes) AS bytes"
TOTALS_SQL = f"""
    WITH of_fetcher AS (
        SELECT {names_sql(_AGENT)}, origin, fetcher, max(requests_total) AS requests, max(bytes_total) AS bytes,
            max({read_ms_sql()}) AS read_ms
        FROM reported WHERE "partition" IS NULL AND topic IS NULL GROUP BY ALL
    ),
    of_agent AS (
        SELECT {names_sql(_AGENT)}, {sum_if_fits_sql("requests")} AS requests, {sum_if_fits_sql("bytes")} AS bytes,
            max(read_ms) AS read_ms
        FROM of_fetcher GROUP BY ALL
    )
    SELECT {names_sql(PROCESS_AT)}, {_GREATEST},
        -- From the agent whose counter is taken.
        arg_max(read_ms, {{'requests': coalesce(requests, -1), 'read_ms': read_ms}}) AS read_ms
    FROM of_agent GROUP BY {names_sql(PROCESS_AT)}
"""
"""The counters of each process, summed over the brokers it fetches from: PROCESS_AT, requests, bytes, read_ms.

If several agents report a process, the greatest counters are taken. For a client address, the request log of each
broker has some of them.
"""
_PASSED_MS = change_sql("read_ms", "series")
ASKING_SQL = f"""
    WITH totals AS ({TOTALS_SQL})
    SELECT {names_sql(PROCESS_AT)}, {_PASSED_MS} AS passed_ms,
        greatest({change_sql("requests", "series")}, 0) / (CASE WHEN passed_ms > 0 THEN passed_ms END / 1000)
            AS asked_per_s
    FROM totals WHERE requests IS NOT NULL WINDOW series AS (PARTITION BY {names_sql(PROCESS)} ORDER BY snapshot_id)
"""
"""The fetch requests per second of each process since the previous snapshot: PROCESS_AT, asked_per_s.

It is NULL at the first snapshot, and 0 if the counter has become smaller, because the process was restarted in
between. The time is that between the two reports of the counter.
"""


def client_counters(reported: pa.Table) -> pa.Table:
    """For each PROCESS_AT: is_old (it is a Scala consumer), all_moved and any_moved, is_new_report.

    all_moved and any_moved say whether the counters of all, or of any, of its fetchers have moved. They are NULL at the
    first snapshot of a fetcher, and for clients without counters. is_new_report: no counter comes from a report that
    was already read in the previous snapshot. `reported` are `observed` rows.
    """
    with arrow_queries({"reported": reported}) as queries:
        return queries.rows(MOVED_SQL).cast(arrow_schema(COUNTERS))
