"""Sessions that a user has made: outside of an activated environment, without Delta, and before one of laglake."""

import json
import os
import subprocess
import sys
import venv
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from pipeline.common.errors import LakeError
from pipeline.lake.delta import EXTENSION, require_classes
from tests.conftest import ROOT

RESTART = "restart Python (the kernel of a notebook), and let laglake.spark_session make its first session"


def spark_without_delta(folder: Path) -> Path:
    """The package pyspark as pip installs it, without the jars that `make jars` adds: links to the installed one."""
    here, copy = Path(pyspark.__file__).parent, folder / "pyspark"
    (copy / "jars").mkdir(parents=True)
    for file in here.iterdir():
        if file.name != "jars":
            (copy / file.name).symlink_to(file)
    for jar in (here / "jars").iterdir():
        if "delta" not in jar.name and "laglake" not in jar.name:
            (copy / "jars" / jar.name).symlink_to(jar)
    return copy


pytestmark = pytest.mark.thorough


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What `tests/helpers/own_session.py` has found. The python3 of PATH has no packages."""
    folder = tmp_path_factory.mktemp("own session")
    bare = folder / "bare"
    venv.create(bare, symlinks=True)
    home = spark_without_delta(folder)
    env = {k: v for k, v in os.environ.items() if not k.startswith(("SPARK_", "PYSPARK_", "PYTHON"))}
    env |= {
        "PATH": f"{bare}/bin:{env['PATH']}",
        "PYTHONPATH": f"{home.parent}:{ROOT}",
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    command = [sys.executable, "-m", "tests.helpers.own_session", str(folder / "lake"), str(bare / "bin" / "python3")]
    ended = subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr[-3000:]
    found: dict[str, str] = json.loads(ended.stdout.splitlines()[-1])
    return found


def test_outside_of_an_activated_environment_the_data_sources_use_the_python_of_the_process(
    said: dict[str, str],
) -> None:
    assert said["register"] == "nothing, but returned None"
    assert said["brokers"] == "nothing, but returned ['127.0.0.1:1 cannot be reached: connection refused']"


@pytest.mark.parametrize("call", ["register", "spark_session"])
def test_workers_with_another_python_are_told_in_one_sentence(said: dict[str, str], call: str) -> None:
    line = said[f"{call} with another python"]
    reason = "SessionError: Spark's Python workers cannot run laglake (ModuleNotFoundError: No module named "
    todo = f"): set PYSPARK_PYTHON to a Python that has laglake, such as {sys.executable}, before the session is made"
    assert line.startswith(reason)
    assert line.endswith(todo)
    assert "\n" not in line


@pytest.mark.parametrize("call", ["open_lake", "prepare"])
def test_a_session_without_delta_is_told_before_a_lake_is_used(said: dict[str, str], call: str) -> None:
    assert said[call] == f"LakeError: this Spark session has no Delta, so it cannot read a lake: {RESTART}"


def test_a_session_after_one_without_delta_is_refused_in_one_sentence(said: dict[str, str]) -> None:
    assert said["spark_session after a session without Delta"] == (
        f"LakeError: an earlier session of this process has started Spark's JVM without Delta: {RESTART}"
    )


def test_a_class_that_the_jvm_does_not_have_is_named(spark: SparkSession) -> None:
    require_classes(spark._jvm, [EXTENSION, "laglake.FolderLogStore"])
    with pytest.raises(
        LakeError, match=r"^Spark's JVM does not have laglake\.NoSuchStore: in a checkout run make jars"
    ):
        require_classes(spark._jvm, [EXTENSION, "laglake.NoSuchStore"])
