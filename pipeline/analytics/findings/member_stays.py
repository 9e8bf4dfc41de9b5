"""How often members of a group joined and left again, from rows of GROUP_CHANGES.

The number of changes does not show a problem: while 50 members are restarted one by one, something changes in each
snapshot for an hour. But each of them is replaced once, and the new one stays. So *short stays* are counted: those of
members that joined and left again within the window. They come in *rounds*: in one round, each of the members that come
and go has one short stay.
"""

from __future__ import annotations

from collections.abc import Collection

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pipeline.analytics.keys import GROUP, GROUP_AT
from pipeline.common.epoch import HOUR_MS, MINUTE_MS

WINDOW_MS = 2 * HOUR_MS
"""The time over which the stays in a group are counted, up to the end of its last short one."""
STILL_MS = 40 * MINUTE_MS
"""A problem lasts as long as a short stay has ended this recently: the longest regular stay of which the window has
enough."""
READ_MS = WINDOW_MS + STILL_MS
"""How long before a snapshot a change may count."""
ROUNDS, GROUP_ROUNDS = 3, 5
"""The fewest rounds that are a problem: of one member beyond those of the others, and of a group."""
JOINED, LEFT, RESTARTED, EPOCH = "joined", "left", "restarted", "epoch"
ENDINGS = (LEFT, RESTARTED, EPOCH)
"""A group without one of these changes in ROUNDS snapshots of the window has no problem."""
_WITHOUT_MEMBERS = ("Empty", "Dead")


def in_windows(changes: DataFrame, snapshot_ids: Collection[int]) -> DataFrame:
    """The changes that may count in each of some snapshots: GROUP_AT of the snapshot, and changed_id, when it was seen.

    Both a late snapshot and its successor may have a change, see GROUP_CHANGES. It is counted once.
    """
    names = ("change", "before", "after", "earlier_snapshot_id")
    first = F.min(F.struct(F.col("snapshot_id").alias("changed_id"), "client_id", "host", "instance_id")).alias("first")
    once = changes.groupBy(*GROUP, *names).agg(first).select(*GROUP, *names, "first.*")
    ids = F.array(*map(F.lit, sorted(snapshot_ids))).cast("array<bigint>")
    changed = F.col("changed_id")
    these = F.filter(ids, lambda at: (at >= changed) & (at - READ_MS < changed))
    return once.withColumn("snapshot_id", F.explode(these))


def candidates(changes: DataFrame) -> DataFrame:
    """The groups that may have a problem: GROUP."""
    endings = changes.where(F.col("change").isin(*ENDINGS))
    return endings.groupBy(*GROUP).agg(F.count_distinct("snapshot_id").alias("n")).where(F.col("n") >= ROUNDS).drop("n")


def ends_and_beginnings(changes: DataFrame) -> DataFrame:
    """A row for each stay that began or ended: GROUP_AT, changed_id, who, is_quiet, begins, begun_ms.

    `changes` are those of `in_windows`. is_quiet: a static member was replaced by itself, for which the group does not
    rebalance (KIP-345). begun_ms is when a short stay began, in the row of its end.
    """

    def event(member: str, begins: bool) -> Column:
        return F.when(
            F.col(member).isNotNull(), F.struct(F.col(member).alias("member_id"), F.lit(begins).alias("begins"))
        )

    is_quiet = (F.col("change") == RESTARTED) & F.col("instance_id").isNotNull()
    events = changes.where(F.col("change").isin(JOINED, LEFT, RESTARTED)).select(
        *GROUP_AT,
        "changed_id",
        "client_id",
        "host",
        "instance_id",
        is_quiet.alias("is_quiet"),
        F.inline(F.array_compact(F.array(event("before", False), event("after", True)))),
    )
    earlier = (
        Window.partitionBy(*GROUP_AT, "member_id").orderBy("changed_id").rangeBetween(Window.unboundedPreceding, -1)
    )
    begun = F.max(F.when(F.col("begins"), F.col("changed_id"))).over(earlier)
    return (
        events.withColumn("begun_ms", begun)
        .withColumn(
            "begun_ms", F.when(~F.col("begins") & (F.col("changed_id") - begun <= WINDOW_MS), F.col("begun_ms"))
        )
        .select(*GROUP_AT, "changed_id", who().alias("who"), "is_quiet", "begins", "begun_ms")
    )


def who() -> Column:
    """Who a member is, as JSON: its group.instance.id, else its client_id and host, else its member_id.

    A member that joins again has another member_id, except with KIP-848.
    """
    is_dynamic = F.col("instance_id").isNull()
    has_address = is_dynamic & F.col("client_id").isNotNull() & F.col("host").isNotNull()
    return F.to_json(
        F.struct(
            F.col("instance_id").alias("instance"),
            F.col("client_id"),
            F.when(has_address, F.col("host")).alias("host"),
            F.when(is_dynamic & ~has_address, F.col("member_id")).alias("member_id"),
        )
    )


def rounds(events: DataFrame, by: Collection[str]) -> DataFrame:
    """The short stays of each key `by`, which begins with GROUP_AT: stays, loud_stays, rounds, recent, span and fewer.

    stays is their number, loud_stays that of those for whose end the group rebalanced, recent the rounds that ended
    lately. They are counted over WINDOW_MS up to the end of the group's last one, so that a problem lasts from one
    regular stay to the next. This is the same time for all members of a group: if one had a deployment more in its time
    than another, they could not be compared. A round is as many stays as members come and go: the most of those that
    are gone now, those that have come and are still there, and those that were there beyond the fewest at a time
    (span). So neither several deployments of many members nor a group that is scaled up and down count more than once
    each. fewer is how many fewer members are there now than at another time.
    """
    is_end = F.col("begun_ms").isNotNull()
    last = F.max(F.when(is_end, F.col("changed_id"))).over(Window.partitionBy(*GROUP_AT))
    begin = F.coalesce("last_ms", "snapshot_id") - WINDOW_MS
    is_short = is_end & (F.col("begun_ms") >= begin)
    is_late = F.col("changed_id") > F.col("snapshot_id") - STILL_MS
    at_once = (
        events.withColumn("last_ms", last)
        .where(F.col("changed_id") >= begin)
        .groupBy(*by, "changed_id", "last_ms")
        .agg(
            F.count_if("begins").alias("begun"),
            F.count_if(~F.col("begins")).alias("ended"),
            F.count_if(is_short).alias("short"),
            F.count_if(is_short & ~F.col("is_quiet")).alias("loud"),
            F.count_if(is_late & ~F.col("begins")).alias("late"),
        )
    )
    there = F.sum(F.col("begun") - F.col("ended")).over(Window.partitionBy(*by).orderBy("changed_id"))
    sums = (
        at_once.withColumn("there", there)
        .groupBy(*by)
        .agg(
            F.sum("short").alias("stays"),
            F.sum("begun").alias("begun"),
            F.sum("ended").alias("ended"),
            (F.greatest(F.max("there"), F.lit(0)) - F.least(F.min("there"), F.lit(0))).alias("span"),
            (F.greatest(F.max("there"), F.lit(0)) - F.sum(F.col("begun") - F.col("ended"))).alias("fewer"),
            F.sum("loud").alias("loud_stays"),
            F.sum("late").alias("late"),
        )
    )
    stays = F.col("stays")
    members = F.greatest(F.col("begun") - stays, F.col("ended") - stays, "span", F.lit(1))
    shares = ((F.col(name) / members).alias(to) for name, to in (("stays", "rounds"), ("late", "recent")))
    return sums.select(*by, "stays", "loud_stays", "span", "fewer", *shares)


def lower_quartile(ascending: str, zeros: Column) -> Column:
    """The lower quartile of an array and of so many zeros: what most members have in common, such as a deployment."""
    number = F.floor((zeros + F.size(ascending) - 1) / 4)
    return F.when(number < zeros, 0.0).otherwise(F.get(ascending, (number - zeros).cast("int")))


def facts(changes: DataFrame) -> DataFrame:
    """What else the changes of `in_windows` show of each group.

    GROUP_AT; empty_at, the snapshots in which it had lost all of its members; epochs, by how much its epoch has risen
    within WINDOW_MS up to the last rise; recent_epochs, the same lately; new_now, the members that are new in this
    snapshot; joined_now, those of them that replace no other member.
    """
    change, is_epoch = F.col("change"), F.col("change") == EPOCH
    is_empty = (change == "vanished") | ((change == "state") & F.col("after").isin(*_WITHOUT_MEMBERS))
    risen = F.greatest(F.col("after").try_cast("bigint") - F.col("before").try_cast("bigint"), F.lit(0))
    is_now = F.col("changed_id") == F.col("snapshot_id")
    found = changes.groupBy(*GROUP_AT).agg(
        F.collect_set(F.when(is_empty, F.col("changed_id"))).alias("empty_at"),
        F.collect_list(F.when(is_epoch, F.struct("changed_id", risen.alias("risen")))).alias("rises"),
        F.max(F.when(is_epoch, F.col("changed_id"))).alias("epoch_ms"),
        F.count_if(change.isin(JOINED, RESTARTED) & is_now).alias("new_now"),
        F.count_if((change == JOINED) & is_now).alias("joined_now"),
    )
    recent = F.filter("rises", lambda rise: rise["changed_id"] >= F.col("epoch_ms") - WINDOW_MS)
    none = F.lit(0).cast("bigint")
    lately = F.filter("rises", lambda rise: rise["changed_id"] > F.col("snapshot_id") - STILL_MS)

    def total(rises: Column) -> Column:
        return F.aggregate(rises, none, lambda sum_, rise: sum_ + F.coalesce(rise["risen"], none))

    return found.withColumns({"epochs": total(recent), "recent_epochs": total(lately)})
