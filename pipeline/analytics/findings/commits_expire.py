"""When Kafka will remove the commits of a group without members, which then does not know any more where to read on."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from pipeline.analytics.lag.ladder import HAS_UNREAD
from pipeline.analytics.series import read_ms
from pipeline.common.epoch import HOUR_MS

OVERDUE_MS = HOUR_MS
"""A commit that is still there so long after its time is not removed: the group had members that no snapshot saw."""


def commit_expires_in_ms(within_ms: int) -> Column:
    """How long until the commit of a reader may be removed, if less than `within_ms`; else NULL.

    In a classic group, `offsets.retention.minutes` begin when the last member leaves (KIP-211,
    ClassicGroup.offsetExpirationCondition). Here they begin when the group was last seen with members, or when the
    commit was first seen if that is later, because a member may come and go between two snapshots; `group_expires`
    looks at all commits of the group. In a group of another type, they begin with each commit
    (ConsumerGroup.offsetExpirationCondition). A member may commit the same offset again and again, which no snapshot
    shows: a commit that outlives its time was made again while the group had members, as in a classic group. A group
    that was never seen with members may commit without any, so nothing is known about it. If nothing is unread, the
    group loses nothing.

    Columns: has_members, members_seen_at, commit_since, group_type, offsets_retention_ms and those of `has_unread` and
    `read_ms`.
    """
    left_ms, moved_ms = F.unix_millis("members_seen_at"), F.unix_millis("commit_since")
    first_ms, last_ms = (
        begun_ms + F.col("offsets_retention_ms") - read_ms("committed_captured_at")
        for begun_ms in (moved_ms, F.greatest(left_ms, moved_ms))
    )
    rest_ms = F.when(_is_classic() | (first_ms < -OVERDUE_MS), last_ms).otherwise(first_ms)
    is_near = (rest_ms <= within_ms) & (_is_classic() | (rest_ms >= -OVERDUE_MS))
    return F.when(~F.col("has_members") & left_ms.isNotNull() & F.expr(HAS_UNREAD) & is_near, rest_ms)


def group_expires_in_ms(within_ms: int) -> Column:
    """The same for a group, from the least of its partitions (`expires_in_ms`), and at least 0.

    Columns: group_type, at_ms, expires_in_ms, offsets_retention_ms, and active_ms, the newest `members_seen_at` or
    `commit_since` of the whole group.
    """
    of_all = F.col("active_ms") + F.col("offsets_retention_ms") - F.col("at_ms")
    rest_ms = F.when(_is_classic(), of_all).otherwise(F.col("expires_in_ms"))
    return F.when(rest_ms.between(-OVERDUE_MS, within_ms), F.greatest(rest_ms, F.lit(0)))


def _is_classic() -> Column:
    return F.coalesce("group_type", F.lit("classic")) == "classic"
