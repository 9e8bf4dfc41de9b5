"""Runs on a quiet cluster give equal tables, whether the driver reads and writes its few rows, or Spark does."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from demo.embedded_kafka.broker import EmbeddedKafka
from jobs import report, run, schedule
from pipeline.config import LakeConfig
from pipeline.lake import Lake, lake_tables
from pipeline.tables import TABLES
from tests.helpers.quiet import seed, write_config
from tests.helpers.rows import WHO_AND_WHEN

PREFIX = "both"
RUNS = 3
"""The second run is in the next hour."""
VARYING = WHO_AND_WHEN | {
    "seen_at",
    "requests",
    # The columns that depend on when it was read.
    "consumer_lag_ms",
    "time_error_ms",
    "age_error_ms",
    "reuse_bytes",
    "reuse_error_bytes",
    "reuse_method",
    "points",
    "ruler",
    "since",
    "waiting_since",
    "members_seen_at",
    "commit_since",
    "remembered",
}


def instants() -> Iterator[datetime]:
    first = datetime.now(UTC).replace(minute=59, second=0, microsecond=0) - timedelta(hours=1)
    return (first + timedelta(minutes=minute) for minute in range(RUNS))


def contents(lake: Lake) -> dict[str, list[str]]:
    found = {}
    for table in TABLES:
        rows = lake.read_all(table)
        if table.name == "lag_histograms":
            rows = rows.where("measure NOT LIKE '%_ms' AND measure <> 'reuse_bytes'")
        if table.name == "forecasts":
            rows = rows.drop("reason")  # what minutes of history show; on a busy machine, Spark's runs take minutes
        found[table.name] = sorted(
            json.dumps(_without_times(row.asDict(recursive=True)), sort_keys=True, default=str)
            for row in rows.drop(*VARYING).collect()
        )
    return found


def _without_times(row: dict[str, Any]) -> dict[str, Any]:
    """The row; its evidence has no `since`, which depends on when commits were read."""
    if row.get("evidence"):
        row["evidence"] = {name: value for name, value in json.loads(row["evidence"]).items() if name != "since"}
    return row


def test_driver_and_spark_give_equal_tables(
    spark: SparkSession, kafka: EmbeddedKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seed(kafka, PREFIX)
    pages, tables = [], []
    for way in ("driver", "spark"):
        folder = tmp_path / way
        folder.mkdir()
        if way == "spark":
            monkeypatch.setattr(lake_tables, "driver_tables", lambda *_: None)
        file = write_config(folder, PREFIX, {"c": kafka.bootstrap_servers}, 'schedule = "1m"\nmax_delay = "3h"')
        for at in instants():
            monkeypatch.setattr(schedule, "utc_now", lambda at=at: at + timedelta(seconds=1))
            arguments = ["--config", str(file), "--output", str(folder / "report.html"), "--fail-on", "partial"]
            assert run.main([*arguments, "--at", at.isoformat()]) == 0
        lake = Lake(spark, LakeConfig(root=str(folder / "lake")))
        assert (lake._driver is None) is (way == "spark")
        tables.append(contents(lake))
        page = folder / "report.json"
        assert report.main(["--config", str(file), "--output", str(page), "--format", "json"]) == 0
        pages.append(page.stat().st_size)
    assert tables[0] == tables[1]
    filled = ("snapshots", "computed", "lag", "group_status", "partition_status", "log_index", "lag_histograms")
    assert all(tables[0][name] for name in filled)
    assert abs(pages[0] - pages[1]) < 0.05 * pages[1]
