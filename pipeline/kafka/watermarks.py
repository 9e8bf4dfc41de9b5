"""Data source `kafka_watermarks`: the ends of every partition's log, its size, its newest record.

One task asks one leader. All requests go out on one connection, which a broker answers one after the other, so their
order is the order of reading: log start first and log end last, so that a moving log cannot turn the ladder upside
down.
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from kafka.protocol.admin import DescribeConfigsRequest, DescribeLogDirsRequest
from kafka.protocol.consumer import ListOffsetsRequest

from pipeline.errors import ClusterError
from pipeline.kafka.client import Failure, KafkaClient, error_name, in_chunks
from pipeline.kafka.source import UNREACHABLE, Chunk, Columns, KafkaReader, KafkaSource, known, now
from pipeline.tables import WATERMARKS

READ_UNCOMMITTED, READ_COMMITTED = 0, 1
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL = -1, -2, -3, -4
CONSUMER, DEBUGGING_CONSUMER = -1, -2
"""Replica ids: to the debugging consumer a leader tells its log end offset (ReplicaManager.fetchOffset)."""

_TOPIC_RESOURCE = 2
_CONFIGS = {"cleanup.policy": "cleanup_policy", "message.timestamp.type": "timestamp_type"}


class Question(NamedTuple):
    """One ListOffsets question: its timestamp, isolation and replica id, and the version that knows it."""

    timestamp: int
    isolation: int = READ_UNCOMMITTED
    replica: int = CONSUMER
    since: int = 1


RUNGS = {
    "log_start_offset": Question(EARLIEST),
    "local_log_start_offset": Question(EARLIEST_LOCAL, since=8),
    "last_stable_offset": Question(LATEST, READ_COMMITTED, since=2),
    "high_watermark": Question(LATEST),
}
LOG_END = Question(LATEST, replica=DEBUGGING_CONSUMER)
NEWEST = Question(MAX_TIMESTAMP, since=7)

REQUIRED = ("log_start_offset", "last_stable_offset", "high_watermark", "log_end_offset")
"""What a row cannot do without. Any other column that a broker refuses is NULL, and the row stays."""


class TopicPartition(NamedTuple):
    """The name of a partition."""

    topic: str
    partition: int


@dataclass(frozen=True)
class Placement:
    """Where a partition is, as the metadata says."""

    topic_id: str | None
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    error: str | None

    def place(self) -> int | Failure:
        """The leader's id, or why there is none."""
        if self.leader >= 0:
            return self.leader
        return Failure(self.error or "LEADER_NOT_AVAILABLE")


def base64_id(topic_id: Any) -> str | None:
    """A topic id in Kafka's own form, 22 characters of base64url; None where the broker has none (before 2.8)."""
    value = topic_id if isinstance(topic_id, uuid.UUID) else uuid.UUID(str(topic_id)) if topic_id else None
    if value is None or value.int == 0:
        return None
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode()


def parse_metadata(response: Any) -> dict[TopicPartition, Placement]:
    """The placement of every partition of every readable topic in a MetadataResponse."""
    return {
        TopicPartition(topic.name, p.partition_index): Placement(
            base64_id(topic.topic_id),
            p.leader_id,
            p.leader_epoch,
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


def list_offsets(question: Question, topics: Mapping[str, Sequence[int]]) -> Any:
    """ListOffsets for one question about many partitions."""
    topic = ListOffsetsRequest.ListOffsetsTopic
    partition = topic.ListOffsetsPartition
    return ListOffsetsRequest(
        replica_id=question.replica,
        isolation_level=question.isolation,
        topics=[
            topic(name=name, partitions=[partition(partition_index=p, timestamp=question.timestamp) for p in ps])
            for name, ps in topics.items()
        ],
        min_version=question.since,
    )


def describe_log_dirs(topics: Mapping[str, Sequence[int]]) -> Any:
    """DescribeLogDirs for many partitions of the broker asked."""
    topic = DescribeLogDirsRequest.DescribableLogDirTopic
    return DescribeLogDirsRequest(topics=[topic(topic=name, partitions=list(ps)) for name, ps in topics.items()])


def describe_configs(topics: Mapping[str, Sequence[int]]) -> Any:
    """DescribeConfigs for two settings of many topics."""
    resource = DescribeConfigsRequest.DescribeConfigsResource
    return DescribeConfigsRequest(
        resources=[
            resource(resource_type=_TOPIC_RESOURCE, resource_name=name, configuration_keys=[*_CONFIGS])
            for name in topics
        ]
    )


def parse_offsets(answer: Any) -> dict[TopicPartition, Any]:
    """ListOffsetsResponse → partition → its row of the response."""
    if isinstance(answer, Failure):
        return {}
    return {TopicPartition(t.name, p.partition_index): p for t in answer.topics for p in t.partitions}


def parse_sizes(answer: Any) -> dict[TopicPartition, int]:
    """DescribeLogDirsResponse → partition → bytes of its current log. Empty where the broker refuses."""
    if isinstance(answer, Failure):
        return {}
    return {
        TopicPartition(t.name, p.partition_index): p.partition_size
        for directory in answer.results
        for t in directory.topics
        for p in t.partitions
        if not p.is_future_key
    }


def parse_configs(answer: Any) -> dict[str, dict[str, str]]:
    """DescribeConfigsResponse → topic → column → value. Empty where the broker refuses."""
    if isinstance(answer, Failure):
        return {}
    return {
        r.resource_name: {_CONFIGS[c.name]: c.value for c in r.configs if c.name in _CONFIGS}
        for r in answer.results
        if r.error_code == 0
    }


def requests(topics: Mapping[str, Sequence[int]], version: int) -> dict[str, Any]:
    """What to ask a leader whose ListOffsets goes up to `version`, in the order of reading, by name."""
    offsets = {name: list_offsets(q, topics) for name, q in RUNGS.items() if q.since <= version}
    return {
        **offsets,
        # The size is read before and after the log end: what it changed by is how far it may be off.
        "size_before": describe_log_dirs(topics),
        "log_end_offset": list_offsets(LOG_END, topics),
        "size_after": describe_log_dirs(topics),
        **({"newest": list_offsets(NEWEST, topics)} if NEWEST.since <= version else {}),
        "configs": describe_configs(topics),
    }


def parse(answers: Mapping[str, Any], partitions: Sequence[TopicPartition]) -> dict[TopicPartition, Any]:
    """The observed columns of every partition, or the Failure that kept it from being read."""
    asked = {name: answers[name] for name in (*RUNGS, "log_end_offset", "newest") if name in answers}
    offsets = {name: parse_offsets(answer) for name, answer in asked.items()}
    before, after = parse_sizes(answers["size_before"]), parse_sizes(answers["size_after"])
    configs = parse_configs(answers["configs"])
    captured_at = now()
    rows: dict[TopicPartition, Any] = {}
    for p in partitions:
        found = {name: offset.get(p) for name, offset in offsets.items()}
        rows[p] = _first_failure(asked, found) or {
            "captured_at": captured_at,
            **{name: _offset(found.get(name)) for name in (*RUNGS, "log_end_offset")},
            **_newest(found.get("newest")),
            **_size(before.get(p), after.get(p)),
            **configs.get(p.topic, {}),
        }
    return rows


def _first_failure(answers: Mapping[str, Any], found: Mapping[str, Any]) -> Failure | None:
    for name in REQUIRED:
        if name not in answers:
            continue
        if isinstance(answers[name], Failure):
            failure: Failure = answers[name]
            return failure
        row = found[name]
        error = "UNKNOWN_TOPIC_OR_PARTITION" if row is None else error_name(row.error_code)
        if error:
            return Failure(error)
    return None


def _offset(row: Any) -> int | None:
    return None if row is None or row.error_code else known(row.offset)


def _newest(row: Any) -> dict[str, int | None]:
    offset = _offset(row)
    timestamp = None if offset is None else row.timestamp
    return {"max_timestamp_ms": timestamp, "max_timestamp_offset": offset}


def _size(before: int | None, after: int | None) -> dict[str, int | None]:
    if before is None or after is None:
        return {"log_bytes": None, "log_bytes_error": None}
    return {"log_bytes": after, "log_bytes_error": abs(after - before)}


class WatermarksReader(KafkaReader):
    """By leader and chunk of partitions."""

    def plan(self, client: KafkaClient) -> list[Chunk]:
        """Reads the metadata of all topics; the filter is applied before anything else is asked."""
        response = client.metadata(None)
        if isinstance(response, Failure):
            raise ClusterError(f"the cluster's metadata cannot be read: {response.error}")
        placements = parse_metadata(response)
        topics = set(self.options.topics.select({p.topic for p in placements}))
        by_leader: dict[int, list[tuple[TopicPartition, Placement]]] = {}
        for partition in sorted(p for p in placements if p.topic in topics):
            by_leader.setdefault(placements[partition].leader, []).append((partition, placements[partition]))
        addresses = client.brokers()
        return [
            Chunk(leader, addresses.get(leader), items)
            for leader, partitions in by_leader.items()
            for items in in_chunks(partitions, self.options.partitions_per_task)
        ]

    def fetch(self, client: KafkaClient, chunk: Chunk) -> Iterator[Columns]:
        """A partition that could not be read is one row with its placement and its error."""
        placements: dict[TopicPartition, Placement] = dict(chunk.items)

        def locate(partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int | Failure | None]:
            response = client.metadata(sorted({p.topic for p in partitions}))
            if isinstance(response, Failure):
                return dict.fromkeys(partitions, response)
            gone = Failure("UNKNOWN_TOPIC_OR_PARTITION", is_final=True)
            found = parse_metadata(response)
            placements.update({p: found[p] for p in partitions if p in found})
            return {p: found[p].place() if p in found else gone for p in partitions}

        def ask(leader: int | None, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, Any]:
            asked = requests(by_topic(partitions), client.version(ListOffsetsRequest) or 0)
            answers = client.exchange([(leader, request) for request in asked.values()])
            return parse(dict(zip(asked, answers, strict=True)), partitions)

        answers = client.ask_all({p: m.place() for p, m in placements.items()}, ask, locate)
        yield _columns(placements, answers)

    def unread(self, chunk: Chunk, reason: ClusterError) -> Columns:
        """One row for each partition."""
        return _columns(dict(chunk.items), {p: Failure(UNREACHABLE) for p, _ in chunk.items})


class WatermarksSource(KafkaSource):
    """Columns: those of table `watermarks` without the snapshot's."""

    observed = WATERMARKS.observed
    reader_class = WatermarksReader

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "kafka_watermarks"


def _columns(placements: Mapping[TopicPartition, Placement], answers: Mapping[TopicPartition, Any]) -> Columns:
    rows = [_row(p, placements[p], answers[p]) for p in sorted(answers)]
    return {name: [row.get(name) for row in rows] for name in WATERMARKS.observed.names}


def _row(partition: TopicPartition, placement: Placement, answer: Any) -> dict[str, Any]:
    observed = {"captured_at": now(), "error": answer.error} if isinstance(answer, Failure) else answer
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "topic_id": placement.topic_id,
        "leader": known(placement.leader),
        "leader_epoch": known(placement.leader_epoch),
        "replicas": placement.replicas,
        "isr": placement.isr,
        **observed,
    }
