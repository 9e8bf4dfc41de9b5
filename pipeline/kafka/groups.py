"""The groups of a cluster: their coordinators and types, and a proof that the list lacks none.

A broker lists the groups of those partitions of __consumer_offsets that it coordinates at that moment. It leaves out,
without an error, a partition that it has just given up, and one that it leads but has not begun to load (Kafka's
GroupCoordinatorService.listGroups). While leaders move, there is a moment in which no broker lists the groups of a
partition. So a group that is not listed is absent only if its partition was active at the broker that was asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple
from zlib import crc32

from kafka.protocol.admin import DescribeGroupsRequest, ListGroupsRequest

from pipeline.kafka.client import Asked, KafkaClient, in_chunks
from pipeline.kafka.connections import Reply
from pipeline.kafka.failures import Failure, error_name
from pipeline.kafka.log_ends import ENDS, list_offsets, parse_offsets
from pipeline.kafka.partitions import Placement, TopicPartition, current_leaders, parse_metadata
from pipeline.kafka.source import Chunk, known

OFFSETS_TOPIC = "__consumer_offsets"
PROBE_PREFIX = "laglake-probe-"
"""The names of groups that nobody has begin with this. A user that may not describe all groups may describe these."""
PROBES_TRIED = 8
"""So many invented groups are enough to see that groups have other coordinators than Kafka would give them."""
PLACES_TRIED = 4
"""How often this is looked at before it is certain."""

_ACTIVE = {None, "GROUP_ID_NOT_FOUND"}
"""What an active coordinator says of a group that does not exist: state Dead without an error, or since 4.0 this."""
_LOADING = "COORDINATOR_LOAD_IN_PROGRESS"
_NOT_THERE = "UNKNOWN_TOPIC_OR_PARTITION"
_NO_LEADER = -1


class ListedGroup(NamedTuple):
    """A group as its coordinator lists it. The type is None before Kafka 3.8, the state before 2.6.

    The coordinator is None if the group is not listed now, but is known from before.
    """

    group_id: str
    coordinator: int | None
    group_type: str | None
    state: str | None
    protocol: str | None


class Unlisted(NamedTuple):
    """Groups whose names are not known, because one partition of __consumer_offsets could not be listed, and why.

    `broker` is its leader, None without one. If the partitions are not known, `partition` is None, and the groups are
    all those of the broker.
    """

    error: str
    broker: int | None = None
    partition: int | None = None


class Unproven(NamedTuple):
    """Why groups may be missing from the list although nothing failed: the proof needs a resource that Kafka refuses.

    `topic` or `group` is its name; that of groups is a prefix.
    """

    error: str
    topic: str | None = None
    group: str | None = None


Item = ListedGroup | Unlisted | Unproven
"""What a chunk has of the groups."""


class GroupList(NamedTuple):
    """The groups that the filter selects, by name; those that could not be listed; whether groups may be missing."""

    groups: list[ListedGroup]
    unlisted: list[Unlisted]
    unproven: Unproven | None


class _Listing(NamedTuple):
    """What one broker has listed at one moment."""

    broker: int | None
    groups: Sequence[Any]


def list_groups(client: KafkaClient) -> GroupList:
    """Lists all groups, with a proof that none is missing.

    Each leader of partitions of __consumer_offsets gets its requests in one go: for the ends of these partitions, to
    describe an invented group of each, for its groups, and the first two again. It has listed all groups of a partition
    if it led the partition in the same epoch before and after, its coordinator was active before and after, and all
    records of earlier leaders are committed: until then, a coordinator since 4.0 does not know the newest groups. A
    partition for which this is not so is asked for again at its current leader. What stays unproven is an Unlisted.

    Asking for many invented groups is one DescribeGroups request in each version of Kafka. OffsetFetch would be one
    request for each group before 3.0. They are only asked for if the user may describe them, and if groups are in the
    partitions in which Kafka has them.

    While a coordinator is loading, brokers before 4.0 list the groups that are already loaded together with an error:
    these groups are kept, and the error counts as unlisted where the coordinator is not proven to be active.
    """
    placements = _offsets_partitions(client)
    if isinstance(placements, Failure):
        return _unproven_list(client, placements)
    proof = _Proof(client, placements, _why_unprovable(client, placements))
    leaders = {partition: placement.leader_or_failure() for partition, placement in placements.items()}
    answers = client.ask_all(leaders, proof.ask, partial(current_leaders, client, placements))
    unlisted = [
        Unlisted(_coordinator_error(answer), known(placements[partition].leader), partition.partition)
        for partition, answer in answers.items()
        if isinstance(answer, Failure)
    ]
    return GroupList(_selected(client, answers.values()), unlisted, proof.refusal)


def _offsets_partitions(client: KafkaClient) -> dict[TopicPartition, Placement] | Failure:
    """The partitions of __consumer_offsets, or why they are not known: the topic is denied, or not there yet."""
    answer = client.metadata([OFFSETS_TOPIC])
    if isinstance(answer, Failure):
        return answer
    errors = [error_name(topic.error_code) for topic in answer.topics if topic.name == OFFSETS_TOPIC]
    if any(errors):
        return Failure(errors[0] or "")
    placements = {p: placement for p, placement in parse_metadata(answer).items() if p.topic == OFFSETS_TOPIC}
    # A group could be in a partition that the answer lacks. A proxy may hide the partitions of this topic.
    if not placements or {p.partition for p in placements} != {*range(len(placements))}:
        return Failure(_NOT_THERE)
    return placements


def _why_unprovable(client: KafkaClient, placements: dict[TopicPartition, Placement]) -> Unproven | None:
    """Why it is of no use to ask for invented groups; None if it is not known to be of none.

    The user may not describe them, or the coordinators of some are not the leaders of the partitions that Kafka assigns
    them to: Redpanda assigns groups by another hash, and a proxy may change their names. Leaders that are just moving
    look the same, so this is only certain if it stays so.
    """
    names = probe_names(len(placements))[:PROBES_TRIED]
    for attempt in range(1, PLACES_TRIED + 1):
        found = client.coordinators(names)
        refusals = [a.error for a in found.values() if isinstance(a, Failure) and not a.is_retriable]
        if refusals:
            return Unproven(refusals[0], group=PROBE_PREFIX)
        expected = [placements[TopicPartition(OFFSETS_TOPIC, number)].leader for number in range(len(names))]
        found_brokers = [found[name] for name in names]
        pairs = zip(found_brokers, expected, strict=True)
        if all(isinstance(broker, Failure) or leader in (broker, _NO_LEADER) for broker, leader in pairs):
            return None
        client.back_off(attempt)
        current_leaders(client, placements, [*placements])
    return Unproven("NOT_COORDINATOR", group=PROBE_PREFIX)


def _unproven_list(client: KafkaClient, reason: Failure) -> GroupList:
    """The groups that all brokers list, without a proof, because the partitions of __consumer_offsets are not known."""
    answers = client.ask_each(client.brokers(), ListGroupsRequest)
    groups = _selected(client, [_listing(broker, answer) for broker, answer in answers.items()])
    left = answers.keys() - client.brokers().keys()  # while they were asked
    failed = {broker: a for broker, a in answers.items() if isinstance(a, Failure) and broker not in left}
    unlisted = [Unlisted(failure.error, broker) for broker, failure in failed.items()]
    is_new = reason.error == _NOT_THERE and not groups
    return GroupList(groups, unlisted, None if is_new else Unproven(reason.error, topic=OFFSETS_TOPIC))


class _Proof:
    """Asks brokers for their groups, each together with the proof that it listed all groups of its partitions."""

    def __init__(
        self, client: KafkaClient, placements: Mapping[TopicPartition, Placement], refusal: Unproven | None
    ) -> None:
        self.client = client
        self.placements = placements
        """The partitions of __consumer_offsets, by the newest metadata."""
        self.refusal = refusal
        """Why a part of the proof is missing. Without the invented groups, only the leader speaks for a partition."""
        self._has_probes = refusal is None

    def ask(self, broker: int | None, partitions: Sequence[TopicPartition]) -> Asked[TopicPartition]:
        """The requests for a broker's list and its proof, and what they say about each of its partitions."""
        names = probe_names(len(self.placements))
        probes = {partition: names[partition.partition] for partition in partitions if self._has_probes}
        epochs = {partition: self.placements[partition].fence for partition in partitions}

        def around() -> list[Any]:
            ends = list_offsets(ENDS["high_watermark"], epochs)
            return [ends, _describe(probes.values())] if probes else [ends]

        def parse(replies: Sequence[Reply]) -> dict[TopicPartition, _Listing | Failure]:
            answers = [reply.answer for reply in replies]
            middle = len(answers) // 2
            before, listed, after = answers[:middle], answers[middle], answers[:middle:-1]
            ends = [_end_errors(epochs, half[0]) for half in (before, after)]
            groups = [_group_errors(probes, half[1]) for half in (before, after) if probes]
            listing = _listing(broker, listed)
            found: dict[TopicPartition, _Listing | Failure] = {}
            for partition in partitions:
                of_group = [errors[partition] for errors in groups]
                error = self._first_error([*of_group, *(errors[partition] for errors in ends)])
                is_active = bool(of_group) and all(said in _ACTIVE for said in of_group)
                if not (_list_error(listed) == _LOADING and is_active):  # another partition is loading
                    error = _list_error(listed) or error
                found[partition] = Failure(error, partial=listing) if error else listing
            return found

        return [*around(), ListGroupsRequest(), *reversed(around())], parse

    def _first_error(self, errors: Iterable[str | None]) -> str | None:
        """Why it is not proven that a partition was listed; None if it is, or if Kafka refuses to prove it."""
        for error in errors:
            if error in _ACTIVE:
                continue
            if Failure(error or "").is_retriable:
                return error
            self.refusal = Unproven(error or "", group=PROBE_PREFIX)
        return None


def chunks_by_coordinator(client: KafkaClient) -> list[Chunk]:
    """Chunks of at most `groups_per_task` groups of one coordinator; what was not listed goes into the first one."""
    groups, unlisted, _ = list_groups(client)
    addresses = client.brokers()
    by_broker: dict[int | None, list[ListedGroup]] = {}
    for group in groups:
        by_broker.setdefault(group.coordinator, []).append(group)
    chunks = [
        Chunk(broker, None if broker is None else addresses.get(broker), items)
        for broker, members in by_broker.items()
        for items in in_chunks(members, client.options.groups_per_task)
    ]
    return chunks + ([Chunk(None, None, unlisted)] if unlisted else [])


@lru_cache(maxsize=16)
def probe_names(partitions: int) -> tuple[str, ...]:
    """An invented group for each partition of __consumer_offsets: a name that Kafka assigns to this partition."""
    names: dict[int, str] = {}
    number = 0
    while len(names) < partitions:
        # Decimal digits would take minutes for 31 partitions: the hash of Java is a polynomial in 31.
        name = f"{PROBE_PREFIX}{crc32(str(number).encode()):08x}"
        names.setdefault(offsets_partition(name, partitions), name)
        number += 1
    return tuple(names[partition] for partition in range(partitions))


def offsets_partition(group: str, partitions: int) -> int:
    """The partition of __consumer_offsets that has a group (Kafka's GroupCoordinatorService.partitionFor).

    It is the absolute value of Java's String.hashCode, whose characters are those of UTF-16, modulo the partitions.
    """
    units = group.encode("utf-16-be", "surrogatepass")
    hashed = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        hashed = (31 * hashed + 256 * high + low) & 0xFFFFFFFF
    signed = hashed - 2**32 if hashed >= 2**31 else hashed
    return (0 if signed == -(2**31) else abs(signed)) % partitions


def _describe(names: Iterable[str]) -> Any:
    return DescribeGroupsRequest(groups=[*names], include_authorized_operations=False)


def _group_errors(probes: Mapping[TopicPartition, str], answer: Any) -> dict[TopicPartition, str | None]:
    """What a DescribeGroups response says of the invented group of each partition: an error, or None."""
    if isinstance(answer, Failure):
        return dict.fromkeys(probes, answer.error)
    errors = {group.group_id: error_name(group.error_code) for group in answer.groups}
    return {partition: errors.get(name, "UNKNOWN_SERVER_ERROR") for partition, name in probes.items()}


def _end_errors(partitions: Iterable[TopicPartition], answer: Any) -> dict[TopicPartition, str | None]:
    """What a ListOffsets response says of each partition: an error, or None.

    OFFSET_NOT_AVAILABLE: records of an earlier leader are not committed yet (KIP-207).
    """
    if isinstance(answer, Failure):
        return dict.fromkeys(partitions, answer.error)
    errors = {partition: error_name(row.error_code) for partition, row in parse_offsets(answer).items()}
    return {partition: errors.get(partition, "UNKNOWN_SERVER_ERROR") for partition in partitions}


def _list_error(answer: Any) -> str | None:
    return answer.error if isinstance(answer, Failure) else error_name(answer.error_code)


def _coordinator_error(failure: Failure) -> str:
    """Why groups are not listed, by Kafka's name for coordinators: a partition without a leader has none."""
    return "COORDINATOR_NOT_AVAILABLE" if failure.error == "LEADER_NOT_AVAILABLE" else failure.error


def _listing(broker: int | None, answer: Any) -> _Listing:
    """What a broker has listed, also if there was an error beside it."""
    if isinstance(answer, Failure):
        answer = answer.partial
    return _Listing(broker, [] if answer is None else answer.groups)


def _selected(client: KafkaClient, answers: Iterable[_Listing | Failure]) -> list[ListedGroup]:
    """The groups in all listings that the filter selects, by name."""
    listings = {id(listing): listing for listing in _listings(answers)}  # partitions of a broker share its listing
    groups = {g.group_id: (g, listing.broker) for listing in listings.values() for g in listing.groups}
    return [_listed(*groups[name]) for name in client.options.groups.select(groups)]


def _listings(answers: Iterable[_Listing | Failure]) -> Iterator[_Listing]:
    for answer in answers:
        if isinstance(answer, _Listing):
            yield answer
        elif isinstance(answer.partial, _Listing):
            yield answer.partial


def _listed(group: Any, broker: int | None) -> ListedGroup:
    kind = (group.group_type or "").lower() or None
    return ListedGroup(group.group_id, broker, kind, group.group_state or None, group.protocol_type or None)
