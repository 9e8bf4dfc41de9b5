"""The problems `idle_member` and `uneven_assignment`: how the partitions of a group are shared among its members."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import ArrayType, StructField, StructType

from pipeline.analytics.findings.problem import problem_rows, some_sql
from pipeline.analytics.keys import GROUP, GROUP_AT, TOPIC_AT
from pipeline.analytics.lag.ladder import counted_lag
from pipeline.analytics.status.rules import FALLING_BEHIND
from pipeline.common.arrow_sql import arrow_queries, columns_sql, names_sql, struct_sql, sum_if_fits_sql
from pipeline.common.buckets import Bucket
from pipeline.common.data_source import arrow_schema
from pipeline.common.epoch import MINUTE_MS
from pipeline.common.rows import Rows, bucketed
from pipeline.kinds.members import AssignmentFacts
from pipeline.kinds.text import NAMED
from pipeline.tables import GROUP_CHANGES, GROUP_MEMBERS, GROUP_STATUS, LAG, WATERMARKS
from pipeline.tables.columns import LONG, STRING

STABLE_MS = 30 * MINUTE_MS
"""A group is judged if neither its members nor their partitions have changed for this long: a deployment has both
members without partitions and members with many."""
MOST_LAG = 0.5
"""An uneven assignment matters if the members with more than their share have more than this share of the lag."""
IDLE, UNEVEN = "idle_member", "uneven_assignment"
_BALANCED_OTHERWISE = "stream"
"""The assignor of Kafka Streams, which spreads tasks and their state. A member without a partition may have standby
tasks."""
_OF_MEMBERS = (
    *(*GROUP_AT, "group_type", "state", "protocol", "assignor", "member_id", "client_id", "host"),
    *("subscribed_topics", "subscribed_regex", "topic", "error"),
)
ASSIGNMENT_PARTS = {
    "members": GROUP_MEMBERS.some(_OF_MEMBERS),
    "groups": GROUP_STATUS.some((*GROUP_AT, "statuses", "consumer_lag")),
    "lag": LAG.some((*GROUP_AT, "member_id", "consumer_lag")),
    "changes": GROUP_CHANGES.some((*GROUP_AT, "change")),
}
"""What is needed of each group. The problems are also found in WATERMARKS (`watermarks`): how many partitions a topic
has."""
_GROUP_AT = GROUP_STATUS.some(GROUP_AT)
_MEMBER = StructType([StructField("partitions", LONG), StructField("lag", LONG), StructField("client", STRING)])
ASSIGNMENTS = StructType(
    [
        *_GROUP_AT,
        *GROUP_MEMBERS.some(("assignor", "group_type")),
        StructField("topics", ArrayType(STRING)),
        StructField("each", ArrayType(_MEMBER)),
        StructField("group_lag", LONG),
    ]
)
"""How a group that may have a problem is assigned: to which topics all of its members subscribe, and what each has.

`each` is ordered by the number of partitions, then by lag. A lag that is not known counts as 0 there. group_lag is the
lag of the group if it falls behind, else NULL.
"""
_SIZES = StructType([*WATERMARKS.some(TOPIC_AT), StructField("size", LONG)])
"""How many partitions a topic has."""


def find_assignment_problems(parts: Mapping[str, Rows], buckets: int | None = None) -> Rows:
    """The rows of PROBLEMS in the snapshots of the rows of `members`; see `group_assignments`.

    The groups that may have a problem are few rows, for which the driver asks how many partitions their topics have.
    """
    needed = _of_suspects({name: parts[name] for name in ASSIGNMENT_PARTS})
    assignments = bucketed(needed, ASSIGNMENT_PARTS, GROUP, group_assignments, ASSIGNMENTS, buckets).collected_table()
    topics = sorted({topic for topics in assignments["topics"].to_pylist() for topic in topics if topic is not None})
    watermarks = parts["watermarks"].where_in("topic", topics)
    sizes = watermarks.grouped(["topic"], topic_sizes, _SIZES).collected_table()
    return Rows(assignment_problems(assignments, sizes))


_IS_JUDGED = "protocol = 'consumer' AND state = 'Stable'"
_IS_IDLE = f"{_IS_JUDGED} AND member_id IS NOT NULL AND topic IS NULL"
_IS_FALLING = f"statuses['{FALLING_BEHIND}'] > 0"


def _of_suspects(parts: Mapping[str, Rows]) -> Mapping[str, Rows]:
    """The parts with fewer rows of `members`: of many, those of the groups that may have a problem.

    `lag` keeps all rows, because they are packed by group already.
    """
    members, falling = parts["members"], parts["groups"].where_if_many(_IS_FALLING)
    suspects = Rows.all_of([members.where_if_many(_IS_IDLE), falling], _GROUP_AT).rows
    if isinstance(suspects, DataFrame):
        members = members.where_among(suspects.distinct(), GROUP_AT)
    return {**parts, "members": members, "groups": falling}


def group_assignments(bucket: Bucket) -> pa.Table:
    """The rows of ASSIGNMENTS of some groups, from all of their rows of ASSIGNMENT_PARTS in the snapshots to judge.

    `changes` are the rows of GROUP_CHANGES from STABLE_MS before the first snapshot on. Groups whose assignments cannot
    have a problem are left out: those that neither have a member without a partition nor fall behind. A group is only
    judged if it is stable, and all of its members are known to subscribe to the same topics by name: other members may
    have other partitions for good reasons.
    """
    with arrow_queries(bucket) as queries:
        return queries.rows(_ASSIGNMENTS).cast(arrow_schema(ASSIGNMENTS))


def topic_sizes(watermarks: pa.Table) -> pa.Table:
    """How many partitions each topic has in each snapshot, from all rows of WATERMARKS of some topics."""
    with arrow_queries({"watermarks": watermarks}) as queries:
        return queries.rows(_TOPIC_SIZES).cast(arrow_schema(_SIZES))


def assignment_problems(assignments: pa.Table, sizes: pa.Table) -> pa.Table:
    """The rows of PROBLEMS from rows of ASSIGNMENTS. A group is only judged if all of its topics have a size."""
    with arrow_queries({"assignments": assignments, "sizes": sizes}) as queries:
        return problem_rows(queries.rows(_PROBLEMS), AssignmentFacts)


_AT = names_sql(GROUP_AT)
_SUSPECTS = f"""
    SELECT {_AT} FROM members WHERE {_IS_IDLE} UNION SELECT {_AT} FROM groups WHERE {_IS_FALLING}
"""
_OF_MEMBER = {
    "client": "max(concat_ws('', client_id, ' at ' || host))",
    "assignor": "max(assignor)",
    "group_type": "max(group_type)",
    "topics": "max(list_sort(subscribed_topics)) FILTER (subscribed_regex IS NULL)",
    "errors": "count(error)",
    "partitions": "count(topic)",
}
_MEMBERS = f"""
    SELECT {_AT}, member_id, {columns_sql(_OF_MEMBER)} FROM members SEMI JOIN suspects USING ({_AT})
    WHERE {_IS_JUDGED} GROUP BY {_AT}, member_id
"""
_LAGS = f"""
    SELECT {_AT}, member_id, {sum_if_fits_sql(counted_lag("consumer_lag"))} AS lag
    FROM lag SEMI JOIN suspects USING ({_AT}) GROUP BY {_AT}, member_id
"""
_EACH = struct_sql({"partitions": "partitions", "lag": "coalesce(lag, 0)", "client": "client"})
_OF_GROUP = {
    "assignor": "max(assignor)",
    "group_type": "max(group_type)",
    "topics": "min(topics)",
    "each": f"list({_EACH} ORDER BY partitions, coalesce(lag, 0), client)",
}
_UNCHANGED = f"""
    SELECT {_AT} FROM shared ANTI JOIN (
        SELECT {names_sql(GROUP)}, snapshot_id AS changed_id FROM changes WHERE change <> 'commits_removed'
    ) AS changed ON {" AND ".join(f"shared.{name} = changed.{name}" for name in GROUP)}
        AND changed_id <= snapshot_id AND changed_id > snapshot_id - {STABLE_MS}
"""
_ASSIGNMENTS = f"""
    WITH suspects AS ({_SUSPECTS}), each_member AS ({_MEMBERS}), lags AS ({_LAGS}),
    shared AS (
        SELECT {_AT}, {columns_sql(_OF_GROUP)} FROM each_member LEFT JOIN lags USING ({_AT}, member_id)
        GROUP BY {_AT} HAVING count(topics) = count(*) AND count(DISTINCT topics) = 1 AND sum(errors) = 0
    ),
    falling AS (SELECT {_AT}, consumer_lag AS group_lag FROM groups WHERE {_IS_FALLING})
    SELECT {names_sql(ASSIGNMENTS.names)}
    FROM shared SEMI JOIN ({_UNCHANGED}) USING ({_AT}) LEFT JOIN falling USING ({_AT})
    WHERE assignor IS DISTINCT FROM '{_BALANCED_OTHERWISE}'
"""
_TOPIC_SIZES = f"""
    SELECT {names_sql(TOPIC_AT)}, count(*) AS size FROM watermarks WHERE topic IS NOT NULL
    GROUP BY {names_sql(TOPIC_AT)}
"""

_COUNTS = {
    "members": "len(each)",
    "fair": "CAST(ceil(of_partitions / members) AS bigint)",
    "idle_members": "list_filter(each, lambda member: member.partitions = 0)",
    "idle": "len(idle_members)",
    "members_over": "list_filter(each, lambda member: member.partitions > fair)",
    "over": "len(members_over)",
    "most": "each[-1]",
    "lag_over": "coalesce(list_sum(list_transform(members_over, lambda member: member.lag)), 0)",
    "lag_share": "lag_over / CASE WHEN group_lag > 0 THEN group_lag END",
    "clients": "list_sort(list_distinct(list_transform(idle_members, lambda member: member.client)))",
    "has_enough": "of_partitions >= members",
    "is_uneven": "idle > 0 OR most['partitions'] >= 2 * fair",
    "kind": f"""CASE WHEN NOT has_enough AND idle > 0 THEN '{IDLE}'
        WHEN has_enough AND is_uneven AND lag_share > {MOST_LAG} THEN '{UNEVEN}' END""",
}
"""What is said of a group of which it is known how many partitions its topics have (of_partitions).

fair is what the member with the most must have. over is how many members have more.
"""
_FACTS = {name: name for name in AssignmentFacts.model_fields} | {
    "idle_clients": f"clients[1:{NAMED}]",
    "topics": some_sql("topics"),
    "topics_affected": "len(topics)",
}
_COLUMNS = {
    "topic": "CASE WHEN len(topics) = 1 THEN topics[1] END",
    "severity": "'info'",
    "magnitude": f"CASE WHEN kind = '{IDLE}' THEN idle ELSE most['partitions'] END",
    "facts": struct_sql(_FACTS),
}
_PROBLEMS = f"""
    WITH of_topics AS (SELECT {_AT}, unnest(topics) AS topic, len(topics) AS topics_named FROM assignments),
    read_whole AS (
        SELECT {_AT}, CAST(sum(size) AS bigint) AS of_partitions FROM of_topics JOIN sizes USING ({names_sql(TOPIC_AT)})
        GROUP BY {_AT}, topics_named HAVING count(*) = topics_named
    ),
    counted AS (SELECT *, {columns_sql(_COUNTS)} FROM assignments JOIN read_whole USING ({_AT}))
    SELECT {_AT}, kind, {columns_sql(_COLUMNS)} FROM counted WHERE kind IS NOT NULL
"""
