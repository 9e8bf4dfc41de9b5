"""Data source `kafka_snapshot`: members, commits and watermarks of a cluster, read together.

Records that are written after a commit is read, and before the end of its log is read, look like lag. So a task reads
the groups and partitions of its chunk in slices, and each slice in three steps without a pause: the commits, the ends
of their logs, the commits again. When the ends were read, the group's commit was between `earlier_offset` and
`committed_offset`, whatever moved meanwhile.

The rest of a partition's row is read last, so the ends in that row are seldom older than those read with a commit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import ceil
from typing import Any, ClassVar

from pyspark.sql.types import StringType, StructField, StructType

from pipeline.common.epoch import utc_now
from pipeline.common.errors import ClusterError
from pipeline.kafka.client import KafkaClient, in_chunks
from pipeline.kafka.committed_offsets import (
    Partitions,
    commit_columns,
    commits_by_name,
    keeps_offsets,
    read_commits,
    unread_commits,
)
from pipeline.kafka.epochs import Epoch, read_epoch_ends
from pipeline.kafka.failures import Failure
from pipeline.kafka.group_members import Row, member_columns, read_members, unread_members
from pipeline.kafka.groups import ListedGroup, Unproven, list_groups
from pipeline.kafka.log_ends import AFTER, ENDS
from pipeline.kafka.partitions import ABSENT, Placement, TopicPartition, all_placements, by_topic, current_leaders
from pipeline.kafka.source import Chunk, Columns, KafkaReader, KafkaSource
from pipeline.kafka.watermarks import PARTITIONS_AT_ONCE, Read, read_ends, read_partitions, watermark_columns
from pipeline.tables import BRONZE, COMMITTED_OFFSETS, GROUP_MEMBERS, WATERMARKS

KIND = "kind"
REQUESTS = "requests"
"""The kind of the rows that count requests."""
UNPROVEN = "unproven"
"""The kind of a row without values: groups may be missing without an error. A row of any other kind is of the bronze
table with that name."""

GROUPS_AT_ONCE = 25
ENDS_READ = (*ENDS, *AFTER)
BRACKET = ("earlier_offset", *ENDS_READ, "ends_at", "epoch_end_offset")
"""The columns of a commit that are read together with it."""

Commits = dict[str, "Columns | Failure"]


def _merged() -> StructType:
    """The columns of all bronze tables; a row has values only in those of its kind."""
    fields = {f.name: f for table in BRONZE for f in table.observed.fields}
    return StructType([StructField(KIND, StringType()), *fields.values()])


class SnapshotReader(KafkaReader):
    """Reads chunks of groups. Chunks of partitions are read with the last chunks of groups, after the commits."""

    def plan(self, client: KafkaClient) -> list[Chunk]:
        """Reads the metadata and lists the groups, once, and applies the filters before anything else is asked."""
        placements = all_placements(client)
        groups, unlisted, unproven = list_groups(client)
        groups.sort(key=lambda g: (g.coordinator, g.group_id))
        partitions = sorted(placements, key=lambda p: (placements[p].leader, p))
        of_partitions = ceil(len(partitions) / self.options.partitions_per_task)
        of_groups = ceil(len(groups) / self.options.groups_per_task)
        tasks = max(1, of_groups, of_partitions)
        items: list[list[Any]] = [[*_share(groups, number, of_groups)] for number in range(of_groups)]
        items += [[] for _ in range(tasks - of_groups)]
        items[0] += unlisted
        if unproven:
            items[0].append(unproven)
        # Spark starts the tasks in this order, so the last ones seldom end before others have read their commits.
        shares: list[dict[TopicPartition, Placement]] = [{} for _ in range(tasks - of_partitions)]
        shares += [{p: placements[p] for p in _share(partitions, n, of_partitions)} for n in range(of_partitions)]
        return [Chunk(None, None, some, placements=share) for some, share in zip(items, shares, strict=True)]

    def fetch(self, client: KafkaClient, chunk: Chunk) -> Iterator[Columns]:
        """What cannot be read is a row with its error."""
        yield from _without_proof(chunk)
        listed = [g for g in chunk.items if isinstance(g, ListedGroup)]
        members = read_members(client, listed, self.options.topics.matcher())
        yield of_kind(GROUP_MEMBERS.name, member_columns(chunk.items, members))
        reader = _CommitReader(client, dict(chunk.placements), members)
        for groups in in_chunks((g for g in listed if keeps_offsets(g)), GROUPS_AT_ONCE):
            for columns in reader.commits(groups):
                yield of_kind(COMMITTED_OFFSETS.name, columns)
        for columns in commit_columns({}, chunk.items):
            yield of_kind(COMMITTED_OFFSETS.name, columns)
        placements = {p: reader.placements[p] for p in chunk.placements}
        yield of_kind(WATERMARKS.name, watermark_columns(placements, read_partitions(client, placements)))

    def unread(self, chunk: Chunk, reason: ClusterError) -> Iterator[Columns]:
        """A row for each group and kind, and for each partition."""
        yield from _without_proof(chunk)
        yield of_kind(GROUP_MEMBERS.name, unread_members(chunk.items, reason))
        yield of_kind(COMMITTED_OFFSETS.name, unread_commits(chunk.items, reason))
        failed = dict.fromkeys(chunk.placements, Failure(reason.error))
        yield of_kind(WATERMARKS.name, watermark_columns(chunk.placements, failed))

    def counted(self, requests: Mapping[int | None, int]) -> Columns:
        """The rows that count requests, with their kind."""
        return of_kind(REQUESTS, super().counted(requests))


class SnapshotSource(KafkaSource):
    """Columns: kind, and those of the tables `committed_offsets`, `group_members` and `watermarks`."""

    observed: ClassVar[StructType] = _merged()
    reader_class = SnapshotReader

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "kafka_snapshot"


class _CommitReader:
    """The commits of one chunk, slice by slice."""

    def __init__(
        self,
        client: KafkaClient,
        placements: dict[TopicPartition, Placement],
        members: Mapping[str, list[Row] | Failure],
    ) -> None:
        self.client = client
        self.placements = placements
        """The placements that are known. Those of other partitions with commits are added when they are found."""
        self.absent: set[TopicPartition] = set()
        """Partitions with commits or members of which a broker has said that they do not exist."""
        self.ended: dict[Epoch, int | None] = {}
        self.members = members
        self.wanted = client.options.topics.matcher()

    def commits(self, groups: Sequence[ListedGroup]) -> Iterator[Columns]:
        """The commits of some groups, read twice, with the ends of their logs read in between."""
        coordinators = {g.group_id: g.coordinator for g in groups}
        earlier = {g: _without_metadata(a) for g, a in read_commits(self.client, coordinators, self.wanted).items()}
        found: Commits = {}
        for some in _slices(earlier):
            ends = self.ends({p for group in some for p in _partitions(earlier[group])})
            later = read_commits(self.client, {group: coordinators[group] for group in some}, self.wanted)
            epoch_ends = self.epoch_ends(later.values())
            found |= {g: _joined(earlier[g], later[g], ends, epoch_ends) for g in some}
        commits = earlier | found
        yield from commit_columns(commits)
        yield from commit_columns(self.not_listed(coordinators, commits))

    def ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Read | Failure]:
        """The ends of logs, read now.

        A partition without a leader is asked for only once more, because the commits are waiting to be read again.
        """
        wanted = set(partitions)
        placements = self.placements_of(wanted)
        ends = read_ends(self.client, placements, whole=False, retries=1)
        self.placements.update(placements)
        # That a partition is absent was read, too: its ends have a time and no offsets.
        return ends | {p: {"captured_at": utc_now()} for p in wanted & self.absent}

    def epoch_ends(self, commits: Iterable[Columns | Failure]) -> Mapping[Epoch, int | None]:
        """Where the leader epochs of commits end. The leader's current epoch is left out, because it has no end yet."""
        epochs = {epoch for columns in commits for epoch in _epochs(columns)}
        placements = self.placements_of({epoch.partition for epoch in epochs - self.ended.keys()})
        wanted = [
            e
            for e in epochs - self.ended.keys()
            if (placement := placements.get(e.partition)) and 0 <= e.leader_epoch < placement.leader_epoch
        ]
        self.ended |= read_epoch_ends(self.client, placements, wanted)
        return self.ended

    def placements_of(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Placement]:
        """The placements of partitions; partitions that the cluster does not list are left out."""
        wanted = set(partitions)
        unknown = wanted - self.placements.keys() - self.absent
        if unknown:
            leaders = current_leaders(self.client, self.placements, sorted(unknown))
            self.absent |= {p for p, leader in leaders.items() if leader == ABSENT}
        return {p: self.placements[p] for p in wanted if p in self.placements}

    def not_listed(self, coordinators: Mapping[str, int | None], commits: Commits) -> Commits:
        """The rows of partitions that members hold and the cluster does not list, unless `commits` have them.

        Kafka leaves out the commits in topics that may not be described. If Kafka is asked for them by name, it returns
        an error. If there is none, and the partition is absent, the topic was deleted while the members held it.
        """
        named: dict[str, Partitions] = {}
        for group in coordinators:
            held = {_partition_of(row) for row in _rows(self.members.get(group)) if row.get("topic")}
            unseen = held - self.placements_of(held).keys() - {*_partitions(commits[group])}
            if unseen:
                named[group] = by_topic(sorted(unseen))
        if not named:
            return {}
        answers = read_commits(self.client, {g: coordinators[g] for g in named}, self.wanted, named)
        return {g: commits_by_name(a, named[g], self.absent) for g, a in answers.items()}


def _without_proof(chunk: Chunk) -> Iterator[Columns]:
    if any(isinstance(item, Unproven) for item in chunk.items):
        yield {KIND: [UNPROVEN]}


def _share(items: Sequence[Any], number: int, of: int) -> Sequence[Any]:
    """Part number `number` of `of` parts of about equal size."""
    return items[len(items) * number // of : len(items) * (number + 1) // of]


def of_kind(kind: str, columns: Columns) -> Columns:
    """Rows of one kind."""
    rows = max(map(len, columns.values()), default=0)
    return {KIND: [kind] * rows, **columns}


def _rows(answer: list[Row] | Failure | None) -> list[Row]:
    return [] if answer is None or isinstance(answer, Failure) else answer


def _partition_of(row: Row) -> TopicPartition:
    return TopicPartition(row["topic"], row["partition"])


def _partitions(columns: Columns | Failure) -> list[TopicPartition]:
    if isinstance(columns, Failure):
        return []
    return list(map(TopicPartition, columns["topic"], columns["partition"]))


def _without_metadata(answer: Columns | Failure) -> Columns | Failure:
    """A group's commits as they were first read. Only their offsets are needed, because they are read again."""
    return answer if isinstance(answer, Failure) else {**answer, "metadata": [None] * len(answer["topic"])}


def _slices(commits: Commits) -> Iterator[list[str]]:
    """The groups that could be read, in slices small enough that the ends of their logs are read at one moment."""
    some: list[str] = []
    partitions: set[TopicPartition] = set()
    for group, columns in commits.items():
        if isinstance(columns, Failure):
            continue
        partitions.update(_partitions(columns))
        some.append(group)
        if len(partitions) >= PARTITIONS_AT_ONCE:
            yield some
            some, partitions = [], set()
    if some:
        yield some


def _joined(
    earlier: Columns | Failure,
    later: Columns | Failure,
    ends: Mapping[TopicPartition, Read | Failure],
    epoch_ends: Mapping[Epoch, int | None],
) -> Columns | Failure:
    """The later commits of a group, with the earlier ones and with the ends that were read between them.

    If the commits could not be read again, the earlier ones are returned, without ends and metadata. A commit that is
    new since they were first read is left to the next snapshot, because no end was read at that moment.
    """
    if isinstance(earlier, Failure):
        return earlier
    if isinstance(later, Failure):
        return {**earlier, **{name: [None] * len(earlier["topic"]) for name in BRACKET}}
    before = dict(zip(_partitions(earlier), earlier["committed_offset"], strict=True))
    kept = [number for number, p in enumerate(_partitions(later)) if p in before]
    later = {name: [values[number] for number in kept] for name, values in later.items()}
    partitions = _partitions(later)
    read = [_ends(ends.get(p)) for p in partitions]
    return {
        **later,
        "earlier_offset": [before.get(p) if end else None for p, end in zip(partitions, read, strict=True)],
        **{name: [end.get(name) for end in read] for name in ENDS_READ},
        "ends_at": [end.get("captured_at") for end in read],
        "epoch_end_offset": [epoch_ends.get(epoch) for epoch in _epochs(later)],
    }


def _epochs(columns: Columns | Failure) -> list[Epoch]:
    """The leader epoch of each commit; -1 if none is stored."""
    if isinstance(columns, Failure):
        return []
    return [
        Epoch(p, -1 if epoch is None else epoch)
        for p, epoch in zip(_partitions(columns), columns["leader_epoch"], strict=True)
    ]


def _ends(answer: Read | Failure | None) -> Read:
    return {} if answer is None or isinstance(answer, Failure) else answer
