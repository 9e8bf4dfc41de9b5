"""The main job in its runtimes: in one process, and on a cluster of executors, with a password.

Both read the same quiet broker, so both must find the same lag. tests/laglake/test_notebooks.py has all jobs on Spark
Connect.
"""

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from demo.embedded_kafka.broker import EmbeddedKafka
from jobs import run
from pipeline.config import LakeConfig
from pipeline.lake import Lake
from tests.conftest import KAFKA_USERS, ROOT
from tests.helpers.quiet import expected_lag, lag_rows, seed, write_config
from tests.helpers.secrets import LOGIN, PASSWORD_VARIABLE, USER, leaks

PREFIX = "runtimes"
PASSWORD = {PASSWORD_VARIABLE: KAFKA_USERS[USER]}
TIMEOUT_S = 500
pytestmark = [pytest.mark.lengthy, pytest.mark.timeout(TIMEOUT_S + 100)]


@pytest.fixture(scope="module")
def quiet(kafka: EmbeddedKafka) -> EmbeddedKafka:
    seed(kafka, PREFIX)
    return kafka


def assert_ran(spark: SparkSession, folder: Path, page: Path) -> None:
    lake = Lake(spark, LakeConfig(root=str(folder / "lake")))
    assert lag_rows(lake, "east") == expected_lag(PREFIX)
    assert f"{PREFIX}-billing" in page.read_text()


def test_run_works_in_the_session_that_is_there(spark: SparkSession, quiet: EmbeddedKafka, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    file = write_config(tmp_path, PREFIX, {"east": quiet.bootstrap_servers})
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    try:
        assert run.main(["--config", str(file), "--output", str(page)]) == 0
        assert spark.conf.get("spark.sql.session.timeZone") == "Europe/Berlin"
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert_ran(spark, tmp_path, page)


def test_run_works_on_executors_that_only_have_the_package_shipped_to_them(
    spark: SparkSession, quiet: EmbeddedKafka, tmp_path: Path
) -> None:
    page = tmp_path / "report.html"
    file = write_config(tmp_path, PREFIX, {"east": quiet.sasl_bootstrap_servers}, client=LOGIN)
    env = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "SPARK_REMOTE")}
    env |= PASSWORD | {
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
    here = subprocess.run([sys.executable, "-c", "import pipeline"], cwd=tmp_path, env=env, capture_output=True)
    assert b"ModuleNotFoundError" in here.stderr, "the package must be absent, else this test shows nothing"
    command = [str(ROOT / "spark-submit.sh"), "--master", "local-cluster[2,1,1024]", "--conf", "spark.ui.enabled=false"]
    command += ["--", "run", "--config", str(file), "--output", str(page)]
    ran = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert ran.returncode == 0, ran.stderr[-6000:]
    assert leaks(ran.stdout + ran.stderr) == []
    assert_ran(spark, tmp_path, page)
