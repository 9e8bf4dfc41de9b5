"""The whole pipeline with live clients: Java consumers with two kinds of agents, kafka-python and confluent-kafka."""

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from subprocess import DEVNULL, PIPE
from typing import Any

import confluent_kafka
import pytest
from kafka import KafkaAdminClient, KafkaProducer, TopicPartition
from kafka.admin import OffsetSpec
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from demo.embedded_kafka.broker import EmbeddedKafka
from demo.embedded_kafka.topics import create_topics
from demo.workload.agents import Agent, jmx_exporter, jolokia
from demo.workload.console_reader import CONSOLE_CONSUMER
from laglake.reporters.confluent import StatisticsFile
from laglake.reporters.kafka_python import PositionsFile
from pipeline.common.epoch import to_epoch_ms
from pipeline.config import load_config
from pipeline.derive import compute_lag
from pipeline.lake import Lake
from pipeline.snapshot import take_snapshots
from pipeline.tables import CLIENT_POSITIONS, FINDINGS, LAG, SNAPSHOTS
from tests.helpers.kafka import member, wait_for
from tests.helpers.quiet import write_config

TOPICS = {"live-slow": 2, "live-steady": 1, "live-paused": 2, "live-stats": 1}
PAUSED = TopicPartition("live-paused", 0)
DEAD = "http://127.0.0.1:1/metrics"
SICK, WELL = 3, 7
"""How many snapshots are taken while clients have problems, and after these have ended."""
SNAPSHOTS_TAKEN = SICK + WELL
SICK_INTERVAL_S, WELL_INTERVAL_S = 4, 2
"""The slow consumer fetches about once in three seconds: an interval in which it is seen to fetch rarely is longer."""
WRITTEN_BEFORE = 1_500
"""So many records are in each partition before the first snapshot: more than a slow or paused client reads of it."""


@pytest.fixture(scope="module")
def lake(kafka: EmbeddedKafka, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, few_rows: None) -> Lake:
    """The lake after some snapshots of a cluster with all these clients."""
    healed = threading.Event()
    folder = tmp_path_factory.mktemp("live")
    with KafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers) as admin:
        create_topics(admin, TOPICS)
    agents = {"live-slow": jmx_exporter(folder), "live-steady": jolokia()}
    with ExitStack() as stack:
        stack.enter_context(writing(kafka.bootstrap_servers))
        for name, agent in agents.items():
            stack.enter_context(java_consumer(kafka, name, agent, None if name == "live-steady" else healed))
        stack.enter_context(paused_python(kafka, folder / "python" / "positions.jsonl", healed))
        stack.enter_context(polling_confluent(kafka.bootstrap_servers, folder / "stats" / "app.jsonl"))
        config = load_config(written_config(folder, kafka, agents), {})
        wait_for(lambda: all((folder / option).exists() for option in ("python/positions.jsonl", "stats/app.jsonl")))
        wait_for(lambda: committed(kafka.bootstrap_servers, "live-slow"))
        wait_for(lambda: log_end(kafka.bootstrap_servers, PAUSED) > WRITTEN_BEFORE)
        for number in range(SNAPSHOTS_TAKEN):
            if number == SICK:
                healed.set()
            (outcome,) = take_snapshots(spark, config, ["live"], None, now)
            assert outcome.status == "partial", outcome.message
            time.sleep(SICK_INTERVAL_S if number + 1 < SICK else WELL_INTERVAL_S)
    compute_lag(spark, config, ["live"], now)
    return Lake(spark, config.lake)


def now() -> datetime:
    return datetime.now(UTC)


def written_config(folder: Path, kafka: EmbeddedKafka, agents: dict[str, Agent]) -> Path:
    path = write_config(folder, "live", {"live": kafka.bootstrap_servers})
    endpoints = json.dumps([DEAD, *(agent.endpoint for agent in agents.values())])
    sources = {
        "kafka_client_metrics": [f"endpoints = {endpoints}", f'paths = ["{folder}/python"]'],
        "librdkafka_statistics": [f'paths = ["{folder}/stats"]'],
    }
    with path.open("a") as file:
        for source, options in sources.items():
            for option in options:
                file.write(f'\n[[clusters.live.positions]]\nsource = "{source}"\n{option}\n')
    return path


@contextmanager
def meanwhile(step: Callable[[], object]) -> Iterator[None]:
    """Repeats the step in a thread during the block."""
    ended = threading.Event()

    def repeat() -> None:
        while not ended.is_set():
            step()

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextmanager
def writing(servers: str) -> Iterator[None]:
    """Writes a few hundred records per second to every partition."""
    producer = KafkaProducer(bootstrap_servers=servers)

    def write() -> None:
        time.sleep(0.05)
        for topic, partitions in TOPICS.items():
            for number in range(10 * partitions):
                producer.send(topic, b"x" * 500, partition=number % partitions)

    try:
        with meanwhile(write):
            yield
    finally:
        producer.close(timeout=5)


@contextmanager
def java_consumer(kafka: EmbeddedKafka, name: str, agent: Agent, healed: threading.Event | None) -> Iterator[None]:
    """Kafka's console consumer. The output of a slow one is read slowly until it is healed: a fifth of the records."""
    properties = {"client.id": f"{name}-1", "auto.offset.reset": "earliest", "auto.commit.interval.ms": "500"}
    process = kafka.spawn_tool(
        CONSOLE_CONSUMER,
        *("--bootstrap-server", kafka.bootstrap_servers, "--topic", name, "--group", name),
        *(argument for item in properties.items() for argument in ("--command-property", "=".join(item))),
        agent=agent.option,
        stdout=DEVNULL if healed is None else PIPE,
    )

    def take() -> None:
        is_slow = healed is None or not healed.is_set()
        time.sleep(0.1 if is_slow else 0)
        if process.stdout:
            os.read(process.stdout.fileno(), 4_000 if is_slow else 1_000_000)

    try:
        # It prints as long as something is written, so this never waits for ever.
        with meanwhile(take):
            yield
    finally:
        kafka.end_tool(process)


@contextmanager
def paused_python(kafka: EmbeddedKafka, file: Path, healed: threading.Event) -> Iterator[None]:
    """A consumer that reads partition 1 and has paused 0 until it is healed."""
    file.parent.mkdir()
    options: dict[str, Any] = {"client_id": "live-python", "auto_offset_reset": "earliest"}
    with member(kafka, "live-paused", PAUSED.topic, partitions=2, **options) as consumer:
        consumer.pause(PAUSED)
        PositionsFile(file, interval_s=0.5).watch(consumer)

        def read() -> None:
            if healed.is_set():
                consumer.resume(PAUSED)
            consumer.poll(timeout_ms=100)

        with meanwhile(read):
            yield


@contextmanager
def polling_confluent(servers: str, file: Path) -> Iterator[None]:
    file.parent.mkdir()
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "live-stats",
            "client.id": "live-rdkafka",
            "auto.offset.reset": "earliest",
            "statistics.interval.ms": 500,
            "stats_cb": StatisticsFile(file),
        }
    )
    consumer.subscribe(["live-stats"])
    try:
        with meanwhile(lambda: consumer.poll(0.1)):
            yield
    finally:
        consumer.close()


def committed(servers: str, group: str) -> bool:
    with KafkaAdminClient(bootstrap_servers=servers) as admin:
        return bool(admin.list_group_offsets([group])[group])


def log_end(servers: str, partition: TopicPartition) -> int:
    with KafkaAdminClient(bootstrap_servers=servers) as admin:
        (ends,) = admin.list_partition_offsets({partition: OffsetSpec.LATEST}).values()
    return int(ends.offset)


def snapshot_ids(lake: Lake) -> list[int]:
    return sorted(row.snapshot_id for row in lake.frame(SNAPSHOTS).collect())


def lasted(lake: Lake, row: Any) -> tuple[int, int]:
    """Until which snapshot a finding was found, and in which one it was resolved: their numbers."""
    ids = snapshot_ids(lake)
    return ids.index(to_epoch_ms(row.last_seen)), ids.index(to_epoch_ms(row.resolved_at))


def newest(lake: Lake, group: str, ago: int = 0) -> list[Any]:
    """The group's rows of lag in the last snapshot with problems, or `ago` snapshots before it."""
    lag = lake.frame(LAG)
    of_group = (F.col("snapshot_id") == snapshot_ids(lake)[SICK - 1 - ago]) & (F.col("group_id") == group)
    rows = lag.where(of_group).orderBy("partition").collect()
    assert len(rows) == TOPICS[group]
    return list(rows)


@pytest.mark.parametrize("group", ["live-slow", "live-steady"])
def test_a_java_consumer_s_position_is_known_under_either_agent(lake: Lake, group: str) -> None:
    for row, before in zip(newest(lake, group), newest(lake, group, ago=1), strict=True):
        assert row.client_id == f"{group}-1"
        assert 0 < row.consumed_offset <= row.high_watermark
        # It commits only what it has handed out. Positions are read before commits, so this is the earlier commit.
        assert row.consumed_offset >= before.committed_offset > 0


def test_a_poll_loop_that_stands_still_is_a_slow_consumer_until_it_reads_on(lake: Lake) -> None:
    (row,) = lake.frame(FINDINGS, "client_id = 'live-slow-1' AND kind = 'slow_consumer'").collect()
    assert (row.group_id, to_epoch_ms(row.first_seen)) == ("live-slow", snapshot_ids(lake)[SICK - 1])
    last, resolved = lasted(lake, row)
    # In the first interval after it, the fetches before it still count.
    assert SICK - 1 <= last <= SICK + 1
    assert resolved == last + 1
    assert sum(row.stale_lag for row in newest(lake, "live-slow")) > 100


def test_a_steady_reader_has_no_findings(lake: Lake) -> None:
    clients = {row.client_id for row in lake.frame(FINDINGS, "client_id IS NOT NULL").collect()}
    assert clients.isdisjoint({"live-steady-1", "live-rdkafka"})


def test_a_paused_partition_of_kafka_python_is_found_until_it_is_resumed(lake: Lake) -> None:
    paused, read = newest(lake, "live-paused")
    assert paused.consumed_offset < 1_000 < read.consumed_offset
    (row,) = lake.frame(FINDINGS, "client_id = 'live-python' AND kind = 'paused_partition'").collect()
    assert (row.group_id, row.topic, row.partitions) == ("live-paused", "live-paused", [0])
    last, resolved = lasted(lake, row)
    # What was reported just before the snapshot may still say that it is paused.
    assert SICK - 1 <= last <= SICK
    assert resolved == last + 1


def test_librdkafka_reports_consumed_and_fetched_offsets(lake: Lake) -> None:
    (row,) = newest(lake, "live-stats")
    assert row.client_id == "live-rdkafka"
    assert 0 < row.consumed_offset <= row.fetched_offset
    # It was reported up to half a second before the log end was read.
    assert row.fetched_offset <= row.high_watermark
    assert row.buffered == row.fetched_offset - row.consumed_offset


def test_a_dead_endpoint_only_makes_snapshots_partial(lake: Lake) -> None:
    ledger = lake.frame(SNAPSHOTS).orderBy("snapshot_id").collect()
    assert len(ledger) == SNAPSHOTS_TAKEN
    assert {row.status for row in ledger} == {"partial"}
    for row in ledger:
        ((what, where, error, count),) = row.errors
        assert (what, where, count) == ("client_positions", DEAD, 1)
        assert error == "Connection refused"
        assert row.rows["client_positions"] > 10
    reported = lake.frame(CLIENT_POSITIONS, "error IS NULL").select("client_id").distinct().collect()
    clients = {"live-slow-1", "live-steady-1", "live-python", "live-rdkafka"}
    assert {row.client_id for row in reported} == clients
