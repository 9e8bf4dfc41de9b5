"""Data source `kafka_group_members`: state, members and assignments of every group.

Classic groups by DescribeGroups; groups of the new protocol (KIP-848) by ConsumerGroupDescribe, as DescribeGroups calls
them dead. Share and streams groups are rows with their type and state.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from kafka.protocol.admin import DescribeGroupsRequest
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.consumer import ConsumerProtocolAssignment

from pipeline.errors import ClusterError
from pipeline.kafka.client import Failure, KafkaClient, error_name
from pipeline.kafka.groups import ListedGroup, Unlisted, chunks_by_coordinator
from pipeline.kafka.source import UNREACHABLE, Chunk, Columns, KafkaReader, KafkaSource, now
from pipeline.tables import GROUP_MEMBERS

CLASSIC, CONSUMER = "classic", "consumer"

Row = dict[str, Any]
Wanted = Callable[[str], bool]
"""Whether the filter lets a topic pass."""


class ConsumerGroupDescribeRequest(ApiMessage, load_json="pipeline.kafka.schemas"):  # type: ignore[misc, call-arg]
    """API 69 (KIP-848), which kafka-python does not have."""


class ConsumerGroupDescribeResponse(ApiMessage, load_json="pipeline.kafka.schemas"):  # type: ignore[misc, call-arg]
    """The answer to it."""


def parse_classic(group: Any, wanted: Wanted) -> list[Row] | Failure:
    """Rows of one group of a DescribeGroupsResponse: one for each assigned partition, else for each member."""
    if group.error_code:
        return Failure(error_name(group.error_code) or "")
    if group.group_state == "Dead":  # what brokers before 4.0 call a group that is not there or not classic
        return Failure("GROUP_ID_NOT_FOUND")
    shared = {
        "state": group.group_state or None,
        "protocol": group.protocol_type or None,
        "assignor": group.protocol_data or None,
    }
    rows: list[Row] = []
    for m in group.members:
        member = shared | _member(m.member_id, m.group_instance_id, m.client_id, m.client_host)
        assigned, error = _classic_assignment(group.protocol_type, m.member_assignment)
        rows += _member_rows(member, [(t, p) for t, p in assigned if wanted(t)], error)
    return rows or [shared]


def parse_consumer(group: Any, wanted: Wanted) -> list[Row] | Failure:
    """Rows of one group of a ConsumerGroupDescribeResponse."""
    if group.error_code:
        return Failure(error_name(group.error_code) or "")
    shared = {"state": group.group_state, "protocol": CONSUMER, "assignor": group.assignor_name or None}
    rows: list[Row] = []
    for m in group.members:
        member = shared | _member(m.member_id, m.instance_id, m.client_id, m.client_host)
        topics = [t for t in m.assignment.topic_partitions if wanted(t.topic_name)]
        assigned = [(t.topic_name, p) for t in topics for p in t.partitions]
        rows += _member_rows(member, assigned, None)
    return rows or [shared]


def _member(member_id: str, instance_id: str | None, client_id: str, host: str) -> Row:
    return {
        "member_id": member_id,
        "instance_id": instance_id,
        "client_id": client_id or None,
        "host": host.removeprefix("/") or None,
    }


def _member_rows(member: Row, assigned: Sequence[tuple[str, int]], error: str | None) -> list[Row]:
    if not assigned:
        return [member | {"error": error}]
    return [member | {"topic": topic, "partition": partition} for topic, partition in assigned]


def _classic_assignment(protocol: str, assignment: bytes) -> tuple[list[tuple[str, int]], str | None]:
    if protocol != CONSUMER or not assignment:  # a Connect worker's assignment, say, holds no partitions
        return [], None
    try:
        decoded = ConsumerProtocolAssignment.decode(assignment)
        assigned = [(t.topic, p) for t in decoded.assigned_partitions for p in t.partitions]
    except (ValueError, IndexError, TypeError, struct.error):  # bytes that a client made; the member's row stays
        return [], "INCONSISTENT_GROUP_PROTOCOL"
    if not all(topic for topic, _ in assigned):
        return [], "INCONSISTENT_GROUP_PROTOCOL"
    return assigned, None


class GroupMembersReader(KafkaReader):
    """By coordinator and chunk of groups."""

    def plan(self, client: KafkaClient) -> list[Chunk]:
        """Lists the groups; the filter is applied before anything else is asked."""
        return chunks_by_coordinator(client)

    def fetch(self, client: KafkaClient, chunk: Chunk) -> Iterator[Columns]:
        """A group that could not be described is one row with its listed state and its error."""
        listed = {g.group_id: g for g in chunk.items if isinstance(g, ListedGroup)}

        wanted = self.options.topics.matcher()

        def ask(broker: int | None, groups: Sequence[str]) -> Mapping[str, Any]:
            return _ask(client, broker, [listed[g] for g in groups], wanted)

        places = {g.group_id: g.coordinator for g in listed.values()}
        answers = client.ask_all(places, ask, client.coordinators)
        yield _columns([*_unlisted(chunk), *(row for g, a in answers.items() for row in _rows(listed[g], a))])

    def unread(self, chunk: Chunk, reason: ClusterError) -> Columns:
        """One row for each group."""
        listed = [i for i in chunk.items if isinstance(i, ListedGroup)]
        return _columns([*_unlisted(chunk), *(row for g in listed for row in _rows(g, Failure(UNREACHABLE)))])


class GroupMembersSource(KafkaSource):
    """Columns: those of table `group_members` without the snapshot's."""

    observed = GROUP_MEMBERS.observed
    reader_class = GroupMembersReader

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "kafka_group_members"


def _ask(client: KafkaClient, broker: int | None, groups: Sequence[ListedGroup], wanted: Wanted) -> dict[str, Any]:
    classic = [g.group_id for g in groups if g.group_type in (None, CLASSIC)]
    modern = [g.group_id for g in groups if g.group_type == CONSUMER]
    others = {g.group_id: [{"state": g.state, "protocol": g.protocol}] for g in groups}
    answers: dict[str, Any] = {g: rows for g, rows in others.items() if g not in {*classic, *modern}}
    if classic:
        request = DescribeGroupsRequest(groups=classic, include_authorized_operations=False)
        answers |= _describe(client, broker, classic, request, lambda group: parse_classic(group, wanted))
    if modern:
        request = ConsumerGroupDescribeRequest(group_ids=modern, include_authorized_operations=False)
        answers |= _describe(client, broker, modern, request, lambda group: parse_consumer(group, wanted))
    return answers


def _describe(
    client: KafkaClient, broker: int | None, groups: Sequence[str], request: Any, parse: Any
) -> dict[str, Any]:
    answer = client.exchange([(broker, request)])[0]
    if isinstance(answer, Failure):
        return dict.fromkeys(groups, answer)
    return {g.group_id: parse(g) for g in answer.groups}


def _unlisted(chunk: Chunk) -> list[Row]:
    return [{"error": i.error} for i in chunk.items if isinstance(i, Unlisted)]


def _rows(group: ListedGroup, answer: Any) -> list[Row]:
    listed = {"group_id": group.group_id, "group_type": group.group_type}
    if isinstance(answer, Failure):
        return [listed | {"state": group.state, "protocol": group.protocol, "error": answer.error}]
    return [listed | row for row in answer]


def _columns(rows: Sequence[Row]) -> Columns:
    captured_at = now()
    stamped = [row | {"captured_at": captured_at} for row in rows]
    return {name: [row.get(name) for row in stamped] for name in GROUP_MEMBERS.observed.names}
