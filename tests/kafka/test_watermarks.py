"""The data source `kafka_watermarks` with real brokers: the ends, sizes and timestamps of logs, and faults."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaProducer, TopicPartition
from kafka.admin import ACLOperation, ResourceType
from pyspark.sql import SparkSession

from demo.embedded_kafka.broker import EmbeddedKafka
from demo.embedded_kafka.topics import create_topics
from pipeline.kafka.watermarks import WatermarksSource, _newest
from tests.helpers.kafka import IN_A_HURRY, Planned, Row, denied, frozen, login, parsed, plan, read, wait_for
from tests.helpers.network import HOST, Proxy, Request, free_port

LIST_OFFSETS, METADATA, DESCRIBE_CONFIGS, DESCRIBE_LOG_DIRS = 2, 3, 32, 35
LONG_TOPIC = "wm-" + 246 * "t"
LADDER = ("log_start_offset", "local_log_start_offset", "last_stable_offset", "high_watermark", "log_end_offset")
REST = (
    *("max_timestamp_ms", "max_timestamp_offset", "log_bytes", "log_bytes_error"),
    *("offsets_retention_ms", "cleanup_policy", "timestamp_type", "retention_ms", "retention_bytes"),
)
WEEK_MS = 7 * 86_400_000
SETTINGS = (WEEK_MS, "delete", "CreateTime", WEEK_MS, -1)
"""Of the broker, and of the topic."""
HOUR_AGO_MS = int(time.time() * 1000) - 3_600_000
"""Not older, because the broker deletes records after a week."""


@pytest.fixture(scope="module")
def admin(kafka: EmbeddedKafka) -> Iterator[Any]:
    with KafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers) as client:
        yield client


@pytest.fixture(scope="module")
def producer(kafka: EmbeddedKafka) -> Iterator[Any]:
    producer = KafkaProducer(bootstrap_servers=kafka.bootstrap_servers, enable_idempotence=False)
    yield producer
    producer.close(timeout=5)


def write(producer: Any, topic: str, timestamps_ms: Sequence[int] = (HOUR_AGO_MS,), value: bytes = b"x") -> None:
    """Appends one record per timestamp to partition 0, each in its own batch."""
    for timestamp_ms in timestamps_ms:
        producer.send(topic, value, partition=0, timestamp_ms=timestamp_ms).get(timeout=10)


def watermarks(kafka: EmbeddedKafka, topic: str, **options: str) -> dict[int, Row]:
    """The rows of one topic by partition."""
    rows = read(WatermarksSource, kafka.bootstrap_servers, topics_allow=f"^{topic}$", **options)
    assert {row["topic"] for row in rows} == {topic}
    found = {row["partition"]: row for row in rows}
    assert len(found) == len(rows)
    return found


def ladder(row: Row) -> tuple[int | None, ...]:
    """Log start, local log start, LSO, HW, log end."""
    return tuple(row[name] for name in LADDER)


def size_of_logs(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.glob("*.log"))


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


def test_a_record_without_a_timestamp_is_not_the_newest() -> None:
    """Its timestamp would be in the year 1970."""
    answer = SimpleNamespace(error_code=0, offset=9, timestamp=-1)
    assert _newest(answer) == {"max_timestamp_ms": None, "max_timestamp_offset": None}
    answer.timestamp = 5
    assert _newest(answer) == {"max_timestamp_ms": 5, "max_timestamp_offset": 9}


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


def test_a_denied_topic_is_never_asked_for(kafka: EmbeddedKafka, admin: Any) -> None:
    create_topics(admin, {"wm-wanted": 1, "wm-unwanted": 1})
    with Proxy() as proxy:
        filters = {"topics_allow": "^wm-", "topics_deny": "unwanted"}
        rows = read(WatermarksSource, kafka.bootstrap_servers, proxy_url=proxy.url, **filters)
    assert "wm-wanted" in {row["topic"] for row in rows}
    assert any(b"wm-wanted" in request.frame for request in proxy.requests)
    assert not any(b"wm-unwanted" in request.frame for request in proxy.requests)


def test_a_filter_that_selects_no_topic_gives_no_rows_and_no_error(kafka: EmbeddedKafka) -> None:
    assert read(WatermarksSource, kafka.bootstrap_servers, topics_allow="^nothing$") == []


def test_a_topic_deleted_between_listing_and_reading_does_not_affect_the_others(
    kafka: EmbeddedKafka, admin: Any
) -> None:
    create_topics(admin, {"wm-gone": 2, "wm-gone-not": 1})
    planned = plan(WatermarksSource, kafka.bootstrap_servers, topics_allow="^wm-gone")
    admin.delete_topics(["wm-gone"])
    wait_for(lambda: not (kafka.log_dir(1) / "wm-gone-0").exists())
    started = time.monotonic()
    rows = planned.rows()
    assert time.monotonic() - started < 2  # a broker says that there is no such topic, so nobody asks again and again
    found = {(row["topic"], row["partition"]): (row["error"], ladder(row)) for row in rows}
    gone = ("UNKNOWN_TOPIC_OR_PARTITION", (None,) * 5)
    assert found == {("wm-gone", 0): gone, ("wm-gone", 1): gone, ("wm-gone-not", 0): (None, (0,) * 5)}
    assert all(row["captured_at"] for row in rows)


def test_a_topic_without_the_describe_right_does_not_affect_the_others(kafka: EmbeddedKafka, admin: Any) -> None:
    create_topics(admin, {"wm-acl-open": 1, "wm-acl-shut": 1})
    options = {"topics_allow": "^wm-acl", **login(kafka)}
    planned = plan(WatermarksSource, kafka.sasl_bootstrap_servers, **options)
    with denied(kafka, ResourceType.TOPIC, "wm-acl-shut"):
        late = planned.rows()
        rows = read(WatermarksSource, kafka.sasl_bootstrap_servers, **options)
    # If the right is lost after planning, this is an error; before that, Kafka does not even list the topic.
    assert {row["topic"]: row["error"] for row in late} == {
        "wm-acl-open": None,
        "wm-acl-shut": "TOPIC_AUTHORIZATION_FAILED",
    }
    assert {row["topic"]: row["error"] for row in rows} == {"wm-acl-open": None}


def test_if_sizes_are_refused_only_their_columns_are_null(kafka: EmbeddedKafka, admin: Any, producer: Any) -> None:
    create_topics(admin, {"wm-sizeless": 1})
    write(producer, "wm-sizeless")
    with denied(kafka, ResourceType.CLUSTER, "kafka-cluster"):
        (row,) = read(WatermarksSource, kafka.sasl_bootstrap_servers, topics_allow="^wm-sizeless$", **login(kafka))
    assert (row["error"], ladder(row)) == (None, (0, 0, 1, 1, 1))
    assert [row[name] for name in REST] == [HOUR_AGO_MS, 0, None, None, *SETTINGS]


@pytest.mark.parametrize(
    ("topic", "kind", "name", "settings"),
    [
        pytest.param("wm-configless", ResourceType.TOPIC, "wm-configless", [WEEK_MS, *[None] * 4], id="of the topic"),
        pytest.param("wm-brokerless", ResourceType.CLUSTER, "kafka-cluster", [None, *SETTINGS[1:]], id="of the broker"),
    ],
)
def test_if_configs_are_refused_only_their_columns_are_null(
    kafka: EmbeddedKafka, admin: Any, producer: Any, topic: str, kind: ResourceType, name: str, settings: list[Any]
) -> None:
    create_topics(admin, {topic: 1})
    write(producer, topic)
    with denied(kafka, kind, name, ACLOperation.DESCRIBE_CONFIGS):
        (row,) = read(WatermarksSource, kafka.sasl_bootstrap_servers, topics_allow=f"^{topic}$", **login(kafka))
    assert (row["error"], ladder(row)) == (None, (0, 0, 1, 1, 1))
    assert [row[column] for column in REST[-5:]] == settings
    assert row["log_bytes"] > 0


@pytest.mark.parametrize(
    ("api_version", "newest", "has_local", "has_topic_id"),
    [
        pytest.param("2.4", (None, None), False, False, id="before topic ids"),
        pytest.param("2.8", (None, None), False, True, id="before MAX_TIMESTAMP"),
        pytest.param("3.3", (HOUR_AGO_MS, 0), False, True, id="before tiered storage"),
        pytest.param("3.9", (HOUR_AGO_MS, 0), True, True, id="all"),
    ],
)
def test_a_column_that_an_old_broker_does_not_support_is_null(
    kafka: EmbeddedKafka,
    admin: Any,
    producer: Any,
    api_version: str,
    newest: tuple[int | None, int | None],
    has_local: bool,
    has_topic_id: bool,
) -> None:
    topic = f"wm-old-{api_version}"
    create_topics(admin, {topic: 1})
    write(producer, topic)
    row = watermarks(kafka, topic, api_version=api_version)[0]
    assert (row["error"], ladder(row)) == (None, (0, 0 if has_local else None, 1, 1, 1))
    assert (row["max_timestamp_ms"], row["max_timestamp_offset"]) == newest
    assert (row["topic_id"] is not None) == has_topic_id
    assert row["log_bytes"] == size_of_logs(kafka.log_dir(1) / f"{topic}-0")
    assert row["cleanup_policy"] == "delete"


def test_a_connection_that_is_lost_midway_is_opened_again(kafka: EmbeddedKafka, admin: Any) -> None:
    create_topics(admin, {"wm-lost": 2})
    with Proxy.cutting_first(DESCRIBE_LOG_DIRS) as proxy:
        rows = watermarks(kafka, "wm-lost", proxy_url=proxy.url)
    assert set(rows) == {0, 1}
    assert {(row["error"], ladder(row)) for row in rows.values()} == {(None, (0,) * 5)}
    assert {row["log_bytes"] for row in rows.values()} == {0}


def test_a_connection_that_cannot_be_opened_again_is_an_error_for_each_partition(
    kafka: EmbeddedKafka, admin: Any
) -> None:
    create_topics(admin, {"wm-lost-ever": 2})
    with Proxy(lambda request: request.api_key == LIST_OFFSETS) as proxy:
        rows = watermarks(kafka, "wm-lost-ever", proxy_url=proxy.url, retries="1")
    for row in rows.values():
        assert (row["error"], ladder(row)) == ("NETWORK_EXCEPTION", (None,) * 5)
        assert (row["leader"], row["replicas"], len(row["topic_id"])) == (1, [1], 22)
    assert set(rows) == {0, 1}


def test_a_cluster_lost_between_planning_and_reading_is_an_error_for_each_partition(
    kafka: EmbeddedKafka, admin: Any
) -> None:
    create_topics(admin, {"wm-cluster-lost": 2})
    planned = plan(WatermarksSource, kafka.bootstrap_servers, topics_allow="^wm-cluster-lost$")
    nowhere = f"{HOST}:{free_port()}"
    planned.reader.options = parsed(nowhere)
    rows = Planned(planned.reader, [replace(chunk, address=nowhere) for chunk in planned.chunks]).rows()
    assert [(row["partition"], row["error"], row["leader"]) for row in rows] == [
        (number, "NETWORK_EXCEPTION", 1) for number in (0, 1)
    ]


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
