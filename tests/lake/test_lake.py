"""Where the tables are, how a lake is created and upgraded, and what happens with two writers at once."""

import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from jobs import snapshot as snapshot_job
from pipeline.common.errors import LakeError, NoLakeError, SchemaError
from pipeline.config import LakeConfig, SnapshotConfig
from pipeline.derive import compute_lag
from pipeline.lake import VERSION_PROPERTY, Lake, conflicts, of_snapshots, retry_on_conflict, upgrade
from pipeline.lake.ledger import Claim, Ledger
from pipeline.lake.upgrade import create
from pipeline.tables import (
    FINDINGS,
    LAG,
    OLDEST_VERSION,
    QUARANTINE,
    SCHEMA_VERSION,
    SNAPSHOTS,
    TABLES,
    WATERMARKS,
    Table,
)
from tests.helpers.deltas import delta
from tests.helpers.quiet import config, write_config
from tests.helpers.rows import SNAPSHOT_DATE, frame

DEAD = "127.0.0.1:1"
pytestmark = pytest.mark.slow
ID = 1_769_860_800_000
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


def at_once(number: int, action: Callable[[], Any]) -> None:
    """Runs the action in `number` threads at the same time; raises an exception of one of them."""
    barrier = threading.Barrier(number)

    def start(_: int) -> None:
        barrier.wait(30)
        action()

    with ThreadPoolExecutor(number) as pool:
        list(pool.map(start, range(number)))


def older(table: Table) -> Table:
    """The table as it was before."""
    lacking = {LAG.name: 2, WATERMARKS.name: 1}.get(table.name, 0)
    return replace(table, schema=StructType(table.schema.fields[: len(table.schema) - lacking]))


def make_older(lake: Lake) -> None:
    """A lake of the version before: its `lag` lacks two columns, its `watermarks` one, and it has no `findings`."""
    for table in TABLES:
        if table is not FINDINGS:
            create(lake, older(table))
    set_schema_version(lake, SCHEMA_VERSION - 1)


def set_schema_version(lake: Lake, version: int) -> None:
    name = lake.identifier(SNAPSHOTS)
    lake.spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('{VERSION_PROPERTY}' = '{version}')")


def new_lake(spark: SparkSession, folder: Path) -> Lake:
    return Lake(spark, LakeConfig(root=str(folder / "lake")))


def test_every_table_is_as_its_schema_says_and_open_to_other_readers(lake: Lake) -> None:
    for table in TABLES:
        rows, stored = lake.read(table), delta(lake, table)
        assert [f.jsonValue()["type"] for f in rows.schema] == [f.jsonValue()["type"] for f in table.schema]
        assert [f.metadata.get("comment") for f in rows.schema] == [c.metadata["comment"] for c in table.schema]
        assert rows.columns == table.columns
        assert lake.spark.table(lake.identifier(table)).schema.names == table.stored.names
        assert tuple(stored.metadata().partition_columns) == table.partitioned_by
        assert stored.protocol().min_reader_version == 1  # no feature that a reader must know
    assert lake.schema_version() == SCHEMA_VERSION


def test_a_lake_that_is_absent_is_not_made_by_lag_and_an_empty_one_has_nothing_to_do(
    spark: SparkSession, tmp_path: Path
) -> None:
    settings = config(tmp_path, "any", {"east": DEAD})
    lake = Lake(spark, settings.lake)
    assert lake.schema_version() is None
    with pytest.raises(NoLakeError):
        compute_lag(spark, settings, ["east"], lambda: pytest.fail("nothing is marked"))
    assert lake.schema_version() is None
    lake.prepare()
    assert compute_lag(spark, settings, ["east"], lambda: pytest.fail("nothing is marked")) == 0
    assert lake.schema_version() == SCHEMA_VERSION


def test_first_runs_at_once_both_find_the_lake_made(spark: SparkSession, tmp_path: Path) -> None:
    lake = new_lake(spark, tmp_path)
    at_once(3, lake.prepare)
    assert lake.schema_version() == SCHEMA_VERSION
    assert {table.name: lake.read(table).columns for table in TABLES} == {t.name: t.columns for t in TABLES}


def test_a_lake_of_a_newer_version_is_refused_in_one_line_and_left_alone(
    lake: Lake, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    set_schema_version(lake, SCHEMA_VERSION + 1)
    with pytest.raises(SchemaError):
        lake.prepare()
    file = write_config(tmp_path, "any", {"east": DEAD})
    assert snapshot_job.main(["--config", str(file)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert f"has schema version {SCHEMA_VERSION + 1}, this laglake knows {SCHEMA_VERSION}: install" in line
    assert lake.read(SNAPSHOTS).count() == 0


def test_a_lake_that_is_too_old_is_refused_in_one_line_and_left_alone(
    lake: Lake, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    set_schema_version(lake, OLDEST_VERSION - 1)
    file = write_config(tmp_path, "any", {"east": DEAD})
    assert snapshot_job.main(["--config", str(file)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert f"has schema version {OLDEST_VERSION - 1}, this laglake upgrades only lakes from {OLDEST_VERSION} on" in line
    assert lake.schema_version() == OLDEST_VERSION - 1
    assert lake.read(SNAPSHOTS).count() == 0


def test_an_older_lake_gets_new_columns_and_keeps_its_rows(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upgrade, "OLDEST_VERSION", SCHEMA_VERSION - 1)
    lake = new_lake(spark, tmp_path)
    make_older(lake)
    names = "snapshot_id group_id topic partition consumer_lag"
    lake.replace(older(LAG), frame(spark, LAG, names, (ID, "g", "t", 0, 7)), of_snapshots("east", [ID]))
    at_once(2, lake.prepare)
    assert lake.schema_version() == SCHEMA_VERSION
    assert lake.read(FINDINGS).columns == FINDINGS.columns
    assert lake.read(WATERMARKS).columns == WATERMARKS.columns
    rows = frame(spark, LAG, f"{names} offset_status error", (ID + 1, "g", "t", 0, 8, "ok", None))
    lake.replace(LAG, rows, f"cluster = 'east' AND snapshot_date = DATE'{SNAPSHOT_DATE}' AND snapshot_id = {ID + 1}")
    found = lake.read(LAG).select("snapshot_id", "consumer_lag", "offset_status", "error").orderBy("snapshot_id")
    assert [tuple(r) for r in found.collect()] == [(ID, 7, None, None), (ID + 1, 8, "ok", None)]


def snapshot_ats(lake: Lake, table: Table) -> dict[int, int]:
    """For each snapshot_id of a table its `snapshot_at`, in epoch ms."""
    rows = lake.spark.table(lake.identifier(table)).selectExpr("snapshot_id", "unix_millis(snapshot_at)")
    return {row[0]: row[1] for row in rows.collect()}


def test_rows_of_a_snapshot_have_its_instant_and_files_are_skipped_by_it(lake: Lake) -> None:
    ids = [ID, ID + 60_000]
    for snapshot_id in ids:
        rows = frame(lake.spark, LAG, "snapshot_id group_id topic partition", (snapshot_id, "g", "t", 0))
        lake.replace(LAG, rows, of_snapshots("east", [snapshot_id]))
    assert snapshot_ats(lake, LAG) == {i: i for i in ids}
    Ledger(lake, SnapshotConfig(), lambda: NOON).claim(Claim("east", ID, "run", NOON))
    assert snapshot_ats(lake, SNAPSHOTS) == {ID: ID}
    stats = [
        json.loads(action["add"]["stats"])
        for file in sorted(Path(str(lake._config.root), LAG.name, "_delta_log").glob("*.json"))
        for action in map(json.loads, file.read_text().splitlines())
        if "add" in action
    ]
    least = [datetime.fromisoformat(s["minValues"]["snapshot_at"]) for s in stats]
    assert [round(at.timestamp() * 1_000) for at in least] == ids


def test_a_lake_that_cannot_be_made_gives_an_error_of_one_line(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "lake").write_text("a file, not a folder")
    with pytest.raises(LakeError, match="the lake cannot be made: ") as caught:
        new_lake(spark, tmp_path).prepare()
    assert "\n" not in str(caught.value)
    assert "An error occurred while calling" not in str(caught.value)


def test_tables_of_a_catalog_are_replaced_and_merged_as_those_of_a_folder(spark: SparkSession) -> None:
    spark.sql("CREATE SCHEMA spark_catalog.lakes")
    lake = Lake(spark, LakeConfig(catalog="spark_catalog", schema="lakes"))
    lake.prepare()
    try:
        for lag in (1, 2):
            for snapshot_id in (ID, ID + 1):
                rows = frame(spark, LAG, "snapshot_id group_id consumer_lag", (snapshot_id, "g", lag))
                lake.replace(LAG, rows, of_snapshots("east", [snapshot_id]))
        found = lake.frame(LAG, of_snapshots("east", [ID + 1])).select("snapshot_id", "consumer_lag").collect()
        assert [tuple(r) for r in found] == [(ID + 1, 2)]
        row = ("east", ID, SNAPSHOT_DATE, "watermarks", "an expectation", "{}")
        key = replace(QUARANTINE, key=("cluster", "snapshot_id"))
        lake.merge(key, [row], "east")
        lake.merge(key, [row], "east")
        assert lake.read(QUARANTINE).count() == 1
        detail = spark.sql(f"DESCRIBE DETAIL {lake.identifier(LAG)}").collect()[0]
        assert detail["partitionColumns"] == ["cluster", "snapshot_date"]
    finally:
        spark.sql("DROP SCHEMA spark_catalog.lakes CASCADE")


def test_rows_with_null_keys_are_merged_once(lake: Lake) -> None:
    key = replace(QUARANTINE, key=("cluster", "snapshot_id", "row"))
    for _ in range(2):
        lake.merge(key, [("east", ID, SNAPSHOT_DATE, "watermarks", "an expectation", None)], "east")
    assert lake.read(QUARANTINE).count() == 1


def test_conflicts_are_retried_a_limited_number_of_times(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(conflicts.time, "sleep", pauses.append)
    failures = [PySparkException("[DELTA_CONCURRENT_APPEND.WITH_PARTITION_HINT] …")] * 5

    def action() -> str:
        if failures:
            raise failures.pop()
        return "done"

    assert retry_on_conflict(action) == "done"
    assert all(0.1 <= pause / 2**tries <= 0.3 for tries, pause in enumerate(pauses))
    assert len(pauses) == 5
    failures.extend([PySparkException("[DELTA_CONCURRENT_APPEND.WITH_PARTITION_HINT] …")] * 6)
    with pytest.raises(LakeError, match="gave up after 6 conflicts"):
        retry_on_conflict(action)


def test_other_errors_are_not_retried() -> None:
    calls: list[int] = []

    def action() -> None:
        calls.append(1)
        raise PySparkException("[DIVIDE_BY_ZERO] …")

    with pytest.raises(PySparkException):
        retry_on_conflict(action)
    assert len(calls) == 1
