"""The job `lag`: what it does if the lag of one cluster cannot be computed."""

import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

import pipeline.derive
from jobs import lag, session
from jobs.session import Job
from pipeline.common.errors import LagError, LakeError
from pipeline.derive import batches
from pipeline.lake import Lake
from tests.helpers.quiet import config

NO_SESSION = cast("SparkSession", None)


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """A job for two clusters, of which the first one fails in these tests."""
    clusters = dict.fromkeys(("broken", "whole"), "127.0.0.1:1")
    return Job(config(tmp_path, "any", clusters), tuple(clusters), None, "nothing", tmp_path / "r")


def test_lag_that_fails_for_a_cluster_is_one_line_and_exit_status_1(
    job: Job, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    failure: LakeError = LagError("lag cannot be computed: broken: the store is down")

    def compute_lag(*_: Any) -> int:
        raise failure

    monkeypatch.setattr(pipeline.derive, "compute_lag", compute_lag)
    assert lag.step(NO_SESSION, job) == 1
    assert [(r.levelname, r.getMessage()) for r in caplog.records] == [("ERROR", str(failure))]
    failure = LakeError("the lake cannot be made")
    with pytest.raises(LakeError, match="the lake cannot be made"):
        lag.step(NO_SESSION, job)


@pytest.mark.slow
def test_after_lag_fails_for_a_cluster_the_next_step_runs(
    spark: SparkSession, job: Job, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def compute_cluster(_: object, cluster: str, *__: object) -> int:
        if cluster == "broken":
            raise LakeError("the store is down")
        return 1

    went_on = 0

    def last(_: SparkSession, job: Job) -> int:
        nonlocal went_on
        went_on += 1
        if job.is_repeated:
            os.kill(os.getpid(), signal.SIGTERM)
        return 0

    Lake(spark, job.config.lake).prepare()
    monkeypatch.setattr(batches, "compute_cluster", compute_cluster)
    assert session.in_session("tests", replace(job, show=5), [lag.step, last]) == 1
    assert went_on == 1
    assert capsys.readouterr().out
    assert session.repeated(spark, replace(job, is_repeated=True), [lag.step, last]) == 0
    assert went_on == 2
