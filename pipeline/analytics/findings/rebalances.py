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
from pipeline.analytics.findings.problem import command, counted, for_streams, in_shell, number, problem, sentence
from pipeline.analytics.keys import GROUP, GROUP_AT
from pipeline.common.epoch import HOUR_MS
from pipeline.common.kafka_tools import tool

STORM, FLAPPING = "rebalance_storm", "flapping_member"
MEMBERS_A_STAY = 10
"""A group as a whole is a storm if it has a short stay for each so many members, or more: a large group that is scaled
by one member again and again has fewer."""
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
    others = rounds(events.where(~F.col("is_quiet")).join(restless, _MEMBER, how="left_anti"), GROUP_AT)
    found = known.join(_summed(restless), GROUP_AT, how="left").join(others, GROUP_AT, how="left")
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
    names = ("restless", "flapping", "quiet", "restless_stays", "quiet_stays", "stays", "span")
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
    by_stays = ((flapping > 0) & (restless > 1)) | others
    by_epochs = ~by_stays & (members > 1) & (restless == 0) & rises
    is_member = ((flapping == 1) & (restless == 1)) | ((restless == 0) & (F.col("quiet") > 0))
    kind = F.when(by_stays | by_epochs, STORM).when(is_member & (F.col("steady") > 0), FLAPPING)
    is_quiet = (restless == 0) & (kind == FLAPPING)
    all_stays = F.when(is_quiet, F.col("quiet_stays")).otherwise(F.col("restless_stays") + stays)
    may_be_a_job = (members <= F.col("new_now")) & ((F.col("joined_now") > 0) | (empty > 0))
    found = {"kind": kind, "by_epochs": by_epochs, "is_quiet": is_quiet, "all_stays": all_stays}
    return rows.withColumns(found).where(~may_be_a_job & F.col("kind").isNotNull())


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
        advice=_advice(),
    )


_HOURS = f" within {WINDOW_MS // HOUR_MS} hours"


def _storm() -> Column:
    times, worst = F.col("all_stays"), F.col("worst.stays")
    most = sentence(", most often ", _name(), " (", counted(worst, "time"), ")")
    named = F.when(F.col("restless") > 0, most)
    left = sentence(counted(times, "time"), _HOURS, ", a member left soon after it had joined", named)
    rose = sentence("its epoch rose by ", number(F.col("epochs")), _HOURS)
    return sentence("The group rebalances again and again: ", F.when(F.col("by_epochs"), rose).otherwise(left), ".")


def _flapping() -> Column:
    name, times = _name(), counted(F.col("worst.stays"), "time")
    capital = F.concat(F.upper(F.substring(name, 1, 1)), F.substr(name, F.lit(2)))
    are = sentence(
        number(F.col("quiet")), " static members restart again and again, most often ", _of_worst("instance")
    )
    restarts = F.when(F.col("quiet") > 1, are).otherwise(sentence(capital, " restarts again and again"))
    joins = sentence(capital, " joins and leaves the group again and again")
    others = counted(F.col("steady"), "other member")
    what = F.when(F.col("is_quiet"), restarts).otherwise(joins)
    return sentence(what, ": ", times, _HOURS, "; the group has ", others, ".")


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
        "flapping_members": F.when(F.col("is_quiet"), F.col("quiet")).otherwise(F.col("restless")),
        "clients": F.col("clients"),
        "client_id": _of_worst("client_id"),
        "host": _of_worst("host"),
        "group_instance_id": _of_worst("instance"),
        "short_stays_of_client": F.col("worst.stays"),
        "epochs": F.when(F.col("epochs") > 0, F.col("epochs")),
    }


_MEMBERS = "See the members: " + tool("consumer-groups", "--describe --group %s --members --verbose")
_POLLS = "exceeds max.poll.interval.ms, lower max.poll.records or raise the interval; "
_QUIET_ADVICE = (
    "Read the log of this client, and find out why its process ends: a crash, too little memory, a failed health "
    "check. Because it has a group.instance.id (KIP-345), the group does not rebalance, but nobody reads its "
    f"partitions until it is back. {_MEMBERS}"
)
_SESSION = {
    # With KIP-848, consumers refuse session.timeout.ms.
    True: "raise consumer.session.timeout.ms, a setting of the group",
    False: "raise session.timeout.ms",
}
_OTHER_PROTOCOL = (
    "the CooperativeStickyAssignor (KIP-429; two rolling restarts if partition.assignment.strategy does not have it "
    "yet: the first adds it, the second removes the others) or group.protocol=consumer (KIP-848)"
)


def _flapping_advice(is_kip848: bool) -> str:
    return (
        f"Read the log of this client. If it {_POLLS}if its heartbeats fail, look for pauses of its process, or "
        f"{_SESSION[is_kip848]}; if it crashes, repair it. "
        f"{'' if is_kip848 else f'The others suffer less with {_OTHER_PROTOCOL}. '}{_MEMBERS}"
    )


def _storm_advice(is_kip848: bool) -> str:
    shorter = "" if is_kip848 else f", and {_OTHER_PROTOCOL} makes them short"
    return (
        f"Read the logs of the clients. If one {_POLLS}if heartbeats fail, {_SESSION[is_kip848]}; if an autoscaler "
        f"adds and removes members, make it slower. A group.instance.id (KIP-345) avoids rebalances by "
        f"restarts{shorter}. {_MEMBERS}"
    )


def _advice() -> Column:
    is_kip848 = F.col("group_type").eqNullSafe("consumer")
    is_storm = F.col("kind") == STORM

    def words(text: str) -> Column:
        return for_streams(command(text, in_shell("group_id", "GROUP")))

    def of_group(is_kip848: bool) -> Column:
        return F.when(is_storm, words(_storm_advice(is_kip848))).otherwise(words(_flapping_advice(is_kip848)))

    protocol = F.when(is_kip848, of_group(True)).otherwise(of_group(False))
    return F.when(F.col("is_quiet"), words(_QUIET_ADVICE)).otherwise(protocol)
