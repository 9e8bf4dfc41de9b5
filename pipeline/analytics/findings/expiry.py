"""When Kafka will remove the commits of a group without members, which then does not know any more where to read on.

An expression here is SQL text.
"""

from __future__ import annotations

from pipeline.analytics.lag.ladder import HAS_UNREAD
from pipeline.common.arrow_sql import epoch_ms_sql
from pipeline.common.epoch import HOUR_MS

OVERDUE_MS = HOUR_MS
"""A commit that is still there so long after its time is not removed: the group had members that no snapshot saw."""
_IS_CLASSIC = "(coalesce(group_type, 'classic') = 'classic')"


def commit_expires_in_ms(within_ms: int) -> str:
    """How long until the commit of a reader may be removed, if less than `within_ms`; else NULL.

    In a classic group, `offsets.retention.minutes` begin when the last member leaves (KIP-211,
    ClassicGroup.offsetExpirationCondition). Here they begin when the group was last seen with members, or when the
    commit was first seen if that is later, because a member may come and go between two snapshots; `group_expires`
    looks at all commits of the group. In a group of another type, they begin with each commit
    (ConsumerGroup.offsetExpirationCondition). A member may commit the same offset again and again, which no snapshot
    shows: a commit that outlives its time was made again while the group had members, as in a classic group. A group
    that was never seen with members may commit without any, so nothing is known about it. If nothing is unread, the
    group loses nothing.

    It is for DuckDB: see `suspects` for its columns.
    """
    left_ms, moved_ms = epoch_ms_sql("members_seen_at"), epoch_ms_sql("commit_since")
    first_ms, last_ms = (
        f"({begun_ms} + offsets_retention_ms - commits_ms)"
        for begun_ms in (moved_ms, f"greatest({left_ms}, {moved_ms})")
    )
    rest_ms = f"(CASE WHEN {_IS_CLASSIC} OR {first_ms} < -{OVERDUE_MS} THEN {last_ms} ELSE {first_ms} END)"
    is_near = f"({rest_ms} <= {within_ms} AND ({_IS_CLASSIC} OR {rest_ms} >= -{OVERDUE_MS}))"
    loses = f"NOT has_members AND members_seen_at IS NOT NULL AND {HAS_UNREAD} AND {is_near}"
    return f"CASE WHEN {loses} THEN {rest_ms} END"


def group_expires_in_ms(within_ms: int) -> str:
    """The same for a group, from the least of its partitions (`expires_in_ms`), and at least 0.

    Columns: group_type, at_ms, expires_in_ms, offsets_retention_ms, and active_ms, the newest `members_seen_at` or
    `commit_since` of the whole group.
    """
    of_all = "(active_ms + offsets_retention_ms - at_ms)"
    rest_ms = f"(CASE WHEN {_IS_CLASSIC} THEN {of_all} ELSE expires_in_ms END)"
    return f"CASE WHEN {rest_ms} BETWEEN -{OVERDUE_MS} AND {within_ms} THEN greatest({rest_ms}, 0) END"
