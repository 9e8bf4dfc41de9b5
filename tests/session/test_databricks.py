"""What Databricks uses: the bundle, secrets in a scope, and the wheel in the platform's session.

There is no workspace for tests. Databricks' own package reads the bundle, and its SDK reads secrets, from a server that
answers like a workspace. The wheel is installed into a new environment, and its commands are called like those of a
wheel task.
"""

import base64
import configparser
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pyspark
import pytest
import yaml
from databricks.bundles.core import Variable
from databricks.bundles.jobs import Job
from databricks.bundles.schemas import Schema
from databricks.bundles.volumes import Volume

from demo.embedded_kafka.broker import EmbeddedKafka
from pipeline.session import CONF, has_delta, log_settings, read_defaults
from tests.conftest import ROOT
from tests.helpers.environments import python_with
from tests.helpers.quiet import expected_lag, seed, write_config
from tests.helpers.short_lived import SHORT_LIVED
from tests.helpers.wheel import built_wheel

PREFIX = "platform"
SECRETS = {"kafka-bootstrap": "kafka:9093", "kafka-password": "hunter2"}


def read(file: str) -> Any:
    return yaml.safe_load((ROOT / file).read_text())


BUNDLE = read("databricks.yml")
RESOURCES: dict[str, Any] = read("resources/jobs.yml")["resources"] | read("resources/tables.yml")["resources"]


class Workspace(BaseHTTPRequestHandler):
    """Answers like the REST API for secrets."""

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        asked = {name: values[0] for name, values in parse_qs(url.query).items()}
        status: int
        answer: dict[str, str]
        status, answer = 404, {"error_code": "RESOURCE_DOES_NOT_EXIST", "message": f"no secret\n{asked.get('key')}"}
        if url.path == "/.well-known/databricks-config":
            status, answer = 200, {}
        if (url.path, asked.get("scope")) == ("/api/2.0/secrets/get", "laglake") and asked["key"] in SECRETS:
            value = base64.b64encode(SECRETS[asked["key"]].encode()).decode()
            status, answer = 200, {"key": asked["key"], "value": value}
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Logs nothing."""


@pytest.fixture(scope="module")
def workspace() -> Iterator[dict[str, str]]:
    """The environment of a user who is logged in to a workspace that has the secrets."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Workspace) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield {"DATABRICKS_HOST": f"http://127.0.0.1:{server.server_port}", "DATABRICKS_TOKEN": "a token"}
        server.shutdown()


def check(env: dict[str, str], job: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Checks the arguments and the config of a job, in a separate process."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("DATABRICKS_")}
    command = [sys.executable, "-m", f"jobs.{job}", *arguments, "--check"]
    env = clean | {"PYTHONPATH": str(ROOT), "HOME": "/nonexistent"} | env
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("name", RESOURCES["jobs"])
def test_the_jobs_of_the_bundle_match_the_schema_of_databricks(name: str) -> None:
    job = Job.from_dict(RESOURCES["jobs"][name])
    assert [task.python_wheel_task.package_name for task in job.tasks] == ["laglake"]


def test_the_schema_and_the_volume_of_the_bundle_match_the_schema_of_databricks() -> None:
    assert Schema.from_dict(RESOURCES["schemas"]["lake"]).catalog_name == Variable(path="var.catalog", type=str)
    assert Volume.from_dict(RESOURCES["volumes"]["reports"]).name == "reports"


def test_the_cluster_of_the_bundle_hides_passwords_as_other_sessions_do() -> None:
    defaults = read_defaults(CONF / "spark-defaults.conf")
    hidden = {name: value for name, value in defaults.items() if "redaction" in name}
    assert len(hidden) == 2
    for job in RESOURCES["jobs"].values():
        for cluster in job.get("job_clusters", ()):
            assert hidden.items() <= cluster["new_cluster"]["spark_conf"].items()


def test_all_files_that_the_bundle_refers_to_exist() -> None:
    setup = configparser.ConfigParser(interpolation=None)
    setup.read(ROOT / "setup.cfg")
    commands = setup["options.entry_points"]["console_scripts"]
    for job in RESOURCES["jobs"].values():
        assert f"\n{job['tasks'][0]['python_wheel_task']['entry_point']} = " in commands
    text = "".join((ROOT / file).read_text() for file in ("resources/jobs.yml", "resources/tables.yml"))
    assert set(re.findall(r"\$\{var\.(\w+)}", text)) == set(BUNDLE["variables"])
    for kind, name in re.findall(r"\$\{resources\.(\w+)\.(\w+)\.name}", text):
        assert name in RESOURCES[kind]
    for path in BUNDLE["sync"]["paths"]:
        assert (ROOT / path).is_dir()


@pytest.mark.slow
@pytest.mark.parametrize("name", RESOURCES["jobs"])
def test_the_parameters_of_a_job_and_its_config_are_valid(name: str, workspace: dict[str, str], tmp_path: Path) -> None:
    values = {variable: str(about["default"]) for variable, about in BUNDLE["variables"].items()}
    task = RESOURCES["jobs"][name]["tasks"][0]["python_wheel_task"]
    text = json.dumps(task["parameters"]).replace("${workspace.file_path}", str(ROOT))
    text = text.replace("{{job.parameters.recording}}", str(tmp_path))
    text = re.sub(r"\$\{var\.(\w+)}", lambda found: values[found[1]], text)
    text = re.sub(r"\$\{resources\.\w+\.(\w+)\.name}", r"\1", text)
    assert "${" not in text
    checked = check(workspace, task["entry_point"].removeprefix("laglake-"), *json.loads(text))
    assert (checked.returncode, checked.stderr) == (0, "")


@pytest.mark.slow
def test_a_secret_that_cannot_be_read_is_one_line(workspace: dict[str, str], tmp_path: Path) -> None:
    file = write_config(tmp_path, PREFIX, {"east": "${secret:laglake/nope}"})
    at = f"{file}: clusters.east.bootstrap_servers[0]: the secret laglake/nope "
    asked = check(workspace, "run", "--config", str(file))
    assert (asked.returncode, asked.stderr) == (2, f"{at}cannot be read: no secret\n")
    not_logged_in = check({}, "run", "--config", str(file))
    assert not_logged_in.returncode == 2
    assert not_logged_in.stderr.startswith(f"{at}cannot be read: default auth: ")
    (tmp_path / "databricks").mkdir()
    (tmp_path / "databricks" / "__init__.py").touch()
    no_sdk = check({"PYTHONPATH": f"{tmp_path}:{ROOT}"}, "run", "--config", str(file))
    assert (no_sdk.returncode, no_sdk.stderr) == (
        2,
        f"{at}can be read only on Databricks; elsewhere, install databricks-sdk or use ${{env:NAME}}\n",
    )


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The python of a new environment with the wheel and its dependencies, which do not include Spark."""
    folder = tmp_path_factory.mktemp("platform")
    return python_with(folder / "venv", "-c", ROOT / "constraints.txt", built_wheel(folder))


@pytest.mark.lengthy
@pytest.mark.timeout(600)
def test_the_commands_of_the_wheel_run_in_a_session_of_databricks(
    installed: Path, kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    seed(kafka, PREFIX)
    file = write_config(tmp_path, PREFIX, {"east": kafka.bootstrap_servers})
    lake = ("--config", str(file), "--lake", "spark_catalog.lakes")
    report = tmp_path / "report.html"
    commands = [
        ["laglake-run", *lake, "--output", str(report)],
        ["laglake-lag", *lake],
        ["laglake-lag", "--config", str(tmp_path / "nope.toml")],
    ]
    home = Path(pyspark.__file__).parent
    env = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "SPARK_REMOTE")}
    env |= {
        "DATABRICKS_RUNTIME_VERSION": "19.0",
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYTHONSAFEPATH": "1",
    }
    env |= {"PYSPARK_PYTHON": str(installed), "PYSPARK_DRIVER_PYTHON": str(installed)}
    settings = read_defaults(CONF / "spark-defaults.conf") | {"spark.sql.warehouse.dir": str(tmp_path / "warehouse")}
    settings |= {"spark.ui.enabled": "false"} | SHORT_LIVED
    settings |= log_settings(CONF / "log4j2.properties")
    if has_delta(home):
        settings.pop("spark.jars.packages")
    submit = [str(home / "bin" / "spark-submit"), "--master", "local[2]"]
    submit += [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    script, output = ROOT / "tests" / "helpers" / "wheel_tasks.py", tmp_path / "ended.json"
    command = [*submit, str(script), json.dumps(commands), str(output)]
    ran = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=400)
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-3000:]
    assert "TABLE_OR_VIEW_NOT_FOUND" not in ran.stdout + ran.stderr, "that there is no lake yet is no error"
    reported = json.loads(output.read_text())
    returned = [[f"laglake-{job}", "returned"] for job in ("run", "lag")]
    assert reported["ended"] == [*returned, ["laglake-lag", 2]]
    assert sorted(reported["lag"]) == [[row[0], row[2], row[5]] for row in expected_lag(PREFIX)]
    assert f"{PREFIX}-billing" in report.read_text()
