"""The problems `rebalance_storm` and `flapping_member`: members of a group join and leave again and again."""

from __future__ import annotations

from collections.abc import Collection

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipeline.analytics.findings.group_kinds import NAMED
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
from pipeline.analytics.findings.problem import command, counted, in_shell, number, problem, sentence
from pipeline.analytics.keys import GROUP, GROUP_AT
from pipeline.common.epoch import HOUR_MS

STORM, FLAPPING = "rebalance_storm", "flapping_member"
_MEMBER = [*GROUP_AT, "who"]


def restless_groups(changes: DataFrame, group_members: DataFrame, snapshot_ids: Collection[int]) -> DataFrame:
    """The problems of groups in some snapshots whose members join and leave again and again.

    `changes` are the rows of GROUP_CHANGES from WINDOW_MS before the first snapshot on, `group_members` those of the
    snapshots. If one member causes the rebalances, the problem is `flapping_member`; else it is `rebalance_storm`.

    A group that has no members now and then is not one: these are the runs of a job. Neither is one in which every
    member is new (the snapshots may be taken as often as a job runs), or that has no other member than the one.
    """
    groups = F.broadcast(candidates(changes))
    windows = in_windows(changes.join(groups, GROUP, how="left_semi"), snapshot_ids)
    events, known = ends_and_beginnings(windows), facts(windows)
    members = _members(group_members.join(groups, GROUP, how="left_semi"))
    restless = _restless(rounds(events, _MEMBER), members, known)
    others = rounds(events.join(restless, _MEMBER, how="left_anti"), GROUP_AT)
    found = known.join(_summed(restless), GROUP_AT, how="left").join(others, GROUP_AT, how="left")
    return _described(_with_kind(found.join(_counts(members, restless), GROUP_AT)))


def _members(group_members: DataFrame) -> DataFrame:
    """Who is a member in each snapshot: _MEMBER."""
    members = group_members.where(F.col("member_id").isNotNull()).groupBy(*GROUP_AT, "member_id")
    named = members.agg(F.max("client_id").alias("client_id"), F.max("host").alias("host"))
    return named.select(*GROUP_AT, who().alias("who"))


def _restless(each: DataFrame, members: DataFrame, known: DataFrame) -> DataFrame:
    """The members that come and go more often than most: _MEMBER, stays, is_flapping (often enough, and until now).

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
    rows = each.join(usual, GROUP_AT).join(known.select(*GROUP_AT, "empty"), GROUP_AT)
    beyond = F.col("rounds") - F.col("usual") - F.col("empty")
    goes_on = F.col("recent") >= F.col("usual_recent") + 1
    is_flapping = (beyond >= ROUNDS) & goes_on
    # One round fewer: members that begin together do not reach a number of rounds in the same snapshot.
    return rows.where(beyond >= ROUNDS - 1).select(*_MEMBER, "stays", is_flapping.alias("is_flapping"))


def _summed(restless: DataFrame) -> DataFrame:
    """The restless members of each group: GROUP_AT, restless and flapping (numbers), worst, their stays, clients."""
    names = F.array_sort(F.collect_set(F.get_json_object("who", "$.client_id")))
    return restless.groupBy(*GROUP_AT).agg(
        F.count(F.lit(1)).alias("restless"),
        F.count_if("is_flapping").alias("flapping"),
        F.max(F.struct("stays", "who")).alias("worst"),
        F.sum("stays").alias("restless_stays"),
        F.slice(names, 1, NAMED).alias("clients"),
    )


def _counts(members: DataFrame, restless: DataFrame) -> DataFrame:
    """The members of each group in each snapshot: GROUP_AT, members, and steady, those that are not restless."""
    flagged = restless.select(*_MEMBER, F.lit(True).alias("is_restless"))
    return (
        members.join(flagged, _MEMBER, how="left")
        .groupBy(*GROUP_AT)
        .agg(F.count(F.lit(1)).alias("members"), F.count_if(F.col("is_restless").isNull()).alias("steady"))
    )


def _with_kind(rows: DataFrame) -> DataFrame:
    """The rows with a problem, with its kind and `all_stays`."""
    restless, flapping = (F.coalesce(name, F.lit(0)) for name in ("restless", "flapping"))
    members, empty = F.col("members"), F.col("empty")
    # With KIP-848, each member that joins or leaves raises the epoch, also between two snapshots.
    each_round = 2 * (members + F.coalesce("span", F.lit(0)))
    rises = (F.col("epochs") >= each_round * (GROUP_ROUNDS + 1 + empty)) & (F.col("recent_epochs") >= 2 * each_round)
    others = F.coalesce((F.col("rounds") >= GROUP_ROUNDS + empty) & (F.col("recent") >= 2), F.lit(False))
    is_storm = ((flapping > 0) & (restless > 1)) | ((members > 1) & (others | ((restless == 0) & rises)))
    is_member = (flapping == 1) & (restless == 1) & (F.col("steady") > 0)
    stays = F.coalesce("restless_stays", F.lit(0)) + F.coalesce("stays", F.lit(0))
    found = rows.where(members > F.col("new_now")).withColumns(
        {"kind": F.when(is_storm, STORM).when(is_member, FLAPPING), "all_stays": stays}
    )
    return found.where(F.col("kind").isNotNull())


def _described(rows: DataFrame) -> DataFrame:
    is_storm = F.col("kind") == STORM
    return problem(
        rows,
        kind=F.col("kind"),
        group=F.col("group_id"),
        severity=F.lit("warning"),
        magnitude=F.greatest("all_stays", F.floor(F.col("epochs") / 2)),
        summary=F.when(is_storm, _storm()).otherwise(_flapping()),
        evidence=_evidence(),
        advice=F.when(is_storm, _advice(_STORM_ADVICE)).otherwise(_advice(_FLAPPING_ADVICE)),
    )


_HOURS = f" within {WINDOW_MS // HOUR_MS} hours"


def _storm() -> Column:
    times, worst = F.col("all_stays"), F.col("worst.stays")
    most = F.when(worst.isNotNull(), sentence(", most often ", _name(), " (", counted(worst, "time"), ")"))
    left = sentence("members that had joined left again ", counted(times, "time"), _HOURS, most)
    rose = sentence("its epoch rose by ", number(F.col("epochs")), _HOURS)
    return sentence("The group rebalances again and again: ", F.when(times > 0, left).otherwise(rose), ".")


def _flapping() -> Column:
    name, times = _name(), counted(F.col("worst.stays"), "time")
    capital = F.concat(F.upper(F.substring(name, 1, 1)), F.substr(name, F.lit(2)))
    others = counted(F.col("steady"), "other member")
    return sentence(
        capital, " joins and leaves the group again and again: ", times, _HOURS, "; the group has ", others, "."
    )


def _of_worst(name: str) -> Column:
    return F.get_json_object("worst.who", f"$.{name}")


def _name() -> Column:
    """Who flaps most: "static member a", "client b at /10.0.0.1"."""
    client = sentence("client ", _of_worst("client_id"), F.concat(F.lit(" at "), _of_worst("host")))
    return F.coalesce(
        F.concat(F.lit("static member "), _of_worst("instance")),
        F.when(_of_worst("client_id").isNotNull(), client),
        F.concat(F.lit("member "), _of_worst("member_id")),
    )


def _evidence() -> dict[str, Column]:
    return {
        "short_stays": F.col("all_stays"),
        "window_ms": F.lit(WINDOW_MS),
        "members": F.col("members"),
        "flapping_members": F.col("restless"),
        "clients": F.col("clients"),
        "client_id": _of_worst("client_id"),
        "host": _of_worst("host"),
        "group_instance_id": _of_worst("instance"),
        "short_stays_of_client": F.col("worst.stays"),
        "epochs": F.when(F.col("epochs") > 0, F.col("epochs")),
    }


_FLAPPING_ADVICE = (
    "Read the log of this client. If it exceeds max.poll.interval.ms, lower max.poll.records or raise the interval; if "
    "its heartbeats fail, look for pauses of its process, or raise session.timeout.ms; if it crashes, repair it. "
    "The others suffer less with the CooperativeStickyAssignor (KIP-429) or group.protocol=consumer (KIP-848). See the "
    "members: kafka-consumer-groups --describe --members --group %s."
)
_STORM_ADVICE = (
    "Read the logs of the clients. If they exceed max.poll.interval.ms, lower max.poll.records or raise the interval; "
    "if heartbeats fail, raise session.timeout.ms; if an autoscaler adds and removes members, make it slower. A "
    "group.instance.id (KIP-345) avoids rebalances by restarts, and the CooperativeStickyAssignor (KIP-429) or "
    "group.protocol=consumer (KIP-848) makes them short. See the members: kafka-consumer-groups --describe --members "
    "--group %s."
)


def _advice(words: str) -> Column:
    return command(words, in_shell("group_id", "GROUP"))
