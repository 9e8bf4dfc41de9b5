"""The data source `kafka_brokers`: what each broker supports, or why it cannot be asked."""

from typing import Any

from kafka.admin import ResourceType
from pyspark.sql import SparkSession

from demo.embedded_kafka.broker import EmbeddedKafka
from pipeline.kafka.brokers import APIS, BrokersSource
from tests.helpers.kafka import IN_A_HURRY, denied, frozen, login, read
from tests.helpers.network import HOST, Proxy, free_port

DESCRIBE_LOG_DIRS = 35


def test_each_broker_is_a_row_with_its_capabilities(kafka3: EmbeddedKafka) -> None:
    rows = read(BrokersSource, kafka3.bootstrap_servers)
    assert [(row["broker"], row["address"]) for row in sorted(rows, key=lambda row: row["broker"])] == [
        (broker, kafka3.address(broker)) for broker in kafka3.broker_ids
    ]
    assert len({row["cluster_id"] for row in rows}) == 1
    for row in rows:
        assert row["error"] is None
        # The versions of Kafka 4.3, up to those that kafka-python and laglake support.
        assert dict(row["capabilities"]) == {
            "ConsumerGroupDescribe": "1",
            "DescribeConfigs": "4",
            "DescribeGroups": "6",
            "DescribeLogDirs": "5",
            "FindCoordinator": "6",
            "ListGroups": "5",
            "ListOffsets": "11",
            "Metadata": "13",
            "OffsetFetch": "10",
        }


def test_an_api_that_an_old_broker_lacks_has_no_version(kafka: EmbeddedKafka) -> None:
    (row,) = read(BrokersSource, kafka.bootstrap_servers, api_version="2.4")
    capabilities = dict(row["capabilities"])
    assert capabilities.keys() == APIS.keys()
    assert capabilities["ConsumerGroupDescribe"] is None
    assert [capabilities[api] for api in ("FindCoordinator", "ListOffsets", "OffsetFetch")] == ["3", "5", "6"]


def test_a_broker_that_refuses_describe_log_dirs_lacks_that_capability(kafka: EmbeddedKafka) -> None:
    with denied(kafka, ResourceType.CLUSTER, "kafka-cluster"):
        (row,) = read(BrokersSource, kafka.sasl_bootstrap_servers, **login(kafka))
    assert row["error"] is None
    assert dict(row["capabilities"])["DescribeLogDirs"] is None
    assert dict(row["capabilities"])["ListOffsets"] == "11"


def test_a_lost_answer_to_describe_log_dirs_does_not_count_as_a_refusal(kafka: EmbeddedKafka) -> None:
    with Proxy.cutting_first(DESCRIBE_LOG_DIRS) as proxy:
        (row,) = read(BrokersSource, kafka.bootstrap_servers, proxy_url=proxy.url)
    assert dict(row["capabilities"])["DescribeLogDirs"] == "5"
    assert proxy.api_keys().count(DESCRIBE_LOG_DIRS) == 2
    with Proxy(lambda request: request.api_key == DESCRIBE_LOG_DIRS) as proxy:
        (row,) = read(BrokersSource, kafka.bootstrap_servers, proxy_url=proxy.url, retries="0")
    assert dict(row["capabilities"])["DescribeLogDirs"] == "5"


def test_a_cluster_that_is_down_is_one_row_with_the_reason() -> None:
    server = f"{HOST}:{free_port()}"
    (row,) = read(BrokersSource, server)
    assert row["error"] == f"{server} cannot be reached: connection refused"
    assert (row["broker"], row["address"], row["cluster_id"], row["capabilities"]) == (None, None, None, None)


def test_a_wrong_password_gives_one_error_row_that_does_not_show_the_password(kafka: EmbeddedKafka) -> None:
    options = login(kafka, sasl_plain_password="wrong#secret")
    (row,) = read(BrokersSource, kafka.sasl_bootstrap_servers, **options)
    assert row["error"].endswith("rejects the login: check sasl_plain_username and sasl_plain_password")
    assert "secret" not in str(row)


def test_a_frozen_broker_is_a_row_with_its_error_and_the_others_are_kept(kafka3: EmbeddedKafka) -> None:
    with frozen(kafka3, 3):
        rows = read(BrokersSource, kafka3.address(1), **IN_A_HURRY)
    assert {row["broker"]: row["error"] for row in rows} == {1: None, 2: None, 3: "REQUEST_TIMED_OUT"}
    assert {row["broker"] for row in rows if row["capabilities"]} == {1, 2}


def test_requests_are_counted_for_each_broker(kafka3: EmbeddedKafka) -> None:
    counts = [row for row in read(BrokersSource, kafka3.address(1), count_requests="true") if row["requests"]]
    assert {row["request_broker"]: row["requests"] for row in counts} == {1: 3, 2: 3, 3: 3}


def test_spark_reads_them(spark: SparkSession, kafka: EmbeddedKafka) -> None:
    row: Any = spark.read.format("kafka_brokers").option("bootstrap_servers", kafka.bootstrap_servers).load().first()
    assert (row.broker, row.address, row.error) == (1, kafka.address(1), None)
    assert row.capabilities["OffsetFetch"] == "10"
