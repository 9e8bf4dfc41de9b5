"""Data source `kafka_committed_offsets`: the commits of every group, by raw OffsetFetch requests (KIP-709)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import accumulate, repeat
from typing import Any, NamedTuple

from kafka.protocol.consumer import OffsetFetchRequest

from pipeline.common.epoch import utc_now
from pipeline.common.errors import ClusterError
from pipeline.kafka.client import Asked, KafkaClient, in_chunks
from pipeline.kafka.connections import Reply
from pipeline.kafka.failures import Failure, error_name
from pipeline.kafka.groups import Item, ListedGroup, Unlisted, chunks_by_coordinator
from pipeline.kafka.source import Chunk, Columns, KafkaReader, KafkaSource, known
from pipeline.tables import COMMITTED_OFFSETS

GROUPS_PER_REQUEST = 25
SOURCE = "offset_fetch"
MAX_METADATA_BYTES = 1024**2
"""How much metadata of one group's commits is kept. Each commit may have 4 KB, and 25 groups are read at a time."""

_NO_GROUP_OFFSETS = {"share"}
"""Types of groups without committed offsets: share groups have an acquisition state instead (KIP-932)."""


Partitions = Mapping[str, Sequence[int]]
"""Partition numbers by topic."""


def offset_fetch(groups: Sequence[str], named: Mapping[str, Partitions] | None = None) -> Any:
    """OffsetFetch v8+ for all committed partitions of many groups, or for the partitions `named` for each group.

    Not v10+, which knows topics only by id.
    """
    group = OffsetFetchRequest.OffsetFetchRequestGroup
    topic = group.OffsetFetchRequestTopics

    def topics_of(group_id: str) -> list[Any] | None:
        if named is None:
            return None
        return [topic(name=name, partition_indexes=[*partitions]) for name, partitions in named[group_id].items()]

    items = [group(group_id=group_id, topics=topics_of(group_id)) for group_id in groups]
    return OffsetFetchRequest(groups=items, require_stable=False, min_version=8, max_version=9)


def offset_fetch_of_one(group: str, named: Mapping[str, Partitions] | None = None) -> Any:
    """OffsetFetch v2 to v7 for one group, for brokers before 3.0."""
    topic = OffsetFetchRequest.OffsetFetchRequestTopic
    topics = None if named is None else [topic(name=t, partition_indexes=[*ps]) for t, ps in named[group].items()]
    return OffsetFetchRequest(group_id=group, topics=topics, require_stable=False, min_version=2, max_version=7)


def parse(group: Any, wanted: Callable[[str], bool], arrived_at: datetime) -> Failure | Columns:
    """The rows of one group, or the Failure of the whole group. A commit of -1 means no commit (NULL)."""
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
        "captured_at": [arrived_at] * size,
        "topic": topics,
        "partition": [p.partition_index for p in partitions],
        "committed_offset": [known(p.committed_offset) for p in partitions],
        "leader_epoch": [known(p.committed_leader_epoch) for p in partitions],
        "metadata": metadata_within_limit([p.metadata or "" for p in partitions]),
        "source": [SOURCE] * size,
        "error": [error_name(p.error_code) for p in partitions],
    }


def metadata_within_limit(metadata: Sequence[str]) -> list[str | None]:
    """The metadata of one group; NULL for each text beyond MAX_METADATA_BYTES in all."""
    totals = accumulate(len(text.encode()) for text in metadata)
    return [
        text if total <= MAX_METADATA_BYTES or not text else None for text, total in zip(metadata, totals, strict=True)
    ]


def keeps_offsets(group: ListedGroup) -> bool:
    """Whether groups of this type have committed offsets."""
    return group.group_type not in _NO_GROUP_OFFSETS


def read_commits(
    client: KafkaClient,
    coordinators: Mapping[str, int | None],
    wanted: Callable[[str], bool],
    named: Mapping[str, Partitions] | None = None,
) -> dict[str, Columns | Failure]:
    """The commits of each group, or a Failure if they cannot be read. All coordinators are asked at once."""

    def ask(broker: int | None, groups: Sequence[str]) -> Asked[str]:
        return _requests(client, broker, groups, wanted, named)

    return client.ask_all(coordinators, ask, client.coordinators)


class CommittedOffsetsReader(KafkaReader):
    """By coordinator and chunk of groups."""

    def plan(self, client: KafkaClient) -> list[Chunk]:
        """Lists the groups, and applies the filter before anything else is asked."""
        return chunks_by_coordinator(client)

    def fetch(self, client: KafkaClient, chunk: Chunk) -> Iterator[Columns]:
        """A group that could not be read is one row with its error."""
        listed = [g for g in chunk.items if isinstance(g, ListedGroup) and keeps_offsets(g)]
        answers = read_commits(client, {g.group_id: g.coordinator for g in listed}, self.options.topics.matcher())
        yield from commit_columns(answers, chunk.items)

    def unread(self, chunk: Chunk, reason: ClusterError) -> Iterator[Columns]:
        """One row for each group."""
        yield unread_commits(chunk.items, reason)


class CommittedOffsetsSource(KafkaSource):
    """Columns: those of table `committed_offsets` without the snapshot's."""

    observed = COMMITTED_OFFSETS.observed
    reader_class = CommittedOffsetsReader

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "kafka_committed_offsets"


def commit_columns(answers: Mapping[str, Columns | Failure], items: Sequence[Item] = ()) -> Iterator[Columns]:
    """The rows of all groups; a group that could not be read or listed is one row with its error."""
    read = {g: a for g, a in answers.items() if not isinstance(a, Failure)}
    if read:
        yield _together(read)
    failed = [_Unread(g, None, a.error) for g, a in answers.items() if isinstance(a, Failure)]
    failed += [_Unread(None, i.partition, i.error) for i in items if isinstance(i, Unlisted)]
    if failed:
        yield _failed(failed)


def commits_by_name(
    answer: Columns | Failure, named: Partitions, absent: Collection[tuple[str, int]]
) -> dict[str, list[Any]]:
    """The rows of one group's partitions that were asked for by name: those with an error, and those that are absent.

    The row of an absent partition has no error, but the time at which its log was looked for (`ends_at`). If the group
    could not be asked, there is a row with the error for each partition in `named`.
    """
    if isinstance(answer, Failure):
        pairs = [(topic, partition) for topic, partitions in named.items() for partition in partitions]
        size = len(pairs)
        answer = {
            "captured_at": [utc_now()] * size,
            "topic": [topic for topic, _ in pairs],
            "partition": [partition for _, partition in pairs],
            "committed_offset": [None] * size,
            "source": [SOURCE] * size,
            "error": [answer.error] * size,
        }
    rows = [dict(zip(answer, row, strict=True)) for row in zip(*answer.values(), strict=True)]
    kept = [row for row in rows if row["error"] or (row["topic"], row["partition"]) in absent]
    names = ("captured_at", "topic", "partition", "committed_offset", "source", "error")
    found = {name: [row[name] for row in kept] for name in names}
    return found | {"ends_at": [None if row["error"] else row["captured_at"] for row in kept]}


def unread_commits(items: Sequence[Item], reason: ClusterError) -> Columns:
    """The error rows of groups, if the cluster cannot be reached any more."""
    failed = [_Unread(i.group_id, None, reason.error) for i in items if isinstance(i, ListedGroup)]
    failed += [_Unread(None, i.partition, i.error) for i in items if isinstance(i, Unlisted)]
    return _failed(failed)


def _requests(
    client: KafkaClient,
    broker: int | None,
    groups: Sequence[str],
    wanted: Callable[[str], bool],
    named: Mapping[str, Partitions] | None,
) -> Asked[str]:
    if (client.version(OffsetFetchRequest, broker) or 0) < 8:

        def parse_each(replies: Sequence[Reply]) -> dict[str, Columns | Failure]:
            found = zip(groups, replies, strict=True)
            return {g: a if isinstance(a, Failure) else parse(a, wanted, at) for g, (a, at) in found}

        return [offset_fetch_of_one(g, named) for g in groups], parse_each
    parts = list(in_chunks(groups, GROUPS_PER_REQUEST))

    def parse_all(replies: Sequence[Reply]) -> dict[str, Columns | Failure]:
        results: dict[str, Columns | Failure] = {}
        for part, (answer, arrived_at) in zip(parts, replies, strict=True):
            if isinstance(answer, Failure):
                results |= dict.fromkeys(part, answer)
            else:
                results |= {g.group_id: parse(g, wanted, arrived_at) for g in answer.groups}
        return results

    return [offset_fetch(part, named) for part in parts], parse_all


def _together(groups: Mapping[str, Columns]) -> Columns:
    together: dict[str, list[Any]] = {"group_id": []}
    for group, columns in groups.items():
        together["group_id"].extend(repeat(group, len(columns["topic"])))
        for name, values in columns.items():
            together.setdefault(name, []).extend(values)
    return together


class _Unread(NamedTuple):
    """A group that could not be read; or, without a name, the groups of a partition of __consumer_offsets."""

    group_id: str | None
    partition: int | None
    error: str


def _failed(unread: Sequence[_Unread]) -> Columns:
    return {
        "captured_at": [utc_now()] * len(unread),
        "group_id": [u.group_id for u in unread],
        "partition": [u.partition for u in unread],
        "source": [SOURCE] * len(unread),
        "error": [u.error for u in unread],
    }
