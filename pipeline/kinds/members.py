"""The kinds of findings about members that come and go, and about the partitions that members have."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, TypeVar

from pipeline.common.epoch import HOUR_MS
from pipeline.common.kafka_tools import tool
from pipeline.kinds.command_lines import CommandContext, in_shell
from pipeline.kinds.group_commands import Commands, show_members
from pipeline.kinds.kind import Clock, Facts, Finding, Headline, Kind, SubjectType, Words
from pipeline.kinds.text import counted, figure, for_streams, part, percent, rounded, sentence, some

_POLLS = "exceeds max.poll.interval.ms, lower max.poll.records or raise the interval; "
_COOPERATIVE = (
    "the CooperativeStickyAssignor (KIP-429; two rolling restarts if partition.assignment.strategy does not have it "
    "yet: the first adds it, the second removes the others) or group.protocol=consumer (KIP-848)"
)
_EVEN = ("uniform", "cooperative-sticky")
"""The assignors that the advice recommends."""
_TOPIC = re.compile("[A-Za-z0-9._-]+")
_KEYS_OF_MEMBERS = (
    "`short_stays` of all members within `window_ms`; `members` of the group, `flapping_members` among them, their "
    "`clients`; `client_id`, `host` and `group_instance_id` of the one that flaps most, with `short_stays_of_client`; "
    "`epochs` by which the group's epoch has risen"
)
_KEYS_OF_ASSIGNMENTS = (
    "`members`, `members_without_partition` and their clients (`clients_without_partition`), `partitions`, `topics`, "
    "`assignor`"
)


class Member(Facts):
    """Who a member is: a static member, else a client at a host, else a member id."""

    instance: str | None = None
    client_id: str | None = None
    host: str | None = None
    member_id: str | None = None

    def name(self) -> str:
        """Such as "static member a", "client b at /10.0.0.1"."""
        if self.instance is not None:
            return f"static member {self.instance}"
        if self.client_id is not None:
            return sentence("client ", self.client_id, part(" at ", self.host))
        return f"member {self.member_id}"


class RestlessMember(Facts):
    """The member that comes and goes most often: how many short stays it had, and who it is, as JSON."""

    is_loud: bool = False
    stays: int | None = None
    who: str

    def member(self) -> Member:
        """Who it is."""
        return Member.model_validate_json(self.who)


class RestlessFacts(Facts):
    """How often members of a group joined and left.

    Attributes:
        all_stays: short stays within window_ms; epochs: by how much the group's epoch has risen.
        by_epochs: only the epochs show the problem. is_quiet: only static members restart.
        restless, quiet, steady: how many members come and go, restart as static members, and stay.
    """

    group_id: str | None = None
    group_type: str | None = None
    by_epochs: bool = False
    epochs: int = 0
    is_quiet: bool = False
    quiet: int = 0
    restless: int = 0
    worst: RestlessMember | None = None
    clients: Sequence[str] | None = None
    all_stays: int = 0
    members: int = 0
    steady: int = 0
    window_ms: int


M = TypeVar("M", bound=Facts)


class _OfMembers(Kind[M]):
    """A kind whose card shows the members of the group."""

    def commands(self, finding: Finding, around: CommandContext) -> Commands:
        yield from show_members(finding, around)


class RebalanceStorm(_OfMembers[RestlessFacts]):
    """Members join and leave [again and again](#when-does-a-group-rebalance-too-often).

    So the group keeps rebalancing.
    """

    name = "rebalance_storm"
    subject = SubjectType.MEMBERS
    severity = "warning"
    magnitude = "short stays, or half of the epochs if these are more"
    keys = _KEYS_OF_MEMBERS
    facts = RestlessFacts

    def words(self, facts: RestlessFacts) -> Words:
        hours = _within(facts)
        if facts.by_epochs:
            what = f"its epoch rose by {facts.epochs:,}{hours}"
        else:
            most = None
            if facts.worst is not None and facts.restless > 0:
                most = f", most often {facts.worst.member().name()} ({counted(facts.worst.stays, 'time')})"
            left = f"{counted(facts.all_stays, 'time')}{hours}, a member left soon after it had joined"
            what = sentence(left, most)
        return Words(f"The group rebalances again and again: {what}.", _of_members(facts), _storm_advice(facts))

    def headline(self, finding: Finding, clock: Clock) -> Headline:
        stays, epochs = finding.newest_evidence.get("short_stays"), finding.newest_evidence.get("epochs")
        what = f"members left {figure(stays)} times soon after they had joined"
        if not stays and epochs:
            what = f"the epoch rose by {figure(epochs)}"
        return Headline("rebalance storm", f"{what}, seen since {clock(finding.first_seen_ms)}")


class FlappingMember(_OfMembers[RestlessFacts]):
    """One member joins and leaves again and again, or static members restart again and again.

    `evidence` names the one that does so most often.
    """

    name = "flapping_member"
    subject = SubjectType.MEMBERS
    severity = "warning"
    magnitude = "short stays"
    keys = _KEYS_OF_MEMBERS
    facts = RestlessFacts

    def words(self, facts: RestlessFacts) -> Words:
        worst, is_quiet = facts.worst or RestlessMember(who="{}"), facts.is_quiet
        name = worst.member().name()
        does = "restarts" if is_quiet else "joins and leaves the group"
        what = f"{name[:1].upper()}{name[1:]} {does} again and again"
        if is_quiet and facts.quiet > 1:
            most = worst.member().instance
            what = f"{facts.quiet:,} static members restart again and again, most often {most}"
        times, others = counted(worst.stays, "time"), counted(facts.steady, "other member")
        advice = _quiet_advice(facts) if is_quiet else _flapping_advice(facts)
        return Words(f"{what}: {times}{_within(facts)}; the group has {others}.", _of_members(facts), advice)

    def headline(self, finding: Finding, clock: Clock) -> Headline:
        facts = finding.newest_evidence
        who = facts.get("group_instance_id") or facts.get("client_id") or "one member"
        times = some(facts.get("short_stays_of_client"), "time")
        text = f"{who} left {times} soon after it had joined, seen since {clock(finding.first_seen_ms)}"
        return Headline("flapping member", text)

    def places(self, finding: Finding) -> list[str]:
        facts = finding.newest_evidence
        who = facts.get("group_instance_id") or facts.get("client_id")
        host = str(facts.get("host") or "").removeprefix("/")
        if not who:
            return super().places(finding)
        return [f"{who} at {host}" if host else str(who)]


class MostPartitions(Facts):
    """The member with the most partitions."""

    partitions: int = 0
    lag: int | None = None
    client: str | None = None


class AssignmentFacts(Facts):
    """How the partitions of a group are shared among its members.

    Attributes:
        idle, idle_clients: members without a partition, and the first of their clients.
        of_partitions, topics, topics_affected: partitions of all topics, the first names of topics, their number.
        fair: what the member with the most must have. over: how many members have more.
        lag_share: the share of the group's lag in the partitions of these.
    """

    group_id: str | None = None
    group_type: str | None = None
    members: int = 0
    idle: int = 0
    idle_clients: Sequence[str | None] | None = None
    of_partitions: int | None = None
    topics: Sequence[str] = ()
    topics_affected: int = 0
    assignor: str | None = None
    most: MostPartitions = MostPartitions()
    fair: int = 0
    over: int | None = None
    lag_share: float | None = None


class UnevenAssignment(_OfMembers[AssignmentFacts]):
    """Some members have many more partitions than others, and the group falls behind.

    It does so [because of it](#when-is-an-assignment-uneven).
    """

    name = "uneven_assignment"
    subject = SubjectType.ASSIGNMENTS
    severity = "info"
    magnitude = "the most partitions of a member"
    keys = (
        f"{_KEYS_OF_ASSIGNMENTS}; `partitions_of_one_member`, the most, of `client`; "
        "`members_with_more_than_their_share`, and `their_lag_share`"
    )
    facts = AssignmentFacts

    def words(self, facts: AssignmentFacts) -> Words:
        most, idle = facts.most, facts.idle
        none = f", and {idle:,} of {counted(facts.members, 'member')} {'has' if idle == 1 else 'have'} none"
        return Words(
            sentence(
                "The assignment is uneven: one member",
                part(" (client ", most.client, ")"),
                f" has {most.partitions:,} of {counted(facts.of_partitions, 'partition')}",
                none if idle else None,
                f"; members with more than {facts.fair:,} have {percent(facts.lag_share or 0)} of the lag.",
            ),
            {
                **_of_assignment(facts),
                "partitions_of_one_member": most.partitions,
                "client": most.client,
                "members_with_more_than_their_share": facts.over,
                "their_lag_share": rounded(facts.lag_share, 2),
            },
            _uneven_advice(facts),
        )

    def headline(self, finding: Finding, clock: Clock) -> Headline:
        evidence = finding.newest_evidence
        most, of = evidence.get("partitions_of_one_member"), some(evidence.get("partitions"), "partition")
        return Headline("uneven assignment", f"one member has {figure(most)} of {of}")


class IdleMember(_OfMembers[AssignmentFacts]):
    """Members have no partition, because the group has more members than its topics have partitions."""

    name = "idle_member"
    subject = SubjectType.ASSIGNMENTS
    severity = "info"
    magnitude = "their number"
    keys = _KEYS_OF_ASSIGNMENTS
    facts = AssignmentFacts

    def words(self, facts: AssignmentFacts) -> Words:
        idle, topics = facts.idle, facts.topics
        have = "has" if idle == 1 else "have"
        topic = topics[0] if facts.topics_affected == 1 else None
        named = topic if topic is not None and _TOPIC.fullmatch(topic) else "TOPIC"
        partitions = "NUMBER" if topic is None else facts.members
        alter = tool("topics", f"--alter --topic {named} --partitions {partitions}")
        return Words(
            f"{idle:,} of {counted(facts.members, 'member')} {have} no partition, because the topics of the group have "
            f"{counted(facts.of_partitions, 'partition')}.",
            _of_assignment(facts),
            "Such a member does nothing until another one leaves. If it is not a standby on purpose, remove it, or add "
            f"partitions, unless consumers rely on which partition a key is in: {alter}",
        )

    def headline(self, finding: Finding, clock: Clock) -> Headline:
        members = some(finding.newest_evidence.get("members_without_partition"), "member")
        return Headline("idle member", f"{members} without a partition")


def _within(facts: RestlessFacts) -> str:
    return f" within {facts.window_ms // HOUR_MS} hours"


def _of_members(facts: RestlessFacts) -> dict[str, Any]:
    worst = facts.worst
    who = Member() if worst is None else worst.member()
    return {
        "short_stays": facts.all_stays,
        "window_ms": facts.window_ms,
        "members": facts.members,
        "flapping_members": facts.quiet if facts.is_quiet else facts.restless,
        "clients": facts.clients,
        "client_id": who.client_id,
        "host": who.host,
        "group_instance_id": who.instance,
        "short_stays_of_client": None if worst is None else worst.stays,
        "epochs": facts.epochs or None,
    }


def _see_members(facts: RestlessFacts | AssignmentFacts) -> str:
    group = in_shell(facts.group_id, "GROUP")
    see = f"See the members: {tool('consumer-groups', f'--describe --group {group} --members --verbose')}"
    return for_streams(see, facts.group_type)


def _longer_session(facts: RestlessFacts) -> str:
    if facts.group_type == "consumer":  # with KIP-848, consumers refuse session.timeout.ms
        return "raise consumer.session.timeout.ms, a setting of the group"
    return "raise session.timeout.ms"


def _quiet_advice(facts: RestlessFacts) -> str:
    return (
        "Read the log of this client, and find out why its process ends: a crash, too little memory, a failed health "
        "check. Because it has a group.instance.id (KIP-345), the group does not rebalance, but nobody reads its "
        f"partitions until it is back. {_see_members(facts)}"
    )


def _flapping_advice(facts: RestlessFacts) -> str:
    less = "" if facts.group_type == "consumer" else f"The others suffer less with {_COOPERATIVE}. "
    return (
        f"Read the log of this client. If it {_POLLS}if its heartbeats fail, look for pauses of its process, or "
        f"{_longer_session(facts)}; if it crashes, repair it. {less}{_see_members(facts)}"
    )


def _storm_advice(facts: RestlessFacts) -> str:
    shorter = "" if facts.group_type == "consumer" else f", and {_COOPERATIVE} makes them short"
    return (
        f"Read the logs of the clients. If one {_POLLS}if heartbeats fail, {_longer_session(facts)}; if an autoscaler "
        f"adds and removes members, make it slower. A group.instance.id (KIP-345) avoids rebalances by "
        f"restarts{shorter}. {_see_members(facts)}"
    )


def _of_assignment(facts: AssignmentFacts) -> dict[str, Any]:
    return {
        "members": facts.members,
        "members_without_partition": facts.idle,
        "clients_without_partition": facts.idle_clients if facts.idle else None,
        "partitions": facts.of_partitions,
        "topics": facts.topics,
        "assignor": facts.assignor,
    }


def _uneven_advice(facts: AssignmentFacts) -> str:
    cause = (
        "The RangeAssignor shares each topic by itself and begins with the same members, which therefore have most of "
        "the partitions if there are many topics. "
    )
    even = ", which shares the partitions of all topics evenly"
    change = (
        f"Set partition.assignment.strategy to the CooperativeStickyAssignor (KIP-429){even}. If it is not in the list "
        "yet, this takes two rolling restarts: the first adds it to the list, the second removes the others. "
    )
    if facts.group_type == "consumer":
        # With KIP-848, the broker assigns the partitions, and consumers refuse partition.assignment.strategy.
        change = f"Set group.remote.assignor to uniform{even}. "
    return sentence(
        cause if facts.assignor == "range" else None,
        None if facts.assignor in _EVEN else change,
        _see_members(facts),
    )
