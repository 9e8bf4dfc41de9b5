"""The examples for schedulers are valid: each is parsed by a tool of its scheduler."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from tests.conftest import ROOT
from tests.helpers.environments import python_with
from tests.helpers.tools import tool

DEPLOY = ROOT / "docs" / "deploy"
CHECKOUT = "/opt/laglake"
DAGS = """
import json, sys
from airflow.dag_processing.dagbag import DagBag
bag = DagBag(sys.argv[1])
fields = ("task_id", "bash_command", "job_name", "durable", "wait_for_termination")
tasks = {name: [{f: getattr(task, f, None) for f in fields} for task in dag.tasks] for name, dag in bag.dags.items()}
print(json.dumps({"errors": bag.import_errors, "dags": tasks}))
"""

pytestmark = pytest.mark.slow


def checked(arguments: list[str]) -> None:
    """Checks that the arguments after spark-submit.sh are valid for a job."""
    job, *options = arguments
    options[options.index("--config") + 1] = str(ROOT / "conf" / "local.toml")
    command = [sys.executable, "-m", f"jobs.{job}", *options, "--check"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.tool
@pytest.mark.parametrize("is_broken", [False, True])
def test_systemd_accepts_the_service(tmp_path: Path, is_broken: bool) -> None:
    # systemd-analyze checks whether the program exists.
    text = (DEPLOY / "laglake.service").read_text().replace(CHECKOUT, str(ROOT))
    unit = tmp_path / "laglake.service"
    unit.write_text(text.replace("KillMode=", "KilMode=") if is_broken else text)
    ran = subprocess.run([tool("systemd-analyze"), "verify", unit], capture_output=True, text=True, timeout=60)
    about_ours = [line for line in ran.stderr.splitlines() if "laglake" in line]
    assert bool(ran.returncode or about_ours) == is_broken, ran.stderr


def test_the_service_calls_a_job_as_it_is_called() -> None:
    (line,) = (s for s in (DEPLOY / "laglake.service").read_text().splitlines() if s.startswith("ExecStart="))
    program, *arguments = line.removeprefix("ExecStart=").split()
    assert program == f"{CHECKOUT}/spark-submit.sh"
    checked(arguments)


def test_kubernetes_accepts_the_deployment() -> None:
    deployment: Any = yaml.safe_load((DEPLOY / "deployment.yaml").read_text())
    kubernetes_validate.validate(deployment, kubernetes_validate.latest_version(), strict=True)
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["command"] == [f"{CHECKOUT}/spark-submit.sh"]
    checked(container["args"])
    deployment["spec"]["replica"] = 1
    with pytest.raises(kubernetes_validate.ValidationError, match="replica"):
        kubernetes_validate.validate(deployment, kubernetes_validate.latest_version(), strict=True)


@pytest.fixture(scope="module")
def airflow(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], dict[str, Any]]:
    """Parses a file with Airflow; returns the fields of its only task."""
    home = tmp_path_factory.mktemp("airflow")
    python = python_with(home / "venv", "--no-deps", "-r", ROOT / "tests" / "airflow.txt")
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"AIRFLOW_HOME": str(home)}

    def parse(file: str) -> dict[str, Any]:
        ran = subprocess.run([python, "-c", DAGS, DEPLOY / file], env=env, capture_output=True, text=True, timeout=60)
        assert ran.returncode == 0, ran.stderr
        reported = json.loads(ran.stdout.splitlines()[-1])
        assert reported["errors"] == {}
        [[task]] = reported["dags"].values()
        found: dict[str, Any] = task
        return found

    return parse


@pytest.mark.lengthy
@pytest.mark.timeout(600)
def test_airflow_accepts_the_dag(airflow: Callable[[str], dict[str, Any]]) -> None:
    task = airflow("airflow_dag.py")
    program, *arguments = task["bash_command"].replace("{{ ts }}", "2026-01-31T12:05:00+00:00").split()
    assert (task["task_id"], program) == ("run", f"{CHECKOUT}/spark-submit.sh")
    checked(arguments)


@pytest.mark.lengthy
@pytest.mark.timeout(600)
def test_airflow_accepts_the_dag_that_starts_a_job_of_the_bundle(airflow: Callable[[str], dict[str, Any]]) -> None:
    task = airflow("airflow_databricks_dag.py")
    jobs = yaml.safe_load((ROOT / "resources" / "jobs.yml").read_text())["resources"]["jobs"]
    assert task["job_name"] == jobs["run_serverless"]["name"]
    assert (task["durable"], task["wait_for_termination"]) == (True, True)
