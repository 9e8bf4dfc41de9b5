"""A run in which no cluster answers says so at last, and only a job that has read something makes a lake."""

from importlib import import_module
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from jobs import run, snapshot
from pipeline.config import load_config
from pipeline.lake import Lake
from pipeline.snapshot import nothing_read
from tests.helpers.quiet import write_config
from tests.helpers.snapshots import DEAD

REASON = f"{DEAD} cannot be reached: connection refused"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A config of two clusters that do not answer; its lake does not exist."""
    return write_config(tmp_path, "any", {"east": DEAD, "west": DEAD})


@pytest.mark.parametrize("job", [run, snapshot])
def test_if_no_cluster_answers_no_lake_is_made_and_the_job_ends_with_one_line(
    spark: SparkSession, file: Path, capsys: pytest.CaptureFixture[str], job: object
) -> None:
    output = file.parent / "report.html"
    options = ["--output", str(output)] if job is run else []
    assert job.main(["--config", str(file), *options]) == 1  # type: ignore[attr-defined]
    (line,) = capsys.readouterr().err.splitlines()
    assert line == (
        f"no lake is made at {file.parent}/lake, because nothing was read: cluster east: {REASON}; "
        f"cluster west: {REASON}: call doctor, which says what to correct"
    )
    assert [*file.parent.iterdir()] == [file]


@pytest.mark.slow
def test_if_no_cluster_answers_a_run_on_a_lake_says_at_last_that_nothing_was_read(
    spark: SparkSession, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    Lake(spark, load_config(file, {}).lake).prepare()
    with caplog.at_level("INFO"):
        assert run.main(["--config", str(file), "--output", f"{file.parent}/report.html"]) == 1
    *_, report, last = caplog.records
    assert report.getMessage() == f"report: {file.parent}/report.html"
    assert last.levelname == "ERROR"
    assert last.getMessage() == (
        f"nothing was read: cluster east: {REASON}; cluster west: {REASON}: call doctor, which says what to correct"
    )


def test_of_many_clusters_that_were_not_read_only_some_are_named() -> None:
    reasons = [f"cluster {name}: gone" for name in "abcde"]
    said = "nothing was read: cluster a: gone; cluster b: gone; cluster c: gone; and 2 others"
    assert nothing_read(reasons) == f"{said}: call doctor, which says what to correct"
    assert " other" not in nothing_read(reasons[:3])


@pytest.mark.parametrize("name", ["lag", "report", "maintain"])
def test_a_job_that_only_reads_a_lake_does_not_make_one(
    spark: SparkSession, file: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    assert import_module(f"jobs.{name}").main(["--config", str(file)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line == f"{file.parent}/lake: there is no lake; run makes one with its first snapshot"
    assert [*file.parent.iterdir()] == [file]
