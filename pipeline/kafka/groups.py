"""The groups of a cluster: their coordinators and types, and which groups could not be listed."""

from __future__ import annotations

from typing import Any, NamedTuple

from kafka.protocol.admin import ListGroupsRequest

from pipeline.kafka.client import KafkaClient, in_chunks
from pipeline.kafka.failures import Failure
from pipeline.kafka.source import Chunk

OFFSETS_TOPIC = "__consumer_offsets"


class ListedGroup(NamedTuple):
    """A group as its coordinator lists it. The type is None before Kafka 3.8, the state before 2.6."""

    group_id: str
    coordinator: int
    group_type: str | None
    state: str | None
    protocol: str | None


class Unlisted(NamedTuple):
    """Unknown groups that could not be listed: those of one coordinator, or of one partition of __consumer_offsets."""

    error: str


def list_groups(client: KafkaClient) -> tuple[list[ListedGroup], list[Unlisted]]:
    """The groups that the filter selects, by name, and what could not be listed.

    A broker lists the groups that it coordinates. If a partition of __consumer_offsets has no leader, no broker lists
    its groups, so each such partition counts as unlisted. While a coordinator is loading, brokers before 4.0 list the
    groups that are already loaded together with an error: these groups are kept, and the error counts as unlisted.
    """
    answers = client.ask_each(client.brokers(), ListGroupsRequest)
    groups: dict[str, ListedGroup] = {}
    unlisted = [Unlisted(a.error) for a in answers.values() if isinstance(a, Failure)]
    for broker, answer in answers.items():
        found = answer.partial if isinstance(answer, Failure) else answer
        if found is not None:
            groups |= {g.group_id: _listed(g, broker) for g in found.groups}
    names = client.options.groups.select(groups)
    return [groups[name] for name in names], unlisted + _without_coordinator(client)


def chunks_by_coordinator(client: KafkaClient) -> list[Chunk]:
    """Chunks of at most `groups_per_task` groups of one coordinator; what was not listed goes into the first one."""
    groups, unlisted = list_groups(client)
    addresses = client.brokers()
    by_broker: dict[int, list[ListedGroup]] = {}
    for group in groups:
        by_broker.setdefault(group.coordinator, []).append(group)
    chunks = [
        Chunk(broker, addresses.get(broker), items)
        for broker, members in by_broker.items()
        for items in in_chunks(members, client.options.groups_per_task)
    ]
    return chunks + ([Chunk(None, None, unlisted)] if unlisted else [])


def _listed(group: Any, broker: int) -> ListedGroup:
    kind = (group.group_type or "").lower() or None
    return ListedGroup(group.group_id, broker, kind, group.group_state or None, group.protocol_type or None)


def _without_coordinator(client: KafkaClient) -> list[Unlisted]:
    answer = client.metadata([OFFSETS_TOPIC])
    if isinstance(answer, Failure):
        return [Unlisted(answer.error)]
    leaders = [p.leader_id for topic in answer.topics if topic.error_code == 0 for p in topic.partitions]
    return [Unlisted("COORDINATOR_NOT_AVAILABLE") for leader in leaders if leader < 0]
