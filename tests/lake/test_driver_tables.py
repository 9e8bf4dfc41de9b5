"""Few rows that the driver reads and writes: the tables are the same as with Spark; and what is left to Spark."""

import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

from pipeline.common.errors import LakeError
from pipeline.config import LakeConfig
from pipeline.lake import Lake, of_cluster, of_each, of_snapshots, of_windows
from pipeline.lake import lake as lake_module
from pipeline.lake.driver_tables import driver_tables
from pipeline.lake.few_rows import for_few_rows
from pipeline.lake.ledger import add_problem
from pipeline.tables import COMPUTED, FINDINGS, LAG_HISTOGRAMS, QUARANTINE, SNAPSHOTS, TABLES, WATERMARKS, Table
from tests.conftest import ROOT

ID = 1_769_860_800_000
DAY = date(2026, 1, 31)
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
VALUES: dict[type[DataType], Any] = {
    BinaryType: b"\x00\xff",
    BooleanType: True,
    DateType: DAY,
    DecimalType: Decimal(10**37),
    DoubleType: -0.1,
    IntegerType: -(2**31),
    LongType: 2**63 - 1,
    StringType: "'a\\ \U0001f600\n\"",
    TimestampType: datetime(2026, 3, 29, 1, 30, 0, 999_999, tzinfo=UTC),  # an hour that some zones skip
}
NAMED = {"cluster": "east", "snapshot_id": ID, "snapshot_date": DAY, "window_start": NOON, "window_ms": 0}

Row = tuple[Any, ...]


def value(of: DataType) -> Any:
    if isinstance(of, StructType):
        return tuple(value(f.dataType) for f in of)
    if isinstance(of, ArrayType):
        return [value(of.elementType)]
    if isinstance(of, MapType):
        return {"a key": value(of.valueType)}
    return VALUES[type(of)]


def full_row(table: Table) -> Row:
    """A row with a value in each column."""
    return tuple(NAMED.get(f.name, value(f.dataType)) for f in table.schema)


def empty_row(table: Table) -> Row:
    """A row with NULL wherever it is allowed."""
    full = full_row(table)
    return tuple(
        old if f.name in table.key or f.name in NAMED else None for f, old in zip(table.schema, full, strict=True)
    )


def with_values(of: Table, row: Row, **values: Any) -> Row:
    return tuple(values.get(name, old) for name, old in zip(of.columns, row, strict=True))


def found(rows: DataFrame) -> list[str]:
    return sorted(map(str, rows.collect()))


@pytest.fixture
def few(spark: SparkSession) -> Iterator[SparkSession]:
    with for_few_rows(spark):
        yield spark


@pytest.fixture
def by_driver(few: SparkSession, tmp_path: Path) -> Lake:
    lake = Lake(few, LakeConfig(root=str(tmp_path / "lake")))
    lake.prepare()
    assert lake._driver
    return lake


@pytest.fixture
def by_spark(by_driver: Lake, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """The same lake, read and written only by Spark."""
    lake = Lake(by_driver.spark, by_driver._config)
    monkeypatch.setattr(lake_module, "driver_tables", lambda *_: None)
    assert lake._driver is None
    return lake


@pytest.mark.parametrize("table", [t for t in TABLES if "snapshot_id" in t.columns], ids=lambda t: t.name)
def test_each_reads_what_the_other_has_written(by_driver: Lake, by_spark: Lake, table: Table) -> None:
    rows = [full_row(table), empty_row(table)]
    where = of_snapshots("east", [ID])
    expected = found(by_spark.rows(table, rows))
    for writer in (by_driver, by_spark, by_driver):
        writer.replace(table, writer.rows(table, rows), where)
        for reader in (by_driver, by_spark):
            assert found(reader.read_snapshots(table, "east", [ID])) == expected
            assert found(reader.read(table)) == expected
            assert found(reader.read_snapshots(table, "east", [ID + 1])) == []
            assert found(reader.read_each(table, {"west": [ID]})) == []
    at = by_spark.spark.table(by_spark.identifier(table)).select("snapshot_at").distinct().collect()
    assert [row[0].astimezone(UTC) for row in at] == [NOON]


def test_tables_are_made_alike(by_driver: Lake, by_spark: Lake, tmp_path: Path) -> None:
    other = Lake(by_spark.spark, LakeConfig(root=str(tmp_path / "other")))
    assert other._driver is None
    other.prepare()
    for table in TABLES:
        made, same = (
            lake.spark.sql(f"DESCRIBE DETAIL {lake.identifier(table)}")
            .select("description", "partitionColumns", "properties", "minReaderVersion", "minWriterVersion")
            .collect()
            for lake in (by_driver, other)
        )
        assert made == same
        columns = [lake.spark.table(lake.identifier(table)).schema for lake in (by_driver, other)]
        assert columns[0] == columns[1]
        assert all(field.metadata["comment"] for field in columns[0])


def test_a_window_is_replaced_alone(by_driver: Lake) -> None:
    row = full_row(LAG_HISTOGRAMS)
    hour = with_values(LAG_HISTOGRAMS, row, window_ms=3_600_000)
    for windows in ([row, hour], [row]):  # the second time alone
        by_driver.replace_rows(LAG_HISTOGRAMS, windows[:1], of_windows("east", [ID], window_ms=0))
        for window in windows[1:]:
            by_driver.replace_rows(LAG_HISTOGRAMS, [window], of_windows("east", [ID], window_ms=3_600_000))
    assert found(by_driver.read_each(LAG_HISTOGRAMS, {"east": [ID]})) == found(by_driver.rows(LAG_HISTOGRAMS, [row]))
    assert by_driver.read(LAG_HISTOGRAMS).count() == 2


def test_what_is_replaced_may_be_named_by_a_reserved_word(by_driver: Lake) -> None:
    where = f"{of_snapshots('east', [ID])} AND `table` = 'watermarks'"
    row = with_values(QUARANTINE, full_row(QUARANTINE), table="watermarks")
    other = with_values(QUARANTINE, full_row(QUARANTINE), table="lag")
    by_driver.replace_rows(QUARANTINE, [other], f"{of_snapshots('east', [ID])} AND `table` = 'lag'")
    for _ in range(2):
        by_driver.replace_rows(QUARANTINE, [row], where)
    assert found(by_driver.read_cluster(QUARANTINE, "east")) == found(by_driver.rows(QUARANTINE, [row, other]))


def test_a_merge_updates_only_where_it_may(by_driver: Lake, by_spark: Lake) -> None:
    later = "greatest(s.last_seen, s.resolved_at) >= greatest(t.last_seen, t.resolved_at)"
    row = with_values(FINDINGS, full_row(FINDINGS), last_seen=NOON, resolved_at=None)
    earlier = with_values(FINDINGS, row, last_seen=NOON.replace(hour=11), severity="info")
    newer = with_values(FINDINGS, row, last_seen=NOON.replace(hour=13), severity="warning")
    for lake in (by_driver, by_spark):
        counts = [lake.merge(FINDINGS, [some], "east", later) for some in (row, earlier, newer)]
        assert counts == [(1, 0), (0, 0), (0, 1)]
        assert found(lake.read_cluster(FINDINGS, "east")) == found(lake.rows(FINDINGS, [newer]))
        lake.delete(FINDINGS, of_cluster("east"))


def test_many_rows_are_left_to_spark(by_driver: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    by_driver.replace_rows(WATERMARKS, [full_row(WATERMARKS)] * 5, of_snapshots("east", [ID]))

    def plan(rows: DataFrame) -> str:
        return cast(Any, rows)._jdf.queryExecution().optimizedPlan().toString()

    for many, is_local in ((6, True), (5, False)):
        monkeypatch.setattr("pipeline.lake.driver_tables.MANY_ROWS", many)
        rows = by_driver.read_cluster(WATERMARKS, "east")
        assert rows.count() == 5
        assert plan(rows).startswith("LocalRelation") is is_local


def test_a_table_with_a_feature_that_delta_rs_lacks_is_left_to_spark(by_driver: Lake) -> None:
    row = full_row(SNAPSHOTS)
    by_driver.merge(SNAPSHOTS, [row], "east")
    name = by_driver.identifier(SNAPSHOTS)
    by_driver.spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")
    assert found(by_driver.read_cluster(SNAPSHOTS, "east")) == found(by_driver.rows(SNAPSHOTS, [row]))
    by_driver.replace_rows(SNAPSHOTS, [row], of_snapshots("east", [ID]))
    other = with_values(SNAPSHOTS, row, snapshot_id=ID + 1)
    assert by_driver.merge(SNAPSHOTS, [row, other], "east") == (1, 0)
    assert by_driver.read_cluster(SNAPSHOTS, "east").count() == 2


@pytest.mark.parametrize("name", ["a b", "ü#?&", "quote'd"])
def test_a_folder_may_have_any_name(few: SparkSession, tmp_path: Path, name: str) -> None:
    lake = Lake(few, LakeConfig(root=str(tmp_path / name)))
    lake.prepare()
    row = full_row(COMPUTED)
    lake.replace_rows(COMPUTED, [row], of_cluster("east"))
    assert found(lake.read_cluster(COMPUTED, "east")) == found(lake.rows(COMPUTED, [row]))
    assert (tmp_path / name / "computed" / "_delta_log").is_dir()
    assert found(lake.read(COMPUTED)) == found(lake.rows(COMPUTED, [row]))


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


WRITER = """
import sys
from pathlib import Path
from pipeline.lake.conflicts import retry_on_conflict
from pipeline.lake import driver_tables
from pipeline.lake.driver_tables import DriverTables, arrow_rows
from tests.lake.test_driver_tables import ID, SNAPSHOTS, COMPUTED, full_row, of_snapshots, with_values
tables, me, number = DriverTables(Path(sys.argv[1])), sys.argv[2], int(sys.argv[3])
won, driver_tables.MOST_FILES = 0, 10
for n in range(number):
    row = arrow_rows(SNAPSHOTS, [with_values(SNAPSHOTS, full_row(SNAPSHOTS), snapshot_id=ID + n, run_id=me)])
    won += retry_on_conflict(lambda: tables.merge(SNAPSHOTS, row, "east", ""))[0]
    mark = arrow_rows(COMPUTED, [with_values(COMPUTED, full_row(COMPUTED), snapshot_id=ID + n % 3, run_id=me)])
    retry_on_conflict(lambda: tables.overwrite(COMPUTED, mark, of_snapshots("east", [ID + n % 3])))
print(won)
"""


def test_of_two_processes_one_wins_each_claim_and_none_is_lost(by_driver: Lake, tmp_path: Path) -> None:
    number = 100
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


def test_instants_are_those_of_any_session_time_zone(
    by_driver: Lake, by_spark: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    row, spark = full_row(SNAPSHOTS), by_driver.spark
    expected = found(by_spark.rows(SNAPSHOTS, [row]))
    zone = spark.conf.get("spark.sql.session.timeZone") or "UTC"
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        by_driver.merge(SNAPSHOTS, [row], "east")
        for writer in (by_driver, by_spark):
            writer.replace(SNAPSHOTS, by_driver.read_cluster(SNAPSHOTS, "east"), "cluster = 'east'")
            for reader in (by_driver, by_spark):
                assert found(reader.read_cluster(SNAPSHOTS, "east")) == expected
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)


def test_a_file_that_is_torn_or_gone_is_one_line(by_driver: Lake, tmp_path: Path) -> None:
    by_driver.merge(SNAPSHOTS, [full_row(SNAPSHOTS)], "east")
    (file,) = (tmp_path / "lake" / "snapshots" / "cluster=east").glob("*.parquet")
    for tear in (lambda: file.write_bytes(b"torn"), file.unlink):
        tear()
        for action in (
            lambda: by_driver.read_cluster(SNAPSHOTS, "east"),
            lambda: by_driver.merge(SNAPSHOTS, [full_row(SNAPSHOTS)], "east", "true"),
        ):
            with pytest.raises(LakeError, match=r"^snapshots: [^\n]+$"):
                action()


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


def test_a_far_instant_stays_what_it_is(by_driver: Lake, by_spark: Lake) -> None:
    far = datetime(2300, 1, 1, tzinfo=UTC)
    row = with_values(FINDINGS, full_row(FINDINGS), last_seen=far)
    by_spark.replace_rows(FINDINGS, [row], of_cluster("east"))
    for reader in (by_driver, by_spark):
        assert found(reader.read_cluster(FINDINGS, "east")) == found(by_spark.rows(FINDINGS, [row]))


def test_a_column_that_a_user_has_added_stays(by_driver: Lake) -> None:
    row, other = (with_values(FINDINGS, full_row(FINDINGS), finding_id=name) for name in ("a", "b"))
    name = by_driver.identifier(FINDINGS)
    by_driver.merge(FINDINGS, [row], "east")
    by_driver.spark.sql(f"ALTER TABLE {name} ADD COLUMN note STRING")
    by_driver.spark.sql(f"UPDATE {name} SET note = 'mine'")
    assert by_driver.merge(FINDINGS, [with_values(FINDINGS, row, severity="info"), other], "east", "true") == (1, 1)
    notes = by_driver.spark.sql(f"SELECT finding_id, severity = 'info', note FROM {name} ORDER BY 1").collect()
    assert [(*note,) for note in notes] == [("a", True, "mine"), ("b", False, None)]
    by_driver.replace_rows(FINDINGS, [other], of_cluster("east"))
    assert found(by_driver.read_cluster(FINDINGS, "east")) == found(by_driver.rows(FINDINGS, [other]))


TOO_EARLY = datetime.min.replace(tzinfo=timezone(timedelta(hours=1)))


@pytest.mark.parametrize("odd", [{"kind": "\ud800"}, {"last_seen": TOO_EARLY}])
def test_a_value_that_cannot_be_stored_is_one_line(by_driver: Lake, odd: dict[str, Any]) -> None:
    row = with_values(FINDINGS, full_row(FINDINGS), **odd)
    with pytest.raises(LakeError, match=r"^findings: a value does not fit its column: [^\n]+$"):
        by_driver.merge(FINDINGS, [row], "east")


def test_rows_are_deleted_by_the_driver(by_driver: Lake, tmp_path: Path) -> None:
    rows = [with_values(COMPUTED, full_row(COMPUTED), snapshot_id=i) for i in (ID, ID + 1)]
    by_driver.replace_rows(COMPUTED, rows, of_cluster("east"))
    for _ in range(2):
        by_driver.delete(COMPUTED, of_snapshots("east", [ID]))
    assert found(by_driver.read(COMPUTED)) == found(by_driver.rows(COMPUTED, rows[1:]))
    assert len([*(tmp_path / "lake" / "computed" / "_delta_log").glob("*.json")]) == 3


def test_where_files_cannot_be_linked_all_is_left_to_spark(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    assert driver_tables(spark, str(tmp_path / "still" / "to be made"))
    monkeypatch.setattr(Path, "hardlink_to", refused)
    assert driver_tables(spark, str(tmp_path)) is None
    assert [*tmp_path.iterdir()] == []


def test_spark_does_not_wait_for_a_checkpoint_that_the_driver_has_replaced(by_driver: Lake, tmp_path: Path) -> None:
    stale = tmp_path / "lake" / "computed" / "_delta_log" / "._last_checkpoint.crc"
    stale.write_bytes(b"crc")
    by_driver.replace_rows(COMPUTED, [full_row(COMPUTED)], of_cluster("east"))
    assert not stale.exists()


def test_clusters_of_the_same_snapshots_are_named_together(by_driver: Lake) -> None:
    wanted = {f"c{n}": [ID + n // 4, ID + 9] for n in range(9)} | {"none": []}
    assert of_each(wanted).count(" OR ") == 2
    rows = [
        with_values(WATERMARKS, full_row(WATERMARKS), cluster=cluster, snapshot_id=i)
        for cluster in (*wanted, "other")
        for i in range(ID, ID + 10)
    ]
    by_driver.replace(WATERMARKS, by_driver.rows(WATERMARKS, rows), "true")
    expected = {(cluster, i) for cluster, ids in wanted.items() for i in ids}
    read = by_driver.read_each(WATERMARKS, wanted).select("cluster", "snapshot_id").collect()
    assert {(*row,) for row in read} == expected
    assert len(read) == len(expected)
    assert by_driver.read_each(WATERMARKS, {"none": []}).count() == 0


BY_SPARK = """
import sys
from pathlib import Path
from pipeline.config import LakeConfig
from pipeline.lake import Lake, of_snapshots
from pipeline.session import spark_session
from tests.lake.test_driver_tables import ID, COMPUTED, full_row, with_values
me, number = sys.argv[2], int(sys.argv[3])
lake = Lake(spark_session("writer", {"spark.master": "local[1]"}), LakeConfig(root=sys.argv[1]))
assert lake._driver
for n in range(number):
    row = lake.rows(COMPUTED, [with_values(COMPUTED, full_row(COMPUTED), job=me, snapshot_id=ID + n)])
    lake.replace(COMPUTED, row, f"{of_snapshots('east', [ID + n])} AND job = '{me}'", most=10**6 if n % 2 else 1)
"""


def test_spark_in_two_processes_loses_nothing(by_driver: Lake, tmp_path: Path) -> None:
    number = 6
    command = [sys.executable, "-c", BY_SPARK, str(tmp_path / "lake")]
    writers = [subprocess.Popen([*command, me, str(number)], cwd=ROOT) for me in ("one", "two")]
    assert [writer.wait(300) for writer in writers] == [0, 0]
    rows = by_driver.read(COMPUTED).groupBy("job").agg(F.count_distinct("snapshot_id"), F.count("*")).collect()
    assert sorted((*row,) for row in rows) == [("one", number, number), ("two", number, number)]


def test_what_is_committed_after_the_right_to_write_was_asked_is_not_written_over(by_driver: Lake) -> None:
    where = of_snapshots("east", [ID])
    marks = {run: with_values(COMPUTED, full_row(COMPUTED), run_id=run) for run in ("old", "other", "mine")}
    by_driver.replace_rows(COMPUTED, [marks["old"]], where)
    asked: list[str] = []

    def may_write() -> None:
        (row,) = by_driver.read_snapshots(COMPUTED, "east", [ID]).collect()
        asked.append(row["run_id"])
        if row["run_id"] == "old":
            by_driver.replace_rows(COMPUTED, [marks["other"]], where)
            return
        raise LakeError("another job was first")

    with pytest.raises(LakeError, match="another job was first"):
        by_driver.guarded(may_write).replace_rows(COMPUTED, [marks["mine"]], where)
    assert asked == ["old", "other"]
    assert [row["run_id"] for row in by_driver.read(COMPUTED).collect()] == ["other"]


@pytest.mark.parametrize("name", ["a%20b", "a:b"])
def test_spark_takes_turns_in_any_local_folder(few: SparkSession, tmp_path: Path, name: str) -> None:
    lake = Lake(few, LakeConfig(root=str(tmp_path / name)))
    lake.prepare()
    assert {path.name for path in (tmp_path / name / "_locks").iterdir()} >= {COMPUTED.name}


@pytest.mark.parametrize("way", ["by_driver", "by_spark"])
def test_a_problem_is_added_to_what_another_job_has_added_meanwhile(way: str, request: pytest.FixtureRequest) -> None:
    lake: Lake = request.getfixturevalue(way)
    lake.merge(SNAPSHOTS, [with_values(SNAPSHOTS, full_row(SNAPSHOTS), errors=None)], "east")
    others = [("lag", None, "others", 1)]

    def may_write() -> None:
        if others:
            add_problem(lake, "east", [ID], others.pop())

    for _ in range(2):
        add_problem(lake.guarded(may_write), "east", [ID], ("lag", "t-0", "mine", 2))
    (row,) = lake.read_cluster(SNAPSHOTS, "east").collect()
    assert [(*error,) for error in row["errors"]] == [("lag", None, "others", 1), ("lag", "t-0", "mine", 2)]
