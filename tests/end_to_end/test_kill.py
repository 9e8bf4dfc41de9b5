"""SIGKILL at each step of the snapshot and of the lag job, then another run: nothing is lost, nothing is left over.

Each step has its own cluster; all of them are names of one quiet broker. An undisturbed cluster shows the result that
the others must have. The gate is configured to refuse a row, so that its two commits are among the steps.
"""

import json
import os
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from demo.embedded_kafka.broker import EmbeddedKafka
from pipeline.config import Config
from pipeline.derive import compute_lag
from pipeline.lake import Lake
from pipeline.quality.rules import RULES
from pipeline.snapshot import SnapshotOutcome, take_snapshots
from pipeline.tables import (
    BRONZE,
    COMMITTED_OFFSETS,
    COMPUTED,
    GROUP_MEMBERS,
    LAG,
    LAG_HISTOGRAMS,
    QUARANTINE,
    READABLE,
    SNAPSHOTS,
    WATERMARKS,
    Table,
)
from tests.conftest import ROOT, ConnectServer
from tests.helpers import killed_job
from tests.helpers.killed_job import Run, rules_of_commits
from tests.helpers.quiet import config, seed
from tests.helpers.rows import WHO_AND_WHEN

PREFIX = "kill"
SCHEDULE = 'schedule = "1h"'
T0 = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
LATER = T0 + timedelta(minutes=31)  # in the same hour; the claims of killed runs have expired by then
SIGKILLED = -9
CALM = "calm"
MIN_OFFSET = 3  # so that the gate refuses the commit of 2
pytestmark = [pytest.mark.lengthy, pytest.mark.timeout(3 * killed_job.TIMEOUT_S)]

State = tuple[str | None, int, int, int, int]


@dataclass(frozen=True)
class Step:
    """Where a snapshot is killed, and what exists then: ledger, commits, members, watermarks, quarantine."""

    kill: str
    left: State


# Cluster → step. Replaces 1 to 3 land a table each; 4 and 5 are the gate's. All kills between the same two commits
# leave the same: kills while reading the brokers or clearing the quarantine are `claimed`; for the first table, JVM.
STEPS = {
    "claimed": Step("merge 1 after", ("running", 0, 0, 0, 0)),
    "two-landed": Step("replace 2 after", ("running", 3, 2, 0, 0)),
    "all-landed": Step("replace 3 after", ("running", 3, 2, 2, 0)),
    "quarantined": Step("replace 4 after", ("running", 3, 2, 2, 1)),
    "not-finished": Step("merge 2 before", ("running", 2, 2, 2, 1)),
    "finished": Step("merge 2 after", ("partial", 2, 2, 2, 1)),
}
JVM = "jvm"  # the JVM is killed, too, while it writes the second table
JVM_STEP = Step("replace 2 amid", ("running", 3, 0, 0, 0))
LAG_KILLS = {JVM: "replace 1 amid", "two-landed": "replace 1 after", "all-landed": "replace 2 after"}
LAG_KILLS |= {"finished": "replace 7 after"}  # the mark

VARYING = WHO_AND_WHEN | {"cluster"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kill")


@pytest.fixture(scope="module")
def settings(kafka: EmbeddedKafka, folder: Path) -> Config:
    seed(kafka, PREFIX)
    return config(folder, PREFIX, dict.fromkeys([*STEPS, JVM, CALM], kafka.bootstrap_servers), SCHEDULE)


@pytest.fixture(scope="module")
def lake(spark: SparkSession, settings: Config) -> Lake:
    lake = Lake(spark, settings.lake)
    lake.prepare()
    return lake


@pytest.fixture(scope="module")
def killed(connect_server: ConnectServer, settings: Config, lake: Lake, folder: Path) -> dict[str, State]:
    """Every snapshot is killed at its step; what each has left."""
    own_jvm = {name: value for name, value in os.environ.items() if name != "SPARK_REMOTE"}
    own_jvm |= {"PYTHONPATH": str(ROOT), "SPARK_LOCAL_IP": "127.0.0.1"}
    alone = killed_job.start([run(folder, JVM, JVM_STEP.kill)], folder / "jvm", own_jvm)
    kill_drivers(folder, connect_server, {name: step.kill for name, step in STEPS.items()}, "snapshot")
    assert killed_job.results(alone) == [SIGKILLED], logs(folder / "jvm")
    status = {row["cluster"]: row["status"] for row in lake.frame(SNAPSHOTS).collect()}
    tables = (COMMITTED_OFFSETS, GROUP_MEMBERS, WATERMARKS, QUARANTINE)
    counts = [Counter(row["cluster"] for row in lake.frame(table).select("cluster").collect()) for table in tables]
    return {name: (status.get(name), *(count[name] for count in counts)) for name in settings.clusters}


@pytest.fixture(scope="module")
def repeated(spark: SparkSession, settings: Config, killed: dict[str, State]) -> list[SnapshotOutcome]:
    """Another run for all of them, and the first run of the undisturbed cluster."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(RULES, COMMITTED_OFFSETS.name, rules_of_commits(MIN_OFFSET))
        return take_snapshots(spark, settings, list(settings.clusters), None, lambda: LATER)


@pytest.fixture(scope="module")
def computed(
    spark: SparkSession, connect_server: ConnectServer, settings: Config, folder: Path, repeated: list[SnapshotOutcome]
) -> int:
    """The lag job is killed at each of its steps, and then run again for all clusters."""
    kill_drivers(folder, connect_server, LAG_KILLS, "lag")
    return compute_lag(spark, settings, list(settings.clusters), lambda: LATER)


def run(folder: Path, cluster: str, kill: str, job: str = "snapshot") -> Run:
    return Run(str(folder / "laglake.toml"), [cluster], T0.isoformat(), job, kill, MIN_OFFSET)


def kill_drivers(folder: Path, server: ConnectServer, kills: dict[str, str], job: str) -> None:
    """Kills drivers of Connect sessions, one for each of `kills` (cluster → step); the server keeps running."""
    runs = [run(folder, cluster, kill, job) for cluster, kill in kills.items()]
    process = killed_job.start(runs, folder / job, server.client_env())
    assert killed_job.results(process) == [SIGKILLED] * len(kills), logs(folder / job)


def logs(folder: Path) -> str:
    return "\n".join(f"{log.name}:\n{log.read_text()[-3000:]}" for log in sorted(folder.glob("*.log")))


def rows_by_cluster(lake: Lake, table: Table) -> dict[str, list[str]]:
    """The rows of a table as JSON, by cluster, without the columns that differ between runs."""
    found: dict[str, list[str]] = {}
    for row in lake.frame(table).collect():
        values = row.asDict(recursive=True)
        if table is QUARANTINE:
            values["row"] = steady(json.loads(values["row"]))
        found.setdefault(row["cluster"], []).append(json.dumps(steady(values), default=str, sort_keys=True))
    return {cluster: sorted(rows) for cluster, rows in found.items()}


def steady(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in VARYING}


def test_each_kill_was_where_it_was_meant_to_be(killed: dict[str, State]) -> None:
    expected = {name: step.left for name, step in STEPS.items()} | {JVM: JVM_STEP.left}
    assert killed == expected | {CALM: (None, 0, 0, 0, 0)}


def test_the_write_of_the_killed_jvm_had_begun(killed: dict[str, State], lake: Lake, folder: Path) -> None:
    files = (folder / "lake" / GROUP_MEMBERS.name / f"cluster={JVM}").rglob("*.parquet")
    assert len(list(files)) > 0


def test_readers_see_only_the_snapshot_that_was_finished(killed: dict[str, State]) -> None:
    assert [name for name, (status, *_) in killed.items() if status in READABLE] == ["finished"]


def test_another_run_takes_over_what_was_not_finished(repeated: list[SnapshotOutcome]) -> None:
    statuses = {outcome.cluster: outcome.status for outcome in repeated}
    assert statuses == dict.fromkeys([*STEPS, JVM, CALM], "partial"), repeated
    left = [outcome.cluster for outcome in repeated if "has taken it" in outcome.message]
    assert left == ["finished"]


@pytest.mark.parametrize("table", [*BRONZE, QUARANTINE, SNAPSHOTS], ids=lambda table: table.name)
def test_after_another_run_each_table_equals_that_of_an_undisturbed_run(
    repeated: list[SnapshotOutcome], lake: Lake, settings: Config, table: Table
) -> None:
    rows = rows_by_cluster(lake, table)
    assert rows == dict.fromkeys(settings.clusters, rows[CALM])


def test_lag_is_computed_for_all_snapshots_without_a_mark(computed: int, settings: Config) -> None:
    assert computed == len(settings.clusters) - 1


@pytest.mark.parametrize("table", [LAG, COMPUTED], ids=lambda table: table.name)
def test_after_another_lag_job_each_table_equals_that_of_an_undisturbed_run(
    computed: int, lake: Lake, settings: Config, table: Table
) -> None:
    rows = rows_by_cluster(lake, table)
    assert rows == dict.fromkeys(settings.clusters, rows[CALM])
    assert len(rows[CALM]) == (2 if table is LAG else 1)


def test_after_another_lag_job_every_histogram_is_there_once(computed: int, lake: Lake, settings: Config) -> None:
    counted = lake.frame(LAG_HISTOGRAMS, "scope <> 'cluster' AND measure <> 'consumer_age_ms'")
    found: dict[str, list[str]] = {}
    for row in counted.collect():
        found.setdefault(row["cluster"], []).append(str({**row.asDict(), "cluster": ""}))
    rows = {cluster: sorted(each) for cluster, each in found.items()}
    assert rows == dict.fromkeys(settings.clusters, rows[CALM])
    assert any("consumer_lag_bytes" in row for row in rows[CALM])
