"""A broker of `kafka3` is shut down between planning and reading, and comes back: only its own rows are affected."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaProducer, TopicPartition
from kafka.errors import RetriableError

from demo.embedded_kafka.broker import EmbeddedKafka
from demo.errors import BrokerError
from pipeline.kafka.brokers import BrokersSource
from pipeline.kafka.client import KafkaClient
from pipeline.kafka.committed_offsets import CommittedOffsetsSource
from pipeline.kafka.group_members import GroupMembersSource
from pipeline.kafka.source import Columns
from pipeline.kafka.watermarks import WatermarksSource
from tests.helpers.kafka import (
    Row,
    by_partition,
    commit,
    leaders_of,
    parsed,
    partitions_of,
    plan,
    read,
    reassign,
    spread,
    wait_for,
)

GROUPS = [f"kc-{number:02}" for number in range(30)]


def offsets_partition(group: str) -> int:
    """The partition of __consumer_offsets with the group: Java's hash of its name, modulo the 12 partitions here."""
    hashed = 0
    for character in group:
        hashed = (31 * hashed + ord(character)) % 2**32
    return abs(hashed - 2**32 if hashed >= 2**31 else hashed) % 12


SOURCES = (CommittedOffsetsSource, GroupMembersSource, WatermarksSource)
FILTERS = {"groups_allow": "^kc-[0-9]{2}$", "topics_allow": "^kc-outage$"}


@dataclass
class Outage:
    """What was read while broker 2 was down, planned before and during that time, and after it had come back."""

    lost_groups: set[str]
    planned_before: dict[str, list[Row]] = field(default_factory=dict)
    planned_during: dict[str, list[Row]] = field(default_factory=dict)
    brokers: list[Row] = field(default_factory=list)
    brokers_midway: list[Row] = field(default_factory=list)
    returned: list[Row] = field(default_factory=list)


@pytest.fixture(scope="module")
def outage(kafka3: EmbeddedKafka, admin3: Any) -> Outage:
    """Broker 2 is shut down between planning and reading.

    It has one of two replicas of partition 0 of topic kc-outage, the only one of partition 1, and none of partition 2.
    It also has the only replica of one partition of __consumer_offsets, whose groups have no coordinator meanwhile.
    """
    admin3.create_topics({"kc-outage": {"assignments": {0: [2, 3], 1: [2, 3], 2: [1, 3]}}}, wait_for_metadata=True)
    reassign(admin3, TopicPartition("kc-outage", 1), [2])
    wait_for(lambda: leaders_of(admin3, "kc-outage") == {1, 2})
    producer = KafkaProducer(bootstrap_servers=kafka3.bootstrap_servers)
    for partition in range(3):
        producer.send("kc-outage", b"x", partition=partition).get(timeout=10)
    producer.close(timeout=10)
    # Not with `admin3`, which caches the coordinators that it has looked up.
    with KafkaAdminClient(bootstrap_servers=kafka3.address(1)) as admin:
        for group in GROUPS:
            commit(admin, group, {("kc-outage", 0): 1})
    offsets = TopicPartition("__consumer_offsets", offsets_partition(GROUPS[0]))
    replicas = partitions_of(admin3, offsets.topic)[offsets]["replica_nodes"]
    reassign(admin3, offsets, [2])
    wait_for(lambda: set(GROUPS) <= listed_after_a_commit(kafka3))
    seen = Outage({group for group in GROUPS if offsets_partition(group) == offsets.partition})
    try:
        shut_down_and_read(kafka3, admin3, seen)
    finally:
        with suppress(BrokerError):  # it is already started
            kafka3.start(2)
        spread(kafka3, {offsets: replicas})
    return seen


def listed_after_a_commit(kafka3: EmbeddedKafka) -> set[str]:
    """The groups that brokers list.

    A broker that has just become a coordinator lists a group once it has read the group's partition, and knows that its
    records are committed. It may learn this only with the next record of that partition, so there must be one.
    """
    with KafkaAdminClient(bootstrap_servers=kafka3.address(1)) as admin, suppress(RetriableError):
        commit(admin, GROUPS[0], {("kc-outage", 0): 1})
        return {group["group_id"] for group in admin.list_groups()}
    return set()


def shut_down_and_read(kafka3: EmbeddedKafka, admin3: Any, seen: Outage) -> None:
    limits = {"retries": "3", "retry_backoff_ms": "50"}
    before = {source.name(): plan(source, kafka3.bootstrap_servers, **FILTERS, **limits) for source in SOURCES}
    assert sum(len(chunk.items) for chunk in before["kafka_watermarks"].chunks) == 3
    brokers = plan(BrokersSource, kafka3.address(1), **limits)
    with KafkaClient(parsed(kafka3.address(1), **limits)) as client:
        assert set(client.brokers()) == {1, 2, 3}
        kafka3.stop(2)
        wait_for(lambda: 2 not in leaders_of(admin3, "kc-outage", "__consumer_offsets"))
        seen.brokers_midway = rows_of(brokers.reader.fetch(client, brokers.chunks[0]))
    for source in SOURCES:
        seen.planned_before[source.name()] = before[source.name()].rows()
        seen.planned_during[source.name()] = read(source, kafka3.bootstrap_servers, **FILTERS, **limits)
    seen.brokers = read(BrokersSource, kafka3.bootstrap_servers)
    watermarks = before["kafka_watermarks"]
    with KafkaClient(parsed(kafka3.address(1))) as client:
        assert set(client.brokers()) == {1, 3}
        kafka3.start(2)
        wait_for(lambda: -1 not in leaders_of(admin3, "kc-outage", "__consumer_offsets"))
        for chunk in watermarks.chunks:
            seen.returned += rows_of(watermarks.reader.fetch(client, chunk))


def rows_of(fetched: Iterable[Columns]) -> list[Row]:
    return [dict(zip(columns, row, strict=True)) for columns in fetched for row in zip(*columns.values(), strict=True)]


def by_group(rows: list[Row]) -> dict[str | None, str | None]:
    """The error of every group; there must be one row for each group."""
    found = {row["group_id"]: row["error"] for row in rows}
    assert len(found) == len(rows)
    return found


NO_COORDINATOR = "COORDINATOR_NOT_AVAILABLE"
GROUP_SOURCES = ["kafka_committed_offsets", "kafka_group_members"]


@pytest.mark.parametrize("source", GROUP_SOURCES)
def test_groups_whose_coordinator_is_shut_down_are_read_from_the_next(outage: Outage, source: str) -> None:
    assert 0 < len(outage.lost_groups) < len(GROUPS)
    expected = {group: NO_COORDINATOR if group in outage.lost_groups else None for group in GROUPS}
    assert by_group(outage.planned_before[source]) == expected


@pytest.mark.parametrize("source", GROUP_SOURCES)
def test_groups_without_a_coordinator_are_one_row_without_a_group_id(outage: Outage, source: str) -> None:
    expected: dict[str | None, str | None] = dict.fromkeys(set(GROUPS) - outage.lost_groups)
    assert by_group(outage.planned_during[source]) == expected | {None: NO_COORDINATOR}


@pytest.mark.parametrize("planned", ["planned_before", "planned_during"])
def test_after_a_leader_is_shut_down_the_new_leader_is_read_and_a_partition_without_a_leader_is_an_error_row(
    outage: Outage, planned: str
) -> None:
    rows = getattr(outage, planned)["kafka_watermarks"]
    assert by_partition(rows) == {0: (3, 1, None), 1: (None, None, "LEADER_NOT_AVAILABLE"), 2: (1, 1, None)}
    (leaderless,) = (row for row in rows if row["error"])
    assert (leaderless["replicas"], len(leaderless["topic_id"]), leaderless["captured_at"] is None) == ([2], 22, False)


def test_a_broker_that_is_shut_down_is_not_listed(outage: Outage) -> None:
    assert {row["broker"]: row["error"] for row in outage.brokers} == {1: None, 3: None}


def test_a_broker_that_leaves_while_it_is_asked_is_not_an_error(outage: Outage) -> None:
    assert {row["broker"]: row["error"] for row in outage.brokers_midway} == {1: None, 3: None}


def test_a_broker_that_comes_back_is_found_by_a_client_that_connected_while_it_was_down(outage: Outage) -> None:
    assert by_partition(outage.returned) == {0: (3, 1, None), 1: (2, 1, None), 2: (1, 1, None)}
