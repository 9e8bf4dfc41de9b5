"""How often members of a group joined and left again, from rows of GROUP_CHANGES.

The number of changes does not show a problem: while 50 members are restarted one by one, something changes in each
snapshot for an hour. But each of them is replaced once, and the new one stays. So *short stays* are counted: those of
members that joined and left again within the window. They come in *rounds*: in one round, all members that come and go
do so once.
"""

from __future__ import annotations

from collections.abc import Collection

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pipeline.analytics.keys import GROUP, GROUP_AT
from pipeline.common.epoch import HOUR_MS, MINUTE_MS

WINDOW_MS = 2 * HOUR_MS
"""The time over which stays are counted, up to a snapshot."""
ROUNDS, GROUP_ROUNDS = 3, 5
"""The fewest rounds that are a problem: of one member beyond those of the others, and of a group."""
STILL_MS = 40 * MINUTE_MS
"""A problem lasts as long as it goes on within this time: this is the longest regular stay that gives ROUNDS."""
JOINED, LEFT, RESTARTED, EPOCH = "joined", "left", "restarted", "epoch"
ENDINGS = (LEFT, RESTARTED, EPOCH)
"""A group without one of these changes in ROUNDS snapshots of the window has no problem."""
_WITHOUT_MEMBERS = ("Empty", "Dead")
_UUID = r"-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"


def in_windows(changes: DataFrame, snapshot_ids: Collection[int]) -> DataFrame:
    """The changes before each of some snapshots: GROUP_AT of the snapshot, and changed_id, when it was first seen.

    Both a late snapshot and its successor may have a change, see GROUP_CHANGES. It is counted once.
    """
    names = ("change", "before", "after", "earlier_snapshot_id")
    first = F.min(F.struct(F.col("snapshot_id").alias("changed_id"), "client_id", "host")).alias("first")
    once = changes.groupBy(*GROUP, *names).agg(first).select(*GROUP, *names, "first.*")
    ids = F.array(*map(F.lit, sorted(snapshot_ids))).cast("array<bigint>")
    changed = F.col("changed_id")
    these = F.filter(ids, lambda at: (at >= changed) & (at - WINDOW_MS < changed))
    return once.withColumn("snapshot_id", F.explode(these))


def candidates(changes: DataFrame) -> DataFrame:
    """The groups that may have a problem: GROUP."""
    endings = changes.where(F.col("change").isin(*ENDINGS))
    return endings.groupBy(*GROUP).agg(F.count_distinct("snapshot_id").alias("n")).where(F.col("n") >= ROUNDS).drop("n")


def ends_and_beginnings(changes: DataFrame) -> DataFrame:
    """A row for each stay that began or ended: GROUP_AT, changed_id, who, begins, is_short (a short stay has ended).

    `changes` are those of `in_windows`.
    """

    def event(member: str, begins: bool) -> Column:
        return F.when(
            F.col(member).isNotNull(), F.struct(F.col(member).alias("member_id"), F.lit(begins).alias("begins"))
        )

    members = changes.where(F.col("change").isin(JOINED, LEFT, RESTARTED))
    events = members.select(
        *GROUP_AT,
        "changed_id",
        "client_id",
        "host",
        F.inline(F.array_compact(F.array(event("before", False), event("after", True)))),
    )
    of_member = Window.partitionBy(*GROUP_AT, "member_id")
    first = F.min(F.when(F.col("begins"), F.col("changed_id"))).over(of_member)
    is_short = F.coalesce(~F.col("begins") & (F.col("changed_id") > first), F.lit(False))
    return events.select(*GROUP_AT, "changed_id", who().alias("who"), "begins", is_short.alias("is_short"))


def who() -> Column:
    """Who a member is, as JSON: its instance, else its client_id and host, else its member_id.

    A member that joins again has another member_id, except with KIP-848. In the classic protocol, the member_id begins
    with the group.instance.id, or else with the client.id.
    """
    named = F.regexp_extract("member_id", rf"(?s)\A(.+){_UUID}\z", 1)
    is_static = (named != "") & ~named.eqNullSafe(F.col("client_id"))
    has_address = ~is_static & F.col("client_id").isNotNull() & F.col("host").isNotNull()
    return F.to_json(
        F.struct(
            F.when(is_static, named).alias("instance"),
            F.col("client_id"),
            F.when(has_address, F.col("host")).alias("host"),
            F.when(~is_static & ~has_address, F.col("member_id")).alias("member_id"),
        )
    )


def rounds(events: DataFrame, by: Collection[str]) -> DataFrame:
    """The short stays of each key `by`: stays, their number; rounds; recent, the rounds that ended lately; and span.

    A round is as many stays as members come and go: the most of those that are gone now, those that have come and are
    still there, and those that were there beyond the fewest at a time (span). So neither several deployments of many
    members nor a group that is scaled up and down count more than once each.
    """
    at_once = events.groupBy(*by, "changed_id").agg(
        F.count_if("begins").alias("begun"),
        F.count_if(~F.col("begins")).alias("ended"),
        F.count_if("is_short").alias("short"),
    )
    in_order = Window.partitionBy(*by).orderBy("changed_id")
    there = F.sum(F.col("begun") - F.col("ended")).over(in_order)
    sums = (
        at_once.withColumn("there", there)
        .groupBy(*by)
        .agg(
            F.sum("short").alias("stays"),
            F.sum("begun").alias("begun"),
            F.sum("ended").alias("ended"),
            (F.greatest(F.max("there"), F.lit(0)) - F.least(F.min("there"), F.lit(0))).alias("span"),
            F.sum(F.when(F.col("changed_id") > F.col("snapshot_id") - STILL_MS, F.col("ended"))).alias("lately"),
        )
    )
    stays = F.col("stays")
    members = F.greatest(F.col("begun") - stays, F.col("ended") - stays, "span", F.lit(1))
    lately = F.coalesce("lately", F.lit(0))
    return sums.select(*by, "stays", "span", (stays / members).alias("rounds"), (lately / members).alias("recent"))


def lower_quartile(ascending: str, zeros: Column) -> Column:
    """The lower quartile of an array and of so many zeros: what most members have in common, such as a deployment."""
    number = F.floor((zeros + F.size(ascending) - 1) / 4)
    return F.when(number < zeros, 0.0).otherwise(F.get(ascending, (number - zeros).cast("int")))


def facts(changes: DataFrame) -> DataFrame:
    """What else the changes of `in_windows` show of each group.

    GROUP_AT; empty, in how many snapshots it had lost all of its members; epochs, by how much its epoch has risen;
    recent_epochs, the same lately; new_now, the members that are new in this snapshot.
    """
    change, is_epoch = F.col("change"), F.col("change") == EPOCH
    is_empty = (change == "vanished") | ((change == "state") & F.col("after").isin(*_WITHOUT_MEMBERS))
    risen = F.greatest(F.col("after").try_cast("bigint") - F.col("before").try_cast("bigint"), F.lit(0))
    is_recent = F.col("changed_id") > F.col("snapshot_id") - STILL_MS
    is_new = change.isin(JOINED, RESTARTED) & (F.col("changed_id") == F.col("snapshot_id"))
    return changes.groupBy(*GROUP_AT).agg(
        F.count_distinct(F.when(is_empty, F.col("changed_id"))).alias("empty"),
        F.coalesce(F.sum(F.when(is_epoch, risen)), F.lit(0)).alias("epochs"),
        F.coalesce(F.sum(F.when(is_epoch & is_recent, risen)), F.lit(0)).alias("recent_epochs"),
        F.count_if(is_new).alias("new_now"),
    )
