"""Real members come and go: that is found, and a deployment is not. Commits are removed when the finding said so."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from pyspark.sql import SparkSession

from demo.embedded_kafka.broker import EmbeddedKafka
from demo.embedded_kafka.topics import create_topics
from pipeline.config import load_config
from pipeline.derive import compute_lag
from pipeline.lake import Lake
from pipeline.lake.few_rows import for_few_rows
from pipeline.snapshot import take_snapshots
from pipeline.tables import FINDINGS, GROUP_CHANGES
from tests.helpers.kafka import wait_for
from tests.helpers.quiet import write_config

pytestmark = [pytest.mark.lengthy, pytest.mark.timeout(600)]

TOPIC = "restless-orders"
ROUNDS = 5


@contextmanager
def member(kafka: EmbeddedKafka, group: str, client: str) -> Iterator[None]:
    """A consumer that polls in a thread of its own, until it leaves."""
    consumer = KafkaConsumer(
        bootstrap_servers=kafka.bootstrap_servers,
        group_id=group,
        client_id=client,
        auto_offset_reset="earliest",
        auto_commit_interval_ms=200,
        heartbeat_interval_ms=200,
        metrics_enabled=False,
    )
    consumer.partitions_for_topic(TOPIC)  # else it may assign, as the leader of its group, before it knows the topic
    consumer.subscribe([TOPIC])
    leaves = threading.Event()

    def poll() -> None:
        while not leaves.is_set():
            # A poll that ends between joining and being assigned loses the assignment for good (kafka-python 3.0.12).
            consumer.poll(timeout_ms=5_000)
        consumer.close()

    thread = threading.Thread(target=poll)
    thread.start()
    try:
        wait_for(lambda: bool(consumer.assignment()), timeout_s=60)
        yield
    finally:
        leaves.set()
        thread.join(timeout=60)


def snapshot(spark: SparkSession, file: Path) -> None:
    (outcome,) = take_snapshots(spark, load_config(file, {}), ["c"], None, lambda: datetime.now(UTC))
    assert outcome.status == "complete"


def findings(spark: SparkSession, file: Path) -> Lake:
    config = load_config(file, {})
    compute_lag(spark, config, ["c"], lambda: datetime.now(UTC))
    return Lake(spark, config.lake)


def write(kafka: EmbeddedKafka, records: int) -> None:
    producer = KafkaProducer(bootstrap_servers=kafka.bootstrap_servers)
    for number in range(records):
        producer.send(TOPIC, b"x", partition=number % 4)
    producer.flush()
    producer.close()


def test_a_member_that_comes_and_goes_is_named_and_a_deployment_is_not(
    spark: SparkSession, kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    file = write_config(tmp_path, "restless", {"c": kafka.bootstrap_servers})
    with KafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers) as admin:
        create_topics(admin, {TOPIC: 4})
    write(kafka, 40)
    with for_few_rows(spark), member(kafka, "restless-shop", "stays"):
        with member(kafka, "restless-bank", "old"), member(kafka, "restless-bank", "older"):
            snapshot(spark, file)
            for _ in range(ROUNDS):
                with member(kafka, "restless-shop", "comes"):
                    snapshot(spark, file)
                snapshot(spark, file)
        with member(kafka, "restless-bank", "new"), member(kafka, "restless-bank", "newer"):
            snapshot(spark, file)
            snapshot(spark, file)
            lake = findings(spark, file)
    found = {(row.kind, row.group_id): row for row in lake.frame(FINDINGS).collect()}
    assert set(found) == {("flapping_member", "restless-shop")}
    assert '"client_id":"comes"' in found["flapping_member", "restless-shop"].evidence
    changes = lake.frame(GROUP_CHANGES, "group_id = 'restless-bank' AND change IN ('joined', 'left')").collect()
    assert {(row.change, row.client_id) for row in changes} >= {("joined", "new"), ("left", "old")}


def test_commits_are_removed_when_the_finding_said(spark: SparkSession, tmp_path: Path) -> None:
    """Kafka checks every five seconds, and the group has left some seconds after the snapshot that saw its member."""
    kept = {"offsets.retention.minutes": "2", "offsets.retention.check.interval.ms": "5000"}
    with EmbeddedKafka(tmp_path / "kafka", properties=kept) as kafka, for_few_rows(spark):
        file = write_config(tmp_path, "restless", {"c": kafka.bootstrap_servers})
        with KafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers) as admin:
            create_topics(admin, {TOPIC: 4})
            write(kafka, 40)
            with member(kafka, "restless-shop", "leaves"):
                wait_for(lambda: committed(admin) == 40)
                snapshot(spark, file)
            write(kafka, 8)
            snapshot(spark, file)
            lake = findings(spark, file)
            (row,) = lake.frame(FINDINGS, "kind = 'commits_expire'").collect()
            said = datetime.fromisoformat(row.evidence.split('"commits_expire_at":"')[1][:20])
            wait_for(lambda: committed(admin) == 0, timeout_s=200)
            removed = datetime.now(UTC)
    assert row.group_id == "restless-shop"
    assert "8 records are unread" in row.summary
    assert -1 < (removed - said).total_seconds() < 30


def committed(admin: KafkaAdminClient) -> int:
    offsets = admin.list_group_offsets(["restless-shop"])["restless-shop"]
    return sum(o.offset for o in offsets.values() if o.offset > 0)
