"""What each group looked like in each snapshot, and between which snapshots something of it has changed.

Most groups do not change from one snapshot to the next. So each group is first reduced to one row for each snapshot,
with checksums of its members, assignments and commits. Only where these differ, `group_changes` compares the rows.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pipeline.analytics.keys import GROUP, GROUP_AT

REBALANCING = ("PreparingRebalance", "CompletingRebalance")
"""The states in which Kafka does not report the assignments of a classic group."""
WITH_MEMBERS = ("classic", "consumer")
"""The types of groups whose members are read."""
VALUES = {"state": "state", "type": "group_type", "assignor": "assignor", "epoch": "group_epoch"}
"""The values of a group that may change, each with its column in `group_members`."""
MEMBERS, ASSIGNMENTS, COMMITS = CHECKED = ("members", "assignments", "commits")
"""What is compared row by row if a checksum has changed."""
GROUP_ITSELF = "group"
"""Whether the group exists."""


def changed_groups(
    group_members: DataFrame, committed_offsets: DataFrame, complete: Collection[int], reach: Mapping[int, int]
) -> DataFrame:
    """A row for each group and snapshot in `reach` in which something of the group has changed.

    `reach` maps each snapshot to the oldest one that it may be compared with. `complete` are the complete ones among
    all of these snapshots: only they show that a group does not exist. For everything X that may change, the column
    `X_change` is NULL if X is the same as before, or if one of the two is not known. Else it has `earlier`, the
    snapshot that it was compared with, and for a value also `before` and `after`. `last_state` is the state before.
    """
    return _compared(_with_absence(_looks(group_members, committed_offsets), complete), reach)


def _looks(group_members: DataFrame, committed_offsets: DataFrame) -> DataFrame:
    """One row for each group in each snapshot: its values, its checksums, and which of these are known."""
    looks = _with_checksums(group_members, committed_offsets)
    is_read = (F.col("rows") > 0) & (F.col("unread") == 0)
    has_members = is_read & F.coalesce(F.col("group_type").isin(*WITH_MEMBERS), F.lit(True))
    is_settled = F.coalesce(~F.col("state").isin(*REBALANCING), F.lit(True)) & (F.col("errors") == 0)
    is_known = {MEMBERS: has_members, ASSIGNMENTS: has_members & is_settled, COMMITS: F.col("commits_unread") == 0}
    values = {name: F.when(is_read, F.col(name)) for name in VALUES.values()}
    return looks.withColumns({f"{name}_known": known for name, known in is_known.items()} | values)


def _with_checksums(group_members: DataFrame, committed_offsets: DataFrame) -> DataFrame:
    # A group's values are the same in all of its rows. Grouping by them needs no sorting, unlike the max of a text.
    described = group_members.groupBy(*GROUP_AT, *VALUES.values()).agg(
        F.max("captured_at").alias("captured_at"),
        F.count(F.lit(1)).alias("rows"),
        F.count("error").alias("errors"),
        F.count_if(F.col("error").isNotNull() & F.col("member_id").isNull()).alias("unread"),
        F.bit_xor(F.xxhash64("member_id", "topic", "partition")).alias("checksum"),
    )
    committed = committed_offsets.groupBy(*GROUP_AT).agg(
        F.count_if(F.col("error").isNotNull() & F.col("topic").isNull()).alias("commits_unread"),
        F.count_if(has_commit()).alias("commits"),
        F.bit_xor(F.when(has_commit(), F.xxhash64("topic", "partition"))).alias("commits_checksum"),
    )
    rows = described.unionByName(committed, allowMissingColumns=True).where(F.col("group_id").isNotNull())
    counts = ("rows", "errors", "unread", "commits_unread", "commits")
    return (
        rows.repartition(*GROUP)  # for all that follows
        .groupBy(*GROUP_AT)
        .agg(
            F.max("captured_at").alias("captured_at"),
            *(F.max(name).cast("string").alias(name) for name in VALUES.values()),
            *(F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in counts),
            *(F.bit_xor(name).alias(name) for name in ("checksum", "commits_checksum")),
        )
    )


def _with_absence(looks: DataFrame, complete: Collection[int]) -> DataFrame:
    """Adds `is_absent`, and rows for complete snapshots without the group, in which it has no members and no commits.

    Such a row is only added for the first of them after a snapshot with the group, and for the last one before it.
    """
    series = Window.partitionBy(*GROUP).orderBy("snapshot_id")
    ids = F.array(*map(F.lit, sorted(complete))).cast("array<bigint>")
    at, before, after = F.col("snapshot_id"), F.lag("snapshot_id").over(series), F.lead("snapshot_id").over(series)
    next_complete = F.array_min(F.filter(ids, lambda i: i > at))
    last_complete = F.array_max(F.filter(ids, lambda i: i < at))
    has_vanished = F.coalesce(after > next_complete, F.lit(True))
    has_appeared = F.coalesce(before < last_complete, F.lit(True))
    absence = {
        "absent_after": F.when(has_vanished, next_complete),
        "absent_before": F.when(has_appeared, last_complete),
    }
    rows = looks.withColumns(absence)
    is_same = F.col("absent_before").eqNullSafe(F.lag("absent_after").over(series))  # one row is enough for both
    rows = rows.withColumn("absent_before", F.when(~is_same, F.col("absent_before")))
    instants = F.array_compact(F.array("snapshot_id", "absent_after", "absent_before"))
    rows = rows.withColumn("at", F.explode(instants)).withColumn("is_absent", F.col("at") != F.col("snapshot_id"))
    is_there, none = ~F.col("is_absent"), F.lit(0).cast("bigint")
    nulls = ("captured_at", "checksum", "commits_checksum", *VALUES.values())
    values = {name: F.when(is_there, F.col(name)) for name in nulls}
    values |= {name: F.when(is_there, F.col(name)).otherwise(none) for name in ("rows", "commits")}
    values |= {f"{name}_known": F.col("is_absent") | F.col(f"{name}_known") for name in CHECKED}
    return rows.withColumns(values | {"snapshot_id": F.col("at")})


def _compared(looks: DataFrame, reach: Mapping[int, int]) -> DataFrame:
    series = Window.partitionBy(*GROUP).orderBy("snapshot_id").rowsBetween(Window.unboundedPreceding, -1)
    checksums = {
        **dict.fromkeys((MEMBERS, ASSIGNMENTS), ("rows", "checksum")),
        COMMITS: ("commits", "commits_checksum"),
    }
    now = {GROUP_ITSELF: F.col("is_absent")} | {name: F.col(column) for name, column in VALUES.items()}
    now |= {name: F.when(F.col(f"{name}_known"), F.struct(*columns)) for name, columns in checksums.items()}
    ids = (F.lit(i).cast("bigint") for pair in reach.items() for i in pair)
    oldest = F.element_at(F.create_map(*ids), F.col("snapshot_id"))
    rows = looks.select(*GROUP_AT, "captured_at", oldest.alias("oldest"), *(now[name].alias(name) for name in now))
    rows = rows.withColumns({f"{name}_before": _last_look(name).over(series) for name in now})
    last_state = F.when(F.col("state_before.earlier") >= F.col("oldest"), F.col("state_before.value"))
    changes = [_change(name).alias(f"{name}_change") for name in now]
    new = rows.where(F.col("oldest").isNotNull())
    found = new.select(*GROUP_AT, "captured_at", "state", last_state.alias("last_state"), *changes)
    return found.where(reduce(or_, (F.col(f"{name}_change").isNotNull() for name in now)))


def _last_look(name: str) -> Column:
    """The newest snapshot in which something was known, and its value. A group that did not exist had no values."""
    look = F.struct(F.col("snapshot_id").alias("earlier"), F.col(name).alias("value"))
    return F.last(F.when(F.col(name).isNotNull() | F.col(GROUP_ITSELF), look), ignorenulls=True)


def _change(name: str) -> Column:
    now, before = F.col(name), F.col(f"{name}_before")
    is_changed = (before["earlier"] >= F.col("oldest")) & (now != before["value"])
    values = () if name in CHECKED else (before["value"].alias("before"), now.alias("after"))
    return F.when(is_changed, F.struct(before["earlier"].alias("earlier"), *values))


def pairs_of(changed: DataFrame) -> DataFrame:
    """The pairs of snapshots between which rows are to be compared, from `changed_groups`.

    There are two rows for each of CHECKED (`what`) that has changed in a group: one with the snapshot itself in `at`,
    and one with the earlier snapshot.
    """

    def look(name: str, at: Column, is_now: bool) -> Column:
        earlier = F.col(f"{name}_change.earlier").alias("earlier_snapshot_id")
        pair = F.struct(F.lit(name).alias("what"), earlier, at.alias("at"), F.lit(is_now).alias("is_now"))
        return F.when(earlier.isNotNull(), pair)

    both = [
        look(name, at, is_now)
        for name in CHECKED
        for at, is_now in ((F.col("snapshot_id"), True), (F.col(f"{name}_change.earlier"), False))
    ]
    return changed.select(*GROUP_AT, "captured_at", F.inline(F.array_compact(F.array(*both))))


def has_commit() -> Column:
    """Whether a row of `committed_offsets` has a commit."""
    return F.col("error").isNull() & F.col("committed_offset").isNotNull()
