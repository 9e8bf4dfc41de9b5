"""The cost of a `run` on a small cluster, in queries. Unlike seconds, these are nearly the same on every machine."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from benchmarks.waterfall import Waterfall, one_run
from demo.embedded_kafka.broker import EmbeddedKafka
from jobs import schedule
from tests.helpers.quiet import seed, write_config

PREFIX = "cost"
COMMITS = 14
"""The commits of a later run with two groups, while a finding is open: one of them has committed beyond the end.

If they become fewer, write the new number here.
"""
OBJECTIVE = f'[slo.x]\ngroups = "^{PREFIX}"\nobjective = "consumer_lag < 5"\ntarget = 0.99\n'
"""What an objective costs in addition is one commit."""


def clock() -> Iterator[datetime]:
    """Instants in one hour, so that no run has to write the histograms of an hour."""
    start = datetime.now(UTC).replace(minute=5, second=0, microsecond=0)
    return (start + timedelta(seconds=second) for second in count())


def test_a_later_run_of_a_small_cluster_needs_no_query_of_spark(
    spark: SparkSession, kafka: EmbeddedKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seed(kafka, PREFIX)
    config = write_config(tmp_path, PREFIX, {"small": kafka.bootstrap_servers})
    waterfall = Waterfall(spark, tmp_path / "lake")
    monkeypatch.setattr(schedule, "utc_now", clock().__next__)
    one_run(config, tmp_path / "report.html")
    cost = waterfall.run(lambda: one_run(config, tmp_path / "report.html"))
    assert (cost.executions, cost.jobs) == (0, 0), str(waterfall)  # the driver does all of it
    assert cost.commits == COMMITS, str(waterfall)
    with config.open("a") as file:
        file.write(OBJECTIVE)
    one_run(config, tmp_path / "report.html")
    waterfall.run(lambda: one_run(config, tmp_path / "report.html"))
    added = waterfall.phases["step slo"] + waterfall.phases["  replace slo"]
    assert (added.executions, added.commits) == (0, 1), str(waterfall)
