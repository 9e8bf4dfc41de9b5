"""Brokers that stop, freeze and come back: what is found, in which minute, and when it is resolved.

Topic `lone` has its only replica on broker 3, which is stopped. Topics `three` and `two` have a replica on each broker,
and are led by brokers 1 and 2. Broker 2 is frozen later, for so short a time that the controller does not notice it.

After that, records of topic `cut` are lost: broker 3 is away while they are written, and then elected although it does
not have them. At the same time, the only member of group `left` leaves for some minutes. These brokers keep the commits
of a group without members for ten hours.
"""

import json
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaProducer, TopicPartition
from kafka.structs import OffsetAndMetadata
from pyspark.sql import Row, SparkSession

from demo.embedded_kafka.broker import EmbeddedKafka
from demo.workload.seeding import commit_offsets
from pipeline.config import load_config
from pipeline.lake.few_rows import for_few_rows
from pipeline.tables import FINDINGS, GROUP_STATUS
from tests.helpers.kafka import frozen, member, partitions_of, spread, wait_for
from tests.helpers.minutes import Minutes, minute_of
from tests.helpers.quiet import write_config

pytestmark = pytest.mark.thorough

TOPICS = {"brokers-lone": [3], "brokers-three": [1, 2, 3], "brokers-two": [2, 1, 3]}
GROUPS = {topic: [f"{topic}-{number}" for number in range(3)] for topic in TOPICS}
"""Several for each topic, because a group whose coordinator is frozen is not read."""
CUT, LEFT = "brokers-cut", "brokers-left"
CUTTING = {CUT: [2, 3], LEFT: [1]}
STOPS, STARTS, FREEZES, THAWS, ENDS = 3, 10, 14, 16, 19
FALLS_BACK, CUTS, HEALS, LAST = 21, 23, 26, 30
KEPT_MINUTES = 600
RECORDS = 5
"""Records that are written to the topics of CUTTING before each snapshot."""


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedKafka]:
    properties = {"offsets.retention.minutes": str(KEPT_MINUTES)}
    with EmbeddedKafka(tmp_path_factory.mktemp("brokers"), 3, properties, heap_mb=256) as kafka:
        yield kafka


@pytest.fixture(scope="module")
def history(spark: SparkSession, brokers: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory) -> Minutes:
    folder = tmp_path_factory.mktemp("brokers")
    file = write_config(folder, "brokers", {"c": brokers.bootstrap_servers}, 'schedule = "1m"')
    text = file.read_text().replace('connect_timeout = "20s"', 'connect_timeout = "1s", request_timeout = "1s"')
    file.write_text(text.replace('request_timeout = "1s"', 'request_timeout = "1s", retries = 1'))
    history = Minutes(spark, load_config(file, {}))
    with KafkaAdminClient(bootstrap_servers=brokers.address(1)) as admin, for_few_rows(spark):
        assigned = {topic: {"assignments": {0: replicas}} for topic, replicas in TOPICS.items()}
        admin.create_topics(assigned, wait_for_metadata=True)
        minutes(history, brokers, until=STOPS)
        try:
            brokers.stop(3)
            wait_for(lambda: leader(admin, "brokers-lone") == -1)
            minutes(history, brokers, until=STARTS, without="brokers-lone")
        finally:
            brokers.start(3)
            spread(brokers)
        wait_for(lambda: leader(admin, "brokers-lone") == 3 and in_sync(admin, "brokers-three") == {1, 2, 3})
        minutes(history, brokers, until=FREEZES)
        with frozen(brokers, 2):
            while history.minute < THAWS:
                take(history)
        minutes(history, brokers, until=ENDS)
        history.compute()
        cut(history, brokers)
        history.compute()
    return history


def cut(history: Minutes, kafka: EmbeddedKafka) -> None:
    """An unclean election: broker 3 does not have what was written while it was away, and becomes the leader."""
    unclean = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
    plans = {topic: {"assignments": {0: replicas}, "configs": unclean} for topic, replicas in CUTTING.items()}
    with KafkaAdminClient(bootstrap_servers=kafka.address(1)) as admin:
        admin.create_topics(plans, wait_for_metadata=True)
    with member(kafka, LEFT, LEFT) as consumer:
        cut_minutes(history, kafka, FALLS_BACK, consumer)
    kafka.stop(3)
    wait_until(kafka, lambda admin: in_sync(admin, CUT) == {2})
    cut_minutes(history, kafka, CUTS)
    kafka.stop(2)
    wait_until(kafka, lambda admin: leader(admin, CUT) == -1)
    kafka.start(3)
    wait_until(kafka, lambda admin: leader(admin, CUT) == 3)
    kafka.start(2)
    spread(kafka)
    wait_until(kafka, lambda admin: in_sync(admin, CUT) == {2, 3})
    cut_minutes(history, kafka, HEALS)
    with member(kafka, LEFT, LEFT) as consumer:
        cut_minutes(history, kafka, LAST, consumer)


def wait_until(kafka: EmbeddedKafka, condition: Callable[[Any], bool]) -> None:
    """With a new client, because an older one may know brokers that are away, and not those that are back."""
    with KafkaAdminClient(bootstrap_servers=kafka.address(1)) as admin:
        wait_for(lambda: condition(admin))


def cut_minutes(history: Minutes, kafka: EmbeddedKafka, until: int, consumer: Any = None) -> None:
    """In each minute records are written; `cut` commits in all but those after the election, `left` with its member."""
    with KafkaAdminClient(bootstrap_servers=kafka.address(1)) as admin:
        producer = KafkaProducer(bootstrap_servers=kafka.address(1))
        while history.minute < until:
            for topic in CUTTING:
                sent = [producer.send(topic, b"x", partition=0) for _ in range(RECORDS)]
                end = OffsetAndMetadata(sent[-1].get(timeout=60).offset + 1, "", leader_epoch(admin, topic))
                at = {TopicPartition(topic, 0): end}
                if topic == LEFT and consumer is not None:
                    consumer.commit(at)
                elif topic == CUT and not CUTS <= history.minute < HEALS:
                    admin.alter_group_offsets(CUT, at)
            take(history)
        producer.close()


def leader_epoch(admin: Any, topic: str) -> int:
    (partition,) = admin.describe_topics([topic])[0]["partitions"]
    return int(partition["leader_epoch"])


def minutes(history: Minutes, kafka: EmbeddedKafka, *, until: int, without: str = "") -> None:
    """Each minute, records are written and committed in all topics but one."""
    # An older client may believe that a broker which was away coordinates a group.
    with KafkaAdminClient(bootstrap_servers=kafka.address(1)) as admin:
        producer = KafkaProducer(bootstrap_servers=kafka.address(1))
        while history.minute < until:
            for topic in TOPICS.keys() - {without}:
                end = producer.send(topic, b"x", partition=0).get(timeout=60).offset + 1
                for group in GROUPS[topic]:
                    commit_offsets(admin, group, {(topic, 0): end})
            take(history)
        producer.close()


def take(history: Minutes) -> None:
    history.take()
    history.minute += 1


def partition_of(admin: Any, topic: str) -> Any:
    return partitions_of(admin, topic)[TopicPartition(topic, 0)]


def leader(admin: Any, topic: str) -> int:
    return int(partition_of(admin, topic)["leader_id"])


def in_sync(admin: Any, topic: str) -> set[int]:
    return {*partition_of(admin, topic)["isr_nodes"]}


@pytest.fixture(scope="module")
def findings(history: Minutes) -> dict[tuple[str, int], Row]:
    """All findings, by kind and the minute in which they are found."""
    rows = history.lake.read(FINDINGS).collect()
    found = {(row.kind, minute_of(row.first_seen)): row for row in rows}
    assert len(found) == len(rows)
    return found


def test_a_stopped_broker_is_found_until_it_is_back(findings: dict[tuple[str, int], Row]) -> None:
    # A partition without a leader is found in the second snapshot, and other replicas after five minutes.
    row = findings["under_replicated", STOPS + 1]
    assert minute_of(row.resolved_at) == STARTS
    assert (row.group_id, row.topic, row.severity, row.magnitude) == (None, None, "critical", 3.0)
    evidence = json.loads(row.evidence)
    known = {name: evidence[name] for name in ("broker", "brokers", "topics", "partitions_without_leader", "groups")}
    assert known == {
        "broker": 3,
        "brokers": [3],
        "topics": sorted(TOPICS),
        "partitions_without_leader": 1,
        "groups": GROUPS["brokers-lone"],
    }


def test_a_broker_that_answers_nothing_is_found_until_it_answers(findings: dict[tuple[str, int], Row]) -> None:
    row = findings["unreadable", FREEZES + 1]
    assert minute_of(row.resolved_at) == THAWS
    assert (row.group_id, row.topic, row.severity) == (None, None, "warning")
    assert "brokers-two" in json.loads(row.evidence)["topics"]


def test_records_that_an_election_loses_are_found_until_their_group_commits_again(
    findings: dict[tuple[str, int], Row],
) -> None:
    row = findings["truncated_log", CUTS]
    assert minute_of(row.resolved_at) == HEALS
    assert (row.group_id, row.topic, row.partitions, row.severity) == (None, CUT, [0], "critical")
    evidence = json.loads(row.evidence)
    assert (evidence["groups"], evidence["commits_cut_off"]) == ([CUT], 1)
    assert row.summary.startswith("The log of 1 partition ends or was cut off before commits of 1 group")


def test_commits_of_a_group_without_members_are_found_until_one_is_back(findings: dict[tuple[str, int], Row]) -> None:
    row = findings["commits_expire", FALLS_BACK]
    assert minute_of(row.resolved_at) == HEALS
    assert (row.group_id, row.topic, row.severity) == (LEFT, LEFT, "warning")
    expires = minute_of(datetime.fromisoformat(json.loads(row.evidence)["commits_expire_at"]))
    assert expires - KEPT_MINUTES in (FALLS_BACK - 2, FALLS_BACK - 1)


def test_nothing_else_is_found(findings: dict[tuple[str, int], Row]) -> None:
    known = {("under_replicated", STOPS + 1), ("unreadable", FREEZES + 1), ("truncated_log", CUTS)}
    # Broker 3 is away a second time. Group `left` is new, so a wait of some minutes may be usual for it.
    assert findings.keys() == known | {("commits_expire", FALLS_BACK), ("under_replicated", FALLS_BACK + 1)}
    assert minute_of(findings["under_replicated", FALLS_BACK + 1].resolved_at) == CUTS


def test_groups_beside_them_are_well(history: Minutes) -> None:
    rows = history.lake.read(GROUP_STATUS).where("group_id LIKE 'brokers-three-%'").collect()
    bad = {row.status for row in rows} - {"ok", "unknown"}
    assert (bad, {row.group_id for row in rows}) == (set(), {*GROUPS["brokers-three"]})
