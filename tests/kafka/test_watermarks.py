"""The data source `kafka_watermarks` with real brokers: the ends, sizes and timestamps of logs."""

from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaProducer, TopicPartition
from pyspark.sql import SparkSession

from demo.embedded_kafka.broker import EmbeddedKafka
from demo.embedded_kafka.topics import create_topics
from pipeline.kafka.watermarks import WatermarksSource, _newest
from tests.helpers.kafka import IN_A_HURRY, Planned, frozen, plan, read, wait_for
from tests.helpers.network import Proxy, Request
from tests.helpers.watermarks import (
    DESCRIBE_LOG_DIRS,
    HOUR_AGO_MS,
    LIST_OFFSETS,
    REST,
    SETTINGS,
    WEEK_MS,
    ladder,
    size_of_logs,
    watermarks,
    write,
)

LONG_TOPIC = "wm-" + 246 * "t"


def topic_id(folder: Path) -> str:
    """The topic id in the broker's folder for the partition."""
    lines = dict(line.split(": ") for line in (folder / "partition.metadata").read_text().splitlines())
    return lines["topic_id"]


def test_a_row_has_all_columns_of_a_log(kafka: EmbeddedKafka, admin: Any, producer: Any) -> None:
    create_topics(admin, {"wm-exact": 2})
    write(producer, "wm-exact", [HOUR_AGO_MS, HOUR_AGO_MS + 5_000, HOUR_AGO_MS + 3_000])
    before = datetime.now(UTC)
    rows = watermarks(kafka, "wm-exact")
    for row in rows.values():
        assert before <= row.pop("captured_at") <= datetime.now(UTC)
    folder = kafka.log_dir(1) / "wm-exact-0"
    shared = {
        "topic": "wm-exact",
        "topic_id": topic_id(folder),
        "leader": 1,
        "leader_epoch": 0,
        "replicas": [1],
        "isr": [1],
        "log_start_offset": 0,
        "local_log_start_offset": 0,
        "log_bytes_error": 0,
        "cleanup_policy": "delete",
        "timestamp_type": "CreateTime",
        "offsets_retention_ms": WEEK_MS,
        "retention_ms": WEEK_MS,
        "retention_bytes": -1,
        **dict.fromkeys(("transaction_producer_id", "transaction_start_offset", "transaction_timestamp_ms")),
        "error": None,
    }
    written = {"max_timestamp_ms": HOUR_AGO_MS + 5_000, "max_timestamp_offset": 1, "log_bytes": size_of_logs(folder)}
    empty = {"max_timestamp_ms": None, "max_timestamp_offset": None, "log_bytes": 0}
    ends = ("last_stable_offset", "high_watermark", "log_end_offset", "high_watermark_after")
    assert size_of_logs(folder) > 0
    assert len(topic_id(folder)) == 22
    assert rows[0] == shared | written | dict.fromkeys(ends, 3) | {"partition": 0}
    assert rows[1] == shared | empty | dict.fromkeys(ends, 0) | {"partition": 1}


def test_records_deleted_move_the_start_of_the_log(kafka: EmbeddedKafka, admin: Any, producer: Any) -> None:
    create_topics(admin, {"wm-deleted": 1})
    write(producer, "wm-deleted", [HOUR_AGO_MS] * 5)
    admin.delete_records({TopicPartition("wm-deleted", 0): 3})
    assert ladder(watermarks(kafka, "wm-deleted")[0]) == (3, 3, 5, 5, 5)


@pytest.mark.parametrize(("timestamp", "time"), [(-1, None), (0, None), (-(2**63), None), (1, 1), (5, 5)])
def test_a_timestamp_of_0_or_less_is_no_time(timestamp: int, time: int | None) -> None:
    """It would be an instant of the year 1970, or before."""
    answer = SimpleNamespace(error_code=0, offset=9, timestamp=timestamp)
    assert _newest(answer) == {"max_timestamp_ms": time, "max_timestamp_offset": 9}


def test_the_newest_record_of_a_log_in_which_all_timestamps_are_0_has_no_time(
    kafka: EmbeddedKafka, admin: Any, producer: Any
) -> None:
    create_topics(admin, {"wm-zero": 1})
    write(producer, "wm-zero", [0, 0])
    with Proxy(lambda _: False) as proxy:
        row = watermarks(kafka, "wm-zero", proxy_url=proxy.url)[0]
    assert (row["max_timestamp_ms"], row["max_timestamp_offset"], row["error"]) == (None, 0, None)
    # Log start, local log start, HW, LSO, log end, HW again and the newest, which is not asked for again.
    assert proxy.api_keys().count(LIST_OFFSETS) == 7


def test_an_open_transaction_holds_the_last_stable_offset(kafka: EmbeddedKafka, admin: Any, producer: Any) -> None:
    create_topics(admin, {"wm-open": 1})
    write(producer, "wm-open", [HOUR_AGO_MS] * 2)
    transaction = KafkaProducer(bootstrap_servers=kafka.bootstrap_servers, transactional_id="wm-open")
    transaction.init_transactions()
    transaction.begin_transaction()
    write(transaction, "wm-open")
    write(producer, "wm-open")
    during = watermarks(kafka, "wm-open")[0]
    transaction.commit_transaction()
    transaction.close(timeout=5)
    assert ladder(during) == (0, 0, 2, 4, 4)
    wait_for(lambda: ladder(watermarks(kafka, "wm-open")[0]) == (0, 0, 5, 5, 5))


def test_a_frozen_follower_holds_the_high_watermark(kafka3: EmbeddedKafka) -> None:
    with KafkaAdminClient(bootstrap_servers=kafka3.bootstrap_servers) as admin3:
        admin3.create_topics({"wm3-frozen": {"assignments": {0: [3, 2]}}}, wait_for_metadata=True)
    producer3 = KafkaProducer(bootstrap_servers=kafka3.bootstrap_servers, acks=1, enable_idempotence=False)
    write(producer3, "wm3-frozen", [HOUR_AGO_MS] * 5)
    wait_for(lambda: ladder(watermarks(kafka3, "wm3-frozen")[0]) == (0, 0, 5, 5, 5))
    with frozen(kafka3, 2):
        write(producer3, "wm3-frozen", [HOUR_AGO_MS + 9_000] * 4)
        (row,) = read(WatermarksSource, kafka3.address(1), topics_allow="^wm3-frozen$", **IN_A_HURRY)
    producer3.close(timeout=5)
    assert ladder(row) == (0, 0, 5, 5, 9)
    assert (row["leader"], row["replicas"], sorted(row["isr"])) == (3, [3, 2], [2, 3])
    assert row["high_watermark_after"] == 5
    # Kafka shows a record that is not replicated yet to the debugging consumer, but not to a consumer.
    assert (row["max_timestamp_ms"], row["max_timestamp_offset"], row["error"]) == (HOUR_AGO_MS + 9_000, 5, None)


def test_the_size_is_that_of_all_segments(kafka: EmbeddedKafka, admin: Any, producer: Any) -> None:
    create_topics(admin, {"wm-segments": 1}, configs={"segment.bytes": "1048576"})
    write(producer, "wm-segments", [HOUR_AGO_MS] * 3, value=b"x" * 700_000)
    folder = kafka.log_dir(1) / "wm-segments-0"
    assert len(list(folder.glob("*.log"))) == 3
    assert watermarks(kafka, "wm-segments")[0]["log_bytes"] == size_of_logs(folder) > 2_100_000


def test_a_row_has_the_settings_of_its_topic(kafka: EmbeddedKafka, admin: Any, producer: Any) -> None:
    configs = {"cleanup.policy": "compact,delete", "message.timestamp.type": "LogAppendTime"}
    limits = {"retention.ms": str(2**63 - 1), "retention.bytes": "1000000"}
    create_topics(admin, {"wm-configs": 1}, configs=configs | limits)
    row = watermarks(kafka, "wm-configs")[0]
    assert (row["cleanup_policy"], row["timestamp_type"]) == ("compact,delete", "LogAppendTime")
    assert (row["retention_ms"], row["retention_bytes"]) == (2**63 - 1, 1_000_000)


def test_a_timestamp_beyond_the_year_9999_is_kept_unchanged(kafka: EmbeddedKafka, admin: Any, producer: Any) -> None:
    create_topics(admin, {"wm-future": 1}, configs={"message.timestamp.after.max.ms": str(2**63 - 1)})
    write(producer, "wm-future", [2**62, HOUR_AGO_MS])
    row = watermarks(kafka, "wm-future")[0]
    assert (row["max_timestamp_ms"], row["max_timestamp_offset"]) == (2**62, 0)


def test_topic_names_of_the_greatest_length_and_with_all_characters_are_read(kafka: EmbeddedKafka, admin: Any) -> None:
    names = {LONG_TOPIC, "wm-Odd._-name", "wm-Odd.__name2"}
    create_topics(admin, dict.fromkeys(names, 1))
    rows = read(WatermarksSource, kafka.bootstrap_servers, topics_allow="^wm-(t{9}|Odd)")
    assert {row["topic"]: ladder(row) for row in rows} == dict.fromkeys(names, (0, 0, 0, 0, 0))


def test_offsets_are_in_order_even_if_the_log_grows_while_it_is_read(
    kafka: EmbeddedKafka, admin: Any, producer: Any
) -> None:
    create_topics(admin, {"wm-moving": 1})
    sizes = []

    def append(request: Request) -> bool:
        if request.api_key == LIST_OFFSETS:
            write(producer, "wm-moving")
            sizes.append(size_of_logs(kafka.log_dir(1) / "wm-moving-0"))
        return False

    with Proxy(append) as proxy:
        row = watermarks(kafka, "wm-moving", proxy_url=proxy.url)[0]
    # One more record before each question: log start, local log start, HW, LSO, log end, HW again, newest.
    # A last stable offset read later cannot have been beyond the high watermark at that time.
    assert ladder(row) == (0, 0, 3, 3, 5)
    assert row["high_watermark_after"] == 6
    assert (row["log_bytes"], row["log_bytes_error"]) == (sizes[5], sizes[5])
    read_keys = [key for key in proxy.api_keys() if key in (LIST_OFFSETS, DESCRIBE_LOG_DIRS)]
    ends, size = LIST_OFFSETS, DESCRIBE_LOG_DIRS
    assert read_keys == [size, *[ends] * 6, size, ends]


def test_the_newest_record_is_asked_for_again_if_the_leader_did_not_find_it(
    kafka: EmbeddedKafka, admin: Any, producer: Any
) -> None:
    create_topics(admin, {"wm-missed": 1})
    write(producer, "wm-missed")
    asked = []

    def cut(request: Request) -> bool:
        """Log start, local log start, HW, LSO, log end and HW again are answered; the newest is not."""
        asked.append(request.api_key)
        return request.api_key == LIST_OFFSETS and asked.count(LIST_OFFSETS) == 7

    with Proxy(cut) as proxy:
        row = watermarks(kafka, "wm-missed", proxy_url=proxy.url)[0]
    assert [row[name] for name in REST] == [HOUR_AGO_MS, 0, *(row[name] for name in REST[2:4]), *SETTINGS]
    assert row["error"] is None


def test_chunks_are_by_leader_and_requests_are_counted(kafka3: EmbeddedKafka) -> None:
    with KafkaAdminClient(bootstrap_servers=kafka3.bootstrap_servers) as admin3:
        assignments = {0: [1], 1: [2], 2: [3], 3: [1], 4: [2], 5: [1]}
        admin3.create_topics({"wm3-spread": {"assignments": assignments}}, wait_for_metadata=True)
    options = {"topics_allow": "^wm3-spread$", "count_requests": "true"}

    def spread() -> Planned:
        return plan(WatermarksSource, kafka3.bootstrap_servers, **options)

    wait_for(lambda: len(spread().chunks) == 3)
    planned = spread()
    assert {(chunk.broker, chunk.address, len(chunk.items)) for chunk in planned.chunks} == {
        (1, kafka3.address(1), 3),
        (2, kafka3.address(2), 2),
        (3, kafka3.address(3), 1),
    }
    rows = planned.rows()
    leaders = {row["partition"]: (row["leader"], row["error"]) for row in rows if row["topic"]}
    assert leaders == {number: (replicas[0], None) for number, replicas in assignments.items()}
    # Eleven a leader, one of them for its cluster's id, and the plan's metadata and cluster id from any of them.
    counts = [(row["request_broker"], row["requests"]) for row in rows if row["requests"]]
    assert ({broker for broker, _ in counts}, sum(count for _, count in counts)) == ({1, 2, 3}, 3 * 11 + 2)
    options["partitions_per_task"] = "2"
    assert sorted((chunk.broker, len(chunk.items)) for chunk in spread().chunks) == [(1, 1), (1, 2), (2, 2), (3, 1)]


def test_spark_reads_them(spark: SparkSession, kafka: EmbeddedKafka, admin: Any, producer: Any) -> None:
    create_topics(admin, {"wm-spark": 3})
    write(producer, "wm-spark")
    options = {"bootstrap_servers": kafka.bootstrap_servers, "topics_allow": "^wm-spark$", "partitions_per_task": "2"}
    frame = spark.read.format("kafka_watermarks").options(**options).load()
    assert {(row.partition, row.high_watermark, tuple(row.isr)) for row in frame.collect()} == {
        (0, 1, (1,)),
        (1, 0, (1,)),
        (2, 0, (1,)),
    }
