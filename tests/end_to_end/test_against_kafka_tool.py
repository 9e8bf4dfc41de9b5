"""Independent truth: for a quiet broker, laglake reports the same as Kafka's own kafka-consumer-groups.

This includes every group, topic and partition of 300 groups × 20 partitions, and the members.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from pyspark.sql import SparkSession

from demo.embedded_kafka.broker import EmbeddedKafka
from demo.workload.seeding import Seeding, commit_offsets, seed_offsets
from pipeline.derive import compute_lag
from pipeline.lake import Lake
from pipeline.snapshot import take_snapshots
from pipeline.tables import LAG
from tests.helpers.quiet import config
from tests.helpers.stored import stored

TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
PREFIX = "truth"
SEEDING = Seeding(groups=300, topics=2, partitions=20, records=9, prefix=PREFIX)
NONE = "-"

Row = tuple[str, str, int]
ToolRow = tuple[str, str, str, str, str, str]


@pytest.fixture(scope="module")
def quiet(kafka: EmbeddedKafka) -> Iterator[EmbeddedKafka]:
    """The seeded groups; an active group with commits in half of its partitions; one whose commit is past the end."""
    seed_offsets(kafka.bootstrap_servers, SEEDING)
    topic = f"{PREFIX}-topic-0"
    with KafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers) as admin:
        commit_offsets(admin, f"{PREFIX}-beyond", {(topic, 0): 99})
        commit_offsets(admin, f"{PREFIX}-live", {(topic, p): p % 4 for p in range(0, 10, 2)})
    producer = KafkaProducer(bootstrap_servers=kafka.bootstrap_servers)
    producer.send(topic, b"one more", partition=3)
    producer.flush()
    producer.close()
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=kafka.bootstrap_servers,
        group_id=f"{PREFIX}-live",
        client_id="truth-client",
        enable_auto_commit=False,
        metadata_max_age_ms=2000,
    )
    for _ in range(60):
        consumer.poll(timeout_ms=500, max_records=1)
        if len(consumer.assignment()) == 10:
            break
    assert len(consumer.assignment()) == 10
    yield kafka
    consumer.close(autocommit=False)


@pytest.fixture(scope="module")
def truth(quiet: EmbeddedKafka) -> dict[Row, ToolRow]:
    """Committed offset, end, lag, member, host and client in each row that the tool prints for the seeded groups."""
    options = ["--bootstrap-server", quiet.bootstrap_servers, "--describe", "--all-groups", "--timeout", "60000"]
    described = quiet.run_tool(TOOL, *options, timeout=240)
    assert described.returncode == 0, described.stderr
    reported: dict[Row, ToolRow] = {}
    for line in described.stdout.splitlines():
        words = line.split()
        if len(words) == 9 and words[0].startswith(f"{PREFIX}-"):
            group, topic, partition, committed, end, lag, member, host, client = words
            reported[group, topic, int(partition)] = (committed, end, lag, member, host.removeprefix("/"), client)
    return reported


def reported_by_laglake(spark: SparkSession, kafka: EmbeddedKafka, folder: Path) -> dict[Row, ToolRow]:
    """The same from the table `lag`."""
    settings = config(folder, PREFIX, {"east": kafka.bootstrap_servers})
    outcomes = take_snapshots(spark, settings, ["east"], None, lambda: datetime.now(UTC))
    assert [o.status for o in outcomes] == ["complete"], outcomes
    assert compute_lag(spark, settings, ["east"], lambda: datetime.now(UTC)) == 1
    rows = stored(Lake(spark, settings.lake), LAG)
    numbers = ("committed_offset", "high_watermark", "consumer_lag", "member_id", "host", "client_id")
    return {
        (r.group_id, r.topic, r.partition): tuple(NONE if r[n] is None else str(r[n]) for n in numbers) for r in rows
    }


def test_every_row_equals_that_of_kafka_consumer_groups(
    spark: SparkSession, quiet: EmbeddedKafka, truth: dict[Row, ToolRow], tmp_path: Path
) -> None:
    assert len(truth) == 300 * 20 + 1 + 10
    assert reported_by_laglake(spark, quiet, tmp_path) == truth


def test_the_seeded_commits_are_what_was_committed(truth: dict[Row, ToolRow]) -> None:
    for number in (0, 7, 299):
        group = SEEDING.group_ids[number]
        for (topic, partition), offset in SEEDING.committed(number).items():
            assert truth[group, topic, partition][0] == str(offset)
