"""The list of groups lacks none, or says so, while coordinators move and where Kafka refuses the proof."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, cast

import pytest
from kafka import KafkaAdminClient
from kafka.admin import ACLOperation, ResourceType
from kafka.errors import KafkaError
from kafka.protocol.metadata import MetadataResponse

from demo.embedded_kafka.broker import EmbeddedKafka
from demo.embedded_kafka.topics import create_topics
from pipeline.kafka.client import KafkaClient
from pipeline.kafka.failures import Failure
from pipeline.kafka.groups import (
    OFFSETS_TOPIC,
    PROBE_PREFIX,
    Unproven,
    _offsets_partitions,
    _why_unprovable,
    list_groups,
    offsets_partition,
    probe_names,
)
from pipeline.kafka.named_groups import ask_for_groups
from pipeline.kafka.snapshot import UNPROVEN, SnapshotSource
from tests.helpers.kafka import Row, commit, denied, login, parsed, partitions_of, read, spread

GROUPS = [f"gl-{number:02}" for number in range(60)]


@pytest.mark.parametrize(
    ("group", "java_hash"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("polygenelubricants", -(2**31)),  # whose absolute value is not an int of Java: Kafka takes 0
        ("Aa", 2112),
        ("\N{GRINNING FACE}", 0xD83D * 31 + 0xDE00),  # two characters of UTF-16
    ],
)
def test_a_group_is_in_the_partition_that_java_s_hash_says(group: str, java_hash: int) -> None:
    expected = 0 if java_hash == -(2**31) else abs(java_hash) % 50
    assert offsets_partition(group, 50) == expected


@pytest.mark.parametrize("partitions", [1, 12, 31, 50, 62, 961, 1000])
def test_each_partition_has_an_invented_group(partitions: int) -> None:
    names = probe_names(partitions)
    assert [offsets_partition(name, partitions) for name in names] == [*range(partitions)]
    assert all(name.startswith(PROBE_PREFIX) for name in names)


class Vendor:
    """What brokers of other vendors, and proxies in front of Kafka, may answer; it only has what is asked of it."""

    def __init__(self, metadata: Any = None, coordinator: int | Failure = 1) -> None:
        self._metadata, self._coordinator = metadata, coordinator
        self.pauses = 0

    def metadata(self, _: object) -> Any:
        return self._metadata

    def coordinators(self, groups: Sequence[str]) -> dict[str, int | Failure]:
        return dict.fromkeys(groups, self._coordinator)

    def back_off(self, _: int) -> None:
        self.pauses += 1


def described(*partitions: int, leader: int = 1, topics: Sequence[str] = (OFFSETS_TOPIC,), error: int = 0) -> Any:
    topic = MetadataResponse.MetadataResponseTopic
    partition = topic.MetadataResponsePartition
    fields = {"leader_id": leader, "leader_epoch": 3, "replica_nodes": [1], "isr_nodes": [1]}
    its = [partition(error_code=0, partition_index=number, **fields) for number in partitions]
    found = [topic(error_code=error, name=name, topic_id=None, partitions=its) for name in topics]
    return MetadataResponse(topics=found, version=12)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (described(), "UNKNOWN_TOPIC_OR_PARTITION"),
        (described(topics=()), "UNKNOWN_TOPIC_OR_PARTITION"),
        (described(0, topics=("other",)), "UNKNOWN_TOPIC_OR_PARTITION"),
        (described(0, 2), "UNKNOWN_TOPIC_OR_PARTITION"),
        (described(0, 1, error=29), "TOPIC_AUTHORIZATION_FAILED"),
        (Failure("REQUEST_TIMED_OUT"), "REQUEST_TIMED_OUT"),
    ],
)
def test_partitions_that_may_not_be_all_prove_nothing(answer: Any, error: str) -> None:
    found = _offsets_partitions(cast(KafkaClient, Vendor(answer)))
    assert isinstance(found, Failure)
    assert found.error == error


@pytest.mark.parametrize(
    ("coordinator", "refusal", "pauses"),
    [
        (1, None, 0),
        (2, "NOT_COORDINATOR", 4),  # as at Redpanda, which assigns groups by another hash
        (Failure("GROUP_AUTHORIZATION_FAILED"), "GROUP_AUTHORIZATION_FAILED", 0),
        (Failure("COORDINATOR_NOT_AVAILABLE"), None, 0),  # a partition without a leader: the proof says so
    ],
)
def test_invented_groups_prove_nothing_if_they_are_denied_or_elsewhere(
    coordinator: int | Failure, refusal: str | None, pauses: int
) -> None:
    vendor = Vendor(described(*range(12)), coordinator)
    placements = _offsets_partitions(cast(KafkaClient, vendor))
    assert isinstance(placements, dict)
    why = _why_unprovable(cast(KafkaClient, vendor), placements)
    assert (why and why.error, vendor.pauses) == (refusal, pauses)


@contextmanager
def moving_coordinators(kafka3: EmbeddedKafka) -> Iterator[Callable[[], int]]:
    """Moves the leaders of __consumer_offsets twice a second; yields a function that returns how often they moved."""
    over, moves = threading.Event(), [0]
    with KafkaAdminClient(bootstrap_servers=kafka3.address(1)) as admin:
        placed = {p: described["replica_nodes"] for p, described in partitions_of(admin, OFFSETS_TOPIC).items()}

        def move() -> None:
            while not over.is_set():
                shift = moves[0] + 1
                turned = {p: [*brokers[shift % 3 :], *brokers[: shift % 3]] for p, brokers in placed.items()}
                with suppress(KafkaError):  # an election may be refused while another one is under way
                    admin.alter_partition_reassignments(turned)
                    over.wait(0.25)
                    admin.elect_leaders(0, {OFFSETS_TOPIC: [p.partition for p in placed]})
                    moves[0] += 1
                over.wait(0.25)

        mover = threading.Thread(target=move, daemon=True)
        mover.start()
        try:
            yield lambda: moves[0]
        finally:
            over.set()
            mover.join(30)
    spread(kafka3, placed)


@pytest.fixture(scope="module")
def groups3(kafka3: EmbeddedKafka) -> None:
    """GROUPS, each with a commit, at `kafka3`.

    A leader that does not know yet that the last of them is committed may not list it for good: docs/design-reading.md
    says what is left of groups that no broker lists. Followers learn it from a fetch, after half a second at most.
    """
    with KafkaAdminClient(bootstrap_servers=kafka3.address(1)) as admin:
        admin.create_topics({"gl": {"num_partitions": 1, "replication_factor": 3}}, wait_for_metadata=True)
        for group in GROUPS:
            commit(admin, group, {("gl", 0): 0})
    time.sleep(2)


@pytest.mark.thorough
@pytest.mark.usefixtures("groups3")
def test_while_coordinators_move_no_list_lacks_a_group_without_saying_so(kafka3: EmbeddedKafka) -> None:
    lacking: list[set[str]] = []
    with moving_coordinators(kafka3) as moves:
        while len(lacking) < 400 or moves() < 10:
            with KafkaClient(parsed(kafka3.address(1))) as client:
                groups, unlisted, unproven = list_groups(client)
            assert unproven is None
            lacking.append(set() if unlisted else {*GROUPS} - {group.group_id for group in groups})
    assert [missing for missing in lacking if missing] == []


@pytest.mark.lengthy
@pytest.mark.usefixtures("groups3")
def test_of_2000_snapshots_while_coordinators_move_none_without_errors_lacks_a_group_or_commit(
    kafka3: EmbeddedKafka,
) -> None:
    complete, lacking = 0, list[set[str]]()
    with moving_coordinators(kafka3):
        for _ in range(2000):
            rows = read(SnapshotSource, kafka3.address(1), groups_allow="^gl-", topics_allow="^gl$")
            if any(row["error"] for row in rows):
                continue
            complete += 1
            for kind, topic in (("group_members", None), ("committed_offsets", "gl")):
                found = {row["group_id"] for row in rows if (row["kind"], row["topic"]) == (kind, topic)}
                lacking.append({*GROUPS} - found)
    assert complete > 1800
    assert [missing for missing in lacking if missing] == []


@pytest.fixture(scope="module")
def topic(kafka: EmbeddedKafka) -> None:
    with KafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers) as admin:
        create_topics(admin, {"gl": 1})


@pytest.mark.usefixtures("topic")
def test_without_the_right_to_describe_an_invented_group_or_the_topic_a_list_is_unproven(
    kafka: EmbeddedKafka, admin: Any
) -> None:
    commit(admin, "gl-unproven", {("gl", 0): 1})
    partitions = len(partitions_of(admin, OFFSETS_TOPIC))

    def unproven() -> tuple[set[str], Unproven | None]:
        options = parsed(kafka.sasl_bootstrap_servers, groups_allow="^gl-unproven$", **login(kafka))
        with KafkaClient(options) as client:
            groups, unlisted, why = list_groups(client)
        assert unlisted == []
        return {group.group_id for group in groups}, why

    assert unproven() == ({"gl-unproven"}, None)
    with denied(kafka, ResourceType.GROUP, probe_names(partitions)[0], ACLOperation.DESCRIBE):
        assert unproven() == ({"gl-unproven"}, Unproven("GROUP_AUTHORIZATION_FAILED", group=PROBE_PREFIX))
    with denied(kafka, ResourceType.TOPIC, OFFSETS_TOPIC, ACLOperation.DESCRIBE):
        assert unproven() == ({"gl-unproven"}, Unproven("TOPIC_AUTHORIZATION_FAILED", topic=OFFSETS_TOPIC))
        rows = read(SnapshotSource, kafka.sasl_bootstrap_servers, groups_allow="^gl-unproven$", **login(kafka))
    assert [row["kind"] for row in rows].count(UNPROVEN) == 1


def asked(kafka: EmbeddedKafka, *groups: tuple[str, str | None], **options: str) -> list[Row]:
    """What is said of groups that are missing from a list."""
    given = {"bootstrap_servers": kafka.sasl_bootstrap_servers, **login(kafka), **options}
    return [row for batch in ask_for_groups(given, dict(groups)) for row in batch.to_pylist()]


@pytest.mark.usefixtures("topic")
def test_a_group_that_is_missing_from_a_list_is_gone_only_if_its_coordinator_says_so(
    kafka: EmbeddedKafka, admin: Any
) -> None:
    commit(admin, "gl-there", {("gl", 0): 1})
    commit(admin, "gl-denied", {("gl", 0): 1})
    missing = [("gl-there", "classic"), ("gl-denied", None), ("gl-gone", "classic"), ("gl-new-gone", "consumer")]
    with denied(kafka, ResourceType.GROUP, "gl-denied", ACLOperation.DESCRIBE):
        rows = asked(kafka, *missing, ("gl-share", "share"))
    expected = {("gl-there", "COORDINATOR_NOT_AVAILABLE"), ("gl-denied", "GROUP_AUTHORIZATION_FAILED")}
    for kind in ("group_members", "committed_offsets"):
        assert {(row["group_id"], row["error"]) for row in rows if row["kind"] == kind} == expected
    assert len(rows) == 4
    assert asked(kafka, ("gl-there", "classic"), groups_deny="^gl-") == []
