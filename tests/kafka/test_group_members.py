"""The data source `kafka_group_members`: real members of every kind of group, and the rows after each kind of fault."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import count
from typing import Any

import pytest
from confluent_kafka import Consumer
from kafka import KafkaAdminClient, KafkaProducer
from kafka.admin import ResourceType
from pyspark.sql import SparkSession

from demo.embedded_kafka.broker import EmbeddedKafka
from demo.embedded_kafka.topics import create_topics
from demo.workload.console_reader import ConsoleReader
from demo.workload.plan import TopicPlan
from pipeline.kafka.committed_offsets import CommittedOffsetsSource
from pipeline.kafka.group_members import GroupMembersSource
from tests.helpers.kafka import (
    IN_A_HURRY,
    Planned,
    Row,
    commit,
    delete_groups,
    denied,
    frozen,
    joined,
    login,
    member,
    parsed,
    plan,
    read,
    wait_for,
)
from tests.helpers.network import HOST, Proxy, free_port

DESCRIBE_GROUPS = 15
SHARE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleShareConsumer"
ODD_GROUPS = ["gm-odd 'single' \"double\";", "gm-odd\nline", "gm-odd-Größe-群-🙂", "gm-odd-" + 242 * "g"]


@pytest.fixture(scope="module")
def admin(kafka: EmbeddedKafka) -> Iterator[Any]:
    with KafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers) as client:
        create_topics(client, {"gm-a": 2, "gm-b": 1})
        yield client
        delete_groups(client, "gm-")


def members(kafka: EmbeddedKafka, groups: str, **options: str) -> list[Row]:
    """The rows of the groups whose names match, sorted and without captured_at, which must be set."""
    before = datetime.now(UTC)
    rows = read(GroupMembersSource, kafka.bootstrap_servers, groups_allow=groups, **options)
    for row in rows:
        assert before <= row.pop("captured_at") <= datetime.now(UTC)
    return sorted(rows, key=lambda row: (row["group_id"] or "", row["client_id"] or "", row["partition"] or 0))


def row(group: str, **values: Any) -> Row:
    """A row of an ordinary group; values that are not given are NULL."""
    nothing = dict.fromkeys(GroupMembersSource.observed.names)
    nothing.pop("captured_at")
    return nothing | {"group_id": group, "group_type": "classic", "coordinator": 1} | values


class Joined:
    """A librdkafka consumer in a group, and its last assignment; None while it has to join again."""

    def __init__(self, kafka: EmbeddedKafka, group: str, topic: str, client_id: str) -> None:
        self.assigned: int | None = None
        names = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": group, "client.id": client_id}
        self.consumer = Consumer(names)
        self.consumer.subscribe([topic], on_assign=self._on_assign, on_revoke=self._on_revoke)

    def _on_assign(self, consumer: Any, partitions: list[Any]) -> None:
        self.assigned = len(partitions)

    def _on_revoke(self, consumer: Any, partitions: list[Any]) -> None:
        self.assigned = None


def test_a_static_member_is_a_row_for_each_of_its_partitions(kafka: EmbeddedKafka, admin: Any) -> None:
    options = {"group_instance_id": "gm-instance", "client_id": "gm-client"}
    with member(kafka, "gm-static", "gm-a", "gm-b", partitions=3, **options) as consumer:
        rows = members(kafka, "^gm-static$")
        shared = {
            "state": "Stable",
            "protocol": "consumer",
            "assignor": "range",
            "member_id": consumer.group_metadata().member_id,
            "instance_id": "gm-instance",
            "client_id": "gm-client",
            "host": HOST,
            "subscribed_topics": ["gm-a", "gm-b"],
        }
    expected = [("gm-a", 0), ("gm-a", 1), ("gm-b", 0)]
    assert sorted((one["topic"], one["partition"]) for one in rows) == expected
    for one in rows:
        assert one == row("gm-static", **shared, topic=one["topic"], partition=one["partition"])


def test_a_member_without_partitions_is_a_row_too(kafka: EmbeddedKafka, admin: Any) -> None:
    both = [Joined(kafka, "gm-idle", "gm-b", client_id) for client_id in ("gm-1", "gm-2")]

    def share_out() -> bool:
        for one in both:
            one.consumer.poll(0.05)
        return sorted(one.assigned for one in both if one.assigned is not None) == [0, 1]

    try:
        wait_for(share_out)
        held = {"gm-1": both[0].assigned, "gm-2": both[1].assigned}
        rows = members(kafka, "^gm-idle$")
    finally:
        for one in both:
            one.consumer.close()
    assert {one["client_id"]: (one["topic"], one["partition"], one["state"]) for one in rows} == {
        client: ("gm-b", 0, "Stable") if partitions else (None, None, "Stable") for client, partitions in held.items()
    }


def test_a_group_without_members_is_a_row(kafka: EmbeddedKafka, admin: Any) -> None:
    commit(admin, "gm-empty", {("gm-a", 0): 1})
    assert members(kafka, "^gm-empty$") == [row("gm-empty", state="Empty")]


def test_members_of_other_protocols_have_no_partitions(kafka: EmbeddedKafka, admin: Any) -> None:
    with joined(kafka, "gm-connect", "connect", b"\x00\x01 a worker's own") as member_id:
        rows = members(kafka, "^gm-connect$")
    worker = {"member_id": member_id, "client_id": "laglake", "host": HOST}
    assert rows == [row("gm-connect", state="Stable", protocol="connect", assignor="own", **worker)]


@pytest.mark.parametrize(
    ("group", "assignment"),
    [
        pytest.param("gm-short", b"\x00\x01\x7f\xff\xff\xff", id="ends too soon"),
        pytest.param("gm-null", b"\x00\x01\xff\xff\xff\xff\xff\xff\xff\xff", id="no list of topics"),
        pytest.param("gm-noname", b"\x00\x01\0\0\0\x01\xff\xff\0\0\0\x01\0\0\0\0\xff\xff\xff\xff", id="no name"),
    ],
)
def test_an_assignment_that_cannot_be_read_is_an_error_of_that_member(
    kafka: EmbeddedKafka, admin: Any, group: str, assignment: bytes
) -> None:
    with joined(kafka, group, "consumer", assignment) as member_id:
        (one,) = members(kafka, f"^{group}$")
    assert (one["member_id"], one["topic"], one["error"]) == (member_id, None, "INCONSISTENT_GROUP_PROTOCOL")


def test_partitions_of_topics_that_the_filter_denies_are_left_out(kafka: EmbeddedKafka, admin: Any) -> None:
    def assigned(**options: str) -> list[tuple[str | None, int | None]]:
        return [(one["topic"], one["partition"]) for one in members(kafka, "^gm-filter$", **options)]

    with member(kafka, "gm-filter", "gm-a", "gm-b", partitions=3):
        assert sorted(assigned(topics_deny="a$")) == [("gm-b", 0)]
        assert assigned(topics_allow="^gm-a$") == [("gm-a", 0), ("gm-a", 1)]
        # The member has a row nevertheless.
        assert assigned(topics_deny="^gm") == [(None, None)]


@pytest.mark.parametrize("api_version", [None, "2.8", "2.4"])
def test_unusual_names_are_read_with_every_api_version(
    kafka: EmbeddedKafka, admin: Any, api_version: str | None
) -> None:
    for group in ODD_GROUPS:
        commit(admin, group, {("gm-a", 0): 1})
    options = {"api_version": api_version} if api_version else {}
    rows = members(kafka, "^gm-odd", **options)
    group_type = None if api_version else "classic"
    assert rows == [row(group, state="Empty", group_type=group_type) for group in sorted(ODD_GROUPS)]


def test_a_denied_group_is_never_asked_for(kafka: EmbeddedKafka, admin: Any) -> None:
    commit(admin, "gm-wanted", {("gm-a", 0): 1})
    commit(admin, "gm-unwanted", {("gm-a", 0): 1})
    with Proxy() as proxy:
        rows = members(kafka, "^gm-", groups_deny="unwanted", proxy_url=proxy.url)
    assert "gm-wanted" in {one["group_id"] for one in rows}
    assert any(b"gm-wanted" in request.frame for request in proxy.requests)
    assert not any(b"gm-unwanted" in request.frame for request in proxy.requests)


@pytest.mark.parametrize("api_version", ["4.0", "2.8"])
def test_a_group_deleted_between_planning_and_reading_is_an_error_row(
    kafka: EmbeddedKafka, admin: Any, api_version: str
) -> None:
    commit(admin, "gm-deleted", {("gm-a", 0): 1})
    commit(admin, "gm-deleted-not", {("gm-a", 0): 1})
    planned = plan(GroupMembersSource, kafka.bootstrap_servers, groups_allow="^gm-deleted", api_version=api_version)
    admin.delete_groups(["gm-deleted"])
    assert {one["group_id"]: one["error"] for one in planned.rows()} == {
        "gm-deleted": "GROUP_ID_NOT_FOUND",
        "gm-deleted-not": None,
    }


def test_a_group_without_the_describe_right_is_a_row_with_its_listed_state(kafka: EmbeddedKafka, admin: Any) -> None:
    commit(admin, "gm-acl-open", {("gm-a", 0): 1})
    commit(admin, "gm-acl-shut", {("gm-a", 0): 1})
    with denied(kafka, ResourceType.GROUP, "gm-acl-shut"):
        rows = read(GroupMembersSource, kafka.sasl_bootstrap_servers, groups_allow="^gm-acl", **login(kafka))
    for one in rows:
        one.pop("captured_at")
    refused = row("gm-acl-shut", state="Empty", error="GROUP_AUTHORIZATION_FAILED")
    assert sorted(rows, key=lambda one: one["group_id"]) == [row("gm-acl-open", state="Empty"), refused]


def test_a_connection_that_is_lost_midway_is_opened_again_and_requests_are_counted(
    kafka: EmbeddedKafka, admin: Any
) -> None:
    commit(admin, "gm-lost", {("gm-a", 0): 1})
    described = count()
    # The first two requests of this kind belong to the list of groups.
    with Proxy(lambda request: request.api_key == DESCRIBE_GROUPS and next(described) == 2) as proxy:
        options = {"groups_allow": "^gm-lost$", "count_requests": "true", "proxy_url": proxy.url}
        one, counted = read(GroupMembersSource, kafka.bootstrap_servers, **options)
    assert (one["group_id"], one["state"], one["error"]) == ("gm-lost", "Empty", None)
    # The cluster's id on three connections; the leaders of __consumer_offsets, FindCoordinator and five for the list
    # of groups; DescribeGroups, FindCoordinator, DescribeGroups.
    assert (counted["request_broker"], counted["requests"]) == (1, 3 + 7 + 3)


def test_a_cluster_lost_between_planning_and_reading_is_an_error_for_each_group(kafka3: EmbeddedKafka) -> None:
    with KafkaAdminClient(bootstrap_servers=kafka3.bootstrap_servers) as admin3:
        create_topics(admin3, {"gm3": 1})
        for number in range(12):
            commit(admin3, f"gm3-{number}", {("gm3", 0): 1})
    with frozen(kafka3, 2):
        planned = plan(GroupMembersSource, kafka3.address(1), groups_allow="^gm3-", **IN_A_HURRY)
    nowhere = f"{HOST}:{free_port()}"
    planned.reader.options = parsed(nowhere)
    rows = Planned(planned.reader, [replace(chunk, address=nowhere) for chunk in planned.chunks]).rows()
    by_error: dict[str, set[str | None]] = {}
    for one in rows:
        by_error.setdefault(one["error"], set()).add(one["group_id"])
    # Groups that could not even be listed still have a row.
    assert set(by_error) == {"NETWORK_EXCEPTION", "REQUEST_TIMED_OUT"}
    assert by_error["REQUEST_TIMED_OUT"] == {None}
    assert by_error["NETWORK_EXCEPTION"] < {f"gm3-{number}" for number in range(12)}


# --- groups of the new protocols, which only the Java clients support


@dataclass(frozen=True)
class NewGroups:
    """A consumer group (KIP-848) and a share group (KIP-932), each with a member."""

    kafka: EmbeddedKafka
    consumer: str = "gm-new-consumer"
    share: str = "gm-new-share"


@pytest.fixture(scope="module")
def new_groups(kafka: EmbeddedKafka, admin: Any) -> Iterator[NewGroups]:
    groups = NewGroups(kafka)
    create_topics(admin, {"gm-new": 2})
    producer = KafkaProducer(bootstrap_servers=kafka.bootstrap_servers)
    for partition in (0, 1):
        producer.send("gm-new", b"x", partition=partition)
    producer.close(timeout=10)
    where = ("--bootstrap-server", kafka.bootstrap_servers, "--topic", "gm-new", "--group", groups.share)
    sharing = kafka.spawn_tool(SHARE_CONSUMER, *where)
    reader = ConsoleReader(kafka, groups.consumer, TopicPlan("gm-new", 2, 1, 1))
    reader.start()
    try:
        assert reader.settled.wait(60), reader.error
        wait_for(lambda: [one["state"] for one in members(kafka, groups.share)] == ["Stable"], timeout_s=60)
        yield groups
    finally:
        reader.ask_to_stop()
        kafka.end_tool(sharing)
        reader.join(10)


def test_a_group_of_the_new_protocol_has_its_members_and_partitions(new_groups: NewGroups) -> None:
    rows = members(new_groups.kafka, new_groups.consumer)
    member_ids = {one["member_id"] for one in rows}
    shared = {
        "group_type": "consumer",
        "state": "Stable",
        "protocol": "consumer",
        "assignor": "uniform",
        "member_id": member_ids.pop(),
        "client_id": f"{new_groups.consumer}-1",
        "host": HOST,
        "topic": "gm-new",
        "is_target": True,
        "subscribed_topics": ["gm-new"],
        **{name: rows[0][name] for name in ("group_epoch", "assignment_epoch", "member_epoch")},
    }
    assert rows[0]["group_epoch"] == rows[0]["assignment_epoch"] == rows[0]["member_epoch"] > 0
    assert rows == [row(new_groups.consumer, **shared, partition=partition) for partition in (0, 1)]
    assert not member_ids
    assert len(shared["member_id"]) == 22


def test_partitions_of_a_group_of_the_new_protocol_are_filtered(new_groups: NewGroups) -> None:
    (one,) = members(new_groups.kafka, new_groups.consumer, topics_deny="^gm-new$")
    assert (one["topic"], one["partition"], one["client_id"]) == (None, None, f"{new_groups.consumer}-1")


def test_a_group_of_the_new_protocol_without_the_describe_right_is_a_row_with_its_listed_state(
    new_groups: NewGroups,
) -> None:
    kafka = new_groups.kafka
    with denied(kafka, ResourceType.GROUP, new_groups.consumer):
        options = {"groups_allow": new_groups.consumer, **login(kafka)}
        (one,) = read(GroupMembersSource, kafka.sasl_bootstrap_servers, **options)
    one.pop("captured_at")
    assert one == row(
        new_groups.consumer,
        group_type="consumer",
        state="Stable",
        protocol="consumer",
        error="GROUP_AUTHORIZATION_FAILED",
    )


def test_a_group_of_the_new_protocol_is_not_called_dead_if_brokers_do_not_report_types(new_groups: NewGroups) -> None:
    assert members(new_groups.kafka, new_groups.consumer, api_version="2.8") == [
        row(new_groups.consumer, group_type=None, state="Stable", protocol="consumer", error="GROUP_ID_NOT_FOUND")
    ]


def test_a_share_group_is_a_row_with_its_type_and_state_and_has_no_commits(new_groups: NewGroups) -> None:
    assert members(new_groups.kafka, new_groups.share) == [
        row(new_groups.share, group_type="share", state="Stable", protocol="share")
    ]
    with Proxy() as proxy:
        options = {"groups_allow": new_groups.share, "proxy_url": proxy.url}
        assert read(CommittedOffsetsSource, new_groups.kafka.bootstrap_servers, **options) == []
    assert not any(new_groups.share.encode() in request.frame for request in proxy.requests)


def test_commits_of_a_group_of_the_new_protocol_are_read(new_groups: NewGroups) -> None:
    rows = read(CommittedOffsetsSource, new_groups.kafka.bootstrap_servers, groups_allow=new_groups.consumer)
    assert {(one["topic"], one["partition"]): one["committed_offset"] for one in rows} == {
        ("gm-new", 0): 1,
        ("gm-new", 1): 1,
    }


def test_spark_reads_them(spark: SparkSession, kafka: EmbeddedKafka, admin: Any) -> None:
    commit(admin, "gm-spark", {("gm-a", 0): 1})
    options = {"bootstrap_servers": kafka.bootstrap_servers, "groups_allow": "^gm-spark$"}
    one: Any = spark.read.format("kafka_group_members").options(**options).load().first()
    assert (one.group_id, one.group_type, one.state, one.error) == ("gm-spark", "classic", "Empty", None)
