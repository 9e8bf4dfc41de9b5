"""Data source `kafka_group_members`: state, members and assignments of every group.

Classic groups are read by DescribeGroups, groups of the new protocol (KIP-848) by ConsumerGroupDescribe, because
DescribeGroups reports them as dead. Share and streams groups are rows with only their type and state.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from kafka.protocol.admin import DescribeGroupsRequest
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.consumer import ConsumerProtocolAssignment, ConsumerProtocolSubscription

from pipeline.common.epoch import utc_now
from pipeline.common.errors import ClusterError
from pipeline.kafka.client import Asked, KafkaClient
from pipeline.kafka.connections import Reply
from pipeline.kafka.failures import Failure, error_name
from pipeline.kafka.groups import Item, ListedGroup, Unlisted, chunks_by_coordinator
from pipeline.kafka.source import Chunk, Columns, KafkaReader, KafkaSource
from pipeline.tables import GROUP_MEMBERS

CLASSIC, CONSUMER = "classic", "consumer"

Row = dict[str, Any]
Wanted = Callable[[str], bool]
"""Whether the filter lets a topic pass."""


class ConsumerGroupDescribeRequest(ApiMessage, load_json="pipeline.kafka.schemas"):  # type: ignore[misc, call-arg]
    """API 69 (KIP-848), which kafka-python does not have."""


class ConsumerGroupDescribeResponse(ApiMessage, load_json="pipeline.kafka.schemas"):  # type: ignore[misc, call-arg]
    """The answer to ConsumerGroupDescribeRequest."""


def parse_classic(group: Any, wanted: Wanted) -> list[Row] | Failure:
    """Rows of one group of a DescribeGroupsResponse: one for each assigned partition, else for each member."""
    if group.error_code:
        return Failure(error_name(group.error_code) or "")
    if group.group_state == "Dead":  # brokers before 4.0 report this for a group that does not exist or is not classic
        return Failure("GROUP_ID_NOT_FOUND")
    shared = {
        "state": group.group_state or None,
        "protocol": group.protocol_type or None,
        "assignor": group.protocol_data or None,
    }
    rows: list[Row] = []
    for m in group.members:
        member = shared | _member(m.member_id, m.group_instance_id, m.client_id, m.client_host)
        member["subscribed_topics"] = _classic_subscription(group.protocol_type, m.member_metadata)
        assigned, error = _classic_assignment(group.protocol_type, m.member_assignment)
        rows += _member_rows(member, [(t, p) for t, p in assigned if wanted(t)], error)
    return rows or [shared]


def parse_consumer(group: Any, wanted: Wanted) -> list[Row] | Failure:
    """Rows of one group of a ConsumerGroupDescribeResponse."""
    if group.error_code:
        return Failure(error_name(group.error_code) or "")
    shared = {
        "state": group.group_state,
        "protocol": CONSUMER,
        "assignor": group.assignor_name or None,
        "group_epoch": group.group_epoch,
        "assignment_epoch": group.assignment_epoch,
    }
    rows: list[Row] = []
    for m in group.members:
        member = shared | _member(m.member_id, m.instance_id, m.client_id, m.client_host)
        member |= {
            "rack": m.rack_id or None,
            "member_epoch": m.member_epoch,
            "subscribed_topics": sorted(m.subscribed_topic_names),
            "subscribed_regex": m.subscribed_topic_regex or None,
        }
        target = set(_partitions(m.target_assignment, wanted))
        assigned = _partitions(m.assignment, wanted)
        rows += [
            row | {"is_target": (row["topic"], row["partition"]) in target} if row.get("topic") else row
            for row in _member_rows(member, assigned, None)
        ]
    return rows or [shared]


def _partitions(assignment: Any, wanted: Wanted) -> list[tuple[str, int]]:
    topics = [t for t in assignment.topic_partitions if wanted(t.topic_name)]
    return [(t.topic_name, p) for t in topics for p in t.partitions]


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
    if protocol != CONSUMER or not assignment:  # for example, a Connect worker's assignment has no partitions
        return [], None
    try:
        decoded = ConsumerProtocolAssignment.decode(assignment)
        assigned = [(t.topic, p) for t in decoded.assigned_partitions for p in t.partitions]
    except (ValueError, IndexError, TypeError, struct.error):  # bytes that a client made; the member's row stays
        return [], "INCONSISTENT_GROUP_PROTOCOL"
    if not all(topic for topic, _ in assigned):
        return [], "INCONSISTENT_GROUP_PROTOCOL"
    return assigned, None


def _classic_subscription(protocol: str, metadata: bytes) -> list[str] | None:
    """The topics that a member of a classic group subscribes to; None if its bytes cannot be read."""
    if protocol != CONSUMER or not metadata:
        return None
    try:
        return sorted(ConsumerProtocolSubscription.decode(metadata).topics)
    except (ValueError, IndexError, TypeError, struct.error):
        return None


def read_members(client: KafkaClient, groups: Sequence[ListedGroup], wanted: Wanted) -> dict[str, list[Row] | Failure]:
    """The rows of each group, or a Failure if it cannot be described.

    A group whose coordinator is None is asked for at the coordinator that Kafka finds.
    """
    listed = {g.group_id: g for g in groups}

    def ask(broker: int | None, names: Sequence[str]) -> Asked[str]:
        return _describe(broker, [listed[name] for name in names], wanted)

    unplaced = [g.group_id for g in groups if g.coordinator is None]
    found = client.coordinators(unplaced) if unplaced else {}
    coordinators = {g.group_id: found.get(g.group_id, g.coordinator) for g in groups}
    return client.ask_all(coordinators, ask, client.coordinators)


class GroupMembersReader(KafkaReader):
    """By coordinator and chunk of groups."""

    def plan(self, client: KafkaClient) -> list[Chunk]:
        """Lists the groups, and applies the filter before anything else is asked."""
        return chunks_by_coordinator(client)

    def fetch(self, client: KafkaClient, chunk: Chunk) -> Iterator[Columns]:
        """A group that could not be described is one row with its listed state and its error."""
        listed = {g.group_id: g for g in chunk.items if isinstance(g, ListedGroup)}
        answers = read_members(client, [*listed.values()], self.options.topics.matcher())
        yield member_columns(chunk.items, answers)

    def unread(self, chunk: Chunk, reason: ClusterError) -> Iterator[Columns]:
        """One row for each group."""
        yield unread_members(chunk.items, reason)


class GroupMembersSource(KafkaSource):
    """Columns: those of table `group_members` without the snapshot's."""

    observed = GROUP_MEMBERS.observed
    reader_class = GroupMembersReader

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "kafka_group_members"


def _describe(broker: int | None, groups: Sequence[ListedGroup], wanted: Wanted) -> Asked[str]:
    """The requests for some groups of one coordinator. Each type of group has its own API."""
    classic = [g.group_id for g in groups if g.group_type in (None, CLASSIC)]
    modern = [g.group_id for g in groups if g.group_type == CONSUMER]
    asked: list[tuple[list[str], Any, Callable[[Any, Wanted], list[Row] | Failure]]] = []
    if classic:
        request = DescribeGroupsRequest(groups=classic, include_authorized_operations=False)
        asked.append((classic, request, parse_classic))
    if modern:
        request = ConsumerGroupDescribeRequest(group_ids=modern, include_authorized_operations=False)
        asked.append((modern, request, parse_consumer))

    def parse(replies: Sequence[Reply]) -> dict[str, list[Row] | Failure]:
        found: dict[str, list[Row] | Failure] = {
            g.group_id: [{"state": g.state, "protocol": g.protocol}]
            for g in groups
            if g.group_type not in (None, CLASSIC, CONSUMER)
        }
        for (names, _, parse_group), (answer, arrived_at) in zip(asked, replies, strict=True):
            if isinstance(answer, Failure):
                found |= dict.fromkeys(names, answer)
            else:
                found |= {g.group_id: _stamped(parse_group(g, wanted), broker, arrived_at) for g in answer.groups}
        return found

    return [request for _, request, _ in asked], parse


def _stamped(rows: list[Row] | Failure, coordinator: int | None, arrived_at: datetime) -> list[Row] | Failure:
    if isinstance(rows, Failure):
        return rows
    return [row | {"captured_at": arrived_at, "coordinator": coordinator} for row in rows]


def unread_members(items: Sequence[Item], reason: ClusterError) -> Columns:
    """A row for each group, with its listed state and why it could not be read."""
    failure = Failure(reason.error)
    return member_columns(items, {g.group_id: failure for g in items if isinstance(g, ListedGroup)})


def member_columns(items: Sequence[Item], answers: Mapping[str, list[Row] | Failure]) -> Columns:
    """The rows of groups, in columns; a group without an answer could not be reached."""
    unlisted = [i for i in items if isinstance(i, Unlisted)]
    rows: list[Row] = [{"coordinator": i.broker, "partition": i.partition, "error": i.error} for i in unlisted]
    for group in items:
        if isinstance(group, ListedGroup):
            rows += _rows(group, answers[group.group_id])
    at = utc_now()
    return {
        name: [row.get(name, at if name == "captured_at" else None) for row in rows]
        for name in GROUP_MEMBERS.observed.names
    }


def _rows(group: ListedGroup, answer: list[Row] | Failure) -> list[Row]:
    listed = {"group_id": group.group_id, "group_type": group.group_type, "coordinator": group.coordinator}
    if isinstance(answer, Failure):
        return [listed | {"state": group.state, "protocol": group.protocol, "error": answer.error}]
    return [listed | row for row in answer]
