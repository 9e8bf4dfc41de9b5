"""Asks for groups by name: whether groups that are not listed any more are gone, or only cannot be listed now."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

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

_GONE = "GROUP_ID_NOT_FOUND"
_NOT_LISTED = Failure("COORDINATOR_NOT_AVAILABLE")
"""What is said of a group that exists although no coordinator has listed it: its coordinator was moving."""


def ask_for_groups(options: Mapping[str, str], group_types: Mapping[str, str | None]) -> Iterator[pa.RecordBatch]:
    """Asks for groups by name, given with their types as they were listed before, until `read_timeout_ms` from now.

    It returns rows as the source `kafka_snapshot` does: for each group that is not gone, a row with an error of each
    bronze table that has groups. It does not ask for groups that the filter excludes, and for share and streams groups,
    which Kafka cannot describe for us.
    """
    own = SourceOptions.parse(options)
    deadline_ms = own.deadline_ms()
    reader = SnapshotReader(SnapshotSource(dict(options)).schema(), own)
    wanted = [
        ListedGroup(name, None, group_types[name], None, None)
        for name in own.groups.select(group_types)
        if group_types[name] in (None, CLASSIC, CONSUMER)
    ]
    for groups in in_chunks(wanted, own.groups_per_task):
        for columns in _columns(own, deadline_ms, groups, reader):
            yield from reader.batches(columns)


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
