"""The problems `rebalance_storm` and `flapping_member`: members of a group join and leave again and again."""

from __future__ import annotations

from collections.abc import Collection

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipeline.analytics.findings.member_stays import (
    GROUP_ROUNDS,
    ROUNDS,
    WINDOW_MS,
    candidates,
    ends_and_beginnings,
    facts,
    in_windows,
    lower_quartile,
    rounds,
    who,
)
from pipeline.analytics.findings.problem import problem
from pipeline.analytics.findings.words.parts import NAMED
from pipeline.analytics.keys import GROUP, GROUP_AT

STORM, FLAPPING = "rebalance_storm", "flapping_member"
MEMBERS_A_STAY = 10
"""A group as a whole is a storm if it has a short stay for each so many members, or more: a large group that is scaled
by one member again and again has fewer."""
_FACTS = (
    "group_id",
    "group_type",
    "by_epochs",
    "epochs",
    "is_quiet",
    "quiet",
    "restless",
    "worst",
    "clients",
    "all_stays",
    "members",
    "steady",
)
_MEMBER = [*GROUP_AT, "who"]


def restless_groups(changes: DataFrame, group_members: DataFrame, snapshot_ids: Collection[int]) -> DataFrame:
    """The problems of groups in some snapshots whose members join and leave again and again.

    `changes` are the rows of GROUP_CHANGES from READ_MS before the first snapshot on, `group_members` those of the
    snapshots. If one member causes the rebalances, the problem is `flapping_member`; else it is `rebalance_storm`.

    A static member that restarts causes no rebalance (`is_quiet`), but may be a `flapping_member`.

    Two kinds of groups have no such problem: those that have no members now and then, which are the runs of a job, and
    those in which every member is new, if a member has joined or the group was seen without members: the snapshots may
    be taken as often as a job runs. A member that is alone is no `flapping_member` either.
    """
    groups = F.broadcast(candidates(changes))
    windows = in_windows(changes.join(groups, GROUP, how="left_semi"), snapshot_ids)
    events, known = ends_and_beginnings(windows), facts(windows)
    members = _members(group_members.join(groups, GROUP, how="left_semi"))
    restless = _restless(rounds(events, _MEMBER), members, known)
    found = known.join(_summed(restless), GROUP_AT, how="left").join(_of_groups(events, restless), GROUP_AT, how="left")
    return _described(_with_kind(found.join(_counts(members, restless), GROUP_AT)))


def _members(group_members: DataFrame) -> DataFrame:
    """Who is a member in each snapshot: _MEMBER, group_type."""
    members = group_members.where(F.col("member_id").isNotNull()).groupBy(*GROUP_AT, "member_id")
    names = ("client_id", "host", "instance_id", "group_type")
    named = members.agg(*(F.max(name).alias(name) for name in names))
    return named.select(*GROUP_AT, who().alias("who"), "group_type")


def _restless(each: DataFrame, members: DataFrame, known: DataFrame) -> DataFrame:
    """The members that come and go more often than most: _MEMBER, stays, is_flapping (often enough, and until now).

    is_quiet: it is a static member that restarts, for which the group does not rebalance.
    Rounds after which the group was empty do not count. What most members do at once, such as a deployment, does not
    make one of them restless.
    """
    quiet = members.join(each, _MEMBER, how="left_anti").groupBy(*GROUP_AT).agg(F.count(F.lit(1)).alias("quiet"))
    lists = (F.sort_array(F.collect_list(name)).alias(f"all_{name}") for name in ("rounds", "recent"))
    zeros = F.coalesce("quiet", F.lit(0))
    usual = each.groupBy(*GROUP_AT).agg(*lists).join(quiet, GROUP_AT, how="left")
    usual = usual.select(
        *GROUP_AT,
        lower_quartile("all_rounds", zeros).alias("usual"),
        lower_quartile("all_recent", zeros).alias("usual_recent"),
    )
    rows = each.join(usual, GROUP_AT).join(known.select(*GROUP_AT, "empty_at"), GROUP_AT)
    beyond = F.col("rounds") - F.col("usual") - F.size("empty_at")
    goes_on = F.col("recent") >= F.col("usual_recent") + 1
    is_flapping = (beyond >= ROUNDS) & goes_on
    # One round fewer: members that begin together do not reach a number of rounds in the same snapshot.
    is_restless, is_quiet = beyond >= ROUNDS - 1, F.col("loud_stays") < ROUNDS - 1
    return rows.where(is_restless).select(
        *_MEMBER, "stays", is_flapping.alias("is_flapping"), is_quiet.alias("is_quiet")
    )


def _of_groups(events: DataFrame, restless: DataFrame) -> DataFrame:
    """The rounds of the members of each group that are not restless: GROUP_AT and the columns of `rounds`.

    fewer is about the restless members: how many fewer of them are there now than at another time.
    """
    flagged = restless.select(*_MEMBER, F.when(F.col("is_quiet"), "quiet").otherwise("loud").alias("restless"))
    each = rounds(events.where(~F.col("is_quiet")).join(flagged, _MEMBER, how="left"), [*GROUP_AT, "restless"])
    others = F.max(F.when(F.col("restless").isNull(), F.struct("stays", "rounds", "recent", "span")))
    fewer = F.max(F.when(F.col("restless") == "loud", F.col("fewer")))
    sums = each.groupBy(*GROUP_AT).agg(others.alias("others"), fewer.alias("fewer"))
    return sums.select(*GROUP_AT, "others.*", "fewer")


def _summed(restless: DataFrame) -> DataFrame:
    """The restless members of each group: GROUP_AT, restless, flapping and quiet (numbers), worst, stays, clients."""
    is_quiet, is_flapping = F.col("is_quiet"), F.col("is_flapping")
    names = F.array_sort(F.collect_set(F.get_json_object("who", "$.client_id")))
    return restless.groupBy(*GROUP_AT).agg(
        F.count_if(~is_quiet).alias("restless"),
        F.count_if(~is_quiet & is_flapping).alias("flapping"),
        F.count_if(is_quiet & is_flapping).alias("quiet"),
        F.max(F.struct((~is_quiet).alias("is_loud"), "stays", "who")).alias("worst"),
        F.sum(F.when(~is_quiet, F.col("stays"))).alias("restless_stays"),
        F.sum(F.when(is_quiet, F.col("stays"))).alias("quiet_stays"),
        F.slice(names, 1, NAMED).alias("clients"),
    )


def _counts(members: DataFrame, restless: DataFrame) -> DataFrame:
    """The members of each group in each snapshot: GROUP_AT, group_type, members, and steady, which are not restless.

    not_loud are those that at most restart as static members.
    """
    flagged = restless.select(*_MEMBER, (~F.col("is_quiet")).alias("is_loud"))
    return (
        members.join(flagged, _MEMBER, how="left")
        .groupBy(*GROUP_AT)
        .agg(
            F.max("group_type").alias("group_type"),
            F.count(F.lit(1)).alias("members"),
            F.count_if(F.col("is_loud").isNull()).alias("steady"),
            F.count_if(~F.coalesce("is_loud", F.lit(False))).alias("not_loud"),
        )
    )


def _with_kind(rows: DataFrame) -> DataFrame:
    """The rows with a problem, with its kind, by_epochs (only they show it), is_quiet, `all_stays` and steady."""
    none = F.lit(0).cast("bigint")
    names = ("restless", "flapping", "quiet", "restless_stays", "quiet_stays", "stays", "span", "fewer")
    is_loud = F.col("restless") > 0
    rows = rows.withColumns({name: F.coalesce(name, none) for name in names})
    rows = rows.withColumn("steady", F.when(is_loud, F.col("not_loud")).otherwise(F.col("steady")))
    restless, flapping, members = F.col("restless"), F.col("flapping"), F.col("members")
    empty, stays = F.size("empty_at"), F.col("stays")
    # With KIP-848, each member that joins or leaves raises the epoch, also between two snapshots.
    each_round = 2 * (members + F.col("span"))
    rises = (F.col("epochs") >= each_round * (GROUP_ROUNDS + 1 + empty)) & (F.col("recent_epochs") >= 2 * each_round)
    goes_on = (F.col("rounds") >= GROUP_ROUNDS + empty) & (F.col("recent") >= 2)
    others = (members > 1) & F.coalesce(goes_on, F.lit(False)) & (MEMBERS_A_STAY * stays >= members)
    # A pod whose address a deployment changes is known as two members, which are never there at the same time.
    at_once = members - F.col("not_loud") + F.col("fewer")
    by_stays = ((flapping > 0) & (restless > 1) & (at_once > 1)) | others
    by_epochs = ~by_stays & (members > 1) & (restless == 0) & rises
    is_member = (flapping > 0) | ((restless == 0) & (F.col("quiet") > 0))
    kind = F.when(by_stays | by_epochs, STORM).when(is_member & (F.col("steady") > 0), FLAPPING)
    is_quiet = (restless == 0) & (kind == FLAPPING)
    all_stays = F.when(is_quiet, F.col("quiet_stays")).otherwise(F.col("restless_stays") + stays)
    may_be_a_job = (members <= F.col("new_now")) & ((F.col("joined_now") > 0) | (empty > 0))
    found = {"kind": kind, "by_epochs": by_epochs, "is_quiet": is_quiet, "all_stays": all_stays}
    return rows.withColumns(found).where(~may_be_a_job & F.col("kind").isNotNull())


def _described(rows: DataFrame) -> DataFrame:
    return problem(
        rows,
        kind=F.col("kind"),
        group=F.col("group_id"),
        severity=F.lit("warning"),
        magnitude=F.greatest("all_stays", F.floor(F.col("epochs") / 2)),
        facts=(*_FACTS, F.lit(WINDOW_MS).alias("window_ms")),
    )
