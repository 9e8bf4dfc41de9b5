"""Data source `kafka_watermarks`: the ends of every partition's log, its size, and its newest record.

All requests to a leader go out on one connection, and a broker answers these one after the other, so it reads in the
order of the requests. The lower of two ends is read after the upper one. If the last stable offset, read after the high
watermark, is not below it, no transaction was open. If the high watermark, read after the log end, is not below it,
everything was replicated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from kafka.protocol.consumer import ListOffsetsRequest

from pipeline.common.epoch import record_time, utc_now
from pipeline.common.errors import ClusterError
from pipeline.kafka.client import Asked, KafkaClient, in_chunks
from pipeline.kafka.connections import Reply
from pipeline.kafka.failures import Failure, error_name
from pipeline.kafka.log_ends import (
    AFTER,
    ENDS,
    LOCAL_START,
    LOG_END,
    NEWEST,
    Question,
    describe_configs,
    describe_log_dirs,
    has_log_end,
    list_offsets,
    parse_configs,
    parse_offsets,
    parse_sizes,
)
from pipeline.kafka.partitions import Placement, TopicPartition, all_placements, by_topic, current_leaders
from pipeline.kafka.source import Chunk, Columns, KafkaReader, KafkaSource, known
from pipeline.kafka.transactions import read_transactions
from pipeline.tables import WATERMARKS

PARTITIONS_AT_ONCE = 2_000
"""How many partitions a leader is asked for together, few enough that each one's values are of one moment."""
NEWEST_AT_ONCE = 200

REQUIRED = ("log_start_offset", "high_watermark")
"""The columns that a row must have. If a broker refuses any other column, it is NULL, and the row stays."""

Read = dict[str, Any]
"""The observed columns of a partition."""


def read_ends(
    client: KafkaClient,
    placements: dict[TopicPartition, Placement],
    *,
    whole: bool,
    retries: int | None = None,
) -> dict[TopicPartition, Read | Failure]:
    """Log start and ends of all partitions, read from all leaders at once; if `whole`, also log end and size.

    `placements` are updated if a partition has moved.
    """

    def find_leaders(partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int | Failure | None]:
        return current_leaders(client, placements, partitions)

    def ask(leader: int | None, partitions: Sequence[TopicPartition]) -> Asked[TopicPartition]:
        supported, version = client.supported(leader), client.version(ListOffsetsRequest, leader) or 0
        parts = list(in_chunks(sorted(partitions), PARTITIONS_AT_ONCE))
        asked = [_requests({p: placements[p].fence for p in part}, whole, supported, version) for part in parts]

        def parse(replies: Sequence[Reply]) -> dict[TopicPartition, Read | Failure]:
            left = iter(replies)
            found: dict[TopicPartition, Read | Failure] = {}
            for part, requests in zip(parts, asked, strict=True):
                found |= _parse(dict(zip(requests, islice(left, len(requests)), strict=True)), part)
            return found

        return [request for requests in asked for request in requests.values()], parse

    return client.ask_all({p: placements[p].leader_or_failure() for p in placements}, ask, find_leaders, retries)


def read_rest(
    client: KafkaClient, placements: dict[TopicPartition, Placement], rows: Mapping[TopicPartition, Read]
) -> dict[TopicPartition, Read]:
    """The values that may be read a little later.

    These are the newest record, the topic's settings, and again the high watermark if the log end was not replicated.
    """
    epochs = {p: placements[p].fence for p in sorted(rows)}
    unreplicated = {p: epoch for p, epoch in epochs.items() if not _is_replicated(rows[p])}

    def find_leaders(partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int | Failure | None]:
        return {p: placements[p].leader_or_failure() for p in partitions}

    def ask(leader: int | None, partitions: Sequence[TopicPartition]) -> Asked[TopicPartition]:
        its = {p: epochs[p] for p in sorted(partitions)}
        behind = {p: epoch for p, epoch in its.items() if p in unreplicated}
        version = client.version(ListOffsetsRequest, leader) or 0
        asked = {
            **({"high_watermark_after": list_offsets(AFTER["high_watermark_after"], behind)} if behind else {}),
            "configs": describe_configs(by_topic([*its]), leader),
        }
        # Kafka reads the newest records from their batches, which may be on a cold disk: last, and few at a time.
        knows_newest = version >= NEWEST.since
        parts = list(in_chunks(its, NEWEST_AT_ONCE)) if knows_newest else []
        newest_asked = [list_offsets(NEWEST, {p: its[p] for p in part}) for part in parts]

        def parse(replies: Sequence[Reply]) -> dict[TopicPartition, Read | Failure]:
            answers = {name: reply.answer for name, reply in zip(asked, replies, strict=False)}
            found = _parse_rest(answers, [reply.answer for reply in replies[len(asked) :]], partitions)
            missed = {
                p: Failure("OFFSET_NOT_AVAILABLE", partial=more)
                for p, more in found.items()
                if knows_newest and more["max_timestamp_offset"] is None and _has_records(rows[p])
            }
            return {**found, **missed}

        return [*asked.values(), *newest_asked], parse

    # While a log is appended to, a leader may find no record with the newest timestamp, so it is asked again.
    found = client.ask_all({p: placements[p].leader_or_failure() for p in rows}, ask, find_leaders, retries=2)
    return {p: (more.partial or {}) if isinstance(more, Failure) else more for p, more in found.items()}


def _parse_rest(
    answers: Mapping[str, Any], newest_answers: Sequence[Any], partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, Read]:
    """The newest record of each partition, its settings, and its later high watermark if that was asked for."""
    newest = {p: row for answer in newest_answers for p, row in parse_offsets(answer).items()}
    after = parse_offsets(answers.get("high_watermark_after"))
    configs = parse_configs(answers["configs"], {p.topic for p in partitions})
    return {p: _newest(newest.get(p)) | _still_later(after.get(p)) | configs[p.topic] for p in partitions}


def _requests(
    epochs: Mapping[TopicPartition, int], whole: bool, supported: Mapping[int, int] | None, version: int
) -> dict[str, Any]:
    """The requests to a leader whose ListOffsets goes up to `version`, by name, in the order in which it reads."""

    def offsets(questions: Mapping[str, Question]) -> dict[str, Any]:
        return {name: list_offsets(q, epochs) for name, q in questions.items() if q.since <= version}

    if not whole:
        return offsets(ENDS | AFTER)
    topics = by_topic([*epochs])
    return {
        # The size is read before and after the offsets; the difference is its error.
        "size_before": describe_log_dirs(topics),
        **offsets(LOCAL_START | ENDS),
        **offsets((LOG_END if has_log_end(supported) else {}) | AFTER),
        "size_after": describe_log_dirs(topics),
    }


def _parse(replies: Mapping[str, Reply], partitions: Sequence[TopicPartition]) -> dict[TopicPartition, Read | Failure]:
    """The observed columns of every partition, or a Failure if it cannot be read."""
    sizes = ("size_before", "size_after")
    asked = {name: reply.answer for name, reply in replies.items() if name not in sizes}
    offsets = {name: parse_offsets(answer) for name, answer in asked.items()}
    before, after = (parse_sizes(replies[name].answer) if name in replies else {} for name in sizes)
    rows: dict[TopicPartition, Read | Failure] = {}
    for p in partitions:
        found = {name: offsets[name].get(p) for name in asked}
        failure = _first_failure(asked, found)
        rows[p] = failure or {
            "captured_at": replies["high_watermark"].arrived_at,
            **{name: _offset(row) for name, row in found.items()},
            **_size(before.get(p), after.get(p)),
        }
    return {p: row if isinstance(row, Failure) else _in_order(row) for p, row in rows.items()}


def _first_failure(answers: Mapping[str, Any], found: Mapping[str, Any]) -> Failure | None:
    """The failure of a required column, or one that may be answered if asked for again."""
    for name, row in found.items():
        failure = _failure(answers[name], row)
        if failure and (name in REQUIRED or failure.is_retriable):
            return failure
    return None


def _failure(answer: Any, row: Any) -> Failure | None:
    if isinstance(answer, Failure):
        return answer
    if row is None:  # the broker left the partition out
        return Failure("UNKNOWN_TOPIC_OR_PARTITION")
    error = error_name(row.error_code)
    return Failure(error) if error else None


def _in_order(row: Read) -> Read:
    """The row with its last stable offset as of when the high watermark was read: it cannot have been beyond that."""
    stable, high = row.get("last_stable_offset"), row["high_watermark"]
    return row if stable is None or high is None else row | {"last_stable_offset": min(stable, high)}


def _is_replicated(row: Read) -> bool:
    end, high = row.get("log_end_offset"), row.get("high_watermark_after")
    return end is None or high is None or high >= end


def _has_records(row: Read) -> bool:
    return bool(row["log_start_offset"] < row["high_watermark"])


def _still_later(row: Any) -> Read:
    offset = _offset(row)
    return {} if offset is None else {"high_watermark_after": offset}


def _offset(row: Any) -> int | None:
    return None if row is None or row.error_code else known(row.offset)


def _newest(row: Any) -> dict[str, int | None]:
    """The record with the newest timestamp. If no record has a time, the timestamp alone is NULL."""
    offset = _offset(row)
    timestamp = None if offset is None else record_time(row.timestamp)
    return {"max_timestamp_ms": timestamp, "max_timestamp_offset": offset}


def _size(before: int | None, after: int | None) -> dict[str, int | None]:
    if before is None or after is None:
        return {"log_bytes": None, "log_bytes_error": None}
    return {"log_bytes": after, "log_bytes_error": abs(after - before)}


def read_partitions(
    client: KafkaClient, placements: dict[TopicPartition, Placement]
) -> dict[TopicPartition, Read | Failure]:
    """All observed columns of partitions. `placements` are updated if a partition has moved."""
    answers = read_ends(client, placements, whole=True)
    read = {p: row for p, row in answers.items() if not isinstance(row, Failure)}
    rest = read_rest(client, placements, read) if read else {}
    transactions = read_transactions(client, placements, read)
    return answers | {p: row | rest[p] | transactions.get(p, {}) for p, row in read.items()}


class WatermarksReader(KafkaReader):
    """By leader and chunk of partitions."""

    def plan(self, client: KafkaClient) -> list[Chunk]:
        """Reads the metadata of all topics, and applies the filter before anything else is asked."""
        placements = all_placements(client)
        by_leader: dict[int, list[tuple[TopicPartition, Placement]]] = {}
        for partition in sorted(placements):
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
        answers = read_partitions(client, placements)
        yield watermark_columns(placements, answers)

    def unread(self, chunk: Chunk, reason: ClusterError) -> Iterator[Columns]:
        """One row for each partition."""
        yield watermark_columns(dict(chunk.items), {p: Failure(reason.error) for p, _ in chunk.items})


class WatermarksSource(KafkaSource):
    """Columns: those of table `watermarks` without the snapshot's."""

    observed = WATERMARKS.observed
    reader_class = WatermarksReader

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "kafka_watermarks"


def watermark_columns(
    placements: Mapping[TopicPartition, Placement], answers: Mapping[TopicPartition, Read | Failure]
) -> Columns:
    """The rows of partitions, in columns."""
    rows = [_row(p, placements[p], answers[p]) for p in sorted(answers)]
    return {name: [row.get(name) for row in rows] for name in WATERMARKS.observed.names}


def _row(partition: TopicPartition, placement: Placement, answer: Read | Failure) -> dict[str, Any]:
    observed = {"captured_at": utc_now(), "error": answer.error} if isinstance(answer, Failure) else answer
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
