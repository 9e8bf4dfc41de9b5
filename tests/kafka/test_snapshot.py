"""The data source `kafka_snapshot`: commits and the ends of their logs are read together, whatever moves meanwhile."""

from collections.abc import Iterator
from typing import Any

import pytest
from kafka import KafkaAdminClient
from kafka.admin import ACLOperation, ResourceType

from demo.embedded_kafka.broker import EmbeddedKafka
from demo.embedded_kafka.topics import create_topics
from pipeline.kafka.committed_offsets import CommittedOffsetsSource
from pipeline.kafka.group_members import GroupMembersSource
from pipeline.kafka.snapshot import SnapshotSource
from pipeline.kafka.watermarks import WatermarksSource
from tests.helpers.kafka import Row, commit, delete_groups, denied, login, member, plan, read, wait_for
from tests.helpers.network import Proxy, Request

LIST_OFFSETS, METADATA, OFFSET_FETCH, LIST_GROUPS = 2, 3, 9, 16
BRACKET = ("earlier_offset", "committed_offset", "high_watermark", "last_stable_offset")


@pytest.fixture(scope="module")
def admin(kafka: EmbeddedKafka) -> Iterator[Any]:
    with KafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers) as client:
        create_topics(client, {"ks-a": 4, "ks-b": 1, "ks-hidden": 1, "ks-unread": 2, "ks-moving": 1})
        yield client
        delete_groups(client, "ks-")


def snapshot(servers: str, **options: str) -> dict[str, list[Row]]:
    """The rows by kind, without the columns that only other kinds have."""
    found: dict[str, list[Row]] = {}
    for row in read(SnapshotSource, servers, topics_allow="^ks-", groups_allow="^ks-", **options):
        found.setdefault(row.pop("kind"), []).append(row)
    return found


def without_time(rows: list[Row], names: list[str], *left_out: str) -> list[Row]:
    kept = [name for name in names if name not in ("captured_at", "ends_at", *left_out)]
    return sorted(({name: row[name] for name in kept} for row in rows), key=repr)


def append(producer: Any, topic: str, records: int) -> None:
    for _ in range(records):
        producer.send(topic, b"x", partition=0)
    producer.flush()


@pytest.mark.parametrize("per_task", [{}, {"groups_per_task": "2", "partitions_per_task": "3"}])
def test_on_an_idle_cluster_it_reads_the_same_as_the_three_single_sources(
    kafka: EmbeddedKafka, admin: Any, producer: Any, per_task: dict[str, str]
) -> None:
    append(producer, "ks-a", 5)
    for number in range(5):
        commit(admin, f"ks-quiet-{number}", {("ks-a", 0): number, ("ks-b", 0): 0})
    options = {"topics_allow": "^ks-", "groups_allow": "^ks-"}
    with member(kafka, "ks-quiet-0", "ks-a", "ks-b", partitions=5):
        found = snapshot(kafka.bootstrap_servers, **per_task)
        for source in (CommittedOffsetsSource, GroupMembersSource, WatermarksSource):
            table = source.name().removeprefix("kafka_")
            alone = read(source, kafka.bootstrap_servers, **options)
            around = (*BRACKET, "high_watermark_after", "log_start_offset")
            left_out = around if source is CommittedOffsetsSource else ()
            names = source.observed.names
            assert without_time(found[table], names, *left_out) == without_time(alone, names, *left_out)
            assert alone
    commits = {(row["group_id"], row["topic"]): row for row in found["committed_offsets"] if row["partition"] == 0}
    for number in range(5):
        row = commits[f"ks-quiet-{number}", "ks-a"]
        end = row["high_watermark"]
        assert [row[name] for name in BRACKET] == [number, number, end, end]
        assert end >= 5
        assert row["ends_at"] <= row["captured_at"]
        assert (row["log_start_offset"], row["high_watermark_after"]) == (0, end)


def test_a_commit_is_read_before_and_after_the_ends_of_its_log(kafka: EmbeddedKafka, admin: Any, producer: Any) -> None:
    append(producer, "ks-moving", 10)
    commit(admin, "ks-moving", {("ks-moving", 0): 4})
    first = KafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers)
    fetches = []

    def move(request: Request) -> bool:
        """Before the second reading of commits, the group commits twice as fast as the producer writes."""
        if request.api_key == OFFSET_FETCH:
            fetches.append(request)
            if len(fetches) == 2:
                append(producer, "ks-moving", 3)
                commit(first, "ks-moving", {("ks-moving", 0): 13})
        return False

    with first, Proxy(move) as proxy:
        found = snapshot(kafka.bootstrap_servers, groups_deny="quiet", proxy_url=proxy.url)
    (row,) = [row for row in found["committed_offsets"] if row["group_id"] == "ks-moving"]
    assert [row[name] for name in BRACKET] == [4, 13, 10, 10]
    (end,) = [row for row in found["watermarks"] if row["topic"] == "ks-moving"]
    assert end["high_watermark"] == 13, "the partition's own row is read once all commits are"
    assert end["captured_at"] >= row["captured_at"] > row["ends_at"]


def test_metadata_comes_from_the_second_read_of_the_commits(kafka: EmbeddedKafka, admin: Any) -> None:
    commit(admin, "ks-described", {("ks-b", 0): 7}, metadata="by whom")
    fetches = []

    def is_second(request: Request) -> bool:
        if request.api_key == OFFSET_FETCH:
            fetches.append(request)
        return request.api_key == OFFSET_FETCH and len(fetches) > 1

    def read_commit(**options: str) -> Row:
        rows = read(SnapshotSource, kafka.bootstrap_servers, groups_allow="^ks-described$", **options)
        (row,) = [row for row in rows if row["kind"] == "committed_offsets"]
        return row

    whole = read_commit()
    assert (whole["committed_offset"], whole["metadata"]) == (7, "by whom")
    with Proxy(is_second) as proxy:
        once = read_commit(proxy_url=proxy.url, retries="0")
    assert (once["committed_offset"], once["metadata"], once["ends_at"], once["error"]) == (7, None, None, None)


def test_a_commit_in_a_topic_without_the_describe_right_is_an_error_row_if_a_member_is_assigned_the_partition(
    kafka: EmbeddedKafka, admin: Any
) -> None:
    commit(admin, "ks-held", {("ks-b", 0): 2, ("ks-hidden", 0): 1})
    with (
        member(kafka, "ks-held", "ks-b", "ks-hidden", partitions=2),
        denied(kafka, ResourceType.TOPIC, "ks-hidden", ACLOperation.DESCRIBE),
    ):
        found = snapshot(kafka.sasl_bootstrap_servers, **login(kafka))
    commits = {row["topic"]: row for row in found["committed_offsets"] if row["group_id"] == "ks-held"}
    assert {topic: (row["committed_offset"], row["error"]) for topic, row in commits.items()} == {
        "ks-b": (2, None),
        "ks-hidden": (None, "TOPIC_AUTHORIZATION_FAILED"),
    }


def test_a_partition_of_a_deleted_topic_that_a_member_still_holds_is_a_row_without_an_error(
    kafka: EmbeddedKafka, admin: Any
) -> None:
    create_topics(admin, {"ks-deleted": 2})
    commit(admin, "ks-keeps", {("ks-b", 0): 2, ("ks-deleted", 1): 0})
    with member(kafka, "ks-keeps", "ks-b", "ks-deleted", partitions=3):
        admin.delete_topics(["ks-deleted"])
        wait_for(lambda: "ks-deleted" not in admin.list_topics())
        wait_for(
            lambda: len(admin.list_group_offsets("ks-keeps")["ks-keeps"]) == 1
        )  # Kafka removes its commits a little later
        found = snapshot(kafka.sasl_bootstrap_servers, **login(kafka))
        with denied(kafka, ResourceType.TOPIC, "ks-deleted", ACLOperation.DESCRIBE):
            hidden = snapshot(kafka.sasl_bootstrap_servers, **login(kafka))
    held = [row for row in found["group_members"] if row["group_id"] == "ks-keeps"]
    assert {row["topic"] for row in held} == {"ks-b", "ks-deleted"}
    assert {row["topic"] for row in found["watermarks"]} & {"ks-b", "ks-deleted"} == {"ks-b"}
    names = ("committed_offset", "high_watermark", "error")
    commits = {(r["topic"], r["partition"]): r for r in found["committed_offsets"] if r["group_id"] == "ks-keeps"}
    assert {key: tuple(row[name] for name in names) for key, row in commits.items()} == {
        ("ks-b", 0): (2, commits["ks-b", 0]["high_watermark"], None),
        ("ks-deleted", 0): (None, None, None),
        ("ks-deleted", 1): (None, None, None),
    }
    # This shows that a broker was asked, and had no such partition.
    assert all(row["ends_at"] for row in commits.values())
    # Whether a topic that may not be described exists is not known.
    unknown = [(r["ends_at"], r["error"]) for r in hidden["committed_offsets"] if r["topic"] == "ks-deleted"]
    assert unknown == [(None, "TOPIC_AUTHORIZATION_FAILED")] * 2


def test_a_partition_is_not_called_deleted_if_no_broker_says_so(kafka: EmbeddedKafka, admin: Any) -> None:
    create_topics(admin, {"ks-lost": 1})
    asked = []

    def cut(request: Request) -> bool:
        """Nothing but the plan's own metadata is answered."""
        asked.append(request.api_key)
        return request.api_key == METADATA and OFFSET_FETCH in asked

    with member(kafka, "ks-loses", "ks-lost"):
        admin.delete_topics(["ks-lost"])
        wait_for(lambda: "ks-lost" not in admin.list_topics())
        with Proxy(cut) as proxy:
            found = snapshot(kafka.bootstrap_servers, proxy_url=proxy.url, groups_deny="quiet|held|keeps")
    assert asked.count(METADATA) > 1
    assert [row for row in found.get("committed_offsets", ()) if row["topic"] == "ks-lost"] == []


def test_every_group_and_partition_is_read_once_and_the_plan_is_made_once(kafka: EmbeddedKafka, admin: Any) -> None:
    for number in range(7):
        commit(admin, f"ks-many-{number}", {("ks-a", number % 4): 0})
    options = {"groups_allow": "^ks-many", "topics_allow": "^ks-(a|unread)$", "count_requests": "true"}
    with Proxy() as proxy:
        planned = plan(SnapshotSource, kafka.bootstrap_servers, groups_per_task="3", proxy_url=proxy.url, **options)
        assert proxy.api_keys().count(LIST_GROUPS) == 1
        rows = planned.rows()
        assert proxy.api_keys().count(LIST_GROUPS) == 1
    assert [(len(chunk.items), len(chunk.placements)) for chunk in planned.chunks] == [(2, 0), (2, 0), (3, 6)]
    keys = [(row["group_id"], row["topic"], row["partition"]) for row in rows if row["kind"] == "committed_offsets"]
    assert sorted(keys) == [(f"ks-many-{number}", "ks-a", number % 4) for number in range(7)]
    assert all(row["high_watermark"] is not None for row in rows if row["kind"] == "committed_offsets")
    ends = [(row["topic"], row["partition"]) for row in rows if row["kind"] == "watermarks"]
    assert sorted(ends) == [*(("ks-a", number) for number in range(4)), ("ks-unread", 0), ("ks-unread", 1)]
    # All requests are counted, except those that find the brokers and open a connection.
    handshake = 18
    sent = sum(1 for key in proxy.api_keys() if key != handshake)
    of_bootstrap = 2 * (1 + len(planned.chunks))
    assert sum(row["requests"] for row in rows if row["kind"] == "requests") == sent - of_bootstrap


def test_a_cluster_that_is_lost_after_planning_is_an_error_for_each_group_and_partition(
    kafka: EmbeddedKafka, admin: Any
) -> None:
    commit(admin, "ks-lost", {("ks-b", 0): 1})
    with Proxy(lambda request: len(request.frame) > 0 and request.api_key == METADATA and lost) as proxy:
        lost = False
        planned = plan(
            SnapshotSource,
            kafka.bootstrap_servers,
            groups_allow="^ks-lost$",
            topics_allow="^ks-b$",
            proxy_url=proxy.url,
            connect_timeout_ms="1000",
        )
        lost = True
        rows = planned.rows()
    assert [(row["kind"], row["group_id"], row["topic"], row["error"]) for row in rows] == [
        ("group_members", "ks-lost", None, "NETWORK_EXCEPTION"),
        ("committed_offsets", "ks-lost", None, "NETWORK_EXCEPTION"),
        ("watermarks", None, "ks-b", "NETWORK_EXCEPTION"),
    ]
