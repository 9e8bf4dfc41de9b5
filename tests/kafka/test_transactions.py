"""Which transaction holds back the last stable offset, on a real leader."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from kafka import KafkaProducer, TopicPartition
from kafka.admin import ACLOperation, ResourceType

from demo.embedded_kafka.broker import EmbeddedKafka
from demo.embedded_kafka.topics import create_topics
from pipeline.kafka import transactions
from pipeline.kafka.client import KafkaClient
from pipeline.kafka.partitions import all_placements
from pipeline.kafka.transactions import MOST_PARTITIONS, _most_of_each_leader, _oldest, read_transactions
from pipeline.kafka.watermarks import WatermarksSource
from tests.helpers.kafka import Row, denied, login, parsed, read

HOUR_AGO_MS = int(time.time() * 1000) - 3_600_000
NAMES = ("transaction_producer_id", "transaction_start_offset", "transaction_timestamp_ms")


@contextmanager
def open_transaction(kafka: EmbeddedKafka, name: str) -> Iterator[Any]:
    """A producer with an open transaction, which is committed at the end."""
    producer = KafkaProducer(bootstrap_servers=kafka.bootstrap_servers, transactional_id=name)
    producer.init_transactions()
    producer.begin_transaction()
    yield producer
    producer.commit_transaction()
    producer.close(timeout=5)


def write(producer: Any, topic: str, *timestamps_ms: int | None, partition: int = 0) -> None:
    for timestamp_ms in timestamps_ms:
        producer.send(topic, b"x", partition=partition, timestamp_ms=timestamp_ms).get(timeout=10)


def found(kafka: EmbeddedKafka, topic: str, servers: str | None = None, **options: str) -> dict[int, Row]:
    rows = read(WatermarksSource, servers or kafka.bootstrap_servers, topics_allow=f"^{topic}$", **options)
    assert all(row["error"] is None for row in rows)
    return {row["partition"]: {name: row[name] for name in NAMES} for row in rows}


def producer_id(admin: Any, name: str) -> int:
    """The producer id that the coordinator of transactions has given to a transactional id."""
    listed = [found for of_broker in admin.list_transactions().values() for found in of_broker]
    return int(next(found.producer_id for found in listed if found.transactional_id == name))


def test_the_oldest_of_several_transactions_is_named(kafka: EmbeddedKafka, admin: Any) -> None:
    create_topics(admin, {"tx-two": 2})
    with open_transaction(kafka, "tx-first") as first, open_transaction(kafka, "tx-second") as second:
        write(first, "tx-two", HOUR_AGO_MS, HOUR_AGO_MS + 5)
        write(second, "tx-two", HOUR_AGO_MS + 7)
        write(second, "tx-two", HOUR_AGO_MS + 9, partition=1)
        rows = found(kafka, "tx-two")
        assert [tuple(rows[0].values()), tuple(rows[1].values())] == [
            (producer_id(admin, "tx-first"), 0, HOUR_AGO_MS + 5),
            (producer_id(admin, "tx-second"), 0, HOUR_AGO_MS + 9),
        ]
    assert {*found(kafka, "tx-two")[0].values()} == {None}, "no transaction is open any more"


def test_a_transaction_that_begins_later_is_not_the_one_that_holds_the_last_stable_offset(
    kafka: EmbeddedKafka, admin: Any
) -> None:
    create_topics(admin, {"tx-later": 1})
    log = TopicPartition("tx-later", 0)
    with open_transaction(kafka, "tx-later") as one:
        write(one, "tx-later", HOUR_AGO_MS, HOUR_AGO_MS)
        with KafkaClient(parsed(kafka.bootstrap_servers, topics_allow="^tx-later$")) as client:
            placements = all_placements(client)

            def start(stable: int) -> object:
                row = {"last_stable_offset": stable, "high_watermark": 2}
                return read_transactions(client, placements, {log: row}).get(log, {}).get("transaction_start_offset")

            assert (start(0), start(-1), start(1)) == (0, None, 0)


def test_without_the_right_to_read_the_topic_only_these_columns_are_unknown(kafka: EmbeddedKafka, admin: Any) -> None:
    create_topics(admin, {"tx-denied": 1})
    with (
        open_transaction(kafka, "tx-denied") as one,
        denied(kafka, ResourceType.TOPIC, "tx-denied", ACLOperation.READ),
    ):
        write(one, "tx-denied", HOUR_AGO_MS)
        rows = found(kafka, "tx-denied", kafka.sasl_bootstrap_servers, **login(kafka))
        assert {*rows[0].values()} == {None}


def test_a_transaction_is_only_asked_for_if_one_is_open(
    kafka: EmbeddedKafka, admin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_topics(admin, {"tx-none": 1})
    monkeypatch.setattr(transactions, "_producers", lambda *_: pytest.fail("asked"))
    assert {*found(kafka, "tx-none")[0].values()} == {None}


def test_a_producer_without_an_open_transaction_is_not_the_oldest() -> None:
    def producer(number: int, start: int) -> Any:
        return SimpleNamespace(producer_id=number, current_txn_start_offset=start, last_timestamp=-1)

    assert _oldest([producer(1, -1), producer(2, -1)]) is None
    named = _oldest([producer(1, -1), producer(2, 7), producer(3, 5), producer(4, 6)])
    assert named == {
        "transaction_producer_id": 3,
        "transaction_start_offset": 5,
        "transaction_timestamp_ms": None,
    }


def test_a_leader_is_asked_about_the_partitions_with_the_most_in_transactions() -> None:
    waiting = {TopicPartition("t", n): n for n in range(1, 3_000)}
    leaders: Any = {p: SimpleNamespace(leader=p.partition % 2) for p in waiting}
    asked = _most_of_each_leader(waiting, leaders)
    assert sorted(p.partition for p in asked) == [*range(3_000 - 2 * MOST_PARTITIONS, 3_000)]
