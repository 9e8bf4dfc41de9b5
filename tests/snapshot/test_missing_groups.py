"""A group that the snapshot before had, and that is not listed now, is only gone if Kafka says so of it by name."""

from pathlib import Path

from kafka import KafkaAdminClient
from kafka.admin import ResourceType
from pyspark.sql import SparkSession

from demo.embedded_kafka.broker import EmbeddedKafka
from pipeline.config import load_config
from pipeline.kafka.groups import OFFSETS_TOPIC
from pipeline.lake import Lake, of_snapshots
from pipeline.snapshot import take_snapshots
from pipeline.tables import COMMITTED_OFFSETS, GROUP_MEMBERS
from tests.helpers.kafka import commit, denied, login
from tests.helpers.quiet import write_config
from tests.helpers.snapshots import T0_MS, clock, ledger_rows

PREFIX = "missing"
OF_GROUPS = (GROUP_MEMBERS, COMMITTED_OFFSETS)


def test_without_a_proof_a_group_that_was_deleted_is_gone_and_one_that_is_denied_now_has_an_error(
    kafka: EmbeddedKafka, spark: SparkSession, lake: Lake, servers: str, folder: Path
) -> None:
    options = login(kafka, sasl_plain_password="${env:PASSWORD}")
    client = "\n".join(f"{name} = '{value}'" for name, value in options.items())
    file = write_config(folder, PREFIX, {"east": kafka.sasl_bootstrap_servers}, client=client)
    settings = load_config(file, {"PASSWORD": kafka.users["reader"]})

    def take(seconds: int) -> tuple[str, dict[str, int]]:
        (outcome,) = take_snapshots(spark, settings, ["east"], None, clock(seconds))
        return outcome.status, ledger_rows(lake, "east")[-1]["warnings"]

    def errors(seconds: int) -> set[tuple[str, str, str]]:
        where = of_snapshots("east", [T0_MS + 1000 * seconds])
        rows = {table: lake.frame(table, where).collect() for table in OF_GROUPS}
        return {(table.name, r["group_id"], r["error"]) for table in OF_GROUPS for r in rows[table] if r["error"]}

    with KafkaAdminClient(bootstrap_servers=servers) as admin:
        commit(admin, "missing-deleted", {("missing-orders", 0): 1})
        assert take(0) == ("complete", {})
        with denied(kafka, ResourceType.TOPIC, OFFSETS_TOPIC):
            admin.delete_groups(["missing-deleted"])
            assert take(1) == ("complete", {"groups_unproven": 1})
            # With a right on the cluster, Kafka lists groups that it does not describe.
            with (
                denied(kafka, ResourceType.CLUSTER, "kafka-cluster"),
                denied(kafka, ResourceType.GROUP, "missing-audit"),
            ):
                assert take(2) == ("partial", {"groups_unproven": 1})
                assert take(3) == ("complete", {"groups_unproven": 1})
    assert errors(0) == errors(1) == errors(3) == set()
    assert errors(2) == {(table.name, "missing-audit", "GROUP_AUTHORIZATION_FAILED") for table in OF_GROUPS}
