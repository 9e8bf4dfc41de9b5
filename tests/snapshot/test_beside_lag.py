"""A snapshot whose times are looked up while a lag job writes the log index that it reads."""

import logging
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from demo.embedded_kafka.broker import EmbeddedKafka
from pipeline.derive import compute_cluster
from pipeline.derive import log_index as index
from pipeline.lake import Lake
from pipeline.snapshot import take_snapshots
from pipeline.tables import LOG_INDEX, SNAPSHOTS
from tests.derive.test_two_lag_jobs import once
from tests.helpers.quiet import config, expected_lag, lag_rows, seed

PREFIX = "beside"


def test_a_snapshot_repeats_its_look_ups_if_a_lag_job_has_written_the_index_meanwhile(
    spark: SparkSession,
    kafka: EmbeddedKafka,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    seed(kafka, PREFIX)
    settings = config(tmp_path, PREFIX, {"east": kafka.bootstrap_servers})
    lake = Lake(spark, settings.lake)
    began = datetime.now(UTC)
    caplog.set_level(logging.INFO, "pipeline")
    monkeypatch.setattr(index, "WRITTEN_EVERY", 1)

    def take(second: int) -> None:
        (outcome,) = take_snapshots(spark, settings, ["east"], None, lambda: began + timedelta(seconds=second))
        assert outcome.status == "complete", outcome.message

    def lag() -> None:
        compute_cluster(lake, "east", lambda: began)

    def through() -> int:
        return int(lake.frame(LOG_INDEX).agg(F.max("through_snapshot_id")).collect()[0][0])

    take(1)
    lag()
    take(2)
    before = through()
    # The third snapshot has found how far the index goes, and now reads it.
    monkeypatch.setattr(index.Index, "watermarks", once(lag, index.Index.watermarks))
    take(3)
    assert through() == before + 1_000
    assert "another job has written the log index meanwhile: starting again" in caplog.text
    warnings = [row["warnings"] for row in lake.frame(SNAPSHOTS).collect()]
    assert all("lookups_failed" not in found for found in warnings)
    lag()
    assert [lag_rows(lake, "east", before + 1_000 * n) for n in range(3)] == [expected_lag(PREFIX)] * 3
