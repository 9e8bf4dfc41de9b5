"""The data source `kafka_watermarks` if a broker refuses, lacks or loses something, and what it is never asked for."""

import time
from dataclasses import replace
from typing import Any

import pytest
from kafka.admin import ACLOperation, ResourceType

from demo.embedded_kafka.broker import EmbeddedKafka
from demo.embedded_kafka.topics import create_topics
from pipeline.kafka.watermarks import WatermarksSource
from tests.helpers.kafka import Planned, denied, login, parsed, plan, read, wait_for
from tests.helpers.network import HOST, Proxy, free_port
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
