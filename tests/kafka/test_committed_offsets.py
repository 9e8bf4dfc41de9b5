"""The data source `kafka_committed_offsets` with real brokers: commits, and the rows after each kind of fault."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from kafka import KafkaAdminClient, OffsetAndMetadata, TopicPartition
from kafka.admin import ACLOperation, ResourceType
from kafka.protocol.consumer import OffsetFetchResponse
from pyspark import TaskContext
from pyspark.sql import SparkSession

from demo.embedded_kafka.broker import EmbeddedKafka
from demo.embedded_kafka.topics import create_topics
from pipeline.kafka.committed_offsets import CommittedOffsetsSource, parse
from pipeline.kafka.failures import Failure
from pipeline.kafka.snapshot import BRACKET
from pipeline.kafka.source import MAX_BATCH_BYTES
from tests.helpers.kafka import (
    IN_A_HURRY,
    Planned,
    Row,
    commit,
    delete_groups,
    denied,
    frozen,
    login,
    parsed,
    partitions_of,
    plan,
    read,
)
from tests.helpers.network import HOST, Proxy, free_port

OFFSET_FETCH, LIST_GROUPS = 9, 16
ODD_GROUPS = [
    "co-odd 'single' \"double\" `back`",
    "co-odd;drop table groups;--",
    "co-odd\nof two lines\t",
    "co-odd-Größe-群-🙂",
    "co-odd-\\backslash\\",
    "co-odd-" + 242 * "g",
]
MIB = 1024**2
LONG_TOPIC = "co-" + 246 * "t"


@pytest.fixture(scope="module")
def admin(kafka: EmbeddedKafka) -> Iterator[Any]:
    with KafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers) as client:
        create_topics(client, {"co-a": 3, "co-b": 1, LONG_TOPIC: 1})
        yield client
        delete_groups(client, "co-")


def offsets(rows: list[Row]) -> dict[tuple[str, str, int], int | None]:
    """The commits by group, topic and partition; there must be no other rows and no duplicates."""
    assert [row["error"] for row in rows] == [None] * len(rows)
    found = {(row["group_id"], row["topic"], row["partition"]): row["committed_offset"] for row in rows}
    assert len(found) == len(rows)
    return found


def errors(rows: list[Row]) -> dict[str | None, str]:
    """The errors by group; a row with an error must have no other values, unless it has no group."""
    failed = [row for row in rows if row["error"]]
    for row in failed:
        assert (row["topic"], row["committed_offset"]) == (None, None)
        assert (row["partition"] is None) == (row["group_id"] is not None)
        assert (row["source"], row["captured_at"] is None) == ("offset_fetch", False)
    return {row["group_id"]: row["error"] for row in failed}


def test_a_row_has_the_offset_epoch_and_metadata_of_the_commit(kafka: EmbeddedKafka, admin: Any) -> None:
    metadata = "line 1\nline 2; \"quoted\", 'too' é 群\x01"
    admin.alter_group_offsets("co-exact", {TopicPartition("co-a", 2): OffsetAndMetadata(7, metadata, 4)})
    admin.alter_group_offsets("co-exact", {TopicPartition("co-b", 0): OffsetAndMetadata(0, "", -1)})
    before = datetime.now(UTC)
    rows = read(CommittedOffsetsSource, kafka.bootstrap_servers, groups_allow="^co-exact$")
    for row in rows:
        assert before <= row.pop("captured_at") <= datetime.now(UTC)
    ends = dict.fromkeys(BRACKET)
    shared = {"group_id": "co-exact", "committed_at": None, "source": "offset_fetch", "error": None, **ends}
    exact = {"topic": "co-a", "partition": 2, "committed_offset": 7, "leader_epoch": 4, "metadata": metadata}
    plain = {"topic": "co-b", "partition": 0, "committed_offset": 0, "leader_epoch": None, "metadata": ""}
    assert sorted(rows, key=lambda row: row["topic"]) == [shared | exact, shared | plain]


@pytest.mark.parametrize("api_version", [None, "2.8", "2.4"])
def test_unusual_names_are_read_with_every_api_version(
    kafka: EmbeddedKafka, admin: Any, api_version: str | None
) -> None:
    for number, group in enumerate(ODD_GROUPS):
        commit(admin, group, {("co-a", 0): number, (LONG_TOPIC, 0): 10 + number})
    options = {"api_version": api_version} if api_version else {}
    rows = read(CommittedOffsetsSource, kafka.bootstrap_servers, groups_allow="^co-odd", **options)
    expected = {(group, "co-a", 0): number for number, group in enumerate(ODD_GROUPS)}
    assert offsets(rows) == expected | {(g, LONG_TOPIC, 0): 10 + n for n, g in enumerate(ODD_GROUPS)}


def test_topics_that_the_filter_denies_are_left_out(kafka: EmbeddedKafka, admin: Any) -> None:
    commit(admin, "co-both", {("co-a", 1): 1, ("co-b", 0): 2})
    commit(admin, "co-both-b", {("co-b", 0): 3})
    rows = read(CommittedOffsetsSource, kafka.bootstrap_servers, groups_allow="^co-both", topics_deny="-b$")
    assert offsets(rows) == {("co-both", "co-a", 1): 1}


def test_a_denied_group_is_never_asked_for(kafka: EmbeddedKafka, admin: Any) -> None:
    commit(admin, "co-wanted", {("co-a", 0): 1})
    commit(admin, "co-unwanted", {("co-a", 0): 1})
    filters = {"groups_allow": "^co-", "groups_deny": "unwanted"}
    with Proxy() as proxy:
        rows = read(CommittedOffsetsSource, kafka.bootstrap_servers, proxy_url=proxy.url, **filters)
    assert ("co-wanted", "co-a", 0) in offsets(rows)
    assert any(b"co-wanted" in request.frame for request in proxy.requests)
    assert not any(b"co-unwanted" in request.frame for request in proxy.requests)


def test_a_filter_that_selects_no_group_gives_no_rows_and_no_error(kafka: EmbeddedKafka) -> None:
    with Proxy() as proxy:
        rows = read(CommittedOffsetsSource, kafka.bootstrap_servers, proxy_url=proxy.url, groups_allow="^nobody$")
    assert rows == []
    assert OFFSET_FETCH not in proxy.api_keys()


def test_a_group_deleted_between_planning_and_reading_does_not_affect_the_others(
    kafka: EmbeddedKafka, admin: Any
) -> None:
    commit(admin, "co-deleted", {("co-a", 0): 1})
    commit(admin, "co-deleted-not", {("co-a", 0): 2})
    planned = plan(CommittedOffsetsSource, kafka.bootstrap_servers, groups_allow="^co-deleted")
    admin.delete_groups(["co-deleted"])
    assert offsets(planned.rows()) == {("co-deleted-not", "co-a", 0): 2}


def test_a_group_without_the_describe_right_is_an_error_row(kafka: EmbeddedKafka, admin: Any) -> None:
    commit(admin, "co-acl-open", {("co-a", 0): 2})
    commit(admin, "co-acl-shut", {("co-a", 0): 1})
    # A user who may describe the cluster sees all groups in the list.
    with denied(kafka, ResourceType.GROUP, "co-acl-shut"):
        rows = read(CommittedOffsetsSource, kafka.sasl_bootstrap_servers, groups_allow="^co-acl", **login(kafka))
    assert errors(rows) == {"co-acl-shut": "GROUP_AUTHORIZATION_FAILED"}
    assert offsets([row for row in rows if not row["error"]]) == {("co-acl-open", "co-a", 0): 2}


def test_kafka_leaves_out_a_topic_without_the_describe_right(kafka: EmbeddedKafka, admin: Any) -> None:
    commit(admin, "co-topics", {("co-a", 0): 1, ("co-b", 0): 2})
    with denied(kafka, ResourceType.TOPIC, "co-b", ACLOperation.DESCRIBE):
        rows = read(CommittedOffsetsSource, kafka.sasl_bootstrap_servers, groups_allow="^co-topics$", **login(kafka))
    assert offsets(rows) == {("co-topics", "co-a", 0): 1}


@pytest.mark.parametrize(("groups_per_task", "tasks", "requests"), [(100, 1, 8 + 4), (40, 2, 8 + 3 + 2)])
def test_chunks_contain_each_group_once_and_requests_are_counted(
    kafka: EmbeddedKafka, admin: Any, groups_per_task: int, tasks: int, requests: int
) -> None:
    expected = {(f"co-many-{number:02}", "co-a", number % 3): number for number in range(60)}
    for (group, topic, partition), offset in expected.items():
        commit(admin, group, {(topic, partition): offset})
    options = {"groups_per_task": str(groups_per_task), "groups_allow": "^co-many", "count_requests": "true"}
    planned = plan(CommittedOffsetsSource, kafka.bootstrap_servers, **options)
    rows = planned.rows()
    assert len(planned.chunks) == tasks
    assert offsets([row for row in rows if row["requests"] is None]) == expected
    # The cluster's id on each connection. For the plan, the leaders of __consumer_offsets, FindCoordinator, and five
    # requests for the groups and the proof that none is missing. Then one request for each 25 groups.
    assert sum(row["requests"] or 0 for row in rows) == requests
    assert {row["request_broker"] for row in rows} == {None, 1}


def test_a_task_says_how_often_it_was_tried_before(kafka: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch) -> None:
    planned = plan(CommittedOffsetsSource, kafka.bootstrap_servers, groups_allow="^co-nobody$", count_requests="true")
    assert all(row["request_broker"] is not None for row in planned.rows())
    monkeypatch.setattr(TaskContext, "_taskContext", None)
    TaskContext._getOrCreate()._attemptNumber = 2  # as a worker of Spark does before it begins a task
    assert [row["requests"] for row in planned.rows() if row["request_broker"] is None] == [2]


def test_an_answer_of_more_than_a_megabyte_is_read(kafka: EmbeddedKafka, admin: Any) -> None:
    create_topics(admin, {"co-large": 12})
    groups = [f"co-large-{number}" for number in range(25)]
    for group in groups:
        commit(admin, group, {("co-large", partition): partition for partition in range(12)}, metadata="m" * 4_096)
    with Proxy() as proxy:
        rows = read(CommittedOffsetsSource, kafka.bootstrap_servers, groups_allow="^co-large", proxy_url=proxy.url)
    assert offsets(rows) == {(group, "co-large", partition): partition for group in groups for partition in range(12)}
    assert {len(row["metadata"]) for row in rows} == {4_096}
    assert proxy.api_keys().count(OFFSET_FETCH) == 1


@pytest.mark.parametrize("lost", [LIST_GROUPS, OFFSET_FETCH])
def test_a_connection_that_is_lost_midway_is_opened_again(kafka: EmbeddedKafka, admin: Any, lost: int) -> None:
    commit(admin, "co-lost", {("co-a", 0): 1})
    options = {"groups_allow": "^co-lost$", "count_requests": "true"}
    with Proxy.cutting_first(lost) as proxy:
        *rows, count = read(CommittedOffsetsSource, kafka.bootstrap_servers, proxy_url=proxy.url, **options)
    assert offsets(rows) == {("co-lost", "co-a", 0): 1}
    assert proxy.api_keys().count(lost) == 2
    # Each of three connections is asked for its cluster's id. The plan takes seven more requests. If the list of
    # groups is lost, six are sent again; OffsetFetch is sent again after FindCoordinator.
    assert count["requests"] == 3 + 7 + {LIST_GROUPS: 6 + 1, OFFSET_FETCH: 3}[lost]


def test_a_connection_that_cannot_be_opened_again_is_an_error_for_each_group(kafka: EmbeddedKafka, admin: Any) -> None:
    commit(admin, "co-gone-1", {("co-a", 0): 1})
    commit(admin, "co-gone-2", {("co-a", 0): 1})
    with Proxy(lambda request: request.api_key == OFFSET_FETCH) as proxy:
        options = {"proxy_url": proxy.url, "retries": "1", "groups_allow": "^co-gone"}
        rows = read(CommittedOffsetsSource, kafka.bootstrap_servers, **options)
    assert errors(rows) == {"co-gone-1": "NETWORK_EXCEPTION", "co-gone-2": "NETWORK_EXCEPTION"}
    assert len(rows) == 2


def test_a_cluster_lost_between_planning_and_reading_is_an_error_for_each_group(
    kafka: EmbeddedKafka, admin: Any
) -> None:
    commit(admin, "co-cluster-lost", {("co-a", 0): 1})
    planned = plan(CommittedOffsetsSource, kafka.bootstrap_servers, groups_allow="^co-cluster-lost$")
    nowhere = f"{HOST}:{free_port()}"
    planned.reader.options = parsed(nowhere)
    moved = Planned(planned.reader, [replace(chunk, address=nowhere) for chunk in planned.chunks])
    rows = moved.rows()
    assert errors(rows) == {"co-cluster-lost": "NETWORK_EXCEPTION"}
    assert len(rows) == 1


def test_on_an_old_broker_coordinators_are_looked_up_one_by_one(kafka: EmbeddedKafka, admin: Any) -> None:
    commit(admin, "co-moved-old", {("co-a", 0): 1})
    planned = plan(CommittedOffsetsSource, kafka.bootstrap_servers, groups_allow="^co-moved-old$", api_version="2.8")
    chunks = [replace(one, items=[group._replace(coordinator=99) for group in one.items]) for one in planned.chunks]
    assert offsets(Planned(planned.reader, chunks).rows()) == {("co-moved-old", "co-a", 0): 1}


def test_groups_of_a_frozen_broker_are_a_row_for_each_of_its_partitions_and_the_others_are_kept(
    kafka3: EmbeddedKafka,
) -> None:
    groups = [f"co3-{number}" for number in range(12)]
    with KafkaAdminClient(bootstrap_servers=kafka3.bootstrap_servers) as admin3:
        create_topics(admin3, {"co3": 1})
        for group in groups:
            commit(admin3, group, {("co3", 0): 1})
    planned = plan(CommittedOffsetsSource, kafka3.bootstrap_servers, groups_allow="^co3-")
    coordinators = {group.group_id: group.coordinator for chunk in planned.chunks for group in chunk.items}
    cold = max(coordinators.values())
    elsewhere = {group for group, coordinator in coordinators.items() if coordinator != cold}
    with frozen(kafka3, cold):
        rows = read(CommittedOffsetsSource, kafka3.address(1), groups_allow="^co3-", **IN_A_HURRY)
    assert 0 < len(elsewhere) < len(groups)
    assert errors(rows) == {None: "REQUEST_TIMED_OUT"}
    with KafkaAdminClient(bootstrap_servers=kafka3.address(1)) as admin3:
        led = partitions_of(admin3, "__consumer_offsets")
    assert {row["partition"] for row in rows if row["error"]} == {
        partition.partition for partition, described in led.items() if described["leader_id"] == cold
    }
    assert {row["group_id"] for row in rows if not row["error"]} == elsewhere


def test_spark_reads_them_and_its_plan_shows_no_password(
    spark: SparkSession, kafka: EmbeddedKafka, admin: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    commit(admin, "co-spark", {("co-a", 0): 1, ("co-a", 1): 2})
    options = {"bootstrap_servers": kafka.sasl_bootstrap_servers, "groups_allow": "^co-spark$", **login(kafka)}
    frame = spark.read.format("kafka_committed_offsets").options(**options).load()
    assert {(row.partition, row.committed_offset) for row in frame.collect()} == {(0, 1), (1, 2)}
    frame.explain(extended=True)
    assert "cret" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("texts", "kept"),
    [
        pytest.param(["x" * MIB], ["x" * MIB], id="just as much as is kept"),
        pytest.param(["x" * MIB, "", None], ["x" * MIB, "", ""], id="none is stored"),
        pytest.param(["ö", "x" * MIB, "x", ""], ["ö", None, None, ""], id="one byte too many, and what follows"),
        pytest.param(["ö" * (MIB // 2), "x"], ["ö" * (MIB // 2), None], id="bytes, not characters"),
    ],
)
def test_at_most_one_mebibyte_of_metadata_is_kept_for_each_group(
    texts: list[str | None], kept: list[str | None]
) -> None:
    of_group = OffsetFetchResponse.OffsetFetchResponseGroup
    of_topic = of_group.OffsetFetchResponseTopics
    partitions = [
        of_topic.OffsetFetchResponsePartitions(partition_index=n, committed_offset=n, metadata=text)
        for n, text in enumerate(texts)
    ]
    halves = [of_topic(name="t", partitions=partitions[:1]), of_topic(name="u", partitions=partitions[1:])]
    rows = parse(of_group(group_id="g", topics=halves), lambda _: True, datetime.now(UTC))
    assert not isinstance(rows, Failure)
    assert rows["metadata"] == kept
    assert rows["committed_offset"] == [*range(len(texts))]


def test_commits_with_much_metadata_come_in_small_batches() -> None:
    source = CommittedOffsetsSource({"bootstrap_servers": "nowhere:9092"})
    reader = source.reader(source.schema())
    # One group has all of the metadata.
    metadata = ["m" * 4_096] * 10_000 + ["m"] * 50_000
    found = [*reader.batches({"group_id": ["g"] * len(metadata), "metadata": metadata})]
    assert [one for batch in found for one in batch["metadata"].to_pylist()] == metadata
    assert max(batch.nbytes for batch in found) <= MAX_BATCH_BYTES
    assert len(found) <= 10
