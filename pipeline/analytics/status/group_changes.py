"""The table `group_changes`: what has changed in each group since the newest earlier snapshot in which it was read."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pyarrow as pa
from pyspark.sql.types import StructType

from pipeline.analytics.keys import GROUP, GROUP_AT
from pipeline.analytics.status.changed_groups import ASSIGNMENTS, CHECKED, COMMITS, MEMBERS, changed_groups
from pipeline.analytics.status.group_looks import HAS_COMMIT, VALUES, looks_sql
from pipeline.common.arrow_sql import arrow_queries, columns_sql, names_sql, struct_sql
from pipeline.common.buckets import Bucket
from pipeline.common.data_source import arrow_schema
from pipeline.tables import COMMITTED_OFFSETS, GROUP_CHANGES, GROUP_MEMBERS

COMMITS_REMOVED = "commits_removed"
_WHO = ("member_id", "client_id", "host", "instance_id")
CHANGE_PARTS: dict[str, StructType] = {
    "members": GROUP_MEMBERS.some(
        (*GROUP_AT, "captured_at", *VALUES.values(), "error", *_WHO, "topic", "partition"),
    ),
    "commits": COMMITTED_OFFSETS.some((*GROUP_AT, "error", "topic", "partition", "committed_offset")),
}
"""What `group_changes` is computed from."""
TopicIds = Mapping[tuple[str, int, str], Collection[str | None]]
"""The ids of a topic in a snapshot, by cluster, snapshot and topic. A topic that a snapshot does not have is absent."""


def group_changes(bucket: Bucket, complete: Collection[int], reach: Mapping[int, int]) -> pa.Table:
    """The rows of GROUP_CHANGES for the snapshots in `reach`, from bronze rows: all rows of each group in a bucket.

    See `changed_groups` for `complete` and `reach`. Commits may be gone because their topic is: `in_same_topics` leaves
    them out.
    """
    with arrow_queries(bucket) as queries:
        changed = changed_groups(queries.rows(looks_sql()), complete, reach)
        if not changed.num_rows:
            return arrow_schema(GROUP_CHANGES.schema).empty_table()
        queries.add(changed=changed)
        changes = queries.rows(_CHANGES)
    return changes.select(GROUP_CHANGES.columns).cast(arrow_schema(GROUP_CHANGES.schema))


def in_same_topics(changes: pa.Table, topic_ids: TopicIds) -> pa.Table:
    """The changes without COMMITS_REMOVED in topics that are gone since the earlier snapshot, or have another id.

    Topics of the same name without ids, as before Kafka 2.8, are the same topic.
    """
    is_kept = []
    for change in changes.select([*GROUP_AT, "earlier_snapshot_id", "change", "topic"]).to_pylist():
        ids_now, ids_before = (
            topic_ids.get((change["cluster"], change[at], change["topic"]), ())
            for at in ("snapshot_id", "earlier_snapshot_id")
        )
        is_same = len(ids_now) > 0 and {*ids_now} == {*ids_before}
        is_kept.append(change["change"] != COMMITS_REMOVED or is_same)
    return changes.filter(pa.array(is_kept, pa.bool_())).cast(arrow_schema(GROUP_CHANGES.schema))


_PAIR = names_sql([*GROUP_AT, "earlier_snapshot_id"])
"""A group and two snapshots that are compared."""
_PAIRS = f"""
    SELECT {_PAIR}, change AS aspect, snapshot_id AS "at", true AS is_now FROM changed
    UNION ALL
    SELECT {_PAIR}, change AS aspect, earlier_snapshot_id AS "at", false AS is_now FROM changed
"""
"""What has changed in a group (`aspect`), twice: with each of the two snapshots in `at`."""
_OWN_AT = f'{names_sql(GROUP)}, snapshot_id AS "at"'
_PAIRED = f'JOIN pairs USING ({names_sql(GROUP)}, "at")'
"""Gives bronze rows to their pairs. A row that is in several pairs occurs several times."""

_IDENTITY = """
    CASE
        WHEN instance_id IS NOT NULL THEN ['instance', instance_id]
        WHEN client_id IS NOT NULL AND host IS NOT NULL THEN ['client', client_id, host]
        ELSE ['member', member_id]
    END
"""
"""What a member has in common with the one that it replaces after a restart; if nothing, its own id."""
_MEMBERS = f"""
    SELECT *
    FROM (
        SELECT {_OWN_AT}, {struct_sql({name: name for name in _WHO})} AS who, {_IDENTITY} AS identity, member_id,
            topic, "partition"
        FROM members WHERE member_id IS NOT NULL
    )
    {_PAIRED}
"""
_HAS_CHANGED = "bool_or(is_now) {over} <> bool_or(NOT is_now) {over}"
"""Whether a member is in only one of the two snapshots."""
_OWNERS = {
    "before": "old['member_id']",
    "after": "new['member_id']",
    **{name: f"coalesce(new, old)['{name}']" for name in _WHO},
}
"""The columns that name the members `old` and `new`, one of which may be NULL."""
# Members that look alike are matched in the order of their ids.
_OF_MEMBERS = f"""
    SELECT {_PAIR}, {columns_sql(_OWNERS)},
        CASE WHEN old IS NULL THEN 'joined' WHEN new IS NULL THEN 'left' ELSE 'restarted' END AS change
    FROM (
        SELECT {_PAIR}, any_value(who) FILTER (NOT is_now) AS old, any_value(who) FILTER (is_now) AS new
        FROM (
            SELECT *, row_number() OVER (PARTITION BY {_PAIR}, identity, is_now ORDER BY member_id) AS number
            FROM (
                SELECT {_PAIR}, member_id, any_value(who) AS who, any_value(identity) AS identity,
                    bool_or(is_now) AS is_now
                FROM paired_members WHERE aspect = '{MEMBERS}'
                GROUP BY {_PAIR}, member_id HAVING {_HAS_CHANGED.format(over="")}
            )
        )
        GROUP BY {_PAIR}, identity, number
    )
"""
"""The members that have joined, left or restarted."""

_OWNER = struct_sql({**{name: f"who['{name}']" for name in _WHO}, "identity": "identity", "has_changed": "has_changed"})
# A partition that a restarted member has kept has not moved: its old member is gone, the new one was not there before,
# and they are alike.
_IS_RESTART = "old['identity'] = new['identity'] AND old['has_changed'] AND new['has_changed']"
# During a rebalance, two members may have a partition. As in `lag`, the first of them by id counts.
_OF_ASSIGNMENTS = f"""
    SELECT {_PAIR}, {columns_sql(_OWNERS)}, change, topic, list("partition" ORDER BY "partition") AS partitions
    FROM (
        SELECT *, CASE
            WHEN old IS NULL THEN 'assigned'
            WHEN new IS NULL THEN 'unassigned'
            WHEN old['member_id'] <> new['member_id'] AND NOT ({_IS_RESTART}) THEN 'moved'
        END AS change
        FROM (
            SELECT {_PAIR}, topic, "partition",
                arg_min({_OWNER}, member_id) FILTER (NOT is_now) AS old,
                arg_min({_OWNER}, member_id) FILTER (is_now) AS new
            FROM (
                SELECT *, {_HAS_CHANGED.format(over="OVER of_member")} AS has_changed
                FROM paired_members WHERE aspect = '{ASSIGNMENTS}'
                WINDOW of_member AS (PARTITION BY {_PAIR}, member_id)
            )
            WHERE topic IS NOT NULL GROUP BY {_PAIR}, topic, "partition"
        )
    )
    WHERE change IS NOT NULL
    GROUP BY ALL
"""
"""The partitions that have another member, have one now, or have none any more."""

_OF_COMMITS = f"""
    SELECT {_PAIR}, '{COMMITS_REMOVED}' AS change, topic, list("partition" ORDER BY "partition") AS partitions
    FROM (
        SELECT {_PAIR}, topic, "partition"
        FROM (
            SELECT {_OWN_AT}, topic, "partition", {HAS_COMMIT} AS has_commit, error IS NOT NULL AS is_unread
            FROM commits WHERE topic IS NOT NULL
        )
        {_PAIRED}
        WHERE aspect = '{COMMITS}' GROUP BY {_PAIR}, topic, "partition"
        HAVING bool_or(NOT is_now AND has_commit) AND NOT bool_or(is_now AND (has_commit OR is_unread))
    )
    GROUP BY ALL
"""
"""The partitions whose commits are gone."""

_CHANGES = f"""
    WITH pairs AS ({_PAIRS}), paired_members AS ({_MEMBERS}),
    changes AS (
        SELECT * FROM changed WHERE change NOT IN {CHECKED}
        UNION ALL BY NAME ({_OF_MEMBERS}) UNION ALL BY NAME ({_OF_ASSIGNMENTS}) UNION ALL BY NAME ({_OF_COMMITS})
    ),
    described AS (
        SELECT {names_sql(GROUP_AT)}, max(captured_at) AS captured_at FROM members GROUP BY {names_sql(GROUP_AT)}
    )
    SELECT changes.*, captured_at, make_timestamp(snapshot_id * 1000)::DATE AS snapshot_date
    FROM changes LEFT JOIN described USING ({names_sql(GROUP_AT)})
"""
