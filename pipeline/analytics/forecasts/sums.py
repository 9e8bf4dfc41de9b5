"""The sums over the partitions of each group and topic, from which `forecasts` are computed.

Expressions are SQL text for DuckDB. Those of _OF_PARTITION are about a row of `lag`, those of _OF_TOPIC about the
partitions of a topic or group.
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.types import StructField, StructType

from pipeline.analytics.forecasts.memory import IN_BYTES, NEEDED, OF_RETENTION
from pipeline.analytics.keys import GROUP_AT
from pipeline.analytics.lag.ladder import HAS_UNREAD, counted_lag
from pipeline.analytics.series import read_ms_sql
from pipeline.common.arrow_sql import arrow_queries, columns_sql, epoch_ms_sql, names_sql
from pipeline.common.data_source import arrow_schema
from pipeline.tables import LAG
from pipeline.tables.columns import LONG

FORECAST_LAG = LAG.some(
    (
        *(*GROUP_AT, "topic", "topic_id", "partition", "captured_at", "committed_captured_at"),
        *("log_start_offset", "committed_offset", "high_watermark", "consumer_lag", "unread_markers"),
        *("high_watermark_bytes", "high_watermark_error_bytes", "consumer_lag_bytes", "bytes_error"),
        *("headroom_ms", "consumer_age_ms", "time_method", "offset_status"),
    )
)
"""The columns of `lag` that the sums are computed from."""
SERIES = ("cluster", "group_id", "topic")
SUMS = (*NEEDED, "consumer_lag", "identity", *IN_BYTES, *OF_RETENTION)
"""The columns of an observation, in the order of `Sums`."""
SUMMED = StructType([*LAG.some((*SERIES, "snapshot_id")), *(StructField(name, LONG) for name in ("partitions", *SUMS))])
"""What `summed_lag` returns: SERIES, snapshot_id, partitions (how many the sums are about) and SUMS."""


def summed_lag(lag: pa.Table) -> pa.Table:
    """A row of SUMMED for each snapshot, group and topic in `lag`, and one with topic NULL for the group.

    `lag` has the columns of FORECAST_LAG, and all rows of a group. Partitions without a commit are left out, because
    they have no lag. A sum is NULL if one of its values is not known, or belongs to another log than the commit; if it
    is too large; and if there is no partition. Raises BadValueError if a time or a position fits no type.
    """
    with arrow_queries({"lag": lag}) as queries:
        rows = queries.rows(_SUMMED)
    types = arrow_schema(SUMMED)
    return rows.select(types.names).cast(types)


_HAS_COMMIT = "offset_status IS DISTINCT FROM 'no_commit'"
"""Whether the group has committed here; true if this is not known."""
_IS_KNOWN = """
    coalesce(offset_status NOT IN ('recreated', 'truncated', 'beyond_end'), true) AND "partition" IS NOT NULL
    AND high_watermark IS NOT NULL AND committed_offset IS NOT NULL AND consumer_lag IS NOT NULL
"""
"""Whether the ends of the log and the commit are known, and belong to the same log."""
_IS_IN_LOG = "coalesce(committed_offset >= log_start_offset, false)"
_COMMIT_BYTES = f"CASE WHEN {_IS_IN_LOG} THEN high_watermark_bytes - consumer_lag_bytes END"
"""The position of the commit. Below log start, it is not known."""
_HAS_RETENTION = f"""
    ({_IS_IN_LOG} AND headroom_ms IS NOT NULL AND consumer_age_ms IS NOT NULL
        AND time_method IS DISTINCT FROM 'arrival')
"""
"""Whether it is known how near retention is to the commit, in time."""
# A topic id has no blanks, so the topic begins after the second one. The hash is compared with that of an earlier run,
# and `hash` is another function in each version of DuckDB.
_IDENTITY = """md5_number_lower(concat(topic_id, ' ', "partition", ' ', topic))"""
_OF_PARTITION = {
    "is_known": _IS_KNOWN,
    "ends_late_ms": f"{read_ms_sql()} - snapshot_id",
    "commits_late_ms": f"{read_ms_sql('committed_captured_at')} - snapshot_id",
    "log_ends": "high_watermark",
    "commits": "committed_offset",
    "consumer_lag": counted_lag("consumer_lag"),
    "worst_lag": "consumer_lag",
    "identity": _IDENTITY,
    "log_end_bytes": "high_watermark_bytes",
    "log_end_error_bytes": "high_watermark_error_bytes",
    "commit_bytes": _COMMIT_BYTES,
    "commit_error_bytes": f"CASE WHEN {_COMMIT_BYTES} IS NOT NULL THEN bytes_error END",
    "log_starts": "log_start_offset",
    "has_retention": _HAS_RETENTION,
    "has_read": f"coalesce(NOT {HAS_UNREAD}, false)",
    "start_ms": f"CASE WHEN {_HAS_RETENTION} THEN {epoch_ms_sql('captured_at')} - consumer_age_ms - headroom_ms END",
    # Structs are compared value by value: a partition with unread records comes before one without.
    "nearest": f"""CASE WHEN {_HAS_RETENTION} THEN struct_pack(
        has_read := has_read, headroom_ms := headroom_ms, oldest_ms := consumer_age_ms, start_ms := start_ms) END""",
}


def _whole(name: str) -> str:
    """The sum of a value. NULL if it is not known for all partitions, or if the sum is too large."""
    return f"CASE WHEN count({name}) = count(is_known) THEN try_cast(sum({name}) AS bigint) END"


def _mean_ms(late_ms: str) -> str:
    """The mean instant, from how much later than the scheduled one each partition was read."""
    return f"snapshot_id + CAST(round(avg({late_ms})) AS bigint)"


_OF_TOPIC = {
    "partitions": "count(is_known)",
    "are_known": "bool_and(is_known)",
    "ends_ms": _mean_ms("ends_late_ms"),
    "commits_ms": _mean_ms("commits_late_ms"),
    **{name: _whole(name) for name in ("log_ends", "commits", "consumer_lag", *IN_BYTES, "log_starts")},
    "worst_lag": "max(worst_lag)",
    "identity": "CAST(bit_xor(identity) >> 1 AS bigint)",
    # NULL if retention is not known for a partition that may have unread records.
    "nearest": "CASE WHEN bool_and(has_read OR has_retention) THEN min(nearest) END",
}
# A sum may be NULL although all of its values are known, if it is too large.
_IS_WHOLE = "are_known AND log_ends IS NOT NULL AND commits IS NOT NULL AND consumer_lag IS NOT NULL"
# For a group, the forecasts of its topics are compared instead.
_RETENTION = {"oldest_ms": "nearest.oldest_ms", "log_starts": "log_starts", "start_ms": "nearest.start_ms"}
_KNOWN_IF_WHOLE = {name: name for name in SUMS if name != "identity"} | {
    name: f"CASE WHEN topic IS NOT NULL THEN {value} END" for name, value in _RETENTION.items()
}
_SUMMED = f"""
    WITH partitions AS (
        SELECT {names_sql([*GROUP_AT, "topic"])}, {columns_sql(_OF_PARTITION)} FROM lag WHERE {_HAS_COMMIT}
        -- A topic without a commit has a row, too.
        UNION ALL BY NAME
        SELECT {names_sql([*GROUP_AT, "topic"])} FROM lag WHERE NOT ({_HAS_COMMIT}) AND topic IS NOT NULL
    ),
    summed AS (
        SELECT {names_sql([*GROUP_AT, "topic"])}, {columns_sql(_OF_TOPIC)}
        FROM partitions
        GROUP BY GROUPING SETS (({names_sql([*GROUP_AT, "topic"])}), ({names_sql(GROUP_AT)}))
        -- In `lag`, a row without a topic has the error of a whole group. It belongs to the group alone.
        HAVING topic IS NOT NULL OR grouping(topic) = 1
    )
    SELECT {names_sql([*GROUP_AT, "topic"])}, partitions, identity,
        {columns_sql({name: f"CASE WHEN {_IS_WHOLE} THEN {value} END" for name, value in _KNOWN_IF_WHOLE.items()})}
    FROM summed
"""
