"""Kafka's own tool resets a group of a real broker: that is found, and what jobs do that look alike is not."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from pyspark.sql import SparkSession

from demo.embedded_kafka.broker import EmbeddedKafka
from demo.embedded_kafka.topics import create_topics
from pipeline.config import load_config
from pipeline.derive import compute_lag
from pipeline.lake import Lake
from pipeline.lake.few_rows import for_few_rows
from pipeline.snapshot import take_snapshots
from pipeline.tables import COMMITTED_OFFSETS, FINDINGS
from tests.helpers.quiet import write_config

pytestmark = [pytest.mark.lengthy, pytest.mark.timeout(600)]

TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
CONSOLE = "org.apache.kafka.tools.consumer.ConsoleConsumer"
TOPIC = "skip-orders"
GROUPS = RESET, JOB, MAPS = "skip-reset", "skip-job", "skip-maps"
JAVA = "skip-java"
RECORDS = 10


@contextmanager
def consumer(kafka: EmbeddedKafka, group: str) -> Iterator[KafkaConsumer]:
    found = KafkaConsumer(
        TOPIC,
        bootstrap_servers=kafka.bootstrap_servers,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        metrics_enabled=False,
    )
    yield found
    found.close()


def write(kafka: EmbeddedKafka, records: int = RECORDS) -> None:
    producer = KafkaProducer(bootstrap_servers=kafka.bootstrap_servers)
    for number in range(records):
        producer.send(TOPIC, b"x", partition=number % 2)
    producer.flush()
    producer.close()


def read(reader: KafkaConsumer, records: int) -> None:
    for _ in range(120):
        records -= sum(map(len, reader.poll(timeout_ms=500).values()))
        if records <= 0:
            break
    assert records == 0


def commit_map(reader: KafkaConsumer) -> None:
    """Commits offsets as an application does that builds them from its records."""
    partitions = [TopicPartition(TOPIC, number) for number in (0, 1)]
    reader.commit({partition: OffsetAndMetadata(reader.position(partition), "", -1) for partition in partitions})


def snapshot(spark: SparkSession, file: Path) -> int:
    (outcome,) = take_snapshots(spark, load_config(file, {}), ["c"], None, lambda: datetime.now(UTC))
    assert outcome.status == "complete"
    return outcome.snapshot_id


def run(kafka: EmbeddedKafka, main: str, *words: str) -> None:
    done = kafka.run_tool(main, "--bootstrap-server", kafka.bootstrap_servers, *words, timeout=120)
    assert done.returncode == 0, done.stderr + done.stdout


def reset(kafka: EmbeddedKafka, *words: str) -> None:
    run(kafka, TOOL, "--reset-offsets", "--group", RESET, *words, "--execute", "--timeout", "60000")


def consumers_run_and_are_closed(spark: SparkSession, kafka: EmbeddedKafka, file: Path) -> None:
    """Three snapshots while they run, each after another commit, and one when all are closed."""
    with consumer(kafka, RESET) as one, consumer(kafka, JOB) as two, consumer(kafka, MAPS) as three:
        for _ in range(3):
            write(kafka)
            for reader in (one, two, three):
                read(reader, RECORDS)
                reader.commit()
            snapshot(spark, file)
        write(kafka)
        read(three, RECORDS)
        commit_map(three)
    snapshot(spark, file)


def test_a_reset_is_found_and_a_job_is_not(spark: SparkSession, kafka: EmbeddedKafka, tmp_path: Path) -> None:
    file = write_config(tmp_path, "skip", {"c": kafka.bootstrap_servers})
    config = load_config(file, {})
    lake = Lake(spark, config.lake)
    with KafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers) as admin:
        create_topics(admin, {TOPIC: 2})
    with for_few_rows(spark):
        consumers_run_and_are_closed(spark, kafka, file)
        write(kafka)
        with consumer(kafka, JOB) as job:
            read(job, 2 * RECORDS)
            job.commit()
        with consumer(kafka, MAPS) as maps:
            read(maps, RECORDS)
            commit_map(maps)
        run(kafka, CONSOLE, "--topic", TOPIC, "--group", JAVA, "--from-beginning", "--max-messages", "50")
        reset(kafka, "--topic", TOPIC, "--to-latest")
        at = snapshot(spark, file)
        compute_lag(spark, config, ["c"], lambda: datetime.now(UTC))
        commits = lake.frame(COMMITTED_OFFSETS, f"snapshot_id = {at}").collect()
        (found,) = lake.frame(FINDINGS).collect()
        lines = [f"{one['topic']},{one['partition']},{one['from']}" for one in json.loads(found.evidence)["offsets"]]
        (tmp_path / "offsets.csv").write_text("\n".join(lines))
        reset(kafka, "--from-file", str(tmp_path / "offsets.csv"))
        undone = snapshot(spark, file)
        compute_lag(spark, config, ["c"], lambda: datetime.now(UTC))
        (later,) = lake.frame(FINDINGS).collect()
        back = lake.frame(COMMITTED_OFFSETS, f"snapshot_id = {undone} AND group_id = '{RESET}'").collect()
    assert {(row.group_id, row.committed_offset) for row in commits} == {(group, 25) for group in (*GROUPS, JAVA)}
    epochs = {(row.group_id, row.leader_epoch is not None) for row in commits}
    assert epochs == {(RESET, False), (MAPS, False), (JOB, True), (JAVA, True)}
    assert (found.kind, found.group_id, found.topic, found.partitions) == ("skipped", RESET, TOPIC, [0, 1])
    assert (found.magnitude, found.severity, found.resolved_at) == (2.0 * RECORDS, "warning", None)
    assert f"and skip up to {2 * RECORDS} records" in found.summary
    assert lines == [f"{TOPIC},0,15", f"{TOPIC},1,15"]
    assert {row.committed_offset for row in back} == {15}
    assert later.last_seen == found.last_seen, "the offsets are back, so that nothing is skipped any more"
