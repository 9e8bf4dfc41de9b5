"""A standalone cluster of Spark on this machine, whose workers have no jars of Delta and of laglake."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pyspark

from demo.embedded_kafka.nodes import free_ports

OWN = Path(pyspark.__file__).parent
"""The Spark of the tests, whose jars have Delta's among them."""
LACKING = ("delta-", "unitycatalog", "laglake")


@dataclass
class Standalone:
    """A master and its workers, each with one core. `workers` are their processes, `folders` what executors write."""

    master: str
    workers: list["subprocess.Popen[bytes]"] = field(default_factory=list)
    folders: list[Path] = field(default_factory=list)

    def executors(self) -> list[list[Path]]:
        """The folders of the executors that each worker has started."""
        return [[*folder.glob("app-*/*")] for folder in self.folders]

    def kill(self, number: int) -> None:
        """Kills a worker and its executors, as if their machine had lost its power."""
        os.killpg(self.workers[number].pid, signal.SIGKILL)
        self.workers[number].wait(10)


def spark_without_delta(home: Path) -> Path:
    """A Spark like that of the tests, but as it comes from Apache."""
    (home / "jars").mkdir(parents=True)
    for part in OWN.iterdir():
        if part.name != "jars":
            (home / part.name).symlink_to(part)
    for jar in (OWN / "jars").iterdir():
        if not any(name in jar.name for name in LACKING):
            (home / "jars" / jar.name).symlink_to(jar)
    return home


@contextmanager
def standalone(folder: Path, workers: int) -> Iterator[Standalone]:
    """Starts a cluster; at the end, kills what is left of it."""
    home = spark_without_delta(folder / "spark")
    port, page, *pages = free_ports(2 + workers)
    cluster = Standalone(f"spark://127.0.0.1:{port}")
    started: list[subprocess.Popen[bytes]] = []

    def start(name: str, *arguments: str) -> "subprocess.Popen[bytes]":
        env = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
        env.pop("PYTHONPATH", None)
        env |= {"SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "256m"}
        env["PYSPARK_PYTHON"] = sys.executable
        command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *arguments]
        with (folder / f"{len(started)}.log").open("w") as log:
            process = subprocess.Popen(command, cwd=folder, env=env, stdout=log, stderr=log, start_new_session=True)
        started.append(process)
        return process

    try:
        start("master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", str(page))
        for number in range(workers):
            work = folder / f"work-{number}"
            options = ("--cores", "1", "--memory", "1g", "--work-dir", str(work), "--webui-port", str(pages[number]))
            cluster.workers.append(start("worker.Worker", "--host", "127.0.0.1", *options, cluster.master))
            cluster.folders.append(work)
        yield cluster
    finally:
        for process in started:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(10)


def wait_until_written(file: Path, process: "subprocess.Popen[str]", timeout_s: float) -> None:
    """Waits until a file is there. Raises AssertionError if the process ends before."""
    deadline = time.monotonic() + timeout_s
    while not file.exists():
        assert process.poll() is None, "the process has ended before it wrote the file"
        assert time.monotonic() < deadline, f"{file} was not written in time"
        time.sleep(0.05)
