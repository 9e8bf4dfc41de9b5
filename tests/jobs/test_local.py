"""`--local`: the jobs without Spark and without Java, and what they say if only Spark can do it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from deltalake import DeltaTable

from demo.embedded_kafka.broker import EmbeddedKafka
from jobs import notify, run
from tests.conftest import ROOT
from tests.helpers.quiet import seed, write_config

PREFIX = "local"


@pytest.fixture(scope="module")
def servers(kafka: EmbeddedKafka) -> str:
    seed(kafka, PREFIX)
    return kafka.bootstrap_servers


def command(config: Path, *options: str) -> list[str]:
    """`laglake run --local`, in a process in which Spark's JVM cannot start."""
    return [sys.executable, "-m", "jobs", "run", "--local", "--config", str(config), *options]


def without_java(folder: Path) -> dict[str, str]:
    return {**os.environ, "PATH": str(folder), "JAVA_HOME": str(folder), "PYTHONPATH": str(ROOT)}


def test_a_run_needs_no_java_and_a_second_one_continues(servers: str, tmp_path: Path) -> None:
    config = write_config(tmp_path, PREFIX, {"c": servers}, 'schedule = "1s"')
    page = tmp_path / "report.html"
    for number in (1, 2):
        done = subprocess.run(
            command(config, "--output", str(page)),
            env=without_java(tmp_path),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert "WARNING" not in done.stderr
        assert DeltaTable(tmp_path / "lake" / "computed").to_pyarrow_table().num_rows == number
    assert f"{PREFIX}-orders" in page.read_text("utf-8")


def test_a_repeated_run_ends_after_its_step_when_it_is_asked_to(servers: str, tmp_path: Path) -> None:
    config = write_config(tmp_path, PREFIX, {"c": servers}, 'schedule = "1s"')
    ledger = tmp_path / "lake" / "computed"
    line = [str(ROOT / "spark-submit.sh"), *command(config, "--every", "--output", str(tmp_path / "report.html"))[3:]]
    place = {**os.environ, "JAVA_HOME": str(tmp_path)}
    place.pop("SPARK_HOME", None)
    with subprocess.Popen(line, env=place, stderr=subprocess.PIPE, text=True) as process:
        until = time.monotonic() + 120
        while not (DeltaTable.is_deltatable(str(ledger)) and DeltaTable(ledger).to_pyarrow_table().num_rows > 1):
            assert process.poll() is None
            assert time.monotonic() < until
            time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 0, said
    assert "SIGTERM: the job ends after the current step" in said


@pytest.mark.parametrize(
    ("lake", "options", "said"),
    [
        (
            "s3://bucket/lake",
            [],
            "--local: the lake s3://bucket/lake is not a folder of this machine: leave out --local",
        ),
        ("main.lag", [], "--local: the lake main.lag is not a folder of this machine: leave out --local"),
        (
            None,
            ["--maintain"],
            "--local and --maintain cannot be combined: call maintain, which needs Spark, once a day",
        ),
    ],
    ids=["object store", "catalog", "maintain"],
)
def test_what_only_spark_can_do_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], lake: str | None, options: list[str], said: str
) -> None:
    config = write_config(tmp_path, PREFIX, {"c": "127.0.0.1:1"})
    place = ["--lake", lake] if lake else []
    assert run.main(["--local", "--config", str(config), *place, *options]) == 2
    assert capsys.readouterr().err == f"{said}\n"
    assert not (tmp_path / "lake").exists()


def test_segments_of_brokers_are_left_to_spark(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = write_config(tmp_path, PREFIX, {"c": "127.0.0.1:1"})
    text = config.read_text().replace("[clusters.c]", f"[clusters.c]\nlog_dirs = ['{tmp_path}']")
    config.write_text(text)
    assert run.main(["--local", "--config", str(config), "--check"]) == 2
    assert capsys.readouterr().err == "--local: clusters.c.log_dirs needs Spark: leave out --local\n"
    assert notify.main(["--local", "--config", str(config), "--check"]) == 0  # it reads no segments


def test_a_folder_without_links_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = write_config(tmp_path, PREFIX, {"c": "127.0.0.1:1"})
    monkeypatch.setattr(Path, "hardlink_to", refused)
    assert run.main(["--local", "--config", str(config)]) == 2
    said = f"--local: {tmp_path}/lake: files cannot be linked there, so no lake is safe there\n"
    assert capsys.readouterr().err == said


def refused(*_: object) -> None:
    raise PermissionError(1, "Operation not permitted")
