"""Partitions, and which brokers lead them."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pipeline.common.errors import ClusterError
from pipeline.kafka.client import KafkaClient
from pipeline.kafka.failures import Failure, error_name

_EPOCHS_SINCE = 9
ABSENT = Failure("UNKNOWN_TOPIC_OR_PARTITION", is_final=True)
"""A broker has said that there is no such partition."""


class TopicPartition(NamedTuple):
    """A partition: the name of its topic, and its number."""

    topic: str
    partition: int


@dataclass(frozen=True)
class Placement:
    """The leader and replicas of a partition, by metadata. `fence`: the leader epoch sent in requests, -1 = none."""

    topic_id: str | None
    leader: int
    leader_epoch: int
    fence: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    error: str | None

    def leader_or_failure(self) -> int | Failure:
        """The leader's id, or a Failure if there is no leader."""
        if self.leader >= 0:
            return self.leader
        return Failure(self.error or "LEADER_NOT_AVAILABLE")


def base64_id(topic_id: Any) -> str | None:
    """A topic id in Kafka's own form, 22 characters of base64url; None if the broker has none (before 2.8)."""
    value = topic_id if isinstance(topic_id, uuid.UUID) else uuid.UUID(str(topic_id)) if topic_id else None
    if value is None or value.int == 0:
        return None
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode()


def parse_metadata(response: Any) -> dict[TopicPartition, Placement]:
    """The placement of every partition of every readable topic in a MetadataResponse."""
    # Before version 9, a broker may return an epoch from before its restart (KAFKA-9212), and then refuse this epoch.
    has_epochs = response.API_VERSION >= _EPOCHS_SINCE
    return {
        TopicPartition(topic.name, p.partition_index): Placement(
            base64_id(topic.topic_id),
            p.leader_id,
            p.leader_epoch,
            p.leader_epoch if has_epochs else -1,
            tuple(p.replica_nodes),
            tuple(p.isr_nodes),
            error_name(p.error_code),
        )
        for topic in response.topics
        if topic.error_code == 0
        for p in topic.partitions
    }


def by_topic(partitions: Sequence[TopicPartition]) -> dict[str, list[int]]:
    """Partition numbers by topic."""
    grouped: dict[str, list[int]] = {}
    for topic, partition in partitions:
        grouped.setdefault(topic, []).append(partition)
    return grouped


def current_leaders(
    client: KafkaClient, placements: dict[TopicPartition, Placement], partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, int | Failure | None]:
    """The current leader of each partition, or a Failure. Updates `placements`.

    A partition is ABSENT only if a broker has answered that the topic does not exist, or has no such partition. A topic
    that may not be described, or has no leader, has another error (MetadataResponse, `topics[].error_code`).
    """
    response = client.metadata(sorted({p.topic for p in partitions}))
    if isinstance(response, Failure):
        return dict.fromkeys(partitions, response)
    found = parse_metadata(response)
    placements.update({p: found[p] for p in partitions if p in found})
    errors = {topic.name: error_name(topic.error_code) or ABSENT.error for topic in response.topics}

    def leader_of(partition: TopicPartition) -> int | Failure:
        if partition in found:
            return found[partition].leader_or_failure()
        error = errors.get(partition.topic, "UNKNOWN_SERVER_ERROR")
        return ABSENT if error == ABSENT.error else Failure(error)

    return {p: leader_of(p) for p in partitions}


def all_placements(client: KafkaClient) -> dict[TopicPartition, Placement]:
    """Every partition of the topics that the filter selects. Raises ClusterError if the metadata cannot be read."""
    response = client.metadata(None)
    if isinstance(response, Failure):
        raise ClusterError(f"the cluster's metadata cannot be read: {response.error}")
    placements = parse_metadata(response)
    topics = set(client.options.topics.select({p.topic for p in placements}))
    return {p: placement for p, placement in placements.items() if p.topic in topics}
