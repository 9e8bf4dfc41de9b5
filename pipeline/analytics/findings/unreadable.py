"""The problem `unreadable`: brokers do not say how far groups are behind, in two successive snapshots."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import pyarrow as pa

from pipeline.analytics.arrow_series import compared_snapshots
from pipeline.analytics.findings.problem import PROBLEMS, distinct_sql, problem_rows, some_sql
from pipeline.analytics.keys import PARTITION_AT, READER, READER_AT, SNAPSHOT, TOPIC_PARTITION
from pipeline.common.arrow_sql import arrow_queries, columns_sql, names_sql, struct_sql
from pipeline.common.buckets import Bucket
from pipeline.common.data_source import arrow_schema
from pipeline.common.rows import Rows, bucketed
from pipeline.kinds.brokers import ErrorFacts
from pipeline.tables import COMMITTED_OFFSETS, LAG, WATERMARKS

HAS_ERROR = "error IS NOT NULL AND consumer_lag IS NULL"
"""Whether the lag of a reader is not known because of an error, for a row of `lag`."""
IS_UNREAD_GROUP = "error IS NOT NULL AND topic IS NULL"
"""Whether a row of `committed_offsets` is that of a group that could not be read at all.

If not even the names of groups are known, it has no group either, but the partition of __consumer_offsets.
"""
UNREADABLE_PARTS = {
    "lag": LAG.some((*READER_AT, "error", "consumer_lag")),
    "commits": COMMITTED_OFFSETS.some((*READER_AT, "error")),
    "watermarks": WATERMARKS.some((*PARTITION_AT, "leader", "replicas")),
}
"""What errors are found in: rows of `lag` and `commits` for which HAS_ERROR and IS_UNREAD_GROUP hold are enough, and
`watermarks` without a leader. Other rows do no harm."""
_ERRORS = LAG.some((*READER_AT, "error"))


def find_unreadable(parts: Mapping[str, Rows], previous: Mapping[int, int], buckets: int | None = None) -> Rows:
    """The rows of PROBLEMS from rows of UNREADABLE_PARTS; see `repeated_errors` and `unreadable`."""
    compute = partial(repeated_errors, previous=dict(previous))
    errors = bucketed(parts, UNREADABLE_PARTS, TOPIC_PARTITION, compute, _ERRORS, buckets)
    return errors.grouped(["snapshot_id"], unreadable, PROBLEMS)


def repeated_errors(bucket: Bucket, previous: Mapping[int, int]) -> pa.Table:
    """READER_AT and error of the readers that also had one in the snapshot just before, which `previous` names.

    A single error is usual, for example while a broker restarts. Of groups whose names are not known, not even the
    partition of __consumer_offsets, it is not known whether they are the same. Errors of partitions without a leader
    are left out: the finding of the replicas has the cause, and the groups.
    """
    with arrow_queries({**bucket, "before": compared_snapshots(previous)}) as queries:
        return queries.rows(_REPEATED).cast(arrow_schema(_ERRORS))


def _is_same(left: str, right: str) -> str:
    return " AND ".join(f'{left}."{name}" IS NOT DISTINCT FROM {right}."{name}"' for name in READER)


_REPEATED = f"""
    WITH errors AS (
        SELECT {names_sql(_ERRORS.names)} FROM lag WHERE {HAS_ERROR}
        UNION ALL SELECT {names_sql(_ERRORS.names)} FROM commits WHERE {IS_UNREAD_GROUP}
    ),
    named AS (SELECT * FROM errors WHERE coalesce(group_id, topic, "partition"::VARCHAR) IS NOT NULL),
    now AS (SELECT * FROM named JOIN before USING (snapshot_id)),
    repeated AS (
        SELECT now.* FROM now SEMI JOIN named ON now.then_id = named.snapshot_id AND {_is_same("now", "named")}
    ),
    leaderless AS (SELECT * FROM watermarks WHERE leader IS NULL AND len(replicas) > 0)
    SELECT {names_sql(_ERRORS.names)} FROM repeated ANTI JOIN leaderless USING ({names_sql(PARTITION_AT)})
"""


def unreadable(errors: pa.Table) -> pa.Table:
    """The rows of PROBLEMS: one for each snapshot that has such errors. All errors of a snapshot must be there."""
    with arrow_queries({"errors": errors}) as queries:
        return problem_rows(queries.rows(_PROBLEMS), ErrorFacts)


_PLACE = struct_sql({"topic": "topic", "partition": '"partition"'})
_FACTS = {
    "partitions": f"count(DISTINCT {_PLACE}) FILTER (topic IS NOT NULL)",
    "whole_groups": "count(*) FILTER (topic IS NULL)",
    "topics": some_sql(distinct_sql("topic")),
    "groups": some_sql(distinct_sql("group_id")),
    "groups_affected": "count(DISTINCT group_id)",
    "errors": some_sql(distinct_sql("error")),
}
_COLUMNS = {"kind": "'unreadable'", "severity": "'warning'", "magnitude": "count(*)", "facts": struct_sql(_FACTS)}
_PROBLEMS = f"SELECT {names_sql(SNAPSHOT)}, {columns_sql(_COLUMNS)} FROM errors GROUP BY {names_sql(SNAPSHOT)}"
