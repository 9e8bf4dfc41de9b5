"""The table `lag`: one row for each snapshot, group, topic and partition with a commit or an assignment."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from pipeline.analytics.keys import GROUP_AT, PARTITION_AT, READER, READER_AT, TOPIC_PARTITION
from pipeline.analytics.lag.bytes_and_time import BEYOND_BYTES, reader_age, unit_columns
from pipeline.analytics.lag.ladder import lags, offset_status
from pipeline.analytics.lag.log_files import FILES, Locate, located_offsets
from pipeline.analytics.lag.readers import readers_sql
from pipeline.analytics.lag.recreated_topics import verified_epoch
from pipeline.analytics.lag.rung_readings import with_readings
from pipeline.analytics.log_index.index import RULER_ROWS
from pipeline.analytics.page_cache.reuse_distance import BrokerCurves, broker_curves, with_reuse
from pipeline.common.arrow_sql import arrow_queries, columns_sql, epoch_ms_sql, names_sql, numbered, with_values
from pipeline.common.buckets import Bucket
from pipeline.common.data_source import arrow_schema
from pipeline.common.rows import Rows, bucketed
from pipeline.tables import COMMITTED_OFFSETS, GROUP_MEMBERS, LAG, WATERMARKS
from pipeline.tables.columns import LONG, STRING

NOT_IN_CLUSTER = "UNKNOWN_TOPIC_OR_PARTITION"
"""Kafka's error for a partition that its metadata does not list, and that is not proven to be deleted."""
GROUPS = StructType([LAG.schema[name] for name in (*GROUP_AT, "group_state", "group_type")]).add("group_error", STRING)
"""What the rows of a group have in common. If there is a group_error, its commits are unknown, not absent."""
LAG_PARTS = {
    "commits": COMMITTED_OFFSETS.some(
        (
            *READER_AT,
            *("captured_at", "committed_offset", "earlier_offset", "high_watermark", "last_stable_offset"),
            *("high_watermark_after", "log_start_offset", "ends_at", "leader_epoch", "epoch_end_offset"),
            *("committed_at", "error"),
        )
    ),
    "members": GROUP_MEMBERS.some((*READER_AT, "member_id", "client_id", "host")),
    "watermarks": WATERMARKS.some(
        (
            *PARTITION_AT,
            *("captured_at", "topic_id", "leader", "leader_epoch", "log_start_offset", "last_stable_offset"),
            *("high_watermark", "log_end_offset", "high_watermark_after", "log_bytes", "cleanup_policy", "error"),
        )
    ),
    "rulers": RULER_ROWS,
    "reported": LAG.some(READER_AT)
    .add("reported_client_id", STRING)
    .add("reported_instance", STRING)
    .add("consumed_offset", LONG)
    .add("fetched_offset", LONG)
    .add("stale_lag", LONG),
    "previous": LAG.some(
        (
            *(*READER, "snapshot_id", "committed_offset", "committed_topic_id", "topic_id", "verified_epoch"),
            "committed_captured_at",
        )
    ),
    "files": FILES,
}
"""What `lag_rows` is computed from. There may be no part `reported`, `previous` or `files`."""
_NOT_REPORTED = arrow_schema(LAG_PARTS["reported"]).empty_table()
_REACH = pa.schema({"snapshot_id": pa.int64(), "since": pa.int64()})


def lag_table(
    committed_offsets: DataFrame,
    watermarks: DataFrame,
    group_members: DataFrame,
    previous: DataFrame | None,
    rulers: DataFrame,
    locate: Locate | None = None,
    reported: DataFrame | None = None,
    reach: Mapping[int, int] = MappingProxyType({}),
) -> DataFrame:
    """The rows of `lag`, with the columns of LAG, for the snapshots in the bronze DataFrames.

    `previous` are rows of `lag` of earlier snapshots, None if no topic has moved (`moved_topics`). `rulers` have
    PARTITION_AT and ruler. `locate` finds offsets in log files. `reported` is what clients report (`reader_positions`).
    `reach` is as for `commits_of_moved_topics`. Rungs that were not observed are NULL, and so is every value that needs
    them. A partition of a deleted topic has no rows, even if a member of a group still holds it.
    """
    given = {"previous": previous, "reported": reported}
    if locate is not None:
        given["files"] = located_offsets(committed_offsets, watermarks, group_members, reported, locate)
    parts = {"commits": committed_offsets, "members": group_members, "watermarks": watermarks, "rulers": rulers} | {
        name: rows for name, rows in given.items() if rows is not None
    }
    lag = lag_of_readers({name: Rows(rows) for name, rows in parts.items()}, reach)
    return lag.frame(committed_offsets.sparkSession, LAG.schema)


def lag_of_readers(parts: Mapping[str, Rows], reach: Mapping[int, int], buckets: int | None = None) -> Rows:
    """The rows of `lag` from rows of the tables that LAG_PARTS names; see `lag_table`.

    The readers are computed in buckets, see `bucketed`.
    """
    curves = broker_curves(parts["watermarks"].where_known("topic"), parts["rulers"], buckets)
    compute = partial(lag_rows, groups=facts_of_groups(parts), curves=curves, reach=dict(reach))
    of_topics = {name: rows.where_known("topic") for name, rows in parts.items()}
    return bucketed(of_topics, LAG_PARTS, TOPIC_PARTITION, compute, LAG.schema, buckets)


def lag_rows(bucket: Bucket, groups: pa.Table, curves: BrokerCurves, reach: Mapping[int, int]) -> pa.Table:
    """The rows of LAG for the readers of some partitions, from rows of LAG_PARTS.

    `groups` are rows of GROUPS, `curves` those of the brokers. `previous` are rows of `lag` of earlier snapshots; there
    are none if no topic has moved (`moved_topics`). `files` is what log files have at each offset and at the one before
    it; without it, all values come from rulers. `reach` is as for `commits_of_moved_topics`. Rungs that were not
    observed are NULL, and so is every value that needs them. Raises BadValueError if a value fits no type.
    """
    rulers = numbered(bucket["rulers"], "ruler")
    with arrow_queries({"reported": _NOT_REPORTED, **bucket, "rulers": rulers}) as queries:
        since = pa.Table.from_pydict({"snapshot_id": [*reach], "since": [*reach.values()]}, _REACH)
        partitions = with_values(queries.rows(_PARTITIONS), "ruler", bucket["rulers"]["ruler"])
        queries.add(groups=groups, reach=since, partitions=partitions.drop_columns(["ruler"]))
        has_files = "files" in bucket
        if has_files:
            queries.add(located=queries.rows(_LOCATED))
        rows = queries.rows(_rungs_sql(has_previous="previous" in bucket, has_files=has_files))
        queries.add(rows=with_readings(rows, partitions, queries, has_files=has_files))
        lag = with_reuse(queries.rows(_LAGS), curves)
    return lag.select(LAG.columns).cast(arrow_schema(LAG.schema))


_KNOWN_END = "coalesce(log_end, log_high_watermark)"
"""The log end; the high watermark if the broker does not report the log end, like Redpanda."""
_PARTITIONS = f"""
    SELECT row_number() OVER () - 1 AS number, {names_sql(PARTITION_AT)}, captured_at AS log_captured_at, topic_id,
        leader, leader_epoch AS log_epoch, log_start_offset AS log_start, last_stable_offset AS log_stable,
        high_watermark AS log_high_watermark, log_end_offset AS log_end, high_watermark_after AS log_after,
        log_bytes / nullif(coalesce(log_end_offset, high_watermark) - log_start_offset, 0) AS record_bytes,
        coalesce(contains(cleanup_policy, 'compact'), false) AS is_compacted, error AS watermark_error, ruler
    FROM watermarks LEFT JOIN rulers USING ({names_sql(PARTITION_AT)})
    ORDER BY number
"""
_LOCATED = """
    SELECT number, files.* EXCLUDE (topic, "partition", files_topic_id)
    FROM files JOIN partitions USING (topic, "partition")
    -- If the topic was recreated before its files were read, they do not show the log that the snapshot saw.
    WHERE position_bytes IS NOT NULL AND coalesce(files_topic_id = topic_id, true)
"""


_LATER_MS = f"({epoch_ms_sql('ends_at')}) - ({epoch_ms_sql('log_captured_at')})"
_OWN_ENDS = {
    "is_beyond": f"coalesce(end_offset > {_KNOWN_END}, false)",
    "captured_at": "coalesce(ends_at, log_captured_at)",
    "log_start_offset": "coalesce(start_offset, log_start)",
    "high_watermark": "coalesce(end_offset, log_high_watermark)",
    "high_watermark_after": "CASE WHEN end_offset IS NOT NULL THEN end_after ELSE log_after END",
    "last_stable_offset": "CASE WHEN end_offset IS NOT NULL THEN stable_offset ELSE log_stable END",
    "log_end_offset": "CASE WHEN is_beyond AND log_end IS NOT NULL THEN end_offset ELSE log_end END",
    "beyond_records": f"CASE WHEN is_beyond THEN end_offset - {_KNOWN_END} ELSE 0 END",
    "beyond_ms": f"CASE WHEN is_beyond THEN greatest({_LATER_MS}, 0) ELSE 0 END",
}
"""The ends in the partition's own row, replaced by those that were read with the commit.

The partition's own ends are kept as log_high_watermark, log_after and log_end, because these are compared with each
other. If the end read with the commit is beyond the partition's own, beyond_ms and beyond_records are the time and the
records between the two; otherwise they are 0.
"""
_IDENTITY = {
    "committed_error": "coalesce(committed_error, group_error)",
    "watermark_error": f"CASE WHEN number IS NULL THEN '{NOT_IN_CLUSTER}' ELSE watermark_error END",
    "committed_topic_id": "CASE WHEN committed_offset IS NOT NULL THEN coalesce(committed_topic_id, topic_id) END",
    "verified_epoch": f"coalesce(verified_epoch, {verified_epoch('committed_epoch', 'log_epoch')})",
    "client_id": "coalesce(client_id, reported_client_id)",
}
"""The errors, which log a commit belongs to, and whose it is."""
_REACHED = f"CASE WHEN end_offset > {_KNOWN_END} THEN {_KNOWN_END} ELSE end_offset END"
_RUNGS = {
    # If log start was another offset when the commit was read, it has no reading.
    "has_log_start": "log_start IS NOT NULL AND coalesce(start_offset = log_start, true)",
    "is_unread_deleted": "has_log_start AND coalesce(valid_offset < log_start_offset, false)",
    "is_earlier_deleted": "has_log_start AND coalesce(earlier_offset < log_start_offset, false)",
    "unread_offset": "CASE WHEN is_unread_deleted THEN log_start_offset ELSE valid_offset END",
    "earlier_readable_offset": "CASE WHEN is_earlier_deleted THEN log_start_offset ELSE earlier_offset END",
    "earlier_rung": "CASE WHEN earlier_offset <> valid_offset THEN earlier_offset END",
    "end_rung": f"CASE WHEN ({_REACHED}) <> log_high_watermark THEN {_REACHED} END",
    "kip532_offset": "coalesce(fetched_offset, valid_offset)",
    "kip532_from": (
        "CASE WHEN fetched_offset IS NOT NULL THEN 'fetched' WHEN committed_offset IS NOT NULL THEN 'committed' END"
    ),
}
"""The offsets that rulers are asked for, and which of them cannot be read any more."""


def _rungs_sql(*, has_previous: bool, has_files: bool) -> str:
    """The query for all rungs of each reader, before their positions and times are known."""
    markers, files = (_UNREAD_MARKERS, _IN_FILES) if has_files else ("NULL::bigint", "")
    return f"""
        WITH readers AS ({readers_sql(has_previous=has_previous)}),
        own AS (
            SELECT *, {columns_sql(_OWN_ENDS)} FROM readers
            LEFT JOIN partitions USING ({names_sql(PARTITION_AT)})
            LEFT JOIN groups USING ({names_sql(GROUP_AT)})
        ),
        rungs AS (SELECT * REPLACE ({columns_sql(_IDENTITY)}), {columns_sql(_RUNGS)} FROM own)
        SELECT rungs.*, {markers} AS unread_markers FROM rungs {files}
    """


_IN_FILES = """
    LEFT JOIN located AS first ON first.number = rungs.number
        AND first."offset" = greatest(rungs.valid_offset, rungs.log_start_offset)
    LEFT JOIN located AS "end" ON "end".number = rungs.number AND "end"."offset" = rungs.high_watermark
"""
_UNREAD_MARKERS = """
    CASE WHEN rungs.valid_offset IS NULL THEN NULL WHEN first.markers_to_end < "end".markers_to_end THEN 0
        ELSE first.markers_to_end - "end".markers_to_end END
"""
"""How many markers are unread: those up to the log's end, without those from the high watermark on.

The end of the files is later than the high watermark. NULL if one of the two numbers is not known.
"""
_COMPUTED = {
    "snapshot_date": "CAST(make_timestamp(snapshot_id * 1000) AS date)",
    "instance": "reported_instance",
    **lags(),
    **unit_columns(),
    "offset_status": offset_status(),
    "error": "coalesce(watermark_error, committed_error)",
}
_OF_REUSE = ("reuse_bytes", "reuse_error_bytes", "reuse_method")
_LAGS = f"""
    SELECT {columns_sql({name: _COMPUTED.get(name, name) for name in LAG.columns if name not in _OF_REUSE})},
        {columns_sql(reader_age())}
    FROM (SELECT *, {epoch_ms_sql("captured_at")} AS captured_ms, {BEYOND_BYTES} AS beyond_bytes FROM rows)
"""
"""The query for the lags in records, bytes and time of each reader, with offset_status, error and the reader's age."""


_OF_GROUPS = {
    "described": GROUP_MEMBERS.some((*GROUP_AT, "state", "group_type")),
    "unread": COMMITTED_OFFSETS.some((*GROUP_AT, "error")),
}


def facts_of_groups(parts: Mapping[str, Rows]) -> pa.Table:
    """The rows of GROUPS, from rows of `group_members` and `committed_offsets`, on the driver."""
    shown = {"described": parts["members"], "unread": parts["commits"].where_unknown("topic")}
    partial_facts = bucketed(shown, _OF_GROUPS, (), _partial_facts, GROUPS)
    return _merged_facts(partial_facts.collected_table())


def _partial_facts(bucket: Bucket) -> pa.Table:
    with arrow_queries(bucket) as queries:
        shown = queries.rows(f"""
            SELECT DISTINCT {names_sql(GROUP_AT)}, state AS group_state, group_type, NULL AS group_error FROM described
            UNION ALL
            SELECT DISTINCT {names_sql(GROUP_AT)}, NULL, NULL, error FROM unread
        """)
    return _merged_facts(shown)


def _merged_facts(rows: pa.Table) -> pa.Table:
    """One row for each group in a snapshot, from rows of GROUPS."""
    with arrow_queries({"facts": rows}) as queries:
        merged = queries.rows(f"""
            SELECT {names_sql(GROUP_AT)}, max(group_state) AS group_state, max(group_type) AS group_type,
                min(group_error) AS group_error
            FROM facts WHERE group_id IS NOT NULL GROUP BY ALL
        """)
    return merged.cast(arrow_schema(GROUPS))
