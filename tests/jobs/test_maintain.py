"""`run --maintain`: the lake is maintained by each run, or by the first run of a day if the run is repeated."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from jobs import maintain, schedule
from jobs.session import Job
from pipeline.common.errors import LakeError
from tests.helpers.quiet import config


def test_a_repeated_run_maintains_the_lake_once_a_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(
        config(tmp_path, "any", {"east": "127.0.0.1:1"}), ("east",), None, "nothing", tmp_path, is_maintained=True
    )
    spark, days, left = cast(SparkSession, None), [1, 1, 2, 2, 2], ["the store is down"]
    done: list[int] = []

    def step(_spark: SparkSession, _job: Job) -> int:
        if days[0] == 2 and left:
            raise LakeError(left.pop())
        done.append(days[0])
        return 0

    monkeypatch.setattr(maintain, "step", step)
    monkeypatch.setattr(schedule, "utc_now", lambda: datetime(2026, 1, days[0], tzinfo=UTC))
    daily: Any = maintain.Daily()
    assert daily(spark, replace(job, is_maintained=False)) == 0
    assert done == []
    while days:
        if days[0] == 2 and left:
            with pytest.raises(LakeError, match="the store is down"):
                daily(spark, job)
        else:
            assert daily(spark, job) == 0
        days.pop(0)
    assert done == [1, 2]
