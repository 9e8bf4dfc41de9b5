"""All tasks of a snapshot read the same Kafka cluster, whatever answers at its addresses, and within one time limit."""

import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from demo.embedded_kafka.broker import EmbeddedKafka
from pipeline.common.errors import WrongClusterError
from pipeline.kafka.brokers import BrokersSource
from pipeline.kafka.client import KafkaClient
from pipeline.kafka.committed_offsets import CommittedOffsetsSource
from pipeline.kafka.group_members import GroupMembersSource
from pipeline.kafka.snapshot import SnapshotSource
from pipeline.kafka.source import KafkaSource
from pipeline.kafka.watermarks import WatermarksSource
from pipeline.lake import Lake
from pipeline.snapshot import SnapshotOutcome, take_snapshots
from pipeline.tables import SNAPSHOTS
from tests.helpers.kafka import Planned, parsed, plan, read
from tests.helpers.network import Proxy
from tests.helpers.quiet import config, seed

PREFIX = "identity"
METADATA, API_VERSIONS = 3, 18
NAMES = {"groups_allow": f"^{PREFIX}", "topics_allow": f"^{PREFIX}"}
T0 = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.fixture(scope="module")
def ids(kafka: EmbeddedKafka, kafka3: EmbeddedKafka) -> tuple[str, str]:
    """The ids of two clusters that have the same groups and topics."""
    for cluster in (kafka, kafka3):
        seed(cluster, PREFIX)
    return cluster_id(kafka), cluster_id(kafka3)


def cluster_id(kafka: EmbeddedKafka) -> str:
    with KafkaClient(parsed(kafka.bootstrap_servers)) as client:
        found = client.cluster_id()
    assert found
    return found


@pytest.mark.parametrize("source", [CommittedOffsetsSource, GroupMembersSource, WatermarksSource, SnapshotSource])
def test_a_task_reads_only_the_cluster_that_was_planned(
    source: type[KafkaSource], ids: tuple[str, str], kafka: EmbeddedKafka, kafka3: EmbeddedKafka
) -> None:
    planned = plan(source, kafka.bootstrap_servers, **NAMES)
    assert {row["error"] for row in planned.rows()} == {None}
    # For example an advertised `localhost`, which is another Kafka on the executor's machine.
    elsewhere = Planned(planned.reader, planned.chunks)
    elsewhere.reader.options = parsed(kafka3.bootstrap_servers, **NAMES)
    for chunk in elsewhere.chunks:
        chunk.address = kafka3.address(1)
    assert {row["error"] for row in elsewhere.rows()} == {"INCONSISTENT_CLUSTER_ID"}


@pytest.mark.parametrize("is_known", [True, False])
@pytest.mark.parametrize("source", [CommittedOffsetsSource, WatermarksSource, SnapshotSource])
def test_a_broker_whose_advertised_address_leads_to_another_cluster_is_not_read(
    source: type[KafkaSource], is_known: bool, ids: tuple[str, str], kafka: EmbeddedKafka, kafka3: EmbeddedKafka
) -> None:
    known = {"cluster_id": ids[1]} if is_known else {}
    others = [kafka3.address(broker) for broker in (2, 3)]
    with Proxy(names=dict.fromkeys(others, kafka.address(1))) as proxy:
        planned = plan(source, kafka3.address(1), proxy_url=proxy.url, **known, **NAMES)
        rows = planned.rows()
    errors = Counter(row["error"] for row in rows)
    assert errors["INCONSISTENT_CLUSTER_ID"] > 0
    assert errors.keys() <= {None, "INCONSISTENT_CLUSTER_ID"}
    of_others = [row["error"] for row in rows if row.get("leader") in (2, 3)]
    assert set(of_others) <= {"INCONSISTENT_CLUSTER_ID"}
    # Each was asked for its cluster's id, and then nothing more.
    asked = [request.api_key for request in proxy.requests if request.address == kafka.address(1)]
    assert set(asked) == {API_VERSIONS, METADATA}


@pytest.mark.parametrize("source", [CommittedOffsetsSource, GroupMembersSource, WatermarksSource, SnapshotSource])
def test_a_task_that_begins_after_the_time_for_all_tasks_asks_nothing(
    source: type[KafkaSource], ids: tuple[str, str], kafka: EmbeddedKafka
) -> None:
    planned = plan(source, kafka.bootstrap_servers, count_requests="true", read_timeout_ms="60000", **NAMES)
    rows = planned.rows()
    assert all(0 < chunk.until_ms / 1000 - time.time() < 60 for chunk in planned.chunks)
    for chunk in planned.chunks:
        chunk.until_ms, chunk.planned = 0, {}
    late = [row for row in planned.rows() if row["requests"] is None]
    assert {row["error"] for row in late} == {"REQUEST_TIMED_OUT"}
    assert {row["error"] for row in rows} == {None}
    assert not any(row["requests"] for row in planned.rows())


def test_a_cluster_with_another_id_than_configured_is_refused(ids: tuple[str, str], kafka: EmbeddedKafka) -> None:
    mine, other = ids
    servers = kafka.bootstrap_servers
    assert plan(CommittedOffsetsSource, servers, cluster_id=mine, **NAMES).rows()
    with pytest.raises(WrongClusterError, match=f"{servers} belongs to cluster {mine}, not to {other}"):
        plan(CommittedOffsetsSource, servers, cluster_id=other, **NAMES)
    (row,) = read(BrokersSource, servers, cluster_id=other)
    assert (row["broker"], row["error"]) == (None, f"{servers} belongs to cluster {mine}, not to {other}")


def test_an_address_that_leads_to_another_cluster_is_read_only_if_its_cluster_id_is_configured(
    spark: SparkSession, ids: tuple[str, str], kafka: EmbeddedKafka, kafka3: EmbeddedKafka, tmp_path: Path
) -> None:
    before, now = ids
    moved = {"bootstrap_servers": tuple(kafka3.bootstrap_servers.split(","))}

    def take(minutes: int, **cluster: Any) -> SnapshotOutcome:
        settings = config(tmp_path, PREFIX, {"east": kafka.bootstrap_servers})
        settings.clusters["east"] = settings.clusters["east"].model_copy(update=cluster)
        (outcome,) = take_snapshots(spark, settings, ["east"], None, lambda: T0 + timedelta(minutes=minutes))
        return outcome

    assert take(0).status == "complete"
    refused = take(1, **moved)
    assert refused.status == "failed"
    assert f"the brokers belong to cluster {now}, and east was cluster {before} until now" in refused.message
    assert f'set cluster_id = "{now}"' in refused.message
    assert take(2, **moved, cluster_id=before).status == "failed"
    assert take(3, **moved, cluster_id=now).status == "complete"
    assert take(4, **moved).status == "complete"
    ledger = Lake(spark, config(tmp_path, PREFIX, {"east": kafka.bootstrap_servers}).lake).frame(SNAPSHOTS)
    found = ledger.orderBy("snapshot_id").select("status", "cluster_id", F.size("errors") > 0).collect()
    assert [tuple(row) for row in found] == [
        ("complete", before, False),
        ("failed", None, True),
        ("failed", None, True),
        ("complete", now, False),
        ("complete", now, False),
    ]
