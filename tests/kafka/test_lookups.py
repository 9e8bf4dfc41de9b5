"""Look-ups by time in a real log: what they find, and what happens to partitions that are not answered."""

import time

import pyarrow as pa
import pytest
from kafka import KafkaAdminClient, KafkaProducer

from demo.embedded_kafka.broker import EmbeddedKafka
from demo.embedded_kafka.topics import create_topics
from pipeline.analytics.log_index.ruler import Observation, begun
from pipeline.analytics.log_index.ruler_storage import encoded
from pipeline.analytics.log_index.time_search import FINEST_MS, TimeSearch
from pipeline.analytics.log_index.wanted_times import WANTED
from pipeline.common.data_source import arrow_schema
from pipeline.kafka.client import KafkaClient
from pipeline.kafka.lookups import look_up, searching
from pipeline.kafka.partitions import TopicPartition
from tests.helpers.kafka import leaders_of, parsed

TOPIC = "lu-paused"
RECORDS = 60
OLDEST_MS = int(time.time() * 1000) - 7_200_000
TIMES_MS = [OLDEST_MS + 1_000 * number + (3_600_000 if number >= 40 else 0) for number in range(RECORDS)]
"""A record per second, with a pause of an hour."""
NOBODY = 99


@pytest.fixture(scope="module")
def leader(kafka: EmbeddedKafka) -> int:
    with KafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers) as admin:
        create_topics(admin, {TOPIC: 1})
        producer = KafkaProducer(bootstrap_servers=kafka.bootstrap_servers, enable_idempotence=False)
        for timestamp_ms in TIMES_MS:
            producer.send(TOPIC, b"x", partition=0, timestamp_ms=timestamp_ms).get(timeout=10)
        producer.close(timeout=5)
        (broker,) = leaders_of(admin, TOPIC)
    return broker


def search(*rungs: int, newest: tuple[int | None, int | None] = (TIMES_MS[-1], RECORDS - 1)) -> TimeSearch:
    """The search in a log that was observed once."""
    now_ms = int(time.time() * 1000)
    seen = Observation(now_ms, "A", 1, 0, None, RECORDS, *newest, 6_000, 0, False)
    return TimeSearch(begun(seen), rungs)


def test_the_time_of_a_record_is_found(kafka: EmbeddedKafka, leader: int) -> None:
    one = search(10, 45)
    with KafkaClient(parsed(kafka.bootstrap_servers)) as client:
        assert look_up(client, leader, {TopicPartition(TOPIC, 0): one}, 200) == 0
    for rung in (10, 45):
        found = one.ruler.timestamp_at(rung)
        assert found
        assert abs(found.value - TIMES_MS[rung]) <= found.error <= (TIMES_MS[-1] - TIMES_MS[rung]) / 100


def test_the_newest_record_is_found_if_the_broker_does_not_report_it(kafka: EmbeddedKafka, leader: int) -> None:
    one = search(10, RECORDS - 1, newest=(None, None))
    with KafkaClient(parsed(kafka.bootstrap_servers)) as client:
        assert look_up(client, leader, {TopicPartition(TOPIC, 0): one}, 200) == 0
    newest, older = one.ruler.timestamp_at(RECORDS - 1), one.ruler.timestamp_at(10)
    assert newest
    assert older
    assert abs(newest.value - TIMES_MS[-1]) <= newest.error <= FINEST_MS
    assert abs(older.value - TIMES_MS[10]) <= older.error <= (TIMES_MS[-1] - TIMES_MS[10]) / 100


def test_no_more_look_ups_than_allowed_are_made(kafka: EmbeddedKafka, leader: int) -> None:
    one = search(10)
    with KafkaClient(parsed(kafka.bootstrap_servers)) as client:
        assert look_up(client, leader, {TopicPartition(TOPIC, 0): one}, 2) == 0
    assert len(one.samples) <= 2


def test_few_look_ups_find_the_newest_records_of_some_of_many_logs(kafka: EmbeddedKafka, leader: int) -> None:
    with KafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers) as admin:
        create_topics(admin, {"lu-many": 20})
        with KafkaProducer(bootstrap_servers=kafka.bootstrap_servers, enable_idempotence=False) as producer:
            for partition in range(20):
                producer.send("lu-many", b"x", partition=partition, timestamp_ms=TIMES_MS[partition])
    now_ms = int(time.time() * 1000)
    seen = Observation(now_ms, "A", 1, 0, None, 1, None, None, 100, 0, False)
    searches = {TopicPartition("lu-many", p): TimeSearch(begun(seen), (0,)) for p in range(20)}
    with KafkaClient(parsed(kafka.bootstrap_servers)) as client:
        look_up(client, leader, searches, 60)
    found = {p.partition: reading for p, one in searches.items() if (reading := one.ruler.timestamp_at(0))}
    assert len(found) >= 2
    assert all(abs(reading.value - TIMES_MS[p]) <= reading.error <= FINEST_MS for p, reading in found.items())


def test_a_partition_without_an_answer_is_counted_and_does_not_change(kafka: EmbeddedKafka, leader: int) -> None:
    known, unknown = search(10), search(10)
    both = {TopicPartition(TOPIC, 0): known, TopicPartition("lu-nowhere", 0): unknown}
    with KafkaClient(parsed(kafka.bootstrap_servers)) as client:
        assert look_up(client, leader, both, 200) == 1
    assert known.samples
    assert unknown.samples == []


def test_if_the_leader_is_gone_no_partition_changes(kafka: EmbeddedKafka, leader: int) -> None:
    one = search(10)
    with KafkaClient(parsed(kafka.bootstrap_servers)) as client:
        assert look_up(client, NOBODY, {TopicPartition(TOPIC, 0): one}, 200) == 1
    assert one.samples == []


@pytest.mark.parametrize(("read_timeout_ms", "is_read"), [(60_000, True), (1, False)])
def test_a_task_that_begins_after_read_timeout_asks_nothing(
    kafka: EmbeddedKafka, leader: int, read_timeout_ms: int, is_read: bool
) -> None:
    one = search(10)
    values = {"leader": leader, "topic": TOPIC, "partition": 0, "rungs": [10], "excess_ms": 1.0}
    wanted = pa.Table.from_pylist([values | {"ruler": encoded([one.ruler])[0].as_py()}], arrow_schema(WANTED))
    task = searching({"bootstrap_servers": kafka.bootstrap_servers, "read_timeout_ms": str(read_timeout_ms)}, 200)
    time.sleep(0.05)
    (*samples, count) = task(wanted).to_pylist()
    assert (bool(samples), count["requests"] > 0, count["unanswered"]) == (is_read, is_read, 0 if is_read else 1)
