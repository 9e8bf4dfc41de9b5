"""`run --every`: the instants of the schedule do not drift, missed ones are counted, and it ends after a step."""

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from demo.embedded_kafka.broker import EmbeddedKafka
from jobs import session
from jobs.schedule import Stop, repeat, stopped_by_signals
from jobs.session import Job
from pipeline.common.errors import LakeError
from pipeline.config import load_config
from pipeline.lake import Lake
from pipeline.tables import SNAPSHOTS
from tests.conftest import ROOT
from tests.helpers.kafka import wait_for
from tests.helpers.quiet import seed, write_config

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
MINUTE_MS = 60_000
PREFIX = "schedule"


class Time(Stop):
    """A clock that advances only by waiting and working, and that ends the job after enough runs."""

    def __init__(self, start: datetime) -> None:
        self.at = start

    def now(self) -> datetime:
        return self.at

    def wait(self, seconds: float) -> None:
        self.at += timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("start_s", "took_s", "began_s", "missed"),
    [
        pytest.param(0, [10, 59, 1], [0, 60, 120], [0, 0, 0], id="each in time"),
        pytest.param(25, [10, 1, 1], [25, 60, 120], [0, 0, 0], id="the first at once"),
        pytest.param(0, [60, 1, 1], [0, 60, 120], [0, 0, 0], id="just as long as the schedule"),
        pytest.param(0, [65, 1, 1], [0, 65, 120], [0, 0, 0], id="longer: the next at once, then as scheduled"),
        pytest.param(0, [190, 1, 1], [0, 190, 240], [0, 2, 0], id="two instants were missed"),
        pytest.param(0, [-600, 1, 1], [0, -600, -540], [0, 0, 0], id="the clock is put back"),
        pytest.param(0, [-5, 1, 1], [0, 60, 120], [0, 0, 0], id="by a little"),
        pytest.param(59.9996, [0.0002, 1, 1], [59.9996, 60, 120], [0, 0, 0], id="the first just before an instant"),
    ],
)
def test_runs_start_at_the_instants_of_the_schedule(
    start_s: float, took_s: list[float], began_s: list[float], missed: list[int]
) -> None:
    clock = Time(NOON + timedelta(seconds=start_s))
    began: list[datetime] = []
    numbers: list[int] = []

    def run(at: datetime, number: int) -> None:
        assert at == clock.at
        began.append(at)
        numbers.append(number)
        clock.at += timedelta(seconds=took_s[len(began) - 1])
        if len(began) == len(took_s):
            clock.signal_name = "SIGTERM"

    repeat(MINUTE_MS, run, clock.now, clock)
    assert [(at - NOON).total_seconds() for at in began] == began_s
    assert numbers == missed


def test_missed_instants_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    clock = Time(NOON)

    def run(at: datetime, number: int) -> None:
        clock.at += timedelta(seconds=190)
        if number:
            clock.signal_name = "SIGTERM"

    with caplog.at_level(logging.WARNING, logger="jobs"):
        repeat(MINUTE_MS, run, clock.now, clock)
    assert caplog.messages == ["2 scheduled instants have no snapshot, the first is 2026-01-31T12:01:00Z"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_wait_and_a_second_one_is_handled_as_before(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with stopped_by_signals() as stop:
        threading.Timer(0.2, os.kill, (os.getpid(), number)).start()
        repeat(3_600_000, lambda at, missed: None, lambda: datetime.now(UTC), stop)
        assert stop.signal_name == number.name
        assert signal.getsignal(number) == before
    assert signal.getsignal(number) == before


def test_the_job_continues_after_a_failed_run(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = load_config(write_config(tmp_path, PREFIX, {"east": "127.0.0.1:1"}), {})
    done: list[str] = []

    def first(spark: SparkSession, job: Job) -> int:
        done.append("first")
        if done.count("first") == 1:
            raise LakeError("the store is down")
        if done.count("first") == 2:
            raise OSError("no space left")
        return 0

    def last(spark: SparkSession, job: Job) -> int:
        done.append("last")
        os.kill(os.getpid(), signal.SIGTERM)
        return 0

    def never(spark: SparkSession, job: Job) -> int:
        raise AssertionError("the job was to end after the step before")

    job = Job(config, ("east",), None, "nothing", tmp_path / "page.html", is_repeated=True)
    with caplog.at_level(logging.INFO, logger="jobs"):
        assert session.repeated(spark, job, [first, last, never]) == 0
    assert done == ["first", "first", "first", "last"]
    errors = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert errors == [
        f"this run failed, the next one starts as scheduled: {why}" for why in ("the store is down", "no space left")
    ]
    assert caplog.messages[-1] == "SIGTERM: the job ends after the current step"


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        pytest.param(["--every", "soon"], "must be a duration such as", id="not a duration"),
        pytest.param(["--every", "0s"], "must be a duration such as", id="zero"),
        pytest.param(["--every", "--fail-on", "partial"], "a failed snapshot does not end the job", id="a status"),
        pytest.param(
            ["--every", "60s", "--at", "2026-01-31T12:00:00Z"], "--at is the instant of a single run", id="one instant"
        ),
    ],
)
def test_every_is_refused_with_options_of_a_single_run(
    arguments: list[str], why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from jobs import run

    file = write_config(tmp_path, PREFIX, {"east": "127.0.0.1:1"})
    try:
        status = run.main(["--config", str(file), *arguments])
    except SystemExit as ended:
        status = int(str(ended.code))
    (line,) = capsys.readouterr().err.splitlines()
    assert status == 2
    assert why in line


@pytest.mark.thorough
@pytest.mark.timeout(500)
def test_one_process_takes_snapshots_until_it_gets_a_signal(
    spark: SparkSession, kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    seed(kafka, PREFIX)
    file = write_config(tmp_path, PREFIX, {"east": kafka.bootstrap_servers}, snapshot='schedule = "1h"')
    env = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "SPARK_REMOTE")}
    env |= {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    submit = [str(ROOT / "spark-submit.sh"), "--master", "local[2]", "--conf", "spark.ui.enabled=false"]
    submit += ["--conf", "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1", "--"]
    job = ["run", "--config", str(file), "--every", "1s", "--output", str(tmp_path / "report.html")]
    log = tmp_path / "log"
    with log.open("w") as output:
        process = subprocess.Popen([*submit, *job], env=env, stdout=output, stderr=output)
    try:
        wait_for(said(log, process, "report: ", 1), timeout_s=300)
        wait_for(said(log, process, "claimed by run", 2), timeout_s=100)
        process.send_signal(signal.SIGTERM)
        assert process.wait(200) == 0, log.read_text()
    finally:
        process.kill()
    assert "SIGTERM: the job ends after the current step" in log.read_text()
    ledger = Lake(spark, load_config(file, {}).lake).frame(SNAPSHOTS).orderBy("snapshot_id").collect()
    assert [row["status"] for row in ledger] == ["complete", "complete"]
    first, second = (row["snapshot_id"] for row in ledger)
    assert second - first >= 1_000
    assert ledger[0]["schedule_ms"] == 1_000
    assert ledger[1]["warnings"].get("missed_instants", 0) == (second - first) // 1_000 - 1


def said(log: Path, process: "subprocess.Popen[bytes]", text: str, times: int) -> Callable[[], bool]:
    """Whether the process has logged this text so many times; raises an error if the process has ended."""

    def has_said() -> bool:
        assert process.poll() is None, log.read_text()
        time.sleep(0.2)
        return log.read_text().count(text) >= times

    return has_said
