"""Asks for groups by name: whether groups that are not listed any more are gone, or only cannot be listed now."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StringType, StructField, StructType

from pipeline.common.errors import ClusterError
from pipeline.kafka.client import KafkaClient, in_chunks
from pipeline.kafka.committed_offsets import commit_columns
from pipeline.kafka.failures import Failure
from pipeline.kafka.group_members import CLASSIC, CONSUMER, member_columns, read_members
from pipeline.kafka.groups import ListedGroup
from pipeline.kafka.options import SourceOptions
from pipeline.kafka.snapshot import SnapshotReader, SnapshotSource, of_kind
from pipeline.kafka.source import Columns
from pipeline.tables import COMMITTED_OFFSETS, GROUP_MEMBERS

KNOWN_GROUPS = StructType([StructField("group_id", StringType()), StructField("group_type", StringType())])
"""The groups to ask for, and their types as they were listed before."""

_GONE = "GROUP_ID_NOT_FOUND"
_NOT_LISTED = Failure("COORDINATOR_NOT_AVAILABLE")
"""What is said of a group that exists although no coordinator has listed it: its coordinator was moving."""


def asking_for_groups(options: Mapping[str, str]) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function for `mapInArrow` that asks for KNOWN_GROUPS, until `read_timeout_ms` from now.

    It returns rows as the source `kafka_snapshot` does: for each group that is not gone, a row with an error of each
    bronze table that has groups. It does not ask for groups that the filter excludes, and for share and streams groups,
    which Kafka cannot describe for us.
    """
    deadline_ms = SourceOptions.parse(options).deadline_ms()
    schema = SnapshotSource(dict(options)).schema()

    def ask(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        own = SourceOptions.parse(options)
        reader = SnapshotReader(schema, own)
        for groups in in_chunks(_wanted(batches, own), own.groups_per_task):
            for columns in _columns(own, deadline_ms, groups, reader):
                yield from reader.batches(columns)

    return ask


def _wanted(batches: Iterable[pa.RecordBatch], options: SourceOptions) -> Iterator[ListedGroup]:
    for batch in batches:
        types = dict(zip(*(batch[name].to_pylist() for name in KNOWN_GROUPS.names), strict=True))
        for name in options.groups.select(types):
            if types[name] in (None, CLASSIC, CONSUMER):
                yield ListedGroup(name, None, types[name], None, None)


def _columns(
    options: SourceOptions, deadline_ms: float, groups: Sequence[ListedGroup], reader: SnapshotReader
) -> Iterator[Columns]:
    requests: Counter[int | None] = Counter()
    try:
        with KafkaClient(options.until(deadline_ms)) as client:
            answers = read_members(client, groups, options.topics.matcher())
            requests.update(client.requests)
    except ClusterError as reason:
        answers = dict.fromkeys((group.group_id for group in groups), Failure(reason.error))
    unread = {name: failure for name, answer in answers.items() if (failure := _why_unread(answer))}
    yield of_kind(GROUP_MEMBERS.name, member_columns([g for g in groups if g.group_id in unread], unread))
    for columns in commit_columns(unread):
        yield of_kind(COMMITTED_OFFSETS.name, columns)
    if options.count_requests:
        yield reader.counted(requests)


def _why_unread(answer: Any) -> Failure | None:
    """Why a group is missing from the list; None if it is gone."""
    if not isinstance(answer, Failure):
        return _NOT_LISTED
    return None if answer.error == _GONE else answer
