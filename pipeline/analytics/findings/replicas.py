"""The problem `under_replicated`: partitions whose replicas have not all been in sync for some time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import pyarrow as pa
from pyspark.sql.types import ArrayType, BooleanType, StructField, StructType

from pipeline.analytics.findings.problem import PROBLEMS, distinct_sql, problem_rows, some_sql
from pipeline.analytics.keys import PARTITION, PARTITION_AT, READER_AT, SNAPSHOT, TOPIC_PARTITION
from pipeline.common.arrow_sql import arrow_queries, columns_sql, names_sql, struct_sql
from pipeline.common.buckets import Bucket
from pipeline.common.data_source import arrow_schema
from pipeline.common.epoch import MINUTE_MS
from pipeline.common.rows import Rows, bucketed
from pipeline.kinds.brokers import ReplicaFacts
from pipeline.tables import LAG, WATERMARKS
from pipeline.tables.columns import INT, STRING

LASTS_MS = 5 * MINUTE_MS
"""How long a broker must be missing: longer than a restart usually takes."""
IS_INCOMPLETE = "topic IS NOT NULL AND (cardinality(isr) < cardinality(replicas) OR leader IS NULL)"
"""Whether a replica may be missing, for a row of `watermarks`. Spark and DataFusion both understand it."""
REPLICA_PARTS = {
    "watermarks": WATERMARKS.some((*PARTITION_AT, "leader", "replicas", "isr")),
    "lag": LAG.some(READER_AT),
}
"""What this problem is found in: the watermarks for which IS_INCOMPLETE holds, and the readers of partitions without a
leader. Other rows do no harm."""
_LASTING = StructType(
    [
        *WATERMARKS.some(PARTITION_AT),
        StructField("broker", INT),
        StructField("is_critical", BooleanType()),
        StructField("has_no_leader", BooleanType()),
        StructField("groups", ArrayType(STRING)),
    ]
)
"""A replica that has been missing for some time. `groups` are those that cannot read, NULL if the partition has had a
leader in one of two successive snapshots."""
_COMPARED = pa.schema({"snapshot_id": pa.int64(), "then_id": pa.int64(), "is_just_before": pa.bool_()})


def seen_before(snapshot_ids: Sequence[int], batch: Sequence[int], most: int) -> dict[int, int]:
    """For each snapshot of a batch, the newest one that is LASTS_MS older, or else the one `most` before it.

    `snapshot_ids` are those of the batch and at least `most` before it, ascending. A snapshot without such a one is
    left out.
    """
    found: dict[int, int] = {}
    for snapshot_id in batch:
        before = [i for i in snapshot_ids if i < snapshot_id][-most:]
        older = [i for i in before if i <= snapshot_id - LASTS_MS]
        if older or len(before) == most:
            found[snapshot_id] = older[-1] if older else before[0]
    return found


def find_missing_replicas(
    parts: Mapping[str, Rows], before: Mapping[int, int], previous: Mapping[int, int], buckets: int | None = None
) -> Rows:
    """The rows of PROBLEMS from rows of REPLICA_PARTS; see `lasting_replicas` and `problems_of_replicas`."""
    compute = partial(lasting_replicas, before=dict(before), previous=dict(previous))
    lasting = bucketed(parts, REPLICA_PARTS, TOPIC_PARTITION, compute, _LASTING, buckets)
    return lasting.grouped(["snapshot_id"], problems_of_replicas, PROBLEMS)


def lasting_replicas(bucket: Bucket, before: Mapping[int, int], previous: Mapping[int, int]) -> pa.Table:
    """The replicas of some partitions that have been missing for some time, from all of their rows of REPLICA_PARTS.

    `watermarks` are the rows of the snapshots of a batch, and of those that `before` (`seen_before`) and `previous`
    (the snapshot just before) map them to. A replica counts if its broker was missing from the partition in both
    snapshots; of a partition without a leader, which nobody can read, the previous snapshot is enough. `lag` has the
    groups that read these partitions.
    """
    pairs = [(*pair, False) for pair in before.items()] + [(*pair, True) for pair in previous.items()]
    compared = [dict(zip(_COMPARED.names, pair, strict=True)) for pair in pairs]
    with arrow_queries({**bucket, "compared": pa.Table.from_pylist(compared, _COMPARED)}) as queries:
        return queries.rows(_LASTING_REPLICAS).cast(arrow_schema(_LASTING))


def problems_of_replicas(lasting: pa.Table) -> pa.Table:
    """The rows of PROBLEMS: one for each snapshot with such replicas. All replicas of a snapshot must be there.

    The broker that it names is the one that is missing from most partitions.
    """
    with arrow_queries({"lasting": lasting}) as queries:
        return problem_rows(queries.rows(_PROBLEMS), ReplicaFacts)


# Without a leader, those in sync are missing, which alone could lead.
_COULD_LEAD = "CASE WHEN len(isr) > 0 THEN isr ELSE replicas END"
_OUT_OF_SYNC = "list_filter(replicas, lambda broker: NOT list_contains(isr, broker))"
_MISSING = f"""
    SELECT {names_sql(PARTITION_AT)}, leader IS NULL AS has_no_leader,
        leader IS NULL OR 2 * len(isr) < len(replicas) AS is_critical,
        unnest(CASE WHEN leader IS NULL THEN {_COULD_LEAD} ELSE {_OUT_OF_SYNC} END) AS broker
    FROM watermarks WHERE topic IS NOT NULL
"""
_IS_SAME = " AND ".join(f'past."{name}" = now."{name}"' for name in PARTITION)
_LASTING_REPLICAS = f"""
    WITH missing AS ({_MISSING}),
    lasting AS (
        SELECT now.*, bool_or(is_just_before) AS is_unread
        FROM missing AS now JOIN compared USING (snapshot_id)
        JOIN missing AS past ON past.snapshot_id = compared.then_id AND past.broker = now.broker
            AND {_IS_SAME}
        WHERE NOT is_just_before OR (now.has_no_leader AND past.has_no_leader)
        GROUP BY ALL
    ),
    readers AS (
        SELECT {names_sql(PARTITION_AT)}, {distinct_sql("group_id")} AS groups
        FROM lag GROUP BY {names_sql(PARTITION_AT)}
    )
    SELECT {names_sql(PARTITION_AT)}, broker, is_critical, has_no_leader, CASE WHEN is_unread THEN groups END AS groups
    FROM lasting LEFT JOIN readers USING ({names_sql(PARTITION_AT)})
"""
_PLACE = struct_sql({"topic": "topic", "partition": '"partition"'})
_PLACES = f"count(DISTINCT {_PLACE})"
_SUMS = {
    "partitions": _PLACES,
    "topics": distinct_sql("topic"),
    "critical": f"{_PLACES} FILTER (is_critical)",
    "without_leader": f"{_PLACES} FILTER (has_no_leader)",
    "brokers": distinct_sql("broker"),
    "groups": "list_sort(list_distinct(flatten(list(groups) FILTER (groups IS NOT NULL))))",
}
_FACTS = {
    "partitions": "partitions",
    "topics": some_sql("topics"),
    "topics_affected": "len(topics)",
    "worst": "worst",
    "brokers": some_sql("brokers"),
    "without_leader": "without_leader",
    "critical": "critical",
    "groups": some_sql("groups"),
    "groups_affected": "coalesce(len(groups), 0)",
}
_COLUMNS = {
    "kind": "'under_replicated'",
    "severity": "CASE WHEN critical > 0 THEN 'critical' ELSE 'warning' END",
    "magnitude": "partitions",
    "facts": struct_sql(_FACTS),
}
_PROBLEMS = f"""
    WITH summed AS (SELECT {names_sql(SNAPSHOT)}, {columns_sql(_SUMS)} FROM lasting GROUP BY {names_sql(SNAPSHOT)}),
    by_broker AS (
        SELECT {names_sql(SNAPSHOT)}, broker, count(*) AS partitions FROM lasting
        GROUP BY {names_sql(SNAPSHOT)}, broker
    ),
    most AS (
        SELECT {names_sql(SNAPSHOT)}, max({struct_sql({"partitions": "partitions", "negative": "-broker"})}) AS worst
        FROM by_broker GROUP BY {names_sql(SNAPSHOT)}
    )
    SELECT {names_sql(SNAPSHOT)}, {columns_sql(_COLUMNS)} FROM summed JOIN most USING ({names_sql(SNAPSHOT)})
"""
