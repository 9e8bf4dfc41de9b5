"""Data source `kafka_committed_offsets`: what every group has committed, by raw OffsetFetch (KIP-709)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import repeat
from typing import Any

from kafka.protocol.consumer import OffsetFetchRequest

from pipeline.errors import ClusterError
from pipeline.kafka.client import Failure, KafkaClient, error_name, in_chunks
from pipeline.kafka.groups import ListedGroup, Unlisted, chunks_by_coordinator
from pipeline.kafka.source import UNREACHABLE, Chunk, Columns, KafkaReader, KafkaSource, known, now
from pipeline.tables import COMMITTED_OFFSETS

GROUPS_PER_REQUEST = 25
SOURCE = "offset_fetch"

_NO_GROUP_OFFSETS = {"share"}
"""Types of group that keep no committed offsets: share groups have an acquisition state instead (KIP-932)."""


def offset_fetch(groups: Sequence[str]) -> Any:
    """OffsetFetch v8+ for all committed partitions of many groups. Not v10+, which knows topics by id alone."""
    group = OffsetFetchRequest.OffsetFetchRequestGroup
    items = [group(group_id=g, topics=None) for g in groups]
    return OffsetFetchRequest(groups=items, require_stable=False, min_version=8, max_version=9)


def offset_fetch_of_one(group: str) -> Any:
    """OffsetFetch v2 to v7 for one group: brokers before 3.0."""
    return OffsetFetchRequest(group_id=group, topics=None, require_stable=False, min_version=2, max_version=7)


def parse(group: Any, wanted: Callable[[str], bool]) -> Failure | Columns:
    """The rows of one group, or the Failure of the whole group. A commit of -1 is none (NULL)."""
    if group.error_code:
        return Failure(error_name(group.error_code) or "")
    topics: list[str] = []
    partitions: list[Any] = []
    for topic in group.topics:
        if wanted(topic.name):
            topics.extend(repeat(topic.name, len(topic.partitions)))
            partitions.extend(topic.partitions)
    size = len(topics)
    return {
        "captured_at": [now()] * size,
        "topic": topics,
        "partition": [p.partition_index for p in partitions],
        "committed_offset": [known(p.committed_offset) for p in partitions],
        "leader_epoch": [known(p.committed_leader_epoch) for p in partitions],
        "metadata": [p.metadata for p in partitions],
        "source": [SOURCE] * size,
        "error": [error_name(p.error_code) for p in partitions],
    }


class CommittedOffsetsReader(KafkaReader):
    """By coordinator and chunk of groups."""

    def plan(self, client: KafkaClient) -> list[Chunk]:
        """Lists the groups; the filter is applied before anything else is asked."""
        return chunks_by_coordinator(client)

    def fetch(self, client: KafkaClient, chunk: Chunk) -> Iterator[Columns]:
        """A group that could not be read is one row with its error."""
        listed = [g for g in chunk.items if isinstance(g, ListedGroup) and g.group_type not in _NO_GROUP_OFFSETS]
        wanted = self.options.topics.matcher()

        def ask(broker: int | None, groups: Sequence[str]) -> Mapping[str, Any]:
            return _ask(client, broker, groups, wanted)

        answers = client.ask_all({g.group_id: g.coordinator for g in listed}, ask, client.coordinators)
        read = {g: a for g, a in answers.items() if not isinstance(a, Failure)}
        if read:
            yield _together(read)
        failed: list[tuple[str | None, str]]
        failed = [(g, a.error) for g, a in answers.items() if isinstance(a, Failure)]
        failed += [(None, i.error) for i in chunk.items if isinstance(i, Unlisted)]
        if failed:
            yield _failed([g for g, _ in failed], [error for _, error in failed])

    def unread(self, chunk: Chunk, reason: ClusterError) -> Columns:
        """One row for each group."""
        groups = [i.group_id if isinstance(i, ListedGroup) else None for i in chunk.items]
        return _failed(groups, [i.error if isinstance(i, Unlisted) else UNREACHABLE for i in chunk.items])


class CommittedOffsetsSource(KafkaSource):
    """Columns: those of table `committed_offsets` without the snapshot's."""

    observed = COMMITTED_OFFSETS.observed
    reader_class = CommittedOffsetsReader

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "kafka_committed_offsets"


def _ask(
    client: KafkaClient, broker: int | None, groups: Sequence[str], wanted: Callable[[str], bool]
) -> dict[str, Any]:
    if (client.version(OffsetFetchRequest) or 0) < 8:
        answers = client.exchange([(broker, offset_fetch_of_one(g)) for g in groups])
        return {g: a if isinstance(a, Failure) else parse(a, wanted) for g, a in zip(groups, answers, strict=True)}
    parts = list(in_chunks(groups, GROUPS_PER_REQUEST))
    results: dict[str, Any] = {}
    for part, answer in zip(parts, client.exchange([(broker, offset_fetch(p)) for p in parts]), strict=True):
        if isinstance(answer, Failure):
            results |= dict.fromkeys(part, answer)
        else:
            results |= {g.group_id: parse(g, wanted) for g in answer.groups}
    return results


def _together(groups: Mapping[str, Columns]) -> Columns:
    together: dict[str, list[Any]] = {"group_id": []}
    for group, columns in groups.items():
        together["group_id"].extend(repeat(group, len(columns["topic"])))
        for name, values in columns.items():
            together.setdefault(name, []).extend(values)
    return together


def _failed(groups: Sequence[str | None], errors: Sequence[str]) -> Columns:
    return {
        "captured_at": [now()] * len(groups),
        "group_id": groups,
        "source": [SOURCE] * len(groups),
        "error": errors,
    }
