"""The tests that a new kafka-python must pass: many requests; slow, frozen, moved and dead brokers; deadlines.

Brokers 2 and 3 of `kafka3` are stopped or frozen here, and run again afterwards.
"""

import logging
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from kafka import TopicPartition
from kafka.protocol.consumer import ListOffsetsRequest, OffsetFetchRequest
from kafka.protocol.metadata import ApiVersionsRequest, MetadataRequest

from demo.embedded_kafka.broker import EmbeddedKafka
from demo.embedded_kafka.topics import create_topics
from pipeline.common.errors import ClusterError
from pipeline.kafka.client import Asked, KafkaClient, in_chunks
from pipeline.kafka.committed_offsets import CommittedOffsetsSource
from pipeline.kafka.connections import address
from pipeline.kafka.failures import Failure, error_name
from pipeline.kafka.group_members import GroupMembersSource
from pipeline.kafka.watermarks import WatermarksSource
from tests.helpers.kafka import (
    IN_A_HURRY,
    Planned,
    by_partition,
    commit,
    frozen,
    parsed,
    plan,
    read,
    reassign,
    spread,
    wait_for,
)
from tests.helpers.network import HOST, Proxy, free_port

METADATA = 3
GROUPS = [f"kc-{number:02}" for number in range(30)]


@pytest.fixture
def client(kafka3: EmbeddedKafka) -> Iterator[KafkaClient]:
    with KafkaClient(parsed(kafka3.address(1))) as client:
        yield client


def metadata_of(topic: str) -> Any:
    return MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)


def versions() -> Any:
    return ApiVersionsRequest(client_software_name="test", client_software_version="0")


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    started = time.monotonic()
    yield
    assert time.monotonic() - started < seconds


def plan_of_new_topic(kafka: EmbeddedKafka, admin: Any, topic: str, assignments: dict[int, list[int]]) -> Planned:
    """Creates a topic with these replicas, and plans to read its watermarks with short timeouts."""
    admin.create_topics({topic: {"assignments": assignments}}, wait_for_metadata=True)
    plans: list[Planned] = []

    def is_complete() -> bool:  # some brokers know the leaders earlier than others
        plans.append(plan(WatermarksSource, kafka.address(1), topics_allow=f"^{topic}$", **IN_A_HURRY))
        leaders = {p.partition: placement.leader for chunk in plans[-1].chunks for p, placement in chunk.items}
        return leaders == {number: replicas[0] for number, replicas in assignments.items()}

    wait_for(is_complete)
    return plans[-1]


TIMED_OUT = Failure("REQUEST_TIMED_OUT")


# --- requests


@pytest.mark.parametrize("count", [200, 2500])
def test_many_requests_go_out_at_once_on_a_new_connection_and_come_back_in_order(
    client: KafkaClient, count: int
) -> None:
    names = [f"kc-nothing-{number}" for number in range(count)]
    with at_most(20):
        answers = client.exchange([(2, metadata_of(name)) for name in names])
    assert [answer.topics[0].name for answer in answers] == names
    assert client.requests == {2: count}


def test_a_failed_request_does_not_affect_the_others(client: KafkaClient) -> None:
    no_such_version = ListOffsetsRequest(replica_id=-1, topics=[], min_version=99)
    answers = client.exchange([(1, versions()), (99, versions()), (2, no_such_version), (3, versions())])
    assert [isinstance(answer, Failure) for answer in answers] == [False, True, True, False]
    assert answers[1:3] == [Failure("NETWORK_EXCEPTION"), Failure("UNSUPPORTED_VERSION")]


def test_each_broker_reports_its_own_api_versions(client: KafkaClient) -> None:
    supported = [*client.api_versions((1, 2, 3)).values()]
    for versions_of_one in supported:
        # Kafka 4.3: ListOffsets, OffsetFetch, ConsumerGroupDescribe; Produce v0 to v2 are gone, LeaderAndIsr is too.
        assert isinstance(versions_of_one, dict)
        assert [versions_of_one.get(key) for key in (2, 9, 69, 4)] == [11, 10, 1, None]


def test_a_version_is_the_highest_that_both_sides_have(kafka3: EmbeddedKafka, client: KafkaClient) -> None:
    assert (client.version(OffsetFetchRequest), client.version(ListOffsetsRequest)) == (10, 11)
    with KafkaClient(parsed(kafka3.address(1), api_version="2.8")) as old:
        assert (old.version(OffsetFetchRequest), old.version(ListOffsetsRequest)) == (7, 6)


def test_a_closed_client_leaves_nothing_running(kafka3: EmbeddedKafka) -> None:
    before = set(threading.enumerate())
    with KafkaClient(parsed(kafka3.address(1))) as client:
        client.exchange([(2, versions())])
        assert set(threading.enumerate()) > before
    wait_for(lambda: set(threading.enumerate()) <= before, timeout_s=5)


def test_the_first_bootstrap_server_may_be_dead(kafka3: EmbeddedKafka) -> None:
    with at_most(5), KafkaClient(parsed(f"{HOST}:{free_port()},{kafka3.address(2)}")) as client:
        assert client.brokers() == {broker: kafka3.address(broker) for broker in (1, 2, 3)}


def test_a_cluster_behind_a_proxy_need_not_be_reached_directly(
    kafka3: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    # kafka-python chooses at random; here, it always chooses the server that is down, if it can.
    monkeypatch.setattr("kafka.net.manager.random.choice", partial(max, key=lambda it: getattr(it, "host", "")))
    with Proxy(names={"kafka.invalid:9092": kafka3.address(2)}) as proxy:
        options = {"proxy_url": proxy.url, "topics_allow": "^nothing$"}
        assert read(WatermarksSource, "nowhere.invalid:9092,kafka.invalid:9092", **options) == []
        with pytest.raises(ClusterError) as caught:
            read(WatermarksSource, "nowhere.invalid:9092,neither.invalid:9092", **options)
    reason = "cannot be reached through the proxy, or closes the connection: check security_protocol"
    assert str(caught.value) == f"nowhere.invalid:9092 {reason}; neither.invalid:9092 {reason}"


def test_unreadable_metadata_is_an_error_with_the_reason(kafka3: EmbeddedKafka) -> None:
    # The first two are the client's own requests for the list of brokers.
    with Proxy(lambda request: request.api_key == METADATA and proxy.api_keys().count(METADATA) > 2) as proxy:
        options = {"proxy_url": proxy.url, "retries": "1"}
        with pytest.raises(ClusterError, match="the cluster's metadata cannot be read: NETWORK_EXCEPTION"):
            plan(WatermarksSource, kafka3.address(1), **options)


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (-1, "UNKNOWN_SERVER_ERROR"),
        (0, None),
        (3, "UNKNOWN_TOPIC_OR_PARTITION"),
        (6, "NOT_LEADER_OR_FOLLOWER"),
        (14, "COORDINATOR_LOAD_IN_PROGRESS"),
        (15, "COORDINATOR_NOT_AVAILABLE"),
        (16, "NOT_COORDINATOR"),
        (17, "INVALID_TOPIC_EXCEPTION"),
        (30, "GROUP_AUTHORIZATION_FAILED"),
        (69, "GROUP_ID_NOT_FOUND"),
        (78, "OFFSET_NOT_AVAILABLE"),
        (129, "REBOOTSTRAP_REQUIRED"),
        (9999, "UNKNOWN_ERROR_9999"),
    ],
)
def test_errors_have_kafkas_own_names(code: int, name: str | None) -> None:
    assert error_name(code) == name


@pytest.mark.parametrize(
    ("size", "chunks"),
    [(1, [[1], [2], [3], [4]]), (2, [[1, 2], [3, 4]]), (3, [[1, 2, 3], [4]]), (4, [[1, 2, 3, 4]]), (5, [[1, 2, 3, 4]])],
)
def test_chunks_have_at_most_their_size(size: int, chunks: list[list[int]]) -> None:
    assert list(in_chunks([1, 2, 3, 4], size)) == chunks
    assert list(in_chunks([], size)) == []


# --- a broker that does not answer


def test_a_frozen_broker_affects_only_its_own_answers(kafka3: EmbeddedKafka) -> None:
    with KafkaClient(parsed(kafka3.address(1), request_timeout_ms="1500")) as client:
        client.exchange([(2, versions())])
        with frozen(kafka3, 2), at_most(3):
            answers = client.exchange([(2, versions()), (1, versions()), (2, versions()), (3, versions())])
    assert [answers[0], answers[2]] == [TIMED_OUT, TIMED_OUT]
    assert not isinstance(answers[1], Failure)
    assert not isinstance(answers[3], Failure)


def test_requests_that_wait_for_a_connection_share_one_time_limit(kafka3: EmbeddedKafka) -> None:
    options = parsed(kafka3.address(1), request_timeout_ms="700")
    with KafkaClient(options) as client, frozen(kafka3, 2), at_most(2.5):
        answers = client.exchange([(2, versions()) for _ in range(6)])
    assert answers == [TIMED_OUT] * 6


def ask_versions(client: KafkaClient, items: Mapping[str, Any]) -> dict[str, Any]:
    """Asks for items at their brokers; they never move."""

    def ask(_: int | None, names: Sequence[str]) -> Asked[str]:
        return [versions()], lambda replies: dict.fromkeys(names, replies[0].answer)

    return client.ask_all(items, ask, lambda names: {name: items[name] for name in names})


def test_a_broker_that_has_let_a_request_time_out_is_not_asked_again(kafka3: EmbeddedKafka) -> None:
    with KafkaClient(parsed(kafka3.address(1), request_timeout_ms="1000")) as client:
        client.exchange([(2, versions())])
        client.requests.clear()
        with frozen(kafka3, 2), at_most(2.5):
            answers = ask_versions(client, {"here": 1, "frozen": 2})
    assert answers["frozen"] == TIMED_OUT
    assert not isinstance(answers["here"], Failure)
    # The healthy broker is asked for its cluster's id as well.
    assert client.requests == {1: 2, 2: 1}


def test_a_task_ends_at_its_deadline_even_if_other_limits_are_longer(kafka3: EmbeddedKafka) -> None:
    with KafkaClient(parsed(kafka3.address(1), task_timeout_ms="1500", retries="100")) as client:
        client.exchange([(2, versions())])
        client.requests.clear()
        with frozen(kafka3, 2), at_most(3):
            answers = ask_versions(client, {"frozen": 2, "nowhere": Failure("COORDINATOR_NOT_AVAILABLE")})
            late = client.exchange([(1, versions())])
    assert answers == {"frozen": TIMED_OUT, "nowhere": Failure("COORDINATOR_NOT_AVAILABLE")}
    assert late == [TIMED_OUT]
    assert client.requests == {2: 1}


def test_a_frozen_leader_affects_only_its_own_partitions(kafka3: EmbeddedKafka, admin3: Any) -> None:
    planned = plan_of_new_topic(kafka3, admin3, "kc-frozen", {0: [1], 1: [2], 2: [3]})
    with frozen(kafka3, 2), at_most(6):
        rows = by_partition(planned.rows())
    assert rows == {0: (1, 0, None), 1: (2, None, "REQUEST_TIMED_OUT"), 2: (3, 0, None)}


def test_an_ipv6_address_is_written_in_brackets_before_its_port() -> None:
    """Advertised listeners have brackets; without them, the last group of the address would look like the port."""
    assert address("::1", 9092) == "[::1]:9092"
    assert address("kafka-1", 9092) == "kafka-1:9092"


# --- a broker that throttles


def test_a_throttled_client_waits_and_loses_nothing(kafka: EmbeddedKafka, caplog: pytest.LogCaptureFixture) -> None:
    def quota(*change: str) -> None:
        who = ("--entity-type", "clients", "--entity-name", "laglake")
        tool = kafka.run_tool(
            "kafka.admin.ConfigCommand", "--bootstrap-server", kafka.bootstrap_servers, "--alter", *change, *who
        )
        assert tool.returncode == 0, tool.stderr

    caplog.set_level(logging.WARNING, "kafka")  # a job that another test has run may have silenced it
    options = parsed(kafka.bootstrap_servers, retries="0")
    with KafkaClient(options) as client:
        quota("--add-config", "request_percentage=0.01")
        try:
            assert not isinstance(client.exchange([(1, metadata_of("kc-nothing"))])[0], Failure)
            wait_for(lambda: client.exchange([(1, versions())]) and "throttled by broker" in caplog.text)
            # The connection is paused for a second now; requests wait meanwhile.
            assert not isinstance(client.exchange([(1, versions())])[0], Failure)
            assert not isinstance(client.metadata(None), Failure)
            with KafkaClient(options) as another:
                assert another.brokers() == {1: kafka.address(1)}
        finally:
            quota("--delete-config", "request_percentage")


# --- brokers that are not, or are no longer, the right ones


def test_a_wrong_coordinator_is_corrected(kafka3: EmbeddedKafka, admin3: Any) -> None:
    create_topics(admin3, {"kc-wrong": 1})
    for group in GROUPS[:6]:
        commit(admin3, group, {("kc-wrong", 0): 5})
    for source in (CommittedOffsetsSource, GroupMembersSource):
        planned = plan(source, kafka3.address(1), groups_allow="^kc-0[0-5]$")
        wrong = [
            replace(chunk, items=[group._replace(coordinator=group.coordinator % 3 + 1) for group in chunk.items])
            for chunk in planned.chunks
        ]
        rows = Planned(planned.reader, wrong).rows()
        assert {row["group_id"]: row["error"] for row in rows} == dict.fromkeys(GROUPS[:6])


def test_after_leadership_moves_the_new_leader_is_asked(kafka3: EmbeddedKafka, admin3: Any) -> None:
    planned = plan_of_new_topic(kafka3, admin3, "kc-moving", {0: [2], 1: [2]})
    reassign(admin3, TopicPartition("kc-moving", 0), [3])
    # Until broker 2 knows this, it answers as before.
    wait_for(lambda: by_partition(planned.rows()) == {0: (3, 0, None), 1: (2, 0, None)}, timeout_s=10)
    moved = next(row for row in planned.rows() if row["partition"] == 0)
    assert (moved["replicas"], moved["leader_epoch"] > 0) == ([3], True)


def test_a_broker_that_dies_affects_only_its_own_partitions(kafka3: EmbeddedKafka, admin3: Any) -> None:
    planned = plan_of_new_topic(kafka3, admin3, "kc-dying", {0: [1], 1: [3]})
    kafka3.kill(3)
    try:
        rows = by_partition(planned.rows())
    finally:
        kafka3.start(3)
        spread(kafka3)
    # The controller still believes that it is alive.
    assert rows == {0: (1, 0, None), 1: (3, None, "NETWORK_EXCEPTION")}
