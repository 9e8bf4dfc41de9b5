"""Faults that are caused on a real broker and put right again: each is found, and resolved, when docs/findings.md says.

All happen side by side in one history of a cluster, in topics and groups of their own, with healthy groups beside them.
"""

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaProducer
from pyspark.sql import SparkSession

from demo.embedded_kafka.broker import EmbeddedKafka
from pipeline.config import load_config
from pipeline.kinds.causes import with_causes_merged
from pipeline.lake.few_rows import for_few_rows
from pipeline.tables import FINDINGS
from tests.helpers import faults, faults_of_commits, faults_of_members
from tests.helpers.faults import Broker, Expected, Scenario
from tests.helpers.minutes import Minutes, minute_of
from tests.helpers.quiet import write_config
from tests.helpers.snapshots import DEAD

pytestmark = pytest.mark.thorough

FAULTS = (
    faults.FallingBehind,
    faults.HotPartition,
    faults.DeletedUnread,
    faults.DeletedUnreadByAll,
    faults.RecreatedTopic,
    faults_of_commits.CommitBeyondEnd,
    faults_of_commits.CommitAtTheEnd,
    faults.OpenTransaction,
    faults.DataLossAhead,
    faults_of_commits.Rewound,
    faults.ClockAhead,
    faults_of_commits.BudgetBurn,
    faults_of_members.IdleMember,
    faults_of_members.UnevenAssignment,
    faults_of_members.RebalanceStorm,
    faults_of_members.FlappingMember,
    faults_of_members.Skipped,
    faults_of_members.NeverCommits,
)
SCENARIOS: dict[str, Scenario] = {one.name: one() for one in FAULTS}
Row = Mapping[str, Any]
MINUTES = 78
COMPUTED_AFTER = (18, MINUTES - 1)
FAILS, MISSED = 2, (3, 4)
"""The minute whose snapshot fails, and those without a snapshot."""


@pytest.fixture(scope="module")
def findings(spark: SparkSession, kafka: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory) -> list[Row]:
    """All findings after the last minute; those with one cause as one."""
    file = write_config(tmp_path_factory.mktemp("faults"), "faults", {"c": kafka.bootstrap_servers}, 'schedule = "1m"')
    file.write_text(file.read_text() + faults_of_commits.BudgetBurn.slo)
    with KafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers) as admin, for_few_rows(spark):
        producer = KafkaProducer(bootstrap_servers=kafka.bootstrap_servers)
        history, broker = Minutes(spark, load_config(file, {})), Broker(kafka, admin, producer)
        for scenario in SCENARIOS.values():
            scenario.begin(broker)
        with_members(-1)
        while history.minute < MINUTES:
            next_minute(history, broker)
        for scenario in SCENARIOS.values():
            scenario.end()
        producer.close()
        return with_causes_merged(row.asDict() for row in history.lake.read(FINDINGS).collect())


def with_members(minute: int) -> None:
    with ThreadPoolExecutor(len(SCENARIOS)) as pool:
        list(pool.map(lambda scenario: scenario.members_at(minute), SCENARIOS.values()))


def next_minute(history: Minutes, broker: Broker) -> None:
    minute = history.minute
    for scenario in SCENARIOS.values():
        scenario.at(minute, broker)
    with_members(minute)
    if minute == FAILS:
        history.fail(DEAD)
    elif minute not in MISSED:
        history.take(missed=len(MISSED) if minute == MISSED[-1] + 1 else 0)
    history.minute += 1
    if minute in COMPUTED_AFTER:
        history.compute()


def subject_of(row: Row) -> tuple[str, str | None, str | None]:
    """The kind, and the group or else the topic; the topic of a group's finding is only that of the worst moment."""
    return row["kind"], row["group_id"], None if row["group_id"] else row["topic"]


def subject_expected(one: Expected) -> tuple[str, str | None, str | None]:
    return one.kind, one.group, None if one.group else one.topic


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_fault_is_found_and_resolved_when_the_documentation_says(findings: list[Row], name: str) -> None:
    scenario = SCENARIOS[name]
    of_scenario = [row for row in findings if scenario.group in (row["group_id"], row["topic"])]
    found = {subject_of(row): row for row in of_scenario}
    expected = {subject_expected(one): one for one in scenario.expected()}
    assert len(found) == len(of_scenario)
    assert found.keys() == expected.keys()
    for subject, one in expected.items():
        check(found[subject], one)


def check(row: Row, expected: Expected) -> None:
    assert expected.first <= minute_of(row["first_seen"]) <= expected.first + expected.later
    assert row["resolved_at"] is not None
    assert expected.resolved <= minute_of(row["resolved_at"]) <= expected.resolved + expected.later
    assert (row["topic"], row["severity"]) == (expected.topic, expected.severity)
    evidence = json.loads(row["evidence"])
    for name, value in expected.evidence.items():
        assert value(evidence[name]) if callable(value) else evidence.get(name) == value, (name, evidence)


def test_snapshots_that_are_missing_are_found_for_an_hour(findings: list[Row]) -> None:
    (row,) = (row for row in findings if row["kind"] == "snapshots_missing")
    # Only the next snapshot that was taken can show it. An hour after the first of the three, two are left.
    evidence = {"failed": 1, "missed_instants": 2}
    check(row, Expected("snapshots_missing", MISSED[-1] + 1, FAILS + 60, evidence, severity="warning"))


def test_nothing_else_is_found(findings: list[Row]) -> None:
    """Not in the healthy groups that read the same topics, nor in any other."""
    expected = {subject_expected(one) for scenario in SCENARIOS.values() for one in scenario.expected()}
    others = {subject_of(row) for row in findings} - expected
    assert others == {("snapshots_missing", None, None)}
