"""Fixtures for all tests. The brokers are started by the first test that needs them, once for the whole run."""

import gc
import os
import signal
import socket
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Any

import pyspark
import pytest
from hypothesis import settings
from kafka import KafkaAdminClient
from pyspark.sql import SparkSession

from demo.embedded_kafka.broker import EmbeddedKafka
from demo.embedded_kafka.jars import JarsError, kafka_jars
from demo.embedded_kafka.nodes import free_ports
from pipeline.config import Config, LakeConfig, load_config
from pipeline.lake import Lake
from pipeline.lake.few_rows import for_few_rows
from pipeline.session import CONF, read_defaults, spark_session
from tests.helpers.short_lived import SHORT_LIVED

ROOT = Path(__file__).resolve().parents[1]
MEMORY = "3g"
"""The memory of a session that hundreds of tests use."""

# The same examples each time, so that failures can be reproduced. `make test-all` tries more of them, and
# HYPOTHESIS_PROFILE=search looks for new ones. Tests never assert time.
settings.register_profile("steady", derandomize=True, deadline=None, max_examples=100)
settings.register_profile("thorough", derandomize=True, deadline=None, max_examples=500)
settings.register_profile("search", derandomize=False, deadline=None, max_examples=500)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))

# How long a test with a marker takes, roughly.
USUAL_S = {"lengthy": 40, "timeout": 30, "thorough": 20, "connect": 20, "kafka": 6, "slow": 5, "spark": 2}
# How long the longest files take, as measured: far longer than their markers say.
LONG_FILES_S = {
    "derive/test_backlog.py": 40,
    "derive/test_batches.py": 40,
    "derive/test_clients.py": 40,
    "derive/test_group_changes.py": 40,
    "derive/test_slo.py": 25,
    "derive/test_two_lag_jobs.py": 40,
    "end_to_end/test_against_kafka_tool.py": 50,
    "end_to_end/test_both_ways.py": 190,
    "end_to_end/test_bytes_and_time.py": 90,
    "end_to_end/test_live_clients.py": 70,
    "end_to_end/test_status.py": 90,
    "jobs/test_run_cost.py": 120,
    "jobs/test_spark_submit.py": 50,
    "lake/test_driver_tables.py": 110,
    "lake/test_kept_lake.py": 30,
    "lake/test_lake.py": 110,
    "lake/test_s3.py": 60,
    "lake/test_writers.py": 90,
    "maintain/test_files.py": 90,
    "maintain/test_killed.py": 100,
    "maintain/test_maintain.py": 100,
    "maintain/test_rename.py": 90,
    "maintain/test_rollup.py": 50,
    "replay/test_replay.py": 100,
    "snapshot/test_beside_lag.py": 50,
}
WITHOUT_KAFKA = ("maintain/test_files.py", "lake/test_driver_tables.py")
"""Long files with which each of two workers begins, while Kafka's jars are fetched."""
KAFKA_FIXTURES = {"kafka", "kafka3", "tls"}
# Quotes and backslashes must survive JAAS and .properties; the word "secret" is what redaction tests look for.
KAFKA_USERS = {"reader": 'se"cret\\#1'}


def pytest_configure(config: pytest.Config) -> None:
    """Fetches Kafka's jars beside the first tests of several workers: in a new checkout, this takes 40 s."""
    is_controller = getattr(config.option, "numprocesses", None) and not hasattr(config, "workerinput")
    if is_controller:
        Thread(target=_fetch_kafka, daemon=True).start()


def _fetch_kafka() -> None:
    with suppress(JarsError):  # a test that needs Kafka says so
        kafka_jars()


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    for item in items:
        fixtures = set(getattr(item, "fixturenames", ()))
        if KAFKA_FIXTURES & fixtures:
            item.add_marker(pytest.mark.kafka)
        if "spark" in fixtures:
            item.add_marker(pytest.mark.spark)
        if {"lake", "browse"} & fixtures:
            item.add_marker(pytest.mark.slow)
        if "connect_server" in fixtures:
            item.add_marker(pytest.mark.connect)
    yield  # pytest leaves out the tests that are not selected
    # Two at a time, the longest files first, so that the longest one does not start last.
    guessed_s: dict[Path, float] = {}
    for item in items:
        found = max((seconds for name, seconds in USUAL_S.items() if item.get_closest_marker(name)), default=0.1)
        guessed_s[item.path] = guessed_s.get(item.path, 0) + found
    # The larger number, so that a file that has grown since it was measured does not start last either.
    measured_s = {ROOT / "tests" / file: seconds for file, seconds in LONG_FILES_S.items()}
    takes_s = {path: max(seconds, measured_s.get(path, 0)) for path, seconds in guessed_s.items()}
    first = {ROOT / "tests" / file for file in WITHOUT_KAFKA}
    items.sort(key=lambda item: (item.path not in first, -takes_s[item.path]))


@pytest.fixture
def load(tmp_path: Path) -> Callable[..., Config]:
    """Loads a config from its text, with an environment given by keyword."""

    def load(text: str, **env: str) -> Config:
        (tmp_path / "c.toml").write_text(text)
        return load_config(tmp_path / "c.toml", env)

    return load


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedKafka]:
    """One broker, with a user for its SASL listener. It is shared by all tests: use your own topics and groups."""
    with EmbeddedKafka(tmp_path_factory.mktemp("kafka"), users=KAFKA_USERS) as kafka:
        yield kafka


@pytest.fixture(scope="session")
def kafka3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedKafka]:
    """Three brokers. Brokers 2 and 3 may be killed, stopped or frozen; leave them running again."""
    with EmbeddedKafka(tmp_path_factory.mktemp("kafka3"), brokers=3, heap_mb=256) as kafka:
        yield kafka


@pytest.fixture(scope="module")
def admin3(kafka3: EmbeddedKafka) -> Iterator[Any]:
    """An admin client of `kafka3`. It caches the coordinators that it has looked up."""
    with KafkaAdminClient(bootstrap_servers=kafka3.address(1)) as client:
        yield client


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One local session with Delta and laglake's data sources for the whole run, created as in a job."""
    settings = SHORT_LIVED | {
        "spark.master": "local[2]",
        "spark.driver.memory": MEMORY,
        "spark.sql.ui.retainedExecutions": "10",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        # Searching the plan of each query for passwords takes a sixteenth of its time: here, Spark searches only for a
        # fixed text. The tests of passwords unset this.
        "spark.sql.redaction.string.regex": "no plan has this text",
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
        session = spark_session("tests", settings)
        yield session
        session.stop()


FSYNC = os.fsync


@pytest.fixture(scope="session", autouse=True)
def _unsynced() -> Iterator[None]:
    """No commit of this process waits for the disk, which takes as long as the rest of the commit.

    The lakes of tests need not outlast a power failure. A test of what a commit syncs calls FSYNC.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


@pytest.fixture(scope="module", autouse=True)
def _collected() -> Iterator[None]:
    """After each file, what its tests have left in cycles is freed: DataFrames, whose plans fill the memory of the JVM.

    Python itself hardly ever looks for cycles in a process with as many objects as this one has. What is left stays
    until the end, mostly modules: looking through all of it after each file would take 0.2 s.
    """
    yield
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module")
def few_rows(spark: SparkSession) -> Iterator[None]:
    """The settings that a job begins with: few rows are read and written on the driver."""
    with for_few_rows(spark):
        yield


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Lake:
    """An empty lake in the test's own folder."""
    lake = Lake(spark, LakeConfig(root=str(tmp_path / "lake")))
    lake.prepare()
    return lake


@dataclass(frozen=True)
class ConnectServer:
    """A Spark Connect server of our own, without laglake on its path, so that the client has to send it."""

    remote: str
    ui: str
    event_logs: Path
    log: Path
    warehouse: Path

    def client_env(self) -> dict[str, str]:
        """The environment of a client process: it finds laglake and the server, but no Java to start its own."""
        env = {
            name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_", "JAVA_"))
        }
        no_java = str(Path(sys.executable).parent)
        return env | {"PYTHONPATH": str(ROOT), "PATH": no_java, "SPARK_REMOTE": self.remote}


@pytest.fixture(scope="session")
def connect_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectServer]:
    """A local Connect server with the settings of conf/spark-defaults.conf, its web UI and its event log."""
    home = tmp_path_factory.mktemp("connect")
    port, ui_port = free_ports(2)
    server = ConnectServer(
        f"sc://127.0.0.1:{port}",
        f"http://127.0.0.1:{ui_port}",
        home / "events",
        home / "server.log",
        home / "warehouse",
    )
    server.event_logs.mkdir()
    settings = read_defaults(CONF / "spark-defaults.conf") | SHORT_LIVED
    settings |= {
        "spark.driver.memory": MEMORY,
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.ui.port": str(ui_port),
        "spark.storage.blockManagerHeartbeatTimeoutMs": "7d",  # it must survive a suspended machine
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": server.event_logs.as_uri(),
        "spark.sql.warehouse.dir": str(server.warehouse),
    }
    command = [str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--master", "local[2]"]
    command += [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
    env = {
        name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "SPARK_REMOTE", "SPARK_HOME")
    }
    env |= {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    with server.log.open("w") as log:
        process = subprocess.Popen(command, cwd=home, env=env, stdout=log, stderr=log, start_new_session=True)
    try:
        _wait_for_port(port, process, server.log)
        yield server
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(10)


def _wait_for_port(port: int, process: subprocess.Popen[bytes], log: Path, timeout_s: float = 180.0) -> None:
    deadline = time.monotonic() + timeout_s
    while process.poll() is None and time.monotonic() < deadline:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.2)
    pytest.fail(f"Spark Connect did not start:\n{log.read_text()[-4000:]}")


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A broker's recorded log directory, and beside it `dump`, the output of DumpLogSegments. It must not change."""
    folder = tmp_path_factory.mktemp("recorded")
    for name in ("logdir", "dump"):
        with tarfile.open(ROOT / "tests" / "data" / "segments" / f"{name}.tar.xz") as archive:
            archive.extractall(folder, filter="data")
    return folder / "logdir"
