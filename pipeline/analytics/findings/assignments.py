"""The problems `idle_member` and `uneven_assignment`: how the partitions of a group are shared among its members."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipeline.analytics.findings.group_kinds import NAMED
from pipeline.analytics.findings.problem import command, counted, in_shell, number, problem, sentence
from pipeline.analytics.keys import GROUP, GROUP_AT, TOPIC_AT
from pipeline.analytics.status.rules import FALLING_BEHIND
from pipeline.common.epoch import MINUTE_MS
from pipeline.common.kafka_tools import tool

STABLE_MS = 30 * MINUTE_MS
"""A group is judged if neither its members nor their partitions have changed for this long: a deployment has both
members without partitions and members with many."""
MOST_LAG = 0.5
"""An uneven assignment matters if the members with more than their share have more than this share of the lag."""
IDLE, UNEVEN = "idle_member", "uneven_assignment"
_BALANCED_OTHERWISE = "stream"
"""The assignor of Kafka Streams, which spreads tasks and their state. A member without a partition may have standby
tasks."""
_EVEN = ("uniform", "cooperative-sticky")
"""The assignors that the advice recommends."""


def assignment_problems(
    group_members: DataFrame, groups: DataFrame, lag: DataFrame, watermarks: DataFrame, changes: DataFrame
) -> DataFrame:
    """The problems of the assignments in the snapshots of the rows, which are rows of these tables.

    `changes` are the rows of GROUP_CHANGES from STABLE_MS before the first snapshot on. A group is only judged if it is
    stable, all of its members are known to subscribe to the same topics by name, and these topics were read: other
    members may have other partitions for good reasons.
    """
    falling = groups.where(F.coalesce(F.element_at("statuses", FALLING_BEHIND), F.lit(0)) > 0)
    rows = group_members.where((F.col("protocol") == "consumer") & (F.col("state") == "Stable"))
    idle = rows.where(F.col("member_id").isNotNull() & F.col("topic").isNull())
    suspects = F.broadcast(idle.select(*GROUP_AT).union(falling.select(*GROUP_AT)).distinct())
    members = _members(rows.join(suspects, GROUP_AT, how="left_semi"), lag.join(suspects, GROUP_AT, how="left_semi"))
    shared = _shared(members, watermarks)
    known = falling.select(*GROUP_AT, F.col("consumer_lag").alias("group_lag"))
    unchanged = shared.join(just_changed(shared, changes), GROUP_AT, how="left_anti")
    return _described(unchanged.join(known, GROUP_AT, how="left"))


def _members(rows: DataFrame, lag: DataFrame) -> DataFrame:
    """A row for each member: GROUP_AT, member_id, client, and what is known of it; topics, partitions, and its lag."""
    of_client = sentence(F.col("client_id"), F.concat(F.lit(" at "), F.col("host")))
    members = rows.groupBy(*GROUP_AT, "member_id").agg(
        F.max(of_client).alias("client"),
        F.max("assignor").alias("assignor"),
        F.max("group_type").alias("group_type"),
        F.max(F.when(F.col("subscribed_regex").isNull(), F.array_sort("subscribed_topics"))).alias("topics"),
        F.count("error").alias("errors"),
        F.count("topic").alias("partitions"),
    )
    lags = lag.groupBy(*GROUP_AT, "member_id").agg(F.try_sum("consumer_lag").alias("lag"))
    return members.join(lags, [*GROUP_AT, "member_id"], how="left")


def _shared(members: DataFrame, watermarks: DataFrame) -> DataFrame:
    """A row for each group whose members subscribe to the same topics: how many of its partitions they have.

    fair is what the member with the most must have.
    """
    groups = members.groupBy(*GROUP_AT).agg(
        F.count(F.lit(1)).alias("members"),
        F.max("assignor").alias("assignor"),
        F.max("group_type").alias("group_type"),
        F.min("topics").alias("topics"),
        (F.count("topics") == F.count(F.lit(1))).alias("are_known"),
        (F.count_distinct("topics") == 1).alias("are_alike"),
        F.sum("errors").alias("errors"),
        F.sort_array(F.collect_list(F.struct("partitions", F.coalesce("lag", F.lit(0)).alias("lag"), "client"))).alias(
            "each"
        ),
    )
    alike = groups.where(F.col("are_known") & F.col("are_alike") & (F.col("errors") == 0))
    sizes = watermarks.where(F.col("topic").isNotNull()).groupBy(*TOPIC_AT).agg(F.count(F.lit(1)).alias("size"))
    of_topics = alike.select(*GROUP_AT, F.explode("topics").alias("topic"), F.size("topics").alias("topics_named"))
    total = of_topics.join(sizes, TOPIC_AT).groupBy(*GROUP_AT, "topics_named")
    found = total.agg(F.sum("size").alias("of_partitions"), F.count(F.lit(1)).alias("topics_read"))
    complete = found.where(F.col("topics_named") == F.col("topics_read")).drop("topics_named", "topics_read")
    fair = F.ceil(F.col("of_partitions") / F.col("members"))
    return alike.join(complete, GROUP_AT).withColumn("fair", fair)


def just_changed(groups: DataFrame, changes: DataFrame) -> DataFrame:
    """Those of some groups (GROUP_AT) whose members or assignments have changed within STABLE_MS before the snapshot.

    `changes` are the rows of GROUP_CHANGES from STABLE_MS before the first of the snapshots on.
    """
    moves = changes.where(F.col("change") != "commits_removed")
    changed = moves.select(*GROUP, F.col("snapshot_id").alias("changed_id")).distinct()
    at = F.col("snapshot_id")
    is_recent = (F.col("changed_id") <= at) & (F.col("changed_id") > at - STABLE_MS)
    return groups.select(*GROUP_AT).join(changed, GROUP).where(is_recent).select(*GROUP_AT).distinct()


def _described(rows: DataFrame) -> DataFrame:
    idle = F.filter("each", lambda m: m["partitions"] == 0)
    over = F.filter("each", lambda m: m["partitions"] > F.col("fair"))
    lag_over = F.aggregate(over, F.lit(0).cast("bigint"), lambda total, m: total + m["lag"])
    counts = rows.withColumns(
        {
            "idle": F.size(idle),
            "over": F.size(over),
            "most": F.array_max("each"),
            "idle_clients": F.array_sort(F.array_distinct(F.array_compact(F.transform(idle, lambda m: m["client"])))),
            "lag_share": lag_over / F.when(F.col("group_lag") > 0, F.col("group_lag")),
        }
    )
    has_enough = F.col("of_partitions") >= F.col("members")
    is_uneven = (F.col("idle") > 0) | (F.col("most.partitions") >= 2 * F.col("fair"))
    matters = F.col("lag_share") > MOST_LAG
    kind = F.when(~has_enough & (F.col("idle") > 0), IDLE).when(has_enough & is_uneven & matters, UNEVEN)
    is_judged = ~F.col("assignor").eqNullSafe(_BALANCED_OTHERWISE)
    return _as_problems(counts.withColumn("kind", kind).where(is_judged & F.col("kind").isNotNull()))


def _as_problems(rows: DataFrame) -> DataFrame:
    is_idle = F.col("kind") == IDLE
    return problem(
        rows,
        kind=F.col("kind"),
        group=F.col("group_id"),
        topic=F.when(F.size("topics") == 1, F.col("topics")[0]),
        severity=F.lit("info"),
        magnitude=F.when(is_idle, F.col("idle")).otherwise(F.col("most.partitions")),
        summary=F.when(is_idle, _idle()).otherwise(_uneven()),
        evidence={
            "members": F.col("members"),
            "members_without_partition": F.col("idle"),
            "clients_without_partition": F.when(F.col("idle") > 0, F.slice("idle_clients", 1, NAMED)),
            "partitions": F.col("of_partitions"),
            "topics": F.slice("topics", 1, NAMED),
            "assignor": F.col("assignor"),
            "partitions_of_one_member": F.when(~is_idle, F.col("most.partitions")),
            "client": F.when(~is_idle, F.col("most.client")),
            "members_with_more_than_their_share": F.when(~is_idle, F.col("over")),
            "their_lag_share": F.when(~is_idle, F.round("lag_share", 2)),
        },
        advice=F.when(is_idle, _idle_advice()).otherwise(_uneven_advice()),
    )


def _idle() -> Column:
    have = F.when(F.col("idle") == 1, " has").otherwise(" have")
    members = sentence(number(F.col("idle")), " of ", counted(F.col("members"), "member"), have, " no partition")
    partitions = counted(F.col("of_partitions"), "partition")
    return sentence(members, ", because the topics of the group have ", partitions, ".")


def _uneven() -> Column:
    one = F.concat(F.lit(" (client "), F.col("most.client"), F.lit(")"))
    most = sentence("one member", one, " has ", number(F.col("most.partitions")))
    none = F.concat(F.lit(", and "), number(F.col("idle")), F.lit(" of "), counted(F.col("members"), "member"))
    have = F.when(F.col("idle") == 1, " has none").otherwise(" have none")
    share = sentence(F.format_number(100 * F.col("lag_share"), 0), " % of the lag")
    over = sentence("; members with more than ", number(F.col("fair")), " have ", share)
    idle = F.when(F.col("idle") > 0, F.concat(none, have))
    partitions = counted(F.col("of_partitions"), "partition")
    return sentence("The assignment is uneven: ", most, " of ", partitions, idle, over, ".")


def _idle_advice() -> Column:
    words = (
        "Such a member does nothing until another one leaves. If it is not a standby on purpose, remove it, or add "
        "partitions, unless consumers rely on which partition a key is in: "
        + tool("topics", "--alter --topic %s --partitions %s")
    )
    topic = F.when(F.size("topics") == 1, F.col("topics")[0])
    named = F.when(topic.rlike(r"\A[A-Za-z0-9._-]+\z"), topic).otherwise("TOPIC")
    return command(words, named, F.when(topic.isNotNull(), F.col("members").cast("string")).otherwise("NUMBER"))


def _uneven_advice() -> Column:
    by_range = (
        "The RangeAssignor shares each topic by itself and begins with the same members, which therefore have most of "
        "the partitions if there are many topics. "
    )
    even = ", which shares the partitions of all topics evenly"
    # With KIP-848, the broker assigns the partitions, and consumers refuse partition.assignment.strategy.
    remote = f"Set group.remote.assignor to uniform{even}. "
    local = (
        f"Set partition.assignment.strategy to the CooperativeStickyAssignor (KIP-429){even}. If it is not in the list "
        "yet, this takes two rolling restarts: the first adds it to the list, the second removes the others. "
    )
    is_remote = F.col("group_type").eqNullSafe("consumer")
    has_it = F.coalesce(F.col("assignor").isin(*_EVEN), F.lit(False))
    change = F.when(~has_it, F.when(is_remote, remote).otherwise(local))
    members = "See the members: " + tool("consumer-groups", "--describe --group %s --members --verbose")
    cause = F.when(F.col("assignor") == "range", by_range)
    return sentence(cause, change, command(members, in_shell("group_id", "GROUP")))
