"""The end offsets of the leader epochs that were stored with commits (KIP-320).

A consumer stores the epoch of the last record that it has read. An unclean election may truncate the log below that
record, and the log may grow again beyond the commit: the offset looks valid, but other records are there now. Then the
epoch ends below the commit. The same is seen if a client stores an older epoch than that of the records it has read, as
Sarama does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from kafka.protocol.consumer import OffsetForLeaderEpochRequest

from pipeline.kafka.client import Asked, KafkaClient
from pipeline.kafka.connections import Reply
from pipeline.kafka.failures import Failure, error_name
from pipeline.kafka.partitions import Placement, TopicPartition, current_leaders
from pipeline.kafka.source import known

SINCE = 2
"""The first version of OffsetForLeaderEpoch that needs only the right to describe the topics."""


class Epoch(NamedTuple):
    """A leader epoch of a partition."""

    partition: TopicPartition
    leader_epoch: int


def read_epoch_ends(
    client: KafkaClient, placements: dict[TopicPartition, Placement], epochs: Iterable[Epoch]
) -> dict[Epoch, int | None]:
    """The offset after the last record of each epoch; None if the leader does not report it.

    Several epochs of a partition need several requests, because an answer has only the partition. `placements` are
    updated if a partition has moved.
    """

    def find_leaders(items: Sequence[Epoch]) -> dict[Epoch, int | Failure | None]:
        leaders = current_leaders(client, placements, list({e.partition for e in items}))
        return {e: leaders[e.partition] for e in items}

    def ask(leader: int | None, items: Sequence[Epoch]) -> Asked[Epoch]:
        if (client.version(OffsetForLeaderEpochRequest, leader) or 0) < SINCE:
            return [], lambda _: dict.fromkeys(items, Failure("UNSUPPORTED_VERSION"))
        parts = _one_of_each_partition(items)

        def parse(replies: Sequence[Reply]) -> dict[Epoch, Any]:
            found: dict[Epoch, Any] = {}
            for part, (answer, _) in zip(parts, replies, strict=True):
                ends = _parse(answer)
                found |= {e: answer if isinstance(answer, Failure) else ends.get(e.partition) for e in part}
            return found

        return [offset_for_leader_epoch(part, placements) for part in parts], parse

    answers = client.ask_all(
        {e: placements[e.partition].leader_or_failure() for e in epochs}, ask, find_leaders, retries=1
    )
    return {e: None if isinstance(a, Failure) else a for e, a in answers.items()}


def offset_for_leader_epoch(epochs: Sequence[Epoch], placements: Mapping[TopicPartition, Placement]) -> Any:
    """OffsetForLeaderEpoch for one epoch of each partition. A broker that no longer leads a partition refuses it."""
    topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    partition = topic.OffsetForLeaderPartition
    return OffsetForLeaderEpochRequest(
        replica_id=-1,
        topics=[
            topic(
                topic=name,
                partitions=[
                    partition(
                        partition=e.partition.partition,
                        current_leader_epoch=placements[e.partition].fence,
                        leader_epoch=e.leader_epoch,
                    )
                    for e in its
                ],
            )
            for name, its in groupby(sorted(epochs), key=lambda e: e.partition.topic)
        ],
        min_version=SINCE,
    )


def _end_or_failure(answer: Any) -> int | Failure | None:
    error = error_name(answer.error_code)
    return Failure(error) if error else known(answer.end_offset)


def _parse(answer: Any) -> dict[TopicPartition, int | Failure | None]:
    if isinstance(answer, Failure):
        return {}
    return {TopicPartition(t.topic, p.partition): _end_or_failure(p) for t in answer.topics for p in t.partitions}


def _one_of_each_partition(epochs: Sequence[Epoch]) -> list[list[Epoch]]:
    """The epochs in as few lists as possible, each with at most one epoch of a partition."""
    lists: list[list[Epoch]] = []
    of_partition: dict[TopicPartition, int] = {}
    for epoch in sorted(epochs):
        number = of_partition[epoch.partition] = of_partition.get(epoch.partition, -1) + 1
        if number == len(lists):
            lists.append([])
        lists[number].append(epoch)
    return lists
