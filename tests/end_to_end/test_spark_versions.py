"""The jobs on each Spark version that README names besides the pinned one, with the matching Delta."""

import os
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from demo.embedded_kafka.broker import EmbeddedKafka
from pipeline.config import LakeConfig
from pipeline.lake import Lake
from scripts.requirements import requirements
from tests.conftest import ROOT
from tests.helpers.environments import python_with
from tests.helpers.quiet import expected_lag, lag_rows, seed, write_config

TIMEOUT_S = 300
VERSIONS = ("4.0.1", "4.1.1")
pytestmark = [pytest.mark.lengthy, pytest.mark.timeout(5 * TIMEOUT_S)]


@pytest.mark.parametrize("version", VERSIONS)
def test_the_jobs_work_on_this_spark(spark: SparkSession, kafka: EmbeddedKafka, tmp_path: Path, version: str) -> None:
    python = python_with(tmp_path / "venv", f"pyspark[connect]=={version}", *requirements([]))
    (home,) = (tmp_path / "venv" / "lib").glob("python3*/site-packages/pyspark")
    prefix = f"spark{version}"
    seed(kafka, prefix)
    file = write_config(tmp_path, prefix, {"east": kafka.bootstrap_servers})
    env = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_", "PYTHON"))}
    env |= {"SPARK_HOME": str(home), "PYSPARK_PYTHON": str(python), "SPARK_LOCAL_IP": "127.0.0.1"}

    def job(*arguments: str, master: str = "local[2]") -> str:
        command = [str(ROOT / "spark-submit.sh"), "--master", master, "--", *arguments, "--config", str(file)]
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=TIMEOUT_S)
        assert done.returncode == 0, done.stderr[-4000:]
        assert f"spark_{version[:3]}_" in done.stderr, "Delta must be the one for this Spark"
        return done.stdout

    at = ("--at", f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}")
    job("run", *at, "--output", str(tmp_path / "report.html"))
    job("run", *at, "--output", str(tmp_path / "report.html"))
    assert f"{prefix}-billing" in job("lag", "--show")
    job("maintain")
    job("report", "--output", str(tmp_path / "later.html"))
    # With executors in other processes, Spark reads and writes all of the tables.
    by_spark = ("--lake", str(tmp_path / "by-spark"), "--output", str(tmp_path / "by-spark.html"))
    job("run", *at, *by_spark, master="local-cluster[1,2,1024]")
    for lake in ("lake", "by-spark"):  # read by the pinned Spark
        assert lag_rows(Lake(spark, LakeConfig(root=str(tmp_path / lake))), "east") == expected_lag(prefix)
    for page in ("report.html", "later.html"):
        assert f"{prefix}-billing" in (tmp_path / page).read_text()
