"""Which rows the driver writes and which Spark writes, and what happens if several writers write at once."""

import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipeline.common.errors import LakeError
from pipeline.config import LakeConfig
from pipeline.lake import Lake, of_cluster, of_snapshots
from pipeline.lake.driver_tables import driver_tables
from pipeline.lake.ledger import add_error
from pipeline.tables import COMPUTED, SNAPSHOTS, WATERMARKS
from tests.conftest import ROOT
from tests.helpers.full_rows import ID, found, full_row, with_values


def test_rows_that_are_too_many_for_a_plan_are_left_to_spark(by_driver: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    by_driver.replace_rows(WATERMARKS, [full_row(WATERMARKS)] * 5, of_snapshots("east", [ID]))

    def plan(rows: DataFrame) -> str:
        return cast(Any, rows)._jdf.queryExecution().optimizedPlan().toString()

    for many, is_local in ((6, True), (5, False)):
        monkeypatch.setattr("pipeline.lake.lake.FEW_FOR_SPARK", many)
        rows = by_driver.frame(WATERMARKS, of_cluster("east"))
        assert rows.count() == 5
        assert ("LocalRelation" in plan(rows)) is is_local


def test_a_table_with_a_feature_that_delta_rs_lacks_is_left_to_spark(by_driver: Lake) -> None:
    row = full_row(SNAPSHOTS)
    by_driver.merge(SNAPSHOTS, [row], "east")
    name = by_driver.identifier(SNAPSHOTS)
    by_driver.spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")
    assert found(by_driver.frame(SNAPSHOTS, of_cluster("east"))) == found(by_driver.frame_of(SNAPSHOTS, [row]))
    by_driver.replace_rows(SNAPSHOTS, [row], of_snapshots("east", [ID]))
    other = with_values(SNAPSHOTS, row, snapshot_id=ID + 1)
    assert by_driver.merge(SNAPSHOTS, [row, other], "east") == (1, 0)
    assert by_driver.frame(SNAPSHOTS, of_cluster("east")).count() == 2


def test_only_a_local_folder_of_a_local_session_is_for_the_driver(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    for root in ("/data/lake", "file:/data/lake", "file:///data/lake"):
        tables = driver_tables(spark, root)
        assert tables
        assert tables._root == Path("/data/lake")
    for root in (None, "s3a://bucket/lake", "hdfs:///lake", "abfss://c@a.example/lake", "/data/a%20b"):
        assert driver_tables(spark, root) is None
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "17.3")
    assert driver_tables(spark, "/data/lake") is None
    monkeypatch.undo()
    monkeypatch.setattr(spark.sparkContext, "master", "spark://host:7077")
    assert driver_tables(spark, "/data/lake") is None


def test_without_hard_links_everything_is_left_to_spark(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    assert driver_tables(spark, str(tmp_path / "still" / "to be made"))
    monkeypatch.setattr(Path, "hardlink_to", refused)
    assert driver_tables(spark, str(tmp_path)) is None
    assert [*tmp_path.iterdir()] == []


WRITER = """
import sys
from pathlib import Path
from pipeline.lake.conflicts import retry_on_conflict
from pipeline.lake import driver_tables
from pipeline.lake.driver_tables import DriverTables, arrow_rows
from pipeline.lake import of_snapshots
from pipeline.tables import COMPUTED, SNAPSHOTS
from tests.helpers.full_rows import ID, full_row, with_values
tables, me, number = DriverTables(Path(sys.argv[1])), sys.argv[2], int(sys.argv[3])
won, driver_tables.MOST_FILES = 0, 10
for n in range(number):
    row = arrow_rows(SNAPSHOTS, [with_values(SNAPSHOTS, full_row(SNAPSHOTS), snapshot_id=ID + n, run_id=me)])
    won += retry_on_conflict(lambda: tables.merge(SNAPSHOTS, row, "east", ""))[0]
    mark = arrow_rows(COMPUTED, [with_values(COMPUTED, full_row(COMPUTED), snapshot_id=ID + n % 3, run_id=me)])
    retry_on_conflict(lambda: tables.overwrite(COMPUTED, mark, of_snapshots("east", [ID + n % 3])))
print(won)
"""


@pytest.mark.thorough
def test_of_two_processes_one_wins_each_claim_and_none_is_lost(by_driver: Lake, tmp_path: Path) -> None:
    number = 50
    command = [sys.executable, "-c", WRITER, str(tmp_path / "lake")]
    writers = [
        subprocess.Popen([*command, me, str(number)], cwd=ROOT, stdout=subprocess.PIPE, text=True)
        for me in ("one", "two")
    ]
    won = [int(writer.communicate(timeout=300)[0]) for writer in writers]
    rows = by_driver.read(SNAPSHOTS).groupBy("run_id").count().collect()
    assert sorted(row["count"] for row in rows) == sorted(n for n in won if n)
    assert sum(won) == number == by_driver.read(SNAPSHOTS).select("snapshot_id").distinct().count()
    assert by_driver.read(COMPUTED).count() == 3


BY_SPARK = """
import sys
from pathlib import Path
from pipeline.config import LakeConfig
from pipeline.lake import Lake, of_snapshots
from pipeline.session import spark_session
from pipeline.tables import COMPUTED
from tests.helpers.full_rows import ID, full_row, with_values
me, number = sys.argv[2], int(sys.argv[3])
lake = Lake(spark_session("writer", {"spark.master": "local[1]"}), LakeConfig(root=sys.argv[1]))
assert lake._driver
for n in range(number):
    row = lake.frame_of(COMPUTED, [with_values(COMPUTED, full_row(COMPUTED), job=me, snapshot_id=ID + n)])
    lake.replace(COMPUTED, row, f"{of_snapshots('east', [ID + n])} AND job = '{me}'", most=10**6 if n % 2 else 1)
"""


@pytest.mark.thorough
def test_spark_in_two_processes_loses_nothing(by_driver: Lake, tmp_path: Path) -> None:
    number = 6
    command = [sys.executable, "-c", BY_SPARK, str(tmp_path / "lake")]
    writers = [subprocess.Popen([*command, me, str(number)], cwd=ROOT) for me in ("one", "two")]
    assert [writer.wait(300) for writer in writers] == [0, 0]
    rows = by_driver.read(COMPUTED).groupBy("job").agg(F.count_distinct("snapshot_id"), F.count("*")).collect()
    assert sorted((*row,) for row in rows) == [("one", number, number), ("two", number, number)]


def test_a_commit_after_the_check_of_the_right_to_write_is_not_overwritten(by_driver: Lake) -> None:
    where = of_snapshots("east", [ID])
    marks = {run: with_values(COMPUTED, full_row(COMPUTED), run_id=run) for run in ("old", "other", "mine")}
    by_driver.replace_rows(COMPUTED, [marks["old"]], where)
    asked: list[str] = []

    def may_write() -> None:
        (row,) = by_driver.frame(COMPUTED, of_snapshots("east", [ID])).collect()
        asked.append(row["run_id"])
        if row["run_id"] == "old":
            by_driver.replace_rows(COMPUTED, [marks["other"]], where)
            return
        raise LakeError("another job was first")

    with pytest.raises(LakeError, match="another job was first"):
        by_driver.guarded(may_write).replace_rows(COMPUTED, [marks["mine"]], where)
    assert asked == ["old", "other"]
    assert [row["run_id"] for row in by_driver.read(COMPUTED).collect()] == ["other"]


@pytest.mark.parametrize("way", ["by_driver", "by_spark"])
def test_an_error_is_added_to_those_of_another_job(way: str, request: pytest.FixtureRequest) -> None:
    lake: Lake = request.getfixturevalue(way)
    lake.merge(SNAPSHOTS, [with_values(SNAPSHOTS, full_row(SNAPSHOTS), errors=None)], "east")
    others = [("lag", None, "others", 1)]

    def may_write() -> None:
        if others:
            add_error(lake, "east", [ID], others.pop())

    for _ in range(2):
        add_error(lake.guarded(may_write), "east", [ID], ("lag", "t-0", "mine", 2))
    (row,) = lake.frame(SNAPSHOTS, of_cluster("east")).collect()
    assert [(*error,) for error in row["errors"]] == [("lag", None, "others", 1), ("lag", "t-0", "mine", 2)]


@pytest.mark.parametrize("name", ["a%20b", "a:b"])
def test_spark_commits_safely_in_any_local_folder(few: SparkSession, tmp_path: Path, name: str) -> None:
    lake = Lake(few, LakeConfig(root=str(tmp_path / name)))
    lake.prepare()
    first = tmp_path / name / COMPUTED.name / "_delta_log" / f"{0:020}.json"
    assert first.exists()
    assert not first.with_name(f".{first.name}.crc").exists(), "Hadoop has written it, and not laglake's log store"


def test_spark_does_not_wait_for_a_checkpoint_that_the_driver_has_replaced(by_driver: Lake, tmp_path: Path) -> None:
    stale = tmp_path / "lake" / "computed" / "_delta_log" / "._last_checkpoint.crc"
    stale.write_bytes(b"crc")
    by_driver.replace_rows(COMPUTED, [full_row(COMPUTED)], of_cluster("east"))
    assert not stale.exists()


def test_the_ledger_stays_in_few_files(by_driver: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.lake.driver_tables.MOST_FILES", 5)
    row, mark = full_row(SNAPSHOTS), full_row(COMPUTED)
    for cluster in ("west", "east"):
        for i in range(ID, ID + 14):
            named = {"cluster": cluster, "snapshot_id": i}
            by_driver.merge(SNAPSHOTS, [with_values(SNAPSHOTS, row, **named)], cluster)
            by_driver.replace_rows(COMPUTED, [with_values(COMPUTED, mark, **named)], of_snapshots(cluster, [i]))
    for table in (SNAPSHOTS, COMPUTED):
        rows = by_driver.read(table)
        assert rows.select("cluster", "snapshot_id").distinct().count() == rows.count() == 28
        files = [file for file in rows.inputFiles() if "cluster=east" in file]
        assert 1 <= len(files) <= 6


def test_a_large_file_of_the_ledger_is_not_rewritten(by_driver: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.lake.driver_tables.MOST_FILES", 5)
    monkeypatch.setattr("pipeline.lake.driver_tables.LARGE_FILE", 10)
    row = full_row(SNAPSHOTS)
    by_driver.merge(SNAPSHOTS, [with_values(SNAPSHOTS, row, snapshot_id=i) for i in range(ID, ID + 10)], "east")
    (large,) = by_driver.files(SNAPSHOTS)
    for i in range(ID + 10, ID + 20):
        by_driver.merge(SNAPSHOTS, [with_values(SNAPSHOTS, row, snapshot_id=i)], "east")
    assert large in by_driver.files(SNAPSHOTS)
    assert len(by_driver.files(SNAPSHOTS)) <= 7
    assert by_driver.read(SNAPSHOTS).select("snapshot_id").distinct().count() == 20
