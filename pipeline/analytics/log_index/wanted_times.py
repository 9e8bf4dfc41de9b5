"""Which times of records are looked up in the logs, because the rulers do not know them exactly enough."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.types import ArrayType, DoubleType

from pipeline.analytics.keys import PARTITION
from pipeline.analytics.log_index.index import KNOWN_END, RULER_ROWS
from pipeline.analytics.log_index.polyline import TOLERANCE
from pipeline.analytics.log_index.ruler import FUTURE_MS
from pipeline.analytics.log_index.ruler_lookup import readings_at
from pipeline.analytics.log_index.ruler_storage import Rulers
from pipeline.analytics.log_index.time_search import FINEST_MS
from pipeline.common.arrow_sql import arrow_queries, epoch_ms_sql, names_sql, numbered, with_values
from pipeline.common.buckets import Bucket
from pipeline.common.data_source import arrow_schema
from pipeline.tables import COMMITTED_OFFSETS, WATERMARKS
from pipeline.tables.columns import LONG

WANTED_PARTS = {
    "rulers": RULER_ROWS,
    "watermarks": WATERMARKS.some(
        (
            *(*PARTITION, "captured_at", "leader", "log_start_offset", "local_log_start_offset", "high_watermark"),
            *("log_end_offset", "max_timestamp_ms", "max_timestamp_offset", "error"),
        )
    ),
    "commits": COMMITTED_OFFSETS.some((*PARTITION, "committed_offset", "earlier_offset", "high_watermark")),
}
"""What the wanted times of a snapshot are computed from: its rulers and its rows."""
WANTED = WATERMARKS.some(("leader", "topic", "partition")).add("ruler", RULER_ROWS["ruler"].dataType)
WANTED = WANTED.add("rungs", ArrayType(LONG)).add("excess_ms", DoubleType())
"""A partition in which look-ups by time would help.

The `rungs` are the offsets whose times are wanted. `excess_ms` is by how much the largest of their errors exceeds the
tolerance, infinite if a time is unknown.
"""
_NEWEST_END = f"greatest({KNOWN_END}, max_timestamp_offset + 1)"
_PARTITIONS = f"""
    SELECT row_number() OVER () - 1 AS number, {names_sql(PARTITION)}, leader, log_start_offset, high_watermark,
        {KNOWN_END} AS log_end_offset, coalesce(log_start_offset < high_watermark, false) AS has_records,
        CASE WHEN max_timestamp_ms IS NOT NULL THEN {_NEWEST_END} END AS newest_end, rulers.ruler
    FROM watermarks JOIN rulers USING ({names_sql(PARTITION)})
    WHERE error IS NULL AND leader IS NOT NULL
        AND NOT coalesce(max_timestamp_ms > {epoch_ms_sql("captured_at")} + {FUTURE_MS}, false)
        AND NOT (max_timestamp_ms IS NULL AND max_timestamp_offset IS NOT NULL)
        AND ({{with_tiered}} OR coalesce(local_log_start_offset <= log_start_offset, true))
"""
"""The partitions whose leaders can be asked.

`newest_end` is an end of the log that comes after the record with the newest timestamp, NULL if that timestamp is not
known: it is read after the log's end, so its record may have been written in between.
"""
_RUNGS = f"""
    WITH committed AS (
        SELECT {names_sql(PARTITION)}, unnest([committed_offset, earlier_offset]) AS "offset", high_watermark AS "end"
        FROM commits WHERE committed_offset IS NOT NULL
    ), of_partitions AS (
        SELECT number, log_start_offset, p.high_watermark, log_end_offset, has_records, newest_end, "offset", c."end",
            coalesce("offset" >= log_start_offset AND "offset" < p.high_watermark, false) AS is_in_log
        FROM partitions p JOIN committed c USING ({names_sql(PARTITION)})
    ), ends AS (
        SELECT number, "end", any_value(newest_end) AS newest_end, any_value(log_end_offset) AS log_end_offset,
            bool_or(has_records) AS has_records, bool_or(bool_or(is_in_log)) OVER (PARTITION BY number) AS has_commits
        FROM (FROM of_partitions UNION ALL BY NAME SELECT * REPLACE (high_watermark AS "end") FROM of_partitions)
        GROUP BY number, "end"
    )
    SELECT number, log_start_offset AS rung, log_end_offset FROM of_partitions WHERE has_records
    UNION SELECT number, "offset", log_end_offset FROM of_partitions WHERE is_in_log
    UNION SELECT number, "end" - 1, log_end_offset FROM ends
    WHERE "end" IS NOT NULL AND coalesce("end" < newest_end, true)
        AND (has_commits OR newest_end IS NULL AND has_records)
"""
_WANTED = f"""
    WITH inexact AS (
        SELECT number, list(rung ORDER BY rung) AS rungs, max(
            CASE WHEN timestamp_ms IS NULL OR coalesce(is_arrival, true) THEN 'inf'::double
                ELSE timestamp_error_ms - greatest({FINEST_MS}, {TOLERANCE} * (newest_ms - timestamp_ms)) END
        ) AS excess_ms
        FROM readings GROUP BY number HAVING excess_ms > 0
    )
    SELECT leader, topic, "partition", ruler, rungs, excess_ms FROM inexact JOIN partitions USING (number)
"""


def wanted_times(bucket: Bucket, with_tiered: bool) -> pa.Table:
    """The rows of WANTED for some partitions, from rows of WANTED_PARTS of one snapshot.

    The rungs are: log start, the committed offsets that have records after them (as read before and after the ends of
    the logs), and the last record before each of these ends. The latter is needed if a log grew in between, because
    then the newest timestamp is that of a later record. A partition with tiered storage is left out unless
    `with_tiered`, because an old record would be fetched from there. A partition whose newest timestamp is in the
    future is left out, because that record would be the answer to every look-up; so is one in which no record has a
    time.
    """
    rulers = bucket["rulers"]["ruler"].combine_chunks()
    with arrow_queries({**bucket, "rulers": numbered(bucket["rulers"], "ruler")}) as queries:
        partitions = queries.rows(_PARTITIONS.format(with_tiered=with_tiered))
        queries.add(partitions=partitions)
        rungs = queries.rows(_RUNGS)
        queries.add(readings=_read(Rulers(rulers.take(partitions["ruler"].combine_chunks())), rungs))
        wanted = queries.rows(_WANTED)
    return with_values(wanted, "ruler", bucket["rulers"]["ruler"]).select(WANTED.names).cast(arrow_schema(WANTED))


def _read(rulers: Rulers, rungs: pa.Table) -> pa.Table:
    """The rungs, each with its reading and with the newest time in its log."""
    where = rungs["number"].to_numpy()
    readings = pa.Table.from_batches([readings_at(rulers, where, rungs["rung"].to_numpy())])
    newest = readings_at(rulers, where, rungs["log_end_offset"].to_numpy())
    for name in ("timestamp_ms", "timestamp_error_ms", "is_arrival"):
        rungs = rungs.append_column(name, readings[name])
    return rungs.append_column("newest_ms", newest["newest_before_ms"])
