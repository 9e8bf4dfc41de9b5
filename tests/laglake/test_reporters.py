"""The reporters that applications add to their consumers: the files that they write, and what laglake reads there."""

import json
import logging
import resource
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import OffsetSpec
from pyspark.sql import SparkSession

from demo.embedded_kafka.broker import EmbeddedKafka
from demo.embedded_kafka.topics import create_topics
from laglake.reporters.confluent import StatisticsFile
from laglake.reporters.kafka_python import PositionsFile
from laglake.reporters.rotating import RotatingLines
from pipeline.client_positions.position import Position
from pipeline.client_positions.reporter_lines import of_line
from tests.conftest import ROOT
from tests.helpers.kafka import member, wait_for

TOPIC = "rep.orders"
RECORDS = 300
PAUSED, READ = (TopicPartition(TOPIC, number) for number in range(2))
PARTITION = {"topic": "t", "partition": 0, "position": 5, "highwater": 12, "paused": True}
LINE = {
    "ts": 1_795_258_585_425,
    "client_id": "c",
    "group_id": "g",
    "metrics": {"records-lag-max": 7.0},
    "partitions": [PARTITION],
}


@pytest.fixture(scope="module")
def servers(kafka: EmbeddedKafka) -> str:
    with KafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers) as admin:
        create_topics(admin, {TOPIC: 2})
    produce(kafka.bootstrap_servers)
    return kafka.bootstrap_servers


def produce(servers: str) -> None:
    producer = KafkaProducer(bootstrap_servers=servers)
    for number in range(RECORDS):
        producer.send(TOPIC, b"x" * 100, partition=number % 2)
    producer.flush()
    producer.close(timeout=5)


def ends_of(servers: str) -> dict[TopicPartition, int]:
    with KafkaAdminClient(bootstrap_servers=servers) as admin:
        found = admin.list_partition_offsets(dict.fromkeys((PAUSED, READ), OffsetSpec.LATEST))
    return {partition: answer.offset for partition, answer in found.items()}


def lines_of(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


def reported_from_now(file: Path) -> list[Position]:
    """The positions in the next line."""
    now_ms = time.time_ns() // 1_000_000
    wait_for(lambda: lines_of(file) and of_line(lines_of(file)[-1])[0] > now_ms)
    return next(positions for at_ms, positions in map(of_line, lines_of(file)) if at_ms > now_ms)


def test_the_positions_of_a_consumer_are_reported_even_if_it_does_not_poll(
    kafka: EmbeddedKafka, servers: str, tmp_path: Path
) -> None:
    file = tmp_path / "positions.jsonl"
    options: dict[str, Any] = {"client_id": "rep-client", "auto_offset_reset": "earliest", "max_poll_records": 10}
    with member(kafka, "rep-group", TOPIC, partitions=2, **options) as consumer:
        PositionsFile(file, interval_s=0.1).watch(consumer)
        read_to(consumer, PAUSED, 20)
        consumer.pause(PAUSED)
        read_to(consumer, READ, 30)
        client, *partitions = reported_from_now(file)
        reported, ends = {TopicPartition(p.topic, p.partition): p for p in partitions}, ends_of(servers)
        assert {one: p.consumed_offset for one, p in reported.items()} == {one: consumer.position(one) for one in ends}
        assert {one: p.reported_lag for one, p in reported.items()} == {
            one: ends[one] - consumer.position(one) for one in ends
        }
        assert {one: p.reported_end for one, p in reported.items()} == ends
        assert {one: p.is_paused for one, p in reported.items()} == {PAUSED: True, READ: False}
        assert {(p.client_id, p.group_id) for p in (client, *partitions)} == {("rep-client", "rep-group")}
        largest = consumer.metrics()["consumer-fetch-manager-metrics"]["records-lag-max"]
        assert client == Position("rep-client", reported_lag=round(largest), group_id="rep-group")
        assert ends[PAUSED] - 20 <= largest < ends[PAUSED]

        produce(servers)
        read_to(consumer, READ, ends[READ] + RECORDS // 2)
        later = {TopicPartition(p.topic, p.partition): p for p in reported_from_now(file)}
        assert later[READ].reported_lag == 0
        assert later[PAUSED] == reported[PAUSED]
    nothing_more_is_reported(file)


def read_to(consumer: Any, partition: TopicPartition, offset: int) -> None:
    """Polls until a partition has been read up to an offset."""

    def polled() -> bool:
        consumer.poll(timeout_ms=200)
        return bool(consumer.position(partition) >= offset)

    wait_for(polled)


def nothing_more_is_reported(file: Path) -> None:
    wait_for(lambda: "laglake-positions" not in {thread.name for thread in threading.enumerate()})
    count = len(lines_of(file))
    time.sleep(0.3)
    assert len(lines_of(file)) == count


def test_a_consumer_without_metrics_and_group_reports_positions(servers: str, tmp_path: Path) -> None:
    file = tmp_path / "positions.jsonl"
    with KafkaConsumer(bootstrap_servers=servers, client_id="rep-alone", metrics_enabled=False) as consumer:
        PositionsFile(file, interval_s=0.1).watch(consumer)
        consumer.assign([READ])
        consumer.seek(READ, 42)
        (reported,) = reported_from_now(file)
        assert reported == Position(
            "rep-alone", topic=TOPIC, partition=READ.partition, consumed_offset=42, is_paused=False
        )
    nothing_more_is_reported(file)


def test_librdkafkas_statistics_are_written_unchanged_and_can_be_read(
    servers: str, spark: SparkSession, tmp_path: Path
) -> None:
    file = StatisticsFile(tmp_path / "statistics.jsonl")
    given: list[str] = []

    def callback(statistics: str) -> None:
        given.append(statistics)
        file(statistics)

    options = {"group.id": "rep-confluent", "client.id": "rep-confluent", "auto.offset.reset": "earliest"}
    options |= {"bootstrap.servers": servers, "statistics.interval.ms": "200"}
    consumer = confluent_kafka.Consumer({**options, "stats_cb": callback})
    began_ms = time.time_ns() // 1_000_000
    consumer.subscribe([TOPIC])
    wait_for(lambda: consumer.consume(7, timeout=0.2) and len(consumer.assignment()) == 2)
    consumer.pause(consumer.assignment())
    count = len(given)
    wait_for(lambda: consumer.poll(0.2) is None and len(given) > count + 1)
    positions = {one.partition: one.offset for one in consumer.position(consumer.assignment()) if one.offset >= 0}
    consumer.close()

    lines = lines_of(tmp_path / "statistics.jsonl")
    assert [line.partition('"statistics": ')[2] for line in lines] == [statistics + "}" for statistics in given]
    times = [json.loads(line)["ts"] for line in lines]
    assert times == sorted(times)
    assert began_ms <= times[0] <= times[-1] <= time.time_ns() // 1_000_000
    rows = spark.read.format("librdkafka_statistics").load(str(tmp_path)).collect()
    last = max(row.captured_at for row in rows)
    read = {row.partition: row.consumed_offset for row in rows if row.captured_at == last and row.topic == TOPIC}
    assert positions
    assert {number: read[number] for number in positions} == positions


def test_an_application_can_import_the_reporters_without_laglakes_dependencies() -> None:
    assert loaded("import laglake.reporters.confluent") - loaded("pass") == {"laglake"}
    assert loaded("import kafka, laglake.reporters.kafka_python") - loaded("import kafka") == {"laglake"}


def loaded(code: str) -> set[str]:
    """The packages that the code imports, except Python's own."""
    script = f"{code}\nimport sys\nprint(*{{name.partition('.')[0] for name in sys.modules}})"
    run = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return set(run.stdout.split()) - sys.stdlib_module_names


def test_threads_share_a_file_of_bounded_size(tmp_path: Path) -> None:
    lines = RotatingLines(tmp_path / "app.jsonl", most_bytes=20_000, files=3)

    def write(name: int) -> None:
        for number in range(200):
            lines.append(json.dumps({"thread": name, "number": number, "more": "x" * 100}))

    threads = [threading.Thread(target=write, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    files = [tmp_path / name for name in ("app.jsonl.2", "app.jsonl.1", "app.jsonl")]
    assert sorted(tmp_path.iterdir()) == sorted(files)
    assert all(file.stat().st_size <= 20_000 for file in files)
    found = [json.loads(line) for file in files for line in lines_of(file)]
    for name in range(4):
        numbers = [line["number"] for line in found if line["thread"] == name]
        assert numbers == list(range(200 - len(numbers), 200))


def test_a_folder_that_is_missing_is_logged_once_until_it_is_there(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "app" / "lines.jsonl"
    lines = RotatingLines(file)
    with caplog.at_level(logging.WARNING):
        for number in range(3):
            lines.append(str(number))
        file.parent.mkdir()
        lines.append("3")
        assert len(caplog.messages) == 1
        assert str(file) in caplog.text
        file.unlink()
        file.parent.rmdir()
        lines.append("4")
        lines.append("5")
    assert len(caplog.messages) == 2


def test_a_full_disk_is_logged_once_and_raises_nothing(caplog: pytest.LogCaptureFixture) -> None:
    callback = StatisticsFile("/dev/full")
    for _ in range(3):
        callback("{}")
    (message,) = caplog.messages
    assert "No space left on device" in message


def test_a_line_that_is_cut_short_does_not_affect_the_others(tmp_path: Path) -> None:
    file = tmp_path / "lines.jsonl"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    lines = RotatingLines(file)
    lines.append("a" * 50)
    resource.setrlimit(resource.RLIMIT_FSIZE, (80, before[1]))  # Python ignores SIGXFSZ: a write is cut short
    try:
        lines.append("b" * 50)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    lines.append("c" * 50)
    lines.append("d" * 50)
    assert lines_of(file) == ["a" * 50, "b" * 29, "c" * 50, "d" * 50]


def test_a_file_without_a_size_limit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="without bound"):
        RotatingLines(tmp_path / "lines.jsonl", files=1)


def test_a_line_of_a_reporter_is_parsed() -> None:
    assert of_line(json.dumps(LINE)) == (
        1_795_258_585_425,
        [
            Position("c", reported_lag=7, group_id="g"),
            Position(
                "c",
                topic="t",
                partition=0,
                consumed_offset=5,
                reported_lag=7,
                reported_end=12,
                is_paused=True,
                group_id="g",
            ),
        ],
    )


@pytest.mark.parametrize(("highwater", "lag"), [(None, None), (4, None), (5, 0)])
def test_a_lag_is_reported_only_if_the_high_watermark_is_known_and_not_below_the_position(
    highwater: int | None, lag: int | None
) -> None:
    line = LINE | {"metrics": {}, "partitions": [PARTITION | {"highwater": highwater}]}
    (reported,) = of_line(json.dumps(line))[1]
    assert (reported.consumed_offset, reported.reported_lag) == (5, lag)
    assert reported.reported_end == (None if lag is None else highwater)


@pytest.mark.parametrize(
    "text",
    [
        "",
        json.dumps(LINE)[:-20],
        "[" * 100_000,
        "[]",
        "7",
        *(json.dumps({key: value for key, value in LINE.items() if key != left_out}) for left_out in LINE),
        *(json.dumps(LINE | {"ts": ts}) for ts in (None, "1", 1.5, True, -1, 10**16, 10**30)),
        *(json.dumps(LINE | {"client_id": client}) for client in (None, 7, "\ud800")),
        *(json.dumps(LINE | {"metrics": {"records-lag-max": lag}}) for lag in ("x", float("inf"), float("nan"), 1e300)),
        *(
            json.dumps(LINE | {"partitions": [PARTITION | wrong]})
            for wrong in (
                {"topic": None},
                {"partition": 2**31},
                {"position": None},
                {"position": -1},
                {"highwater": "x"},
                {"paused": None},
            )
        ),
        json.dumps(LINE | {"partitions": [None]}),
    ],
)
def test_text_that_is_not_a_line_of_a_reporter_is_an_error_of_one_line(text: str) -> None:
    with pytest.raises(ValueError, match="not a line of a reporter") as refused:
        of_line(text)
    assert len(str(refused.value).splitlines()) == 1
    assert len(str(refused.value)) < 200
