"""The table `group_changes`: what has changed in each group since the newest earlier snapshot in which it was read."""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pipeline.analytics.keys import GROUP, GROUP_AT, TOPIC
from pipeline.analytics.status.changed_groups import ASSIGNMENTS, CHECKED, COMMITS, GROUP_ITSELF, MEMBERS
from pipeline.analytics.status.group_looks import VALUES, has_commit
from pipeline.common.columns import aligned, date_of
from pipeline.tables import GROUP_CHANGES

_CHANGE = [*GROUP_AT, "earlier_snapshot_id", "captured_at"]
"""The keys of a change: the group, the two snapshots, and when the group was described."""
_WHO = ("member_id", "client_id", "host", "instance_id")


def group_changes(
    changed: DataFrame, group_members: DataFrame, committed_offsets: DataFrame, watermarks: DataFrame
) -> DataFrame:
    """The rows of GROUP_CHANGES for the groups and snapshots in `changed` (see `changed_groups`).

    The others are the bronze rows of these snapshots and of those that they are compared with.
    """
    pairs = F.broadcast(_pairs(changed))
    rows = _paired(group_members.where(F.col("member_id").isNotNull()), pairs)
    found = (_of_members(rows), _of_assignments(rows), _of_commits(_paired(committed_offsets, pairs), watermarks))
    changes = reduce(lambda some, more: some.unionByName(more, allowMissingColumns=True), found, _of_groups(changed))
    return aligned(changes.withColumn("snapshot_date", date_of("snapshot_id")), GROUP_CHANGES.schema)


def _of_groups(changed: DataFrame) -> DataFrame:
    """The changes of groups as a whole."""

    def entry(change: str, of: str, before: Column, after: Column) -> Column:
        earlier = F.col(f"{of}_change.earlier").alias("earlier_snapshot_id")
        return F.struct(F.lit(change).alias("change"), earlier, before.alias("before"), after.alias("after"))

    nothing = F.lit(None).cast("string")
    is_absent = F.col(f"{GROUP_ITSELF}_change.after")
    changes = [
        F.when(~is_absent, entry("appeared", GROUP_ITSELF, nothing, F.col("state"))),
        F.when(is_absent, entry("vanished", GROUP_ITSELF, F.col("last_state"), nothing)),
    ]
    for name in VALUES:
        change = F.col(f"{name}_change")
        changes.append(F.when(change.isNotNull(), entry(name, name, change["before"], change["after"])))
    return changed.select(*GROUP_AT, "captured_at", F.inline(F.array_compact(F.array(*changes))))


def _pairs(changed: DataFrame) -> DataFrame:
    """The pairs of snapshots between which rows are to be compared.

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


def _paired(rows: DataFrame, pairs: DataFrame) -> DataFrame:
    """The bronze rows of the pairs. A row that is in several pairs occurs several times."""
    own = rows.drop("snapshot_date", "captured_at").withColumnRenamed("snapshot_id", "at")
    return own.join(pairs, [*GROUP, "at"]).repartition(*GROUP)


def _identity() -> Column:
    """What a member has in common with the one that it replaces after a restart; if nothing, its own id."""
    by_address = F.col("client_id").isNotNull() & F.col("host").isNotNull()
    none = F.lit(None).cast("string")

    def identity(kind: str, first: str, second: Column) -> Column:
        return F.struct(F.lit(kind).alias("kind"), F.col(first).alias("first"), second.alias("second"))

    return (
        F.when(F.col("instance_id").isNotNull(), identity("instance", "instance_id", none))
        .when(by_address, identity("client", "client_id", F.col("host")))
        .otherwise(identity("member", "member_id", none))
    )


def _of_members(rows: DataFrame) -> DataFrame:
    """The members that have joined, left or restarted. Those that look alike are matched in the order of their ids."""
    members = (
        rows.where(F.col("what") == MEMBERS)
        .groupBy(*_CHANGE, "member_id")
        .agg(
            F.some("is_now").alias("is_now"),
            F.some(~F.col("is_now")).alias("was_there"),
            F.max_by(F.struct(*_WHO[1:], _identity().alias("identity")), "is_now").alias("of"),
        )
        .where(F.col("is_now") != F.col("was_there"))
        .select(*_CHANGE, "is_now", "member_id", "of.*")
    )
    alike = Window.partitionBy(*_CHANGE, "identity", "is_now").orderBy("member_id")
    who = F.struct(*_WHO)
    matched = (
        members.withColumn("number", F.row_number().over(alike))
        .groupBy(*_CHANGE, "identity", "number")
        .agg(
            F.max(F.when(~F.col("is_now"), who)).alias("old"),
            F.max(F.when(F.col("is_now"), who)).alias("new"),
        )
    )
    change = F.when(F.col("old").isNull(), "joined").when(F.col("new").isNull(), "left").otherwise("restarted")
    return _of_owners(matched.withColumn("change", change), *_CHANGE, "change")


def _of_owners(rows: DataFrame, *names: str) -> DataFrame:
    """The columns `names`, and those that name the members `old` and `new`."""
    ids = {"before": F.col("old.member_id"), "after": F.col("new.member_id")}
    who = F.coalesce("new", "old")
    columns = ids | {name: who[name] for name in _WHO}
    return rows.select(*names, *(column.alias(name) for name, column in columns.items()))


def _of_assignments(rows: DataFrame) -> DataFrame:
    """The partitions that have another member, have one now, or have none any more.

    A partition that a restarted member has kept has not moved: its old member is gone, the new one was not there
    before, and they are alike.
    """
    same = Window.partitionBy(*_CHANGE, "member_id")
    has_changed = F.some("is_now").over(same) != F.some(~F.col("is_now")).over(same)
    owner = F.struct(*_WHO, _identity().alias("identity"), "has_changed")
    owners = (
        rows.where(F.col("what") == ASSIGNMENTS)
        .withColumn("has_changed", has_changed)
        .where(F.col("topic").isNotNull())
        .groupBy(*_CHANGE, "topic", "partition")
        # During a rebalance, two members may have a partition. As in `lag`, the first of them by id counts.
        .agg(F.min(F.when(~F.col("is_now"), owner)).alias("old"), F.min(F.when(F.col("is_now"), owner)).alias("new"))
    )
    old, new = F.col("old"), F.col("new")
    is_restart = (old["identity"] == new["identity"]) & old["has_changed"] & new["has_changed"]
    has_moved = (old["member_id"] != new["member_id"]) & ~is_restart
    change = F.when(old.isNull(), "assigned").when(new.isNull(), "unassigned").when(has_moved, "moved")
    named = _of_owners(owners.withColumn("change", change), *_CHANGE, "change", "topic", "partition")
    return _gathered(named.where(F.col("change").isNotNull()))


def _of_commits(rows: DataFrame, watermarks: DataFrame) -> DataFrame:
    """The partitions whose commits are gone, although their topic is still there with the same id."""
    is_now, is_unread = F.col("is_now"), F.col("error").isNotNull()
    is_gone = F.some(has_commit() & ~is_now) & ~F.some(is_now & (has_commit() | is_unread))
    gone = (
        rows.where((F.col("what") == COMMITS) & F.col("topic").isNotNull())
        .groupBy(*_CHANGE, "topic", "partition")
        .agg(is_gone.alias("is_gone"))
        .where("is_gone")
        .select(*_CHANGE, F.lit("commits_removed").alias("change"), "topic", "partition")
    )
    listed = watermarks.where(F.col("topic").isNotNull()).select(*TOPIC, "snapshot_id", "topic_id").distinct()
    ids = listed.groupBy(*TOPIC).agg(F.collect_list(F.struct("snapshot_id", "topic_id")).alias("ids"))

    def ids_at(snapshot_id: str) -> Column:
        at = F.filter("ids", lambda seen: seen["snapshot_id"] == F.col(snapshot_id))
        return F.array_sort(F.transform(at, lambda seen: seen["topic_id"]))

    is_same = (F.size(ids_at("snapshot_id")) > 0) & ids_at("snapshot_id").eqNullSafe(ids_at("earlier_snapshot_id"))
    return ids.join(F.broadcast(_gathered(gone)), TOPIC).where(is_same).drop("ids")


def _gathered(rows: DataFrame) -> DataFrame:
    """The partitions with the same change in one row, ascending."""
    keys = [name for name in rows.columns if name != "partition"]
    return rows.groupBy(*keys).agg(F.sort_array(F.collect_list("partition")).alias("partitions"))
