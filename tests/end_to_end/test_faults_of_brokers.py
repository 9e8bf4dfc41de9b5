"""Brokers that stop, freeze and come back: what is found, in which minute, and when it is resolved.

Topic `lone` has its only replica on broker 3, which is stopped. Topics `three` and `two` have a replica on each broker,
and are led by brokers 1 and 2. Broker 2 is frozen later, for so short a time that the controller does not notice it.
"""

import json
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaProducer, TopicPartition
from pyspark.sql import Row, SparkSession

from demo.embedded_kafka.broker import EmbeddedKafka
from demo.workload.seeding import commit_offsets
from pipeline.config import load_config
from pipeline.lake.few_rows import for_few_rows
from pipeline.tables import FINDINGS, GROUP_STATUS
from tests.helpers.kafka import frozen, partitions_of, spread, wait_for
from tests.helpers.minutes import Minutes, minute_of
from tests.helpers.quiet import write_config

pytestmark = pytest.mark.thorough

TOPICS = {"brokers-lone": [3], "brokers-three": [1, 2, 3], "brokers-two": [2, 1, 3]}
GROUPS = {topic: [f"{topic}-{number}" for number in range(3)] for topic in TOPICS}
"""Several for each topic, because a group whose coordinator is frozen is not read."""
STOPS, STARTS, FREEZES, THAWS, ENDS = 3, 10, 14, 16, 19


@pytest.fixture(scope="module")
def history(spark: SparkSession, kafka3: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory) -> Minutes:
    folder = tmp_path_factory.mktemp("brokers")
    file = write_config(folder, "brokers", {"c": kafka3.bootstrap_servers}, 'schedule = "1m"')
    text = file.read_text().replace('connect_timeout = "20s"', 'connect_timeout = "1s", request_timeout = "1s"')
    file.write_text(text.replace('request_timeout = "1s"', 'request_timeout = "1s", retries = 1'))
    history = Minutes(spark, load_config(file, {}))
    with KafkaAdminClient(bootstrap_servers=kafka3.address(1)) as admin, for_few_rows(spark):
        assigned = {topic: {"assignments": {0: replicas}} for topic, replicas in TOPICS.items()}
        admin.create_topics(assigned, wait_for_metadata=True)
        minutes(history, kafka3, until=STOPS)
        try:
            kafka3.stop(3)
            wait_for(lambda: leader(admin, "brokers-lone") == -1)
            minutes(history, kafka3, until=STARTS, without="brokers-lone")
        finally:
            kafka3.start(3)
            spread(kafka3)
        wait_for(lambda: leader(admin, "brokers-lone") == 3 and in_sync(admin, "brokers-three") == {1, 2, 3})
        minutes(history, kafka3, until=FREEZES)
        with frozen(kafka3, 2):
            while history.minute < THAWS:
                take(history)
        minutes(history, kafka3, until=ENDS)
        history.compute()
    return history


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
def findings(history: Minutes) -> dict[str, Row]:
    rows = history.lake.read(FINDINGS).collect()
    found = {row.kind: row for row in rows}
    assert len(found) == len(rows)
    return found


def test_a_stopped_broker_is_found_until_it_is_back(findings: dict[str, Row]) -> None:
    row = findings["under_replicated"]
    # A partition without a leader is found in the second snapshot, and other replicas after five minutes.
    assert (minute_of(row.first_seen), minute_of(row.resolved_at)) == (STOPS + 1, STARTS)
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


def test_a_broker_that_answers_nothing_is_found_until_it_answers(findings: dict[str, Row]) -> None:
    row = findings["unreadable"]
    assert (minute_of(row.first_seen), minute_of(row.resolved_at)) == (FREEZES + 1, THAWS)
    assert (row.group_id, row.topic, row.severity) == (None, None, "warning")
    assert "brokers-two" in json.loads(row.evidence)["topics"]


def test_nothing_else_is_found(findings: dict[str, Row]) -> None:
    assert set(findings) == {"under_replicated", "unreadable"}


def test_groups_beside_them_are_well(history: Minutes) -> None:
    rows = history.lake.read(GROUP_STATUS).where("group_id LIKE 'brokers-three-%'").collect()
    bad = {row.status for row in rows} - {"ok", "unknown"}
    assert (bad, {row.group_id for row in rows}) == (set(), {*GROUPS["brokers-three"]})
