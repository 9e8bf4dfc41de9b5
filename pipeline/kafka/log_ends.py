"""Builds the requests to a leader about the logs of its partitions, and parses its answers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from kafka.protocol.admin import DescribeConfigsRequest, DescribeLogDirsRequest
from kafka.protocol.consumer import ListOffsetsRequest

from pipeline.common.epoch import MINUTE_MS
from pipeline.kafka.failures import Failure
from pipeline.kafka.partitions import TopicPartition

READ_UNCOMMITTED, READ_COMMITTED = 0, 1
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL = -1, -2, -3, -4
CONSUMER, DEBUGGING_CONSUMER = -1, -2
"""Replica ids. A leader answers the debugging consumer with its log end offset (ReplicaManager.fetchOffset)."""

REMOTE = "remote://"
LEADER_AND_ISR = 4
"""An API between brokers, which Kafka lists if it runs with ZooKeeper."""

LARGEST = 2**63 - 1
_TOPIC_RESOURCE, _BROKER_RESOURCE = 2, 4
_TEXTS = {"cleanup.policy": "cleanup_policy", "message.timestamp.type": "timestamp_type"}
_NUMBERS = {"retention.ms": "retention_ms", "retention.bytes": "retention_bytes"}
_CONFIGS = _TEXTS | _NUMBERS
_OFFSETS_RETENTION = "offsets.retention.minutes"


class Question(NamedTuple):
    """One ListOffsets question: its timestamp, isolation level and replica id, and the first version that has it."""

    timestamp: int
    isolation: int = READ_UNCOMMITTED
    replica: int = CONSUMER
    since: int = 1


ENDS = {
    "log_start_offset": Question(EARLIEST),
    "high_watermark": Question(LATEST),
    "last_stable_offset": Question(LATEST, READ_COMMITTED, since=2),
}
LOCAL_START = {"local_log_start_offset": Question(EARLIEST_LOCAL, since=8)}
LOG_END = {"log_end_offset": Question(LATEST, replica=DEBUGGING_CONSUMER)}
AFTER = {"high_watermark_after": Question(LATEST)}
# A consumer would get no answer while the newest record is not replicated yet.
NEWEST = Question(MAX_TIMESTAMP, replica=DEBUGGING_CONSUMER, since=7)


def list_offsets(question: Question, partitions: Mapping[TopicPartition, int]) -> Any:
    """ListOffsets for one question about many partitions, with the leader epochs from the metadata (-1 = none).

    A broker with another epoch refuses, so that a former leader cannot answer in place of the leader.
    """
    topic = ListOffsetsRequest.ListOffsetsTopic
    partition = topic.ListOffsetsPartition
    return ListOffsetsRequest(
        replica_id=question.replica,
        isolation_level=question.isolation,
        topics=[
            topic(
                name=name,
                partitions=[
                    partition(
                        partition_index=p.partition, current_leader_epoch=partitions[p], timestamp=question.timestamp
                    )
                    for p in its
                ],
            )
            for name, its in groupby(partitions, key=lambda p: p.topic)
        ],
        min_version=question.since,
    )


def describe_log_dirs(topics: Mapping[str, Sequence[int]]) -> Any:
    """DescribeLogDirs for many partitions of one broker."""
    topic = DescribeLogDirsRequest.DescribableLogDirTopic
    return DescribeLogDirsRequest(topics=[topic(topic=name, partitions=list(ps)) for name, ps in topics.items()])


def describe_configs(topics: Mapping[str, Sequence[int]], broker: int | None) -> Any:
    """DescribeConfigs for the settings that `watermarks` keeps: of many topics, and of the broker that is asked."""
    resource = DescribeConfigsRequest.DescribeConfigsResource
    asked = [(_TOPIC_RESOURCE, name, [*_CONFIGS]) for name in topics]
    if broker is not None:
        asked.append((_BROKER_RESOURCE, str(broker), [_OFFSETS_RETENTION]))
    return DescribeConfigsRequest(
        resources=[
            resource(resource_type=kind, resource_name=name, configuration_keys=keys) for kind, name, keys in asked
        ]
    )


def parse_offsets(answer: Any) -> dict[TopicPartition, Any]:
    """ListOffsetsResponse → partition → its row in the response. Empty if there is no response."""
    if answer is None or isinstance(answer, Failure):
        return {}
    return {TopicPartition(t.name, p.partition_index): p for t in answer.topics for p in t.partitions}


def parse_sizes(answer: Any) -> dict[TopicPartition, int]:
    """DescribeLogDirsResponse → partition → bytes of its current log. Empty if the broker refuses.

    Redpanda lists a bucket of tiered storage as another directory, whose sizes are not those on the disk.
    """
    if isinstance(answer, Failure):
        return {}
    return {
        TopicPartition(t.name, p.partition_index): p.partition_size
        for directory in answer.results
        if not directory.log_dir.startswith(REMOTE)
        for t in directory.topics
        for p in t.partitions
        if not p.is_future_key
    }


def parse_configs(answer: Any, topics: Iterable[str]) -> dict[str, dict[str, str | int | None]]:
    """DescribeConfigsResponse → topic → column → value. What the broker refuses is left out."""
    given = [] if isinstance(answer, Failure) else [r for r in answer.results if r.error_code == 0]
    of_topics = {
        r.resource_name: {_CONFIGS[c.name]: _value(c) for c in r.configs if c.name in _CONFIGS}
        for r in given
        if r.resource_type == _TOPIC_RESOURCE
    }
    minutes = (
        c.value
        for r in given
        if r.resource_type == _BROKER_RESOURCE
        for c in r.configs
        if c.name == _OFFSETS_RETENTION and re.fullmatch(r"[0-9]{1,10}", c.value or "", re.ASCII)
    )
    found = next(minutes, None)
    of_broker: dict[str, str | int | None] = {"offsets_retention_ms": None if found is None else int(found) * MINUTE_MS}
    return {topic: of_topics.get(topic, {}) | of_broker for topic in topics}


def _value(config: Any) -> str | int | None:
    """Text, or a number; None for what should be a number and is not."""
    if config.name in _TEXTS:
        return None if config.value is None else str(config.value)
    is_number = re.fullmatch(r"-?[0-9]{1,19}", config.value or "", re.ASCII)
    return min(int(config.value), LARGEST) if is_number else None


def has_log_end(versions: Mapping[int, int] | None) -> bool:
    """Whether a broker with these APIs (key → version) gives the debugging consumer the log end.

    Redpanda gives it the high watermark. It has ListOffsets up to version 4, like Kafka 2.1; but unlike Redpanda, any
    Kafka of that age also lists the APIs between brokers.
    """
    if versions is None:
        return True
    return versions.get(ListOffsetsRequest.API_KEY, 0) >= NEWEST.since or LEADER_AND_ISR in versions
