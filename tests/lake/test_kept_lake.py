"""The kept lake is upgraded if it has to be, extended and read."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from demo.embedded_kafka.broker import EmbeddedKafka
from jobs import report, run
from jobs.example import SETTINGS
from pipeline.config import LakeConfig, load_config
from pipeline.derive import compute_lag
from pipeline.lake import Lake, of_cluster, of_snapshots
from pipeline.lake.few_rows import for_few_rows
from pipeline.tables import COMPUTED, FINDINGS, LAG, SCHEMA_VERSION, SNAPSHOTS, TABLES, Table
from tests.helpers.kept_lake import CLUSTER as OLD
from tests.helpers.kept_lake import kept_lake
from tests.helpers.quiet import expected_lag, lag_rows, seed, write_config
from tests.helpers.stored import stored

NEW = "new"
"""A cluster that is added to the lake."""
PREFIX = "kept"


def counted(lake: Lake, cluster: str) -> dict[str, int]:
    """The number of rows in each table."""
    return {table.name: len(stored(lake, table, of_cluster(cluster))) for table in TABLES}


MAY_CHANGE = {"reuse_bytes", "reuse_error_bytes", "reuse_method", "high_watermark_bytes", "high_watermark_error_bytes"}
"""Columns that may change when a snapshot is computed again: the log index may by now know more about other logs."""


def of_snapshot(lake: Lake, table: Table, snapshot_id: int) -> dict[tuple[str, str, int], dict[str, Any]]:
    rows = stored(lake, table, of_snapshots(OLD, [snapshot_id]))
    found = [{name: value for name, value in row.asDict().items() if name not in MAY_CHANGE} for row in rows]
    return {(row["group_id"], row["topic"], row["partition"]): row for row in found}


def test_the_kept_lake_is_extended_and_read(spark: SparkSession, kafka: EmbeddedKafka, tmp_path: Path) -> None:
    lake = Lake(spark, LakeConfig(root=str(kept_lake(tmp_path))))
    kept = {table.name: len(stored(lake, table, of_cluster(OLD))) for table in (LAG, SNAPSHOTS, FINDINGS)}
    assert all(kept.values())
    seed(kafka, PREFIX)
    config = write_config(tmp_path, PREFIX, {NEW: kafka.bootstrap_servers})
    assert run.main(["--config", str(config), "--output", str(tmp_path / "report.html")]) == 0
    assert lake.schema_version() == SCHEMA_VERSION
    assert lag_rows(lake, NEW) == expected_lag(PREFIX)
    found = counted(lake, OLD)
    assert {name: found[name] for name in kept} == kept
    page = tmp_path / "old.json"
    selected = ["--config", str(config), "--cluster", OLD, "--from", "2020-01-01", "--format", "json"]
    assert report.main([*selected, "--output", str(page)]) == 0
    assert "billing-slow" in page.read_text()
    again(lake, found, tmp_path / "again.toml")


def again(lake: Lake, found: dict[str, int], config: Path) -> None:
    """If the newest snapshot is computed again, it has the same lag, and nothing is there twice."""
    last = max(row.snapshot_id for row in stored(lake, LAG, of_cluster(OLD), "snapshot_id"))
    rows = of_snapshot(lake, LAG, last)
    lake.delete(COMPUTED, f"{of_cluster(OLD)} AND snapshot_id = {last}")
    place = f'[lake]\nroot = "{lake.place}"\n[clusters.{OLD}]\nbootstrap_servers = ["localhost:1"]\n'
    config.write_text(SETTINGS + place)
    with for_few_rows(lake.spark):
        assert compute_lag(lake.spark, load_config(config, {}), [OLD], lambda: datetime.now(UTC)) == 1
    assert of_snapshot(lake, LAG, last) == rows
    assert counted(lake, OLD) == found
