"""The problems `idle_member` and `uneven_assignment`: how the partitions of a group are shared among its members."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipeline.analytics.findings.problem import problem
from pipeline.analytics.findings.words.parts import LISTED, NAMED
from pipeline.analytics.keys import GROUP, GROUP_AT, TOPIC_AT
from pipeline.analytics.lag.ladder import counted_lag
from pipeline.analytics.status.rules import FALLING_BEHIND
from pipeline.common.epoch import MINUTE_MS

STABLE_MS = 30 * MINUTE_MS
"""A group is judged if neither its members nor their partitions have changed for this long: a deployment has both
members without partitions and members with many."""
MOST_LAG = 0.5
"""An uneven assignment matters if the members with more than their share have more than this share of the lag."""
IDLE, UNEVEN = "idle_member", "uneven_assignment"
_BALANCED_OTHERWISE = "stream"
"""The assignor of Kafka Streams, which spreads tasks and their state. A member without a partition may have standby
tasks."""


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
    of_client = F.concat_ws("", "client_id", F.concat(F.lit(" at "), F.col("host")))
    members = rows.groupBy(*GROUP_AT, "member_id").agg(
        F.max(of_client).alias("client"),
        F.max("assignor").alias("assignor"),
        F.max("group_type").alias("group_type"),
        F.max(F.when(F.col("subscribed_regex").isNull(), F.array_sort("subscribed_topics"))).alias("topics"),
        F.count("error").alias("errors"),
        F.count("topic").alias("partitions"),
    )
    lags = lag.groupBy(*GROUP_AT, "member_id").agg(F.try_sum(F.expr(counted_lag("consumer_lag"))).alias("lag"))
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
    clients = F.transform(idle, lambda m: m["client"])
    over = F.filter("each", lambda m: m["partitions"] > F.col("fair"))
    lag_over = F.aggregate(over, F.lit(0).cast("bigint"), lambda total, m: total + m["lag"])
    counts = rows.withColumns(
        {
            "idle": F.size(idle),
            "over": F.size(over),
            "most": F.array_max("each"),
            "idle_clients": F.slice(F.array_sort(F.array_distinct(F.array_compact(clients))), 1, NAMED),
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
        facts=(
            "group_id",
            "group_type",
            "members",
            "idle",
            "idle_clients",
            "of_partitions",
            F.slice("topics", 1, LISTED).alias("topics"),
            F.size("topics").alias("topics_affected"),
            "assignor",
            "most",
            "fair",
            "over",
            "lag_share",
        ),
    )
