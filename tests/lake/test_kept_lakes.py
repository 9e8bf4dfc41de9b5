"""A small lake of each schema version that was in use is kept; it is upgraded, extended and read."""

import tarfile
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from demo.embedded_kafka.broker import EmbeddedKafka
from jobs import report, run
from pipeline.config import LakeConfig
from pipeline.derive import compute_cluster
from pipeline.lake import Lake, of_cluster, of_snapshots
from pipeline.lake.few_rows import for_few_rows
from pipeline.tables import (
    COMPUTED,
    FORECASTS,
    GROUP_CHANGES,
    GROUP_STATUS,
    LAG,
    LAG_HISTOGRAMS,
    PARTITION_STATUS,
    SCHEMA_VERSION,
    TABLES,
    Table,
)
from tests.conftest import ROOT
from tests.helpers.quiet import expected_lag, lag_rows, seed, write_config
from tests.helpers.stored import stored

KEPT = sorted((ROOT / "tests" / "data" / "lakes").glob("*.tar.xz"), key=lambda path: int(path.name.split(".")[0]))
# The oldest lake takes every step of the upgrade, and most users have the newest. The others are tested less often.
LANES = [
    pytest.param(path, id=path.name.split(".")[0], marks=[] if path in (KEPT[0], KEPT[-1]) else pytest.mark.lengthy)
    for path in KEPT
]
OLD, NEW, PREFIX = "demo", "new", "kept"
"""The cluster in the lakes, and one that is added."""


def counted(lake: Lake, cluster: str) -> dict[str, int]:
    """The number of rows in each table."""
    return {table.name: len(stored(lake, table, of_cluster(cluster))) for table in TABLES}


MAY_CHANGE = {"reuse_bytes", "reuse_error_bytes", "reuse_method", "high_watermark_bytes", "high_watermark_error_bytes"}
"""Columns that may change when a snapshot is computed again, because the log index may by now know more about other
logs, or because the version that has computed it did not have them."""


def of_snapshot(lake: Lake, table: Table, snapshot_id: int) -> dict[tuple[str, str, int], dict[str, Any]]:
    rows = stored(lake, table, of_snapshots(OLD, [snapshot_id]))
    return {(row["group_id"], row["topic"], row["partition"]): row.asDict() for row in rows}


def test_there_is_a_stored_lake_of_the_previous_version() -> None:
    assert [int(path.name.split(".")[0]) for path in KEPT][-1] == SCHEMA_VERSION - 1


@pytest.mark.parametrize("archive", LANES)
def test_a_lake_of_an_older_version_is_upgraded_extended_and_read(
    spark: SparkSession, kafka: EmbeddedKafka, tmp_path: Path, archive: Path
) -> None:
    with tarfile.open(archive) as file:
        file.extractall(tmp_path, filter="data")
    prefix = f"{PREFIX}-{archive.name.split('.')[0]}"  # topics and groups of its own
    seed(kafka, prefix)
    config = write_config(tmp_path, prefix, {NEW: kafka.bootstrap_servers})
    lake = Lake(spark, LakeConfig(root=str(tmp_path / "lake")))
    before = lake.schema_version()
    assert before == int(archive.name.split(".")[0])
    kept = {
        name: spark.read.format("delta").load(str(tmp_path / "lake" / name)).count() for name in ("lag", "snapshots")
    }
    assert all(kept.values())
    assert run.main(["--config", str(config), "--output", str(tmp_path / "report.html")]) == 0
    assert lake.schema_version() == SCHEMA_VERSION
    assert lag_rows(lake, NEW) == expected_lag(prefix)
    found = counted(lake, OLD)
    assert {name: found[name] for name in kept} == kept
    page = tmp_path / "old.json"
    selected = ["--config", str(config), "--cluster", OLD, "--from", "2020-01-01", "--format", "json"]
    assert report.main([*selected, "--output", str(page)]) == 0
    assert "billing-slow" in page.read_text()
    again(lake, found)


def again(lake: Lake, found: dict[str, int]) -> None:
    """If the newest snapshot is computed again, it has the same lag, and a status."""
    last = max(row.snapshot_id for row in stored(lake, LAG, of_cluster(OLD), "snapshot_id"))
    rows = of_snapshot(lake, LAG, last)
    lake.delete(COMPUTED, f"{of_cluster(OLD)} AND snapshot_id = {last}")
    with for_few_rows(lake.spark):
        assert compute_cluster(lake, OLD, lambda: datetime.now(UTC)) == 1
    anew = of_snapshot(lake, LAG, last)
    assert anew.keys() == rows.keys()
    different = {
        key: [n for n, v in row.items() if v != anew[key][n] and n not in MAY_CHANGE] for key, row in rows.items()
    }
    assert {key: values for key, values in different.items() if values} == {}
    now = counted(lake, OLD)
    added = Counter(now) - Counter(found)
    # The hour and the day of the lake's snapshots have ended since it was made: they are rolled up now.
    assert set(added) <= {
        PARTITION_STATUS.name,
        GROUP_STATUS.name,
        GROUP_CHANGES.name,
        FORECASTS.name,
        LAG_HISTOGRAMS.name,
        "findings",
        "finding_history",
    }
    assert added[PARTITION_STATUS.name] in (0, len(rows))
