"""The problem `skipped`: a tool or an admin client has moved commits ahead, over records that were not read.

`pipeline.analytics.status.resets` recognises this, and remembers it in the memory of each reader.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from pipeline.analytics.arrow_series import NUMBER_BYTES, or_null, rows_of_bytes
from pipeline.analytics.findings.problem import PROBLEMS, distinct_sql, problem_rows, some_sql
from pipeline.analytics.keys import GROUP, GROUP_AT, READER_AT
from pipeline.analytics.status.memory import Memory
from pipeline.common.arrow_sql import arrow_queries, columns_sql, names_sql, struct_sql, sum_if_fits_sql
from pipeline.common.buckets import Bucket
from pipeline.common.rows import Rows, bucketed
from pipeline.kinds.commits import SkippedFacts
from pipeline.tables import GROUP_STATUS, PARTITION_STATUS

MOST_OFFSETS = 100
"""For how many partitions, those with the most skipped records first, the evidence has the old offset."""
IS_LONG = f"octet_length(remembered) > {NUMBER_BYTES * Memory.place('skip_ms')}"
"""Whether a reader may remember a reset, for Spark. Few memories are so long: what is unknown at the end is not stored.

DataFusion's octet_length takes no bytes.
"""
_REMEMBERED = ("skip_ms", "skip_from", "skip_to", "skip_written_ms", "skip_bytes", "skip_error")
SKIPPED_PARTS = {
    "partitions": PARTITION_STATUS.some((*READER_AT, "remembered")),
    "groups": GROUP_STATUS.some((*GROUP_AT, "group_type", "partitions")),
}
"""What this problem is found in."""


def find_skipped(parts: Mapping[str, Rows], buckets: int | None = None) -> Rows:
    """The rows of PROBLEMS from rows of SKIPPED_PARTS; see `skipped`."""
    parts = {**parts, "partitions": parts["partitions"].where_if_many(IS_LONG)}
    return bucketed(parts, SKIPPED_PARTS, GROUP, skipped, PROBLEMS, buckets)


def skipped(bucket: Bucket) -> pa.Table:
    """The rows of PROBLEMS: one for each group and snapshot, from all of their rows of SKIPPED_PARTS.

    Bytes and the time of the first skipped record are left out if they are not known of all partitions.
    """
    readers = _with_memory(bucket["partitions"])
    with arrow_queries({"readers": readers, "groups": bucket["groups"]}) as queries:
        return problem_rows(queries.rows(_PROBLEMS), SkippedFacts)


def _with_memory(partitions: pa.Table) -> pa.Table:
    """The readers with what they remember of the newest reset."""
    memory = Memory.of_rows(rows_of_bytes(partitions["remembered"], Memory.width())).resets
    for name in _REMEMBERED:
        partitions = partitions.append_column(name, or_null(getattr(memory, name)))
    return partitions.drop_columns("remembered")


def _if_all(name: str, value: str) -> str:
    return f"CASE WHEN count({name}) = count(*) THEN {value} END"


_OFFSET = {"topic": "topic", "partition": '"partition"', "from": "skip_from", "to": "skip_to"}
_SUMS = {
    "rows": "count(*)",
    "topics": distinct_sql("topic"),
    "partitions": distinct_sql("partition"),
    "since_ms": "min(skip_ms)",
    "records": sum_if_fits_sql("records"),
    "records_bytes": _if_all("skip_bytes", sum_if_fits_sql("skip_bytes")),
    "bytes_error": _if_all("skip_bytes", sum_if_fits_sql("skip_error")),
    "written_ms": _if_all("skip_written_ms", "min(skip_written_ms)"),
    "offsets": f"""
        list({struct_sql(_OFFSET)} ORDER BY records DESC NULLS LAST, topic DESC, "partition" DESC)[1:{MOST_OFFSETS}]
    """,
}
_COLUMNS = {
    "kind": "'skipped'",
    "topic": "CASE WHEN len(topics) = 1 THEN topics[1] END",
    "partitions": "CASE WHEN len(topics) = 1 THEN partitions END",
    "severity": "'warning'",
    "magnitude": "records",
    "facts": struct_sql({name: f'"{name}"' for name in SkippedFacts.model_fields} | {"topics": some_sql("topics")}),
}
_PROBLEMS = f"""
    WITH found AS (SELECT *, skip_to - skip_from AS records FROM readers WHERE skip_ms IS NOT NULL),
    summed AS (SELECT {names_sql(GROUP_AT)}, {columns_sql(_SUMS)} FROM found GROUP BY {names_sql(GROUP_AT)}),
    whole AS (SELECT {names_sql(GROUP_AT)}, group_type, partitions AS of_partitions FROM groups)
    SELECT {names_sql(GROUP_AT)}, {columns_sql(_COLUMNS)}
    FROM summed LEFT JOIN whole USING ({names_sql(GROUP_AT)})
"""
