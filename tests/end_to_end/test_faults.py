"""Faults that are caused on a real broker and put right again: each is found, and resolved, when docs/findings.md says.

All happen side by side in one history of a cluster, in topics and groups of their own, with healthy groups beside them.
"""

import json
from pathlib import Path

import pytest
from kafka import KafkaAdminClient, KafkaProducer
from pyspark.sql import Row, SparkSession

from demo.embedded_kafka.broker import EmbeddedKafka
from pipeline.config import load_config
from pipeline.lake.few_rows import for_few_rows
from pipeline.tables import FINDINGS
from tests.helpers.faults import Broker, DeletedUnread, Expected, FallingBehind, RecreatedTopic, Scenario
from tests.helpers.minutes import Minutes, minute_of
from tests.helpers.quiet import write_config

pytestmark = pytest.mark.thorough

SCENARIOS: dict[str, Scenario] = {one.name: one() for one in (FallingBehind, DeletedUnread, RecreatedTopic)}
MINUTES = 40
COMPUTED_AFTER = (14, MINUTES - 1)


@pytest.fixture(scope="module")
def findings(spark: SparkSession, kafka: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory) -> list[Row]:
    """All findings after the last minute."""
    file = write_config(tmp_path_factory.mktemp("faults"), "faults", {"c": kafka.bootstrap_servers}, 'schedule = "1m"')
    with KafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers) as admin, for_few_rows(spark):
        producer = KafkaProducer(bootstrap_servers=kafka.bootstrap_servers)
        history, broker = Minutes(spark, load_config(file, {})), Broker(kafka, admin, producer)
        for scenario in SCENARIOS.values():
            scenario.begin(broker)
        for minute in range(MINUTES):
            for scenario in SCENARIOS.values():
                scenario.at(minute, broker)
            history.take()
            if minute in COMPUTED_AFTER:
                history.compute()
        for scenario in SCENARIOS.values():
            scenario.end()
        producer.close()
        return history.lake.read(FINDINGS).collect()


def subject_of(row: Row) -> tuple[str, str | None, str | None]:
    """The kind, and the group or else the topic; the topic of a group's finding is only that of the worst moment."""
    return row.kind, row.group_id, None if row.group_id else row.topic


def subject_expected(one: Expected) -> tuple[str, str | None, str | None]:
    return one.kind, one.group, None if one.group else one.topic


@pytest.mark.parametrize("name", [*SCENARIOS])
def test_a_fault_is_found_and_resolved_when_the_documentation_says(findings: list[Row], name: str) -> None:
    scenario = SCENARIOS[name]
    of_scenario = [row for row in findings if scenario.group in (row.group_id, row.topic)]
    found = {subject_of(row): row for row in of_scenario}
    expected = {subject_expected(one): one for one in scenario.expected()}
    assert len(found) == len(of_scenario)
    assert found.keys() == expected.keys()
    for subject, one in expected.items():
        check(found[subject], one)


def check(row: Row, expected: Expected) -> None:
    assert expected.first <= minute_of(row.first_seen) <= expected.first + expected.later
    if expected.resolved is None:
        assert row.resolved_at is None
    else:
        assert row.resolved_at is not None
        assert expected.resolved <= minute_of(row.resolved_at) <= expected.resolved + expected.later
    assert row.topic == expected.topic
    assert row.severity == (expected.severity or row.severity)
    evidence = json.loads(row.evidence)
    assert {name: evidence.get(name) for name in expected.evidence} == expected.evidence


def test_nothing_else_is_found(findings: list[Row]) -> None:
    """Not in the healthy groups that read the same topics, nor in any other."""
    expected = {subject_expected(one) for scenario in SCENARIOS.values() for one in scenario.expected()}
    assert {subject_of(row) for row in findings} - expected == set()
