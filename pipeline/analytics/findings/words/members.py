"""The words about members that come and go, and about the partitions that members have.

They are those of rebalance_storm, flapping_member, idle_member and uneven_assignment.
"""

from __future__ import annotations

import json
import re
from typing import Any

from pipeline.analytics.findings.words.parts import (
    Facts,
    Words,
    counted,
    for_streams,
    in_shell,
    part,
    percent,
    rounded,
    sentence,
)
from pipeline.common.epoch import HOUR_MS
from pipeline.common.kafka_tools import tool

_POLLS = "exceeds max.poll.interval.ms, lower max.poll.records or raise the interval; "
_COOPERATIVE = (
    "the CooperativeStickyAssignor (KIP-429; two rolling restarts if partition.assignment.strategy does not have it "
    "yet: the first adds it, the second removes the others) or group.protocol=consumer (KIP-848)"
)
_EVEN = ("uniform", "cooperative-sticky")
"""The assignors that the advice recommends."""
_TOPIC = re.compile("[A-Za-z0-9._-]+")


def rebalance_storm(facts: Facts) -> Words:
    """A group that rebalances again and again."""
    hours = _within(facts)
    if facts["by_epochs"]:
        what = f"its epoch rose by {facts['epochs']:,}{hours}"
    else:
        worst = counted(facts["worst"]["stays"], "time") if facts["restless"] > 0 else None
        most = None if worst is None else f", most often {_name(_who(facts))} ({worst})"
        left = f"{counted(facts['all_stays'], 'time')}{hours}, a member left soon after it had joined"
        what = sentence(left, most)
    return Words(f"The group rebalances again and again: {what}.", _of_members(facts), _storm_advice(facts))


def flapping_member(facts: Facts) -> Words:
    """A member that joins and leaves again and again, or static members that restart again and again."""
    who, is_quiet = _who(facts), facts["is_quiet"]
    name = _name(who)
    what = f"{name[:1].upper()}{name[1:]} {'restarts' if is_quiet else 'joins and leaves the group'} again and again"
    if is_quiet and facts["quiet"] > 1:
        what = f"{facts['quiet']:,} static members restart again and again, most often {who['instance']}"
    times, others = counted(facts["worst"]["stays"], "time"), counted(facts["steady"], "other member")
    advice = _quiet_advice(facts) if is_quiet else _flapping_advice(facts)
    return Words(f"{what}: {times}{_within(facts)}; the group has {others}.", _of_members(facts), advice)


def _within(facts: Facts) -> str:
    return f" within {facts['window_ms'] // HOUR_MS} hours"


def _who(facts: Facts) -> Facts:
    """The member that comes and goes most often; nothing is known if there is none."""
    worst = facts["worst"]
    return Facts() if worst is None else json.loads(worst["who"], object_hook=Facts)


def _name(who: Facts) -> str:
    """Who it is: "static member a", "client b at /10.0.0.1"."""
    if who["instance"] is not None:
        return f"static member {who['instance']}"
    if who["client_id"] is not None:
        return sentence("client ", who["client_id"], part(" at ", who["host"]))
    return f"member {who['member_id']}"


def _of_members(facts: Facts) -> dict[str, Any]:
    who, worst = _who(facts), facts["worst"] or Facts()
    return {
        "short_stays": facts["all_stays"],
        "window_ms": facts["window_ms"],
        "members": facts["members"],
        "flapping_members": facts["quiet"] if facts["is_quiet"] else facts["restless"],
        "clients": facts["clients"],
        "client_id": who["client_id"],
        "host": who["host"],
        "group_instance_id": who["instance"],
        "short_stays_of_client": worst["stays"],
        "epochs": facts["epochs"] or None,
    }


def _see_members(facts: Facts) -> str:
    group = in_shell(facts["group_id"], "GROUP")
    see = f"See the members: {tool('consumer-groups', f'--describe --group {group} --members --verbose')}"
    return for_streams(see, facts["group_type"])


def _longer_session(facts: Facts) -> str:
    if facts["group_type"] == "consumer":  # with KIP-848, consumers refuse session.timeout.ms
        return "raise consumer.session.timeout.ms, a setting of the group"
    return "raise session.timeout.ms"


def _quiet_advice(facts: Facts) -> str:
    return (
        "Read the log of this client, and find out why its process ends: a crash, too little memory, a failed health "
        "check. Because it has a group.instance.id (KIP-345), the group does not rebalance, but nobody reads its "
        f"partitions until it is back. {_see_members(facts)}"
    )


def _flapping_advice(facts: Facts) -> str:
    less = "" if facts["group_type"] == "consumer" else f"The others suffer less with {_COOPERATIVE}. "
    return (
        f"Read the log of this client. If it {_POLLS}if its heartbeats fail, look for pauses of its process, or "
        f"{_longer_session(facts)}; if it crashes, repair it. {less}{_see_members(facts)}"
    )


def _storm_advice(facts: Facts) -> str:
    shorter = "" if facts["group_type"] == "consumer" else f", and {_COOPERATIVE} makes them short"
    return (
        f"Read the logs of the clients. If one {_POLLS}if heartbeats fail, {_longer_session(facts)}; if an autoscaler "
        f"adds and removes members, make it slower. A group.instance.id (KIP-345) avoids rebalances by "
        f"restarts{shorter}. {_see_members(facts)}"
    )


def idle_member(facts: Facts) -> Words:
    """Members without a partition, because there are not enough."""
    idle, topics = facts["idle"], facts["topics"]
    have = "has" if idle == 1 else "have"
    topic = topics[0] if facts["topics_affected"] == 1 else None
    named = topic if topic is not None and _TOPIC.fullmatch(topic) else "TOPIC"
    alter = tool("topics", f"--alter --topic {named} --partitions {'NUMBER' if topic is None else facts['members']}")
    return Words(
        f"{idle:,} of {counted(facts['members'], 'member')} {have} no partition, because the topics of the group have "
        f"{counted(facts['of_partitions'], 'partition')}.",
        _of_assignment(facts),
        "Such a member does nothing until another one leaves. If it is not a standby on purpose, remove it, or add "
        f"partitions, unless consumers rely on which partition a key is in: {alter}",
    )


def uneven_assignment(facts: Facts) -> Words:
    """Members with more than their share of the partitions, and most of the lag."""
    most, idle = facts["most"], facts["idle"]
    none = f", and {idle:,} of {counted(facts['members'], 'member')} {'has' if idle == 1 else 'have'} none"
    return Words(
        sentence(
            "The assignment is uneven: one member",
            part(" (client ", most["client"], ")"),
            f" has {most['partitions']:,} of {counted(facts['of_partitions'], 'partition')}",
            none if idle else None,
            f"; members with more than {facts['fair']:,} have {percent(facts['lag_share'])} of the lag.",
        ),
        {
            **_of_assignment(facts),
            "partitions_of_one_member": most["partitions"],
            "client": most["client"],
            "members_with_more_than_their_share": facts["over"],
            "their_lag_share": rounded(facts["lag_share"], 2),
        },
        _uneven_advice(facts),
    )


def _of_assignment(facts: Facts) -> dict[str, Any]:
    return {
        "members": facts["members"],
        "members_without_partition": facts["idle"],
        "clients_without_partition": facts["idle_clients"] if facts["idle"] else None,
        "partitions": facts["of_partitions"],
        "topics": facts["topics"],
        "assignor": facts["assignor"],
    }


def _uneven_advice(facts: Facts) -> str:
    cause = (
        "The RangeAssignor shares each topic by itself and begins with the same members, which therefore have most of "
        "the partitions if there are many topics. "
    )
    even = ", which shares the partitions of all topics evenly"
    change = (
        f"Set partition.assignment.strategy to the CooperativeStickyAssignor (KIP-429){even}. If it is not in the list "
        "yet, this takes two rolling restarts: the first adds it to the list, the second removes the others. "
    )
    if facts["group_type"] == "consumer":
        # With KIP-848, the broker assigns the partitions, and consumers refuse partition.assignment.strategy.
        change = f"Set group.remote.assignor to uniform{even}. "
    group = in_shell(facts["group_id"], "GROUP")
    return sentence(
        cause if facts["assignor"] == "range" else None,
        None if facts["assignor"] in _EVEN else change,
        f"See the members: {tool('consumer-groups', f'--describe --group {group} --members --verbose')}",
    )
