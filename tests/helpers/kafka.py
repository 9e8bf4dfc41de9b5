"""Reads the Kafka data sources in this process, as Spark's tasks would, and creates groups and topics to read."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, OffsetAndMetadata, TopicPartition
from kafka.admin import ACL, ACLFilter, ACLOperation, ACLPermissionType, ResourcePattern, ResourceType
from kafka.errors import CoordinatorLoadInProgressError, NoError
from kafka.protocol.consumer import JoinGroupRequest, LeaveGroupRequest, SyncGroupRequest
from kafka.structs import MemberState

from demo.embedded_kafka.broker import EmbeddedKafka
from pipeline.kafka.client import KafkaClient
from pipeline.kafka.options import SourceOptions
from pipeline.kafka.source import Chunk, KafkaReader, KafkaSource

Row = dict[str, Any]
IN_A_HURRY = {"connect_timeout_ms": "1500", "request_timeout_ms": "1500", "retries": "2"}


@dataclass(frozen=True)
class Planned:
    """What a source has planned on the driver. Tests cause faults before `rows`, which reads as on executors."""

    reader: KafkaReader
    chunks: list[Chunk]

    def rows(self) -> list[Row]:
        """Every row of every chunk."""
        return [row for chunk in self.chunks for batch in self.reader.read(chunk) for row in batch.to_pylist()]


def plan(source: type[KafkaSource], servers: str, **options: str) -> Planned:
    """Plans a read with the options that Spark would pass."""
    made = source({"bootstrap_servers": servers, **options})
    reader = made.reader(made.schema())
    return Planned(reader, list(reader.partitions()))  # type: ignore[arg-type]


def read(source: type[KafkaSource], servers: str, **options: str) -> list[Row]:
    """Plans and reads."""
    return plan(source, servers, **options).rows()


def parsed(servers: str, **options: str) -> SourceOptions:
    """The options for a client that a test creates itself."""
    return SourceOptions.parse({"bootstrap_servers": servers, **options})


def login(kafka: EmbeddedKafka, **changes: str) -> dict[str, str]:
    """The client options of the fixture's user, for its `sasl_bootstrap_servers`."""
    (user, password), *_ = kafka.users.items()
    return {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": user,
        "sasl_plain_password": password,
        **changes,
    }


@contextmanager
def frozen(kafka: EmbeddedKafka, broker: int) -> Iterator[None]:
    """A broker that keeps its connections but answers nothing. After 18 s the controller gives it up."""
    kafka.freeze(broker)
    try:
        time.sleep(0.2)  # until its last thread has stopped
        yield
    finally:
        kafka.thaw(broker)


@contextmanager
def denied(
    kafka: EmbeddedKafka, kind: ResourceType, name: str, operation: ACLOperation = ACLOperation.DESCRIBE
) -> Iterator[None]:
    """Denies the fixture's user an operation on a resource. Others are allowed, as the first ACL excludes everyone."""
    resource = ResourcePattern(kind, name)
    with KafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers) as admin:
        (user,) = kafka.users
        rules = [
            ACL(f"User:{user}", "*", operation, ACLPermissionType.DENY, resource),
            ACL("User:*", "*", ACLOperation.ALL, ACLPermissionType.ALLOW, resource),
        ]
        own = ACLFilter(None, None, ACLOperation.ANY, ACLPermissionType.ANY, resource)
        admin.create_acls(rules)
        wait_for(lambda: len(admin.describe_acls(own)[0]) == len(rules))  # the answer comes before brokers know of it
        yield
        admin.delete_acls([own])
        wait_for(lambda: not admin.describe_acls(own)[0])


def commit(admin: KafkaAdminClient, group: str, offsets: Mapping[tuple[str, int], int], metadata: str = "") -> None:
    """Commits for a group without members, once its coordinator has loaded it. Raises any other error of Kafka."""
    wanted = {TopicPartition(*key): OffsetAndMetadata(offset, metadata, -1) for key, offset in offsets.items()}

    def committed() -> bool:
        errors = set(admin.alter_group_offsets(group, wanted).values()) - {NoError}
        for error in errors - {CoordinatorLoadInProgressError}:
            raise error(f"group {group}")
        return not errors

    wait_for(committed)


@contextmanager
def member(
    kafka: EmbeddedKafka,
    group: str,
    *topics: str,
    partitions: int = 1,
    **options: Any,
) -> Iterator[Any]:
    """A consumer that has joined the group and was assigned at least this many partitions.

    It no longer polls, and commits nothing, but sends heartbeats.
    """
    settings = {"group_id": group, "enable_auto_commit": False, **options}
    consumer = KafkaConsumer(bootstrap_servers=kafka.bootstrap_servers, **settings)
    for topic in topics:
        consumer.partitions_for_topic(topic)  # else it may assign, as the leader of its group, before it knows them
    consumer.subscribe(topics)

    def joined() -> bool:
        # A poll that times out between joining and being assigned loses the assignment for good (kafka-python 3.0.12).
        consumer.poll(timeout_ms=500)
        return consumer.group_metadata().state is MemberState.STABLE and len(consumer.assignment()) >= partitions

    try:
        wait_for(joined)
        yield consumer
    finally:
        consumer.close(autocommit=False, timeout_ms=5_000)


def wait_for(condition: Callable[[], Any], timeout_s: float = 90.0) -> None:
    """Polls until the condition is true."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.05)


def delete_groups(admin: KafkaAdminClient, prefix: str) -> None:
    """Deletes groups, because Kafka's own tool, with which other tests compare, fails on unusual groups."""
    admin.delete_groups([g["group_id"] for g in admin.list_groups() if g["group_id"].startswith(prefix)])


@contextmanager
def joined(kafka: EmbeddedKafka, group: str, protocol_type: str, assignment: bytes) -> Iterator[str]:
    """Joins as a client with its own protocol, such as Connect, and gets this assignment; yields the member id."""
    join_group, sync_group = JoinGroupRequest, SyncGroupRequest
    protocol = join_group.JoinGroupRequestProtocol(name="own", metadata=b"")
    with KafkaClient(parsed(kafka.bootstrap_servers)) as client:
        asked = join_group(
            group_id=group,
            session_timeout_ms=120_000,
            rebalance_timeout_ms=120_000,
            member_id="",
            protocol_type=protocol_type,
            protocols=[protocol],
            max_version=3,
        )
        (answer,) = client.exchange([(1, asked)])
        assert answer.error_code == 0
        given = sync_group.SyncGroupRequestAssignment(member_id=answer.member_id, assignment=assignment)
        asked = sync_group(
            group_id=group,
            generation_id=answer.generation_id,
            member_id=answer.member_id,
            assignments=[given],
            max_version=2,
        )
        (synced,) = client.exchange([(1, asked)])
        assert synced.error_code == 0
        yield answer.member_id
        (left,) = client.exchange([(1, LeaveGroupRequest(group_id=group, member_id=answer.member_id, max_version=2))])
        assert left.error_code == 0


def partitions_of(admin: Any, *topics: str) -> dict[TopicPartition, Any]:
    described = admin.describe_topics(list(topics))
    return {TopicPartition(t["name"], p["partition_index"]): p for t in described for p in t["partitions"]}


def leaders_of(admin: Any, *topics: str) -> set[int]:
    return {partition["leader_id"] for partition in partitions_of(admin, *topics).values()}


def reassign(admin: Any, partition: TopicPartition, replicas: list[int]) -> None:
    """Moves a partition, and waits until one of the new replicas leads it and the old ones are gone."""

    def moved() -> bool:
        described = partitions_of(admin, partition.topic)[partition]
        return sorted(described["replica_nodes"]) == sorted(replicas) and described["leader_id"] in replicas

    admin.alter_partition_reassignments({partition: replicas})
    wait_for(lambda: not admin.list_partition_reassignments() and moved())


def spread(kafka: EmbeddedKafka, moved: Mapping[TopicPartition, list[int]] | None = None) -> None:
    """Makes every broker lead and coordinate again, which Kafka itself would do after five minutes.

    First, the `moved` partitions get their replicas back. The client is a new one, because an older one may believe
    that the broker which was away is the controller, and not know it any more.
    """
    topic = "__consumer_offsets"
    with KafkaAdminClient(bootstrap_servers=kafka.address(1)) as admin:
        for partition, replicas in (moved or {}).items():
            reassign(admin, partition, replicas)
        wait_for(lambda: all(len(partition["isr_nodes"]) == 3 for partition in partitions_of(admin, topic).values()))
        admin.elect_leaders(0, [topic])
        wait_for(lambda: leaders_of(admin, topic) == {1, 2, 3})


def by_partition(rows: list[Row]) -> dict[int, tuple[Any, ...]]:
    found = {row["partition"]: (row["leader"], row["high_watermark"], row["error"]) for row in rows}
    assert len(found) == len(rows)
    return found
