"""The open transactions that hold back the last stable offset of partitions (KIP-664).

A leader knows the producers that have written to its logs, with the first offset of each one's open transaction. The
transaction that begins at the last stable offset is the one for which read_committed readers wait.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from kafka.protocol.admin import DescribeProducersRequest

from pipeline.common.epoch import record_time
from pipeline.kafka.client import Asked, KafkaClient, in_chunks
from pipeline.kafka.connections import Reply
from pipeline.kafka.failures import Failure
from pipeline.kafka.partitions import Placement, TopicPartition

MOST_PARTITIONS = 1_000
"""The most partitions that a leader is asked about: those with the most offsets in open transactions."""
PARTITIONS_AT_ONCE = 100
"""How many of them are in one request, because an answer has all producers of each."""

Read = dict[str, Any]


def read_transactions(
    client: KafkaClient, placements: Mapping[TopicPartition, Placement], rows: Mapping[TopicPartition, Read]
) -> dict[TopicPartition, Read]:
    """The columns about the oldest open transaction of each partition that has one. `rows` have the partitions' ends.

    A partition is left out if its leader does not say: it is older than Kafka 2.8, or the principal may not read the
    topic.
    """
    waiting = {p: size for p, row in rows.items() if (size := _in_transactions(row)) > 0}
    if not waiting:
        return {}
    found = _producers(client, placements, _most_of_each_leader(waiting, placements))
    # The last stable offset was read before: if that transaction has ended, a newer one is not the one that held it.
    return {p: row for p, row in found.items() if row["transaction_start_offset"] <= rows[p]["last_stable_offset"]}


def _in_transactions(row: Read) -> int:
    stable, high = row.get("last_stable_offset"), row.get("high_watermark")
    return 0 if stable is None or high is None else high - stable


def _most_of_each_leader(
    waiting: Mapping[TopicPartition, int], placements: Mapping[TopicPartition, Placement]
) -> list[TopicPartition]:
    by_leader: dict[int, list[TopicPartition]] = {}
    for partition in sorted(waiting, key=lambda p: (-waiting[p], p)):
        by_leader.setdefault(placements[partition].leader, []).append(partition)
    return [p for partitions in by_leader.values() for p in partitions[:MOST_PARTITIONS]]


def _producers(
    client: KafkaClient, placements: Mapping[TopicPartition, Placement], partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, Read]:
    def ask(leader: int | None, items: Sequence[TopicPartition]) -> Asked[TopicPartition]:
        if client.version(DescribeProducersRequest, leader) is None:
            return [], lambda _: dict.fromkeys(items, Failure("UNSUPPORTED_VERSION"))

        def parse(replies: Sequence[Reply]) -> dict[TopicPartition, Any]:
            return {p: found for reply in replies for p, found in _parse(reply.answer).items()}

        return [describe_producers(some) for some in in_chunks(items, PARTITIONS_AT_ONCE)], parse

    leaders = {p: placements[p].leader_or_failure() for p in partitions}
    answers = client.ask_all(leaders, ask, lambda again: {p: leaders[p] for p in again}, retries=0)
    return {p: answer for p, answer in answers.items() if answer and not isinstance(answer, Failure)}


def describe_producers(partitions: Iterable[TopicPartition]) -> Any:
    """DescribeProducers for some partitions of one leader."""
    topic = DescribeProducersRequest.TopicRequest
    return DescribeProducersRequest(
        topics=[
            topic(name=name, partition_indexes=[p.partition for p in its])
            for name, its in groupby(sorted(partitions), key=lambda p: p.topic)
        ]
    )


def _parse(answer: Any) -> dict[TopicPartition, Read | None]:
    """Partition → the columns about its oldest open transaction; None if the broker refuses, or if none is open now."""
    if isinstance(answer, Failure):
        return {}
    return {
        TopicPartition(t.name, p.partition_index): None if p.error_code else _oldest(p.active_producers)
        for t in answer.topics
        for p in t.partitions
    }


def _oldest(producers: Iterable[Any]) -> Read | None:
    """Of the open transactions the one that began first; -1 as the start means that the producer has none open."""
    begun = [producer for producer in producers if producer.current_txn_start_offset >= 0]
    if not begun:
        return None
    first = min(begun, key=lambda producer: producer.current_txn_start_offset)
    return {
        "transaction_producer_id": first.producer_id,
        "transaction_start_offset": first.current_txn_start_offset,
        "transaction_timestamp_ms": record_time(first.last_timestamp),
    }
