"""The main job in its runtimes: in one process, and with a password on a cluster, of which a worker is killed.

Both read the same quiet broker for the same instant, so both must write the same rows. tests/laglake/test_notebooks.py
has all jobs on Spark Connect.
"""

import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from demo.embedded_kafka.broker import EmbeddedKafka
from jobs import run
from pipeline.config import LakeConfig
from pipeline.lake import Lake
from tests.conftest import KAFKA_USERS, ROOT
from tests.helpers.contents import contents
from tests.helpers.quiet import expected_lag, lag_rows, seed, write_config
from tests.helpers.secrets import LOGIN, PASSWORD_VARIABLE, USER, leaks
from tests.helpers.standalone import OWN, standalone, wait_until_written

PREFIX = "runtimes"
PASSWORD = {PASSWORD_VARIABLE: KAFKA_USERS[USER]}
SNAPSHOT = 'schedule = "1m"\nmax_delay = "3h"'
TIMEOUT_S = 500
pytestmark = [pytest.mark.lengthy, pytest.mark.timeout(2 * TIMEOUT_S + 100)]


@pytest.fixture(scope="module")
def quiet(kafka: EmbeddedKafka) -> EmbeddedKafka:
    seed(kafka, PREFIX)
    return kafka


@pytest.fixture(scope="module")
def at() -> str:
    """The instant of all runs."""
    return datetime.now(UTC).replace(second=0, microsecond=0).isoformat()


@pytest.fixture(scope="module")
def undisturbed(
    spark: SparkSession, quiet: EmbeddedKafka, at: str, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list[str]]:
    """What a run in the session of the tests, whose time zone is not UTC, has written."""
    folder = tmp_path_factory.mktemp("undisturbed")
    file = write_config(folder, PREFIX, {"east": quiet.bootstrap_servers}, SNAPSHOT)
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    try:
        assert run.main(["--config", str(file), "--output", str(folder / "report.html"), "--at", at]) == 0
        assert spark.conf.get("spark.sql.session.timeZone") == "Europe/Berlin"
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    return read(spark, folder)


def read(spark: SparkSession, folder: Path) -> dict[str, list[str]]:
    """The rows of a run, whose lag and report are as they should be."""
    lake = Lake(spark, LakeConfig(root=str(folder / "lake")))
    assert lag_rows(lake, "east") == expected_lag(PREFIX)
    assert f"{PREFIX}-billing" in (folder / "report.html").read_text()
    return contents(lake)


def test_run_works_in_the_session_that_is_there(undisturbed: dict[str, list[str]]) -> None:
    assert all(undisturbed[name] for name in ("snapshots", "computed", "lag", "group_status", "partition_status"))


def test_a_run_on_a_cluster_of_which_a_worker_is_killed_writes_the_same_rows(
    spark: SparkSession, quiet: EmbeddedKafka, at: str, undisturbed: dict[str, list[str]], tmp_path: Path
) -> None:
    """Executors have only what is shipped to them: no worker has the package, or Delta, or the password."""
    file = write_config(tmp_path, PREFIX, {"east": quiet.sasl_bootstrap_servers}, SNAPSHOT, client=LOGIN)
    file.write_text(file.read_text().replace("limits = {", "limits = { groups_per_task = 1, "))
    env = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "SPARK_REMOTE")}
    env |= PASSWORD | {
        "SPARK_HOME": str(OWN),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
    here = subprocess.run([sys.executable, "-c", "import pipeline"], cwd=tmp_path, env=env, capture_output=True)
    assert b"ModuleNotFoundError" in here.stderr, "the package must be absent, else this test shows nothing"
    with standalone(tmp_path / "cluster", workers=2) as cluster:
        command = [str(ROOT / "spark-submit.sh"), "--master", cluster.master, "--executor-memory", "700m"]
        command += ["--conf", "spark.ui.enabled=false", "--", "run", "--config", str(file), "--at", at]
        command += ["--output", str(tmp_path / "report.html"), "--fail-on", "partial"]
        with (tmp_path / "log").open("w") as log:
            running = subprocess.Popen(command, cwd=tmp_path, env=env, stdout=log, stderr=log, text=True)
        try:
            claimed = tmp_path / "lake" / "snapshots" / "_delta_log" / f"{1:020}.json"
            wait_until_written(claimed, running, TIMEOUT_S)
            assert all(cluster.executors()), "both workers must have an executor"
            cluster.kill(1)
            assert running.wait(TIMEOUT_S) == 0, (tmp_path / "log").read_text()[-6000:]
        finally:
            running.kill()
        assert len(cluster.executors()[0]) == 1, "the other executor must have gone on"
    assert leaks((tmp_path / "log").read_text()) == []
    assert read(spark, tmp_path) == undisturbed
