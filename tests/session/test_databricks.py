"""What Databricks uses: the bundle, secrets in a scope, and the wheel in the platform's session.

There is no workspace for tests. Databricks' own package reads the bundle, its SDK reads secrets, and its CLI validates
the bundle (only where it is installed), from a server that answers like a workspace. The wheel is installed into a new
environment, and its commands are called like those of a wheel task.
"""

import base64
import configparser
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
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
from tests.helpers.tools import tool
from tests.helpers.wheel import built_wheel

PREFIX = "platform"
SECRETS = {"kafka-bootstrap": "kafka:9093", "kafka-password": "hunter2"}


def read(file: str) -> Any:
    return yaml.safe_load((ROOT / file).read_text())


BUNDLE = read("databricks.yml")
PAGE = (ROOT / "docs" / "databricks.md").read_text()
VARIABLE = re.compile(r"\$\{var\.(\w+)((?:\.\w+)*)}")
LEVELS_OF_JOBS = {"CAN_VIEW": "CAN_VIEW", "CAN_RUN": "CAN_MANAGE_RUN", "CAN_MANAGE": "CAN_MANAGE"}
"""The levels that a bundle's permissions may have, and what the CLI makes of them for a job."""
RESOURCES: dict[str, Any] = read("resources/jobs.yml")["resources"] | read("resources/tables.yml")["resources"]


def values(target: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The values of all variables: given ones come before those of the target, and those before the defaults."""
    defaults = {name: about["default"] for name, about in BUNDLE["variables"].items()}
    return defaults | BUNDLE["targets"][target].get("variables", {}) | dict(given)


def resolved(value: Any, variables: Mapping[str, Any]) -> Any:
    """A part of the bundle with the values of variables, as the CLI resolves them (a test below compares)."""
    if isinstance(value, dict):
        return {key: resolved(part, variables) for key, part in value.items()}
    if isinstance(value, list):
        return [resolved(part, variables) for part in value]
    if not isinstance(value, str):
        return value
    if found := VARIABLE.fullmatch(value):
        result = variables[found[1]]
        for field in found[2].split(".")[1:]:
            result = result[field]
        return result
    return VARIABLE.sub(lambda found: str(variables[found[1]]), value)


def resolved_jobs(target: str, given: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The jobs of a target, with what the bundle says about all of them."""
    variables = values(target, given)
    permissions = resolved(BUNDLE["permissions"], variables)
    of_all = {
        "run_as": resolved(BUNDLE["run_as"], variables),
        "permissions": [granted | {"level": LEVELS_OF_JOBS[granted["level"]]} for granted in permissions],
        "tags": resolved(BUNDLE["presets"]["tags"], variables),
    }
    return {name: resolved(job, variables) | of_all for name, job in RESOURCES["jobs"].items()}


def scheduled(target: str, given: Mapping[str, Any]) -> set[str]:
    """The names of the jobs that run on schedule."""
    jobs = resolved_jobs(target, given)
    return {name for name, job in jobs.items() if job.get("schedule", {}).get("pause_status") == "UNPAUSED"}


def shown_variables() -> list[dict[str, Any]]:
    """The variables that each example and each command on the page sets for prod."""
    blocks = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    shown: list[dict[str, Any]] = [yaml.safe_load(block)["targets"]["prod"]["variables"] for block in blocks]
    lines = [line for line in PAGE.replace("\\\n", " ").splitlines() if "bundle deploy --target prod" in line]
    return shown + [dict(re.findall(r"--var[ =](\w+)=(\S+)", line)) for line in lines]


def example() -> dict[str, Any]:
    """The variables of the page's example of whom the jobs run as."""
    (found,) = [variables for variables in shown_variables() if "run_as" in variables]
    return found


class Workspace(BaseHTTPRequestHandler):
    """Answers like the REST API for secrets, and what the CLI asks before it validates a bundle."""

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        asked = {name: values[0] for name, values in parse_qs(url.query).items()}
        status: int
        answer: dict[str, str]
        status, answer = 404, {"error_code": "RESOURCE_DOES_NOT_EXIST", "message": f"no secret\n{asked.get('key')}"}
        if url.path == "/.well-known/databricks-config":
            status, answer = 200, {}
        if url.path == "/api/2.0/preview/scim/v2/Me":
            status, answer = 200, {"id": "1", "userName": "ann@example.com"}
        if url.path == "/api/2.0/permissions/directories/2":
            status, answer = 200, {"object_id": "/directories/2", "object_type": "directory"}
        if url.path == "/api/2.0/workspace/get-status":
            status, answer = 200, {"object_id": "2", "object_type": "DIRECTORY", "path": asked["path"]}
        if (url.path, asked.get("scope")) == ("/api/2.0/secrets/get", "laglake") and asked["key"] in SECRETS:
            value = base64.b64encode(SECRETS[asked["key"]].encode()).decode()
            status, answer = 200, {"key": asked["key"], "value": value}
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200 if self.path == "/api/2.0/workspace/mkdirs" else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

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


def test_every_variable_is_used_and_every_used_one_is_declared_with_a_default() -> None:
    files = ("databricks.yml", "resources/jobs.yml", "resources/tables.yml")
    used = {name for file in files for name, _ in VARIABLE.findall((ROOT / file).read_text())}
    assert used == set(BUNDLE["variables"])
    for about in BUNDLE["variables"].values():
        assert {"default", "description"} <= about.keys()
    for target in BUNDLE["targets"].values():
        assert target.get("variables", {}).keys() <= used


def test_each_schedule_has_a_variable_of_its_own() -> None:
    schedules = {name: job["schedule"]["pause_status"] for name, job in RESOURCES["jobs"].items() if "schedule" in job}
    assert schedules == {name: f"${{var.{name}_schedule}}" for name in JOBS_ON_SCHEDULE}


RUN_IS_SERVERLESS = {"run_schedule": "PAUSED", "run_serverless_schedule": "UNPAUSED"}
MAINTAIN_IS_SERVERLESS = {"maintain_schedule": "PAUSED", "maintain_serverless_schedule": "UNPAUSED"}
JOBS_ON_SCHEDULE = ("run", "run_serverless", "maintain", "maintain_serverless")


@pytest.mark.parametrize(
    ("target", "given", "expected"),
    [
        pytest.param("prod", {}, {"run", "maintain"}, id="by default"),
        pytest.param("prod", RUN_IS_SERVERLESS, {"run_serverless", "maintain"}, id="run is serverless"),
        pytest.param(
            "prod",
            RUN_IS_SERVERLESS | MAINTAIN_IS_SERVERLESS,
            {"run_serverless", "maintain_serverless"},
            id="all is serverless",
        ),
        pytest.param("dev", {}, set(), id="a developer's copy"),
    ],
)
def test_each_job_is_scheduled_once_wherever_it_runs(target: str, given: dict[str, str], expected: set[str]) -> None:
    assert scheduled(target, given) == expected


@pytest.mark.parametrize("given", shown_variables(), ids=lambda given: " ".join(given) or "none")
def test_no_example_of_the_page_stops_a_job_or_schedules_it_twice(given: dict[str, Any]) -> None:
    assert given.keys() <= BUNDLE["variables"].keys()
    for job in resolved_jobs("prod", given).values():
        Job.from_dict(job)  # refuses what is neither PAUSED nor UNPAUSED
    jobs = scheduled("prod", given)
    assert len(jobs & {"run", "run_serverless"}) == 1
    assert len(jobs & {"maintain", "maintain_serverless"}) == 1


def test_the_page_shows_how_each_job_becomes_serverless() -> None:
    shown = [scheduled("prod", given) for given in shown_variables()]
    assert {"run_serverless", "maintain"} in shown
    assert {"run_serverless", "maintain_serverless"} in shown


@pytest.mark.parametrize("target", BUNDLE["targets"])
def test_the_defaults_of_all_variables_make_valid_jobs(target: str) -> None:
    for job in resolved_jobs(target, {}).values():
        valid = Job.from_dict(job)
        assert (valid.run_as, valid.permissions, valid.tags) == (None, [], {})
        for cluster in valid.job_clusters:
            # Anything else is refused by a workspace that is not on AWS.
            assert cluster.new_cluster.aws_attributes is None


def test_the_variables_that_the_page_shows_make_valid_jobs() -> None:
    given = example()
    assert given.keys() >= {"run_as", "permissions", "tags", "failure_mail", "policy_id", "aws"}
    assert given.keys() <= BUNDLE["variables"].keys()
    job = Job.from_dict(resolved_jobs("prod", given)["run"])
    assert job.run_as is not None
    assert job.email_notifications is not None
    assert (job.run_as.as_dict(), job.tags) == (given["run_as"]["identity"], given["tags"])
    assert [permission.as_dict() for permission in job.permissions] == [
        {"level": "CAN_MANAGE_RUN", "group_name": "streaming-team"},
        {"level": "CAN_VIEW", "service_principal_name": given["run_as"]["identity"]["service_principal_name"]},
    ]
    assert job.email_notifications.on_failure == given["failure_mail"]
    cluster = job.job_clusters[0].new_cluster
    assert cluster.policy_id == given["policy_id"]
    assert cluster.aws_attributes is not None
    assert cluster.aws_attributes.as_dict() == given["aws"]["attributes"]


@pytest.mark.parametrize("name", ["run", "maintain"])
def test_the_serverless_form_of_a_job_does_the_same_without_a_cluster(name: str) -> None:
    job, serverless = RESOURCES["jobs"][name], RESOURCES["jobs"][f"{name}_serverless"]
    assert serverless["tasks"][0]["python_wheel_task"] == job["tasks"][0]["python_wheel_task"]
    assert serverless["email_notifications"] == job["email_notifications"]
    assert {"job_clusters", "environments"} & job.keys() == {"job_clusters"}
    assert {"job_clusters", "environments"} & serverless.keys() == {"environments"}


@pytest.mark.tool
@pytest.mark.parametrize(
    ("target", "given"),
    [("prod", {}), ("prod", RUN_IS_SERVERLESS | MAINTAIN_IS_SERVERLESS), ("prod", example()), ("dev", {})],
    ids=["by default", "all is serverless", "the example of the page", "a developer's copy"],
)
def test_the_cli_of_databricks_validates_the_bundle_and_resolves_its_variables_alike(
    workspace: dict[str, str], tmp_path: Path, target: str, given: dict[str, Any]
) -> None:
    for folder in ("resources", *BUNDLE["sync"]["paths"]):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    own = BUNDLE["targets"][target]
    targets = BUNDLE["targets"] | {target: own | {"variables": own.get("variables", {}) | given}}
    (tmp_path / "databricks.yml").write_text(yaml.safe_dump(BUNDLE | {"targets": targets}))
    command = [tool("databricks"), "bundle", "validate", "--target", target, "--output", "json"]
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)} | workspace
    ran = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    jobs = json.loads(ran.stdout)["resources"]["jobs"]
    expected = resolved_jobs(target, given)
    assert jobs.keys() == expected.keys()
    for name, job in jobs.items():
        asked = expected[name]
        assert job.get("run_as") == asked["run_as"]
        granted = [permission for permission in job.get("permissions") or [] if permission["level"] != "IS_OWNER"]
        assert granted == asked["permissions"]
        assert asked["tags"].items() <= (job.get("tags") or {}).items()
        assert (job.get("schedule"), job.get("email_notifications")) == (
            asked.get("schedule"),
            asked.get("email_notifications"),
        )
        for cluster, asked_cluster in zip(job.get("job_clusters", ()), asked.get("job_clusters", ()), strict=True):
            new, asked_new = cluster["new_cluster"], asked_cluster["new_cluster"]
            assert (new["spark_version"], new["num_workers"]) == (asked_new["spark_version"], asked_new["num_workers"])
            # A workspace refuses an empty policy, so the CLI must leave it out.
            assert new.get("policy_id") == (asked_new["policy_id"] or None)
            assert new.get("aws_attributes") == asked_new["aws_attributes"]


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
    text = (ROOT / "resources" / "jobs.yml").read_text()
    for kind, name in re.findall(r"\$\{resources\.(\w+)\.(\w+)\.name}", text):
        assert name in RESOURCES[kind]
    for path in BUNDLE["sync"]["paths"]:
        assert (ROOT / path).is_dir()


@pytest.mark.slow
@pytest.mark.parametrize("name", RESOURCES["jobs"])
def test_the_parameters_of_a_job_and_its_config_are_valid(name: str, workspace: dict[str, str], tmp_path: Path) -> None:
    task = resolved_jobs("prod", {})[name]["tasks"][0]["python_wheel_task"]
    text = json.dumps(task["parameters"]).replace("${workspace.file_path}", str(ROOT))
    text = text.replace("{{job.parameters.recording}}", str(tmp_path))
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
