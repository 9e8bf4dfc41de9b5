"""Readers on a real broker that are before a transaction marker, and readers that are before the last record."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from time import sleep, time

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.structs import OffsetAndMetadata
from pyspark.sql import Row, SparkSession

from demo.embedded_kafka.broker import EmbeddedKafka
from demo.embedded_kafka.topics import create_topics
from pipeline.config import Config, load_config
from pipeline.derive import compute_lag
from pipeline.lake import Lake
from pipeline.lake.few_rows import for_few_rows
from pipeline.snapshot import take_snapshots
from pipeline.tables import LAG, PARTITION_STATUS, Table
from tests.helpers.quiet import write_config

PAID, PLAIN = "marked-paid", "marked-plain"
STEPS, LAST = 7, 3
"""After the step LAST, nothing is written, and nobody commits."""
Newest = dict[tuple[str, str], tuple[str, str | None, int, int | None, bool]]
"""(group, topic) → status, reason, consumer_lag, unread_markers, and whether an unread record has an age."""

pytestmark = pytest.mark.thorough


class Reader:
    """A member of a group that reads both topics, and commits up to the last record that it has read."""

    def __init__(self, servers: str, group: str) -> None:
        self._consumer = KafkaConsumer(
            *(PAID, PLAIN),
            bootstrap_servers=servers,
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        )

    def read(self, records: int) -> dict[TopicPartition, int]:
        """Reads this many records, and returns the offset of the last one in each partition."""
        last: dict[TopicPartition, int] = {}
        while records:
            for partition, found in self._consumer.poll(timeout_ms=200).items():
                last[partition] = found[-1].offset
                records -= len(found)
        return last

    def commit(self, last: dict[TopicPartition, int], markers: int) -> None:
        """Commits the offset after each last record, or, as Java's client does, after the marker behind it."""
        after = {at: offset + 1 + (markers if at.topic == PAID else 0) for at, offset in last.items()}
        self._consumer.commit({at: OffsetAndMetadata(offset, "", -1) for at, offset in after.items()})

    def close(self) -> None:
        self._consumer.close()


@contextmanager
def producers(servers: str) -> Iterator[Sequence[KafkaProducer]]:
    """A producer that uses transactions, and one that does not."""
    one = KafkaProducer(bootstrap_servers=servers, transactional_id="marked")
    other = KafkaProducer(bootstrap_servers=servers)
    one.init_transactions()
    yield one, other
    one.close()
    other.close()


def write_one(transactional: KafkaProducer, plain: KafkaProducer) -> None:
    """Writes a record to each topic, and a marker behind that of PAID."""
    transactional.begin_transaction()
    transactional.send(PAID, b"x", partition=0)
    transactional.commit_transaction()
    plain.send(PLAIN, b"x", partition=0).get(30)


@pytest.fixture(scope="module")
def config(kafka: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory) -> Config:
    file = write_config(tmp_path_factory.mktemp("marked"), "marked", {"files": kafka.bootstrap_servers})
    log_dirs = f'log_dirs = ["{kafka.directory / "node-1" / "data"}"]\n'
    text = file.read_text().replace("[clusters.files]\n", f"[clusters.files]\n{log_dirs}")
    file.write_text(f'[status]\nwindow = "10m"\ntolerance = "1s"\n{text}')
    return load_config(file, {})


@pytest.fixture(scope="module")
def found(spark: SparkSession, kafka: EmbeddedKafka, config: Config) -> Newest:
    """One group reads everything; the other one stops before the last record of each topic."""
    servers = kafka.bootstrap_servers
    with ExitStack() as stack:
        admin = stack.enter_context(KafkaAdminClient(bootstrap_servers=servers))
        stack.enter_context(for_few_rows(spark))
        create_topics(admin, {PAID: 1, PLAIN: 1})
        writing = stack.enter_context(producers(servers))
        readers = [Reader(servers, group) for group in ("marked-reads-all", "marked-stops")]
        for reader in readers:
            stack.callback(reader.close)
        for step in range(STEPS):
            if step <= LAST:
                write_one(*writing)
            for markers, reader in enumerate(readers):
                if step <= LAST - markers:
                    reader.commit(reader.read(2), markers)
            sleep(1 - time() % 1)  # a snapshot takes less than a second, and that is the schedule
            (outcome,) = take_snapshots(spark, config, ["files"], None, lambda: datetime.now(UTC))
            assert outcome.status == "complete"
        compute_lag(spark, config, ["files"], lambda: datetime.now(UTC))
    lake = Lake(spark, config.lake)
    newest = {table: {key(row): row for row in rows_of(lake, table)} for table in (LAG, PARTITION_STATUS)}
    return {
        at: (status["status"], status["reason"], row["consumer_lag"], row["unread_markers"], row["consumer_age_ms"] > 0)
        for at, row in newest[LAG].items()
        for status in [newest[PARTITION_STATUS][at]]
    }


def rows_of(lake: Lake, table: Table) -> list[Row]:
    return lake.read(table).orderBy("snapshot_id").collect()


def key(row: Row) -> tuple[str, str]:
    return row["group_id"].removeprefix("marked-"), row["topic"].removeprefix("marked-")


def test_with_log_dirs_a_reader_is_ok_exactly_if_it_has_read_the_last_record(found: Newest) -> None:
    """The group that stops is one record behind in each topic, with a lag of 2 and of 1."""
    assert found == {
        ("reads-all", "paid"): ("ok", "transaction_marker", 1, 1, False),
        ("reads-all", "plain"): ("ok", None, 0, 0, False),
        ("stops", "paid"): ("not_progressing", None, 2, 1, True),
        ("stops", "plain"): ("not_progressing", None, 1, 0, True),
    }
