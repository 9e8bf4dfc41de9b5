"""Few rows that the driver reads and writes without Spark: the tables are the same as with Spark."""

import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipeline.common.epoch import to_epoch_ms, utc
from pipeline.common.errors import LakeError
from pipeline.config import LakeConfig
from pipeline.lake import Lake, among, of_cluster, of_each, of_snapshots, of_windows, of_windows_within, one_of
from pipeline.lake.driver_tables import DriverTables, arrow_rows
from pipeline.lake.durable import sync_versions
from pipeline.lake.history import MOST_COMMITS
from pipeline.tables import (
    COMPUTED,
    FINDINGS,
    GROUP_CHANGES,
    LAG,
    LAG_HISTOGRAMS,
    NOTIFICATIONS,
    QUARANTINE,
    SNAPSHOTS,
    TABLES,
    WATERMARKS,
    Table,
)
from tests.conftest import FSYNC
from tests.helpers.arrow_types import odd_types
from tests.helpers.deltas import delta
from tests.helpers.full_rows import ID, NOON, empty_row, found, full_row, with_values


def with_all_types() -> Iterator[Table]:
    """Tables of snapshots with all types of columns that the tables have."""
    seen: set[str] = set()
    for table in sorted(TABLES, key=lambda table: len(types_of(table)), reverse=True):
        if "snapshot_id" in table.columns and not types_of(table) <= seen:
            seen |= types_of(table)
            yield table


def types_of(table: Table) -> set[str]:
    """The types of a table's columns, and of what partitions it."""
    return {f"{field.name in table.partitioned_by} {field.dataType.simpleString()}" for field in table.stored}


@pytest.mark.parametrize("table", [*with_all_types()], ids=lambda t: t.name)
def test_driver_and_spark_read_what_the_other_has_written(by_driver: Lake, by_spark: Lake, table: Table) -> None:
    rows = [full_row(table), empty_row(table)]
    where = of_snapshots("east", [ID])
    expected = found(by_spark.frame_of(table, rows))
    for writer in (by_driver, by_spark, by_driver):
        writer.replace(table, writer.frame_of(table, rows), where)
        for reader in (by_driver, by_spark):
            assert found(reader.frame(table, where)) == expected
    assert found(by_spark.read(table)) == expected, "there are no other rows"
    for reader in (by_driver, by_spark):
        others = (of_snapshots("east", [ID + 1]), of_each({"west": [ID]}, windows="window_start" in table.columns))
        assert found(reader.frame(table, " OR ".join(f"({other})" for other in others))) == []
    at = by_spark.spark.table(by_spark.identifier(table)).select("snapshot_at").distinct().collect()
    assert [row[0].astimezone(UTC) for row in at] == [NOON]


def test_driver_and_spark_create_equal_tables(by_driver: Lake, by_spark: Lake, tmp_path: Path) -> None:
    other = Lake(by_spark.spark, LakeConfig(root=str(tmp_path / "other")))
    assert other._driver is None
    other.prepare()
    for table in TABLES:
        made, same = (delta(lake, table) for lake in (by_driver, other))
        for name in ("description", "partition_columns", "configuration"):
            assert getattr(made.metadata(), name) == getattr(same.metadata(), name)
        assert made.protocol() == same.protocol()
        columns = [lake.spark.table(lake.identifier(table)).schema for lake in (by_driver, other)]
        assert columns[0] == columns[1]
        assert all(field.metadata["comment"] for field in columns[0])


def test_replacing_a_window_leaves_other_windows(by_driver: Lake) -> None:
    row = full_row(LAG_HISTOGRAMS)
    hour = with_values(LAG_HISTOGRAMS, row, window_ms=3_600_000)
    for windows in ([row, hour], [row]):  # the second time alone
        by_driver.replace_rows(LAG_HISTOGRAMS, windows[:1], of_windows("east", [ID], window_ms=0))
        for window in windows[1:]:
            by_driver.replace_rows(LAG_HISTOGRAMS, [window], of_windows("east", [ID], window_ms=3_600_000))
    read = by_driver.frame(LAG_HISTOGRAMS, of_each({"east": [ID]}, windows=True))
    assert found(read) == found(by_driver.frame_of(LAG_HISTOGRAMS, [row]))
    assert by_driver.read(LAG_HISTOGRAMS).count() == 2


def test_a_window_consists_of_the_shorter_ones_that_begin_in_it(by_driver: Lake, by_spark: Lake) -> None:
    hour_ms = 3_600_000
    begin_ms = ID - ID % hour_ms
    starts = [begin_ms - 1, begin_ms, begin_ms + hour_ms - 1, begin_ms + hour_ms]
    row = full_row(LAG_HISTOGRAMS)
    rows = [
        with_values(LAG_HISTOGRAMS, row, window_start=utc(start), snapshot_date=utc(start).date(), window_ms=window_ms)
        for start in starts
        for window_ms in (0, 60_000)
    ]
    by_driver.replace_rows(LAG_HISTOGRAMS, rows, "cluster = 'east'")
    where = of_windows_within("east", [begin_ms], window_ms=hour_ms, from_ms=60_000)
    for reader in (by_driver, by_spark):
        names = reader.frame(LAG_HISTOGRAMS, where, "window_start", "window_ms").collect()
        assert sorted((to_epoch_ms(r[0].astimezone(UTC)), r[1]) for r in names) == [(s, 60_000) for s in starts[1:3]]
        assert reader.frame(LAG_HISTOGRAMS, of_windows_within("east", [], hour_ms, 0)).collect() == []


def test_a_predicate_may_contain_a_reserved_word(by_driver: Lake) -> None:
    where = f"{of_snapshots('east', [ID])} AND `table` = 'watermarks'"
    row = with_values(QUARANTINE, full_row(QUARANTINE), table="watermarks")
    other = with_values(QUARANTINE, full_row(QUARANTINE), table="lag")
    by_driver.replace_rows(QUARANTINE, [other], f"{of_snapshots('east', [ID])} AND `table` = 'lag'")
    for _ in range(2):
        by_driver.replace_rows(QUARANTINE, [row], where)
    assert found(by_driver.frame(QUARANTINE, of_cluster("east"))) == found(by_driver.frame_of(QUARANTINE, [row, other]))


HOSTILE = ("o'brien", "a\\", "\\'", "'' OR true --", "a\nb", '"', "TIMESTAMP'2026-01-01'", "\\n", "ü'é", "")


@pytest.mark.parametrize("name", HOSTILE)
def test_a_predicate_finds_any_name(by_driver: Lake, by_spark: Lake, name: str) -> None:
    rows = [with_values(SNAPSHOTS, full_row(SNAPSHOTS), run_id=other) for other in HOSTILE]
    by_driver.replace_rows(SNAPSHOTS, rows, of_snapshots("east", [ID]))
    for lake in (by_driver, by_spark):
        where = f"{of_snapshots('east', [ID])} AND {one_of('run_id', [name])}"
        assert [row["run_id"] for row in lake.frame(SNAPSHOTS, where).collect()] == [name]


def test_a_merge_updates_only_where_it_may(by_driver: Lake, by_spark: Lake) -> None:
    later = "greatest(s.last_seen, s.resolved_at) >= greatest(t.last_seen, t.resolved_at)"
    row = with_values(FINDINGS, full_row(FINDINGS), last_seen=NOON, resolved_at=None)
    earlier = with_values(FINDINGS, row, last_seen=NOON.replace(hour=11), severity="info")
    newer = with_values(FINDINGS, row, last_seen=NOON.replace(hour=13), severity="warning")
    for lake in (by_driver, by_spark):
        counts = [lake.merge(FINDINGS, [some], "east", later) for some in (row, earlier, newer)]
        assert counts == [(1, 0), (0, 0), (0, 1)]
        assert found(lake.frame(FINDINGS, of_cluster("east"))) == found(lake.frame_of(FINDINGS, [newer]))
        lake.delete(FINDINGS, of_cluster("east"))


def test_a_merge_of_more_rows_than_a_predicate_may_name(by_driver: Lake) -> None:
    """DataFusion ends the process at 22,000 values in one predicate."""
    row = with_values(NOTIFICATIONS, full_row(NOTIFICATIONS), status="sent")
    rows = [with_values(NOTIFICATIONS, row, finding_id=f"finding {number}") for number in range(25_000)]
    others = [with_values(NOTIFICATIONS, one, status="held") for one in rows[-1_500:]]
    more = [with_values(NOTIFICATIONS, row, finding_id=f"new {number}") for number in range(10)]
    assert by_driver.merge(NOTIFICATIONS, rows, "east", "true") == (25_000, 0)
    assert by_driver.merge(NOTIFICATIONS, [*others, *more], "east", "true") == (10, 1_500)
    counted = "SELECT status, count(*) AS rows FROM {notifications} GROUP BY status"
    found = by_driver.query(counted, NOTIFICATIONS)
    assert {row["status"]: row["rows"] for row in found} == {"sent": 23_510, "held": 1_500}


@pytest.mark.parametrize("number", [2, 25_000])
def test_rows_are_found_by_however_many_names(by_driver: Lake, by_spark: Lake, number: int) -> None:
    rows = [with_values(SNAPSHOTS, full_row(SNAPSHOTS), run_id=name) for name in HOSTILE]
    by_driver.replace_rows(SNAPSHOTS, rows, of_snapshots("east", [ID]))
    names = [HOSTILE[0], *(f"absent {n}" for n in range(number - 1))]
    for lake in (by_driver, by_spark):
        where = f"{of_snapshots('east', [ID])} AND {among('run_id', names)}"
        found = lake.rows(SNAPSHOTS, where).where_in("run_id", names).collected()
        assert [row["run_id"] for row in found] == [HOSTILE[0]]
        assert lake.rows(SNAPSHOTS, among("run_id", [])).collected() == []


@pytest.mark.parametrize("name", ["a b", "ü#?&", "quote'd"])
def test_a_folder_may_have_any_name(few: SparkSession, tmp_path: Path, name: str) -> None:
    lake = Lake(few, LakeConfig(root=str(tmp_path / name)))
    lake.prepare()
    row = full_row(COMPUTED)
    lake.replace_rows(COMPUTED, [row], of_cluster("east"))
    assert found(lake.frame(COMPUTED, of_cluster("east"))) == found(lake.frame_of(COMPUTED, [row]))
    assert (tmp_path / name / "computed" / "_delta_log").is_dir()
    assert found(lake.read(COMPUTED)) == found(lake.frame_of(COMPUTED, [row]))


def test_instants_do_not_depend_on_the_session_time_zone(
    by_driver: Lake, by_spark: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    row, spark = full_row(SNAPSHOTS), by_driver.spark
    expected = found(by_spark.frame_of(SNAPSHOTS, [row]))
    zone = spark.conf.get("spark.sql.session.timeZone") or "UTC"
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        by_driver.merge(SNAPSHOTS, [row], "east")
        for writer in (by_driver, by_spark):
            writer.replace(SNAPSHOTS, by_driver.frame(SNAPSHOTS, of_cluster("east")), "cluster = 'east'")
            for reader in (by_driver, by_spark):
                assert found(reader.frame(SNAPSHOTS, of_cluster("east"))) == expected
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)


def test_a_damaged_or_missing_file_gives_an_error_of_one_line(by_driver: Lake, tmp_path: Path) -> None:
    by_driver.merge(SNAPSHOTS, [full_row(SNAPSHOTS)], "east")
    (file,) = (tmp_path / "lake" / "snapshots" / "cluster=east").glob("*.parquet")
    for tear in (lambda: file.write_bytes(b"torn"), file.unlink):
        tear()
        for action in (
            lambda: by_driver.frame(SNAPSHOTS, of_cluster("east")),
            lambda: by_driver.merge(SNAPSHOTS, [full_row(SNAPSHOTS)], "east", "true"),
        ):
            with pytest.raises(LakeError, match=r"^snapshots: [^\n]+$"):
                action()


def test_an_instant_in_the_far_future_is_stored_unchanged(by_driver: Lake, by_spark: Lake) -> None:
    far = datetime(2300, 1, 1, tzinfo=UTC)
    row = with_values(FINDINGS, full_row(FINDINGS), last_seen=far)
    by_spark.replace_rows(FINDINGS, [row], of_cluster("east"))
    for reader in (by_driver, by_spark):
        assert found(reader.frame(FINDINGS, of_cluster("east"))) == found(by_spark.frame_of(FINDINGS, [row]))


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
    assert found(by_driver.frame(FINDINGS, of_cluster("east"))) == found(by_driver.frame_of(FINDINGS, [other]))


TOO_EARLY = datetime.min.replace(tzinfo=timezone(timedelta(hours=1)))


@pytest.mark.parametrize("odd", [{"kind": "\ud800"}, {"last_seen": TOO_EARLY}])
def test_a_value_that_cannot_be_stored_gives_an_error_of_one_line(by_driver: Lake, odd: dict[str, Any]) -> None:
    row = with_values(FINDINGS, full_row(FINDINGS), **odd)
    with pytest.raises(LakeError, match=r"^findings: a value does not fit its column: [^\n]+$"):
        by_driver.merge(FINDINGS, [row], "east")


def test_rows_are_deleted_by_the_driver(by_driver: Lake, tmp_path: Path) -> None:
    rows = [with_values(COMPUTED, full_row(COMPUTED), snapshot_id=i) for i in (ID, ID + 1)]
    by_driver.replace_rows(COMPUTED, rows, of_cluster("east"))
    for _ in range(2):
        by_driver.delete(COMPUTED, of_snapshots("east", [ID]))
    assert found(by_driver.read(COMPUTED)) == found(by_driver.frame_of(COMPUTED, rows[1:]))
    assert len([*(tmp_path / "lake" / "computed" / "_delta_log").glob("*.json")]) == 3


def test_clusters_with_the_same_snapshots_share_one_predicate(by_driver: Lake) -> None:
    wanted = {f"c{n}": [ID + n // 4, ID + 9] for n in range(9)} | {"none": []}
    assert of_each(wanted).count(" OR ") == 2
    rows = [
        with_values(WATERMARKS, full_row(WATERMARKS), cluster=cluster, snapshot_id=i)
        for cluster in (*wanted, "other")
        for i in range(ID, ID + 10)
    ]
    by_driver.replace(WATERMARKS, by_driver.frame_of(WATERMARKS, rows), "true")
    expected = {(cluster, i) for cluster, ids in wanted.items() for i in ids}
    read = by_driver.frame(WATERMARKS, of_each(wanted)).select("cluster", "snapshot_id").collect()
    assert {(*row,) for row in read} == expected
    assert len(read) == len(expected)
    assert by_driver.frame(WATERMARKS, of_each({"none": []})).count() == 0


@pytest.mark.parametrize("table", [SNAPSHOTS, LAG, GROUP_CHANGES], ids=lambda t: t.name)
def test_whatever_the_driver_writes_has_texts_of_the_plain_type(
    by_driver: Lake, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, table: Table
) -> None:
    """pyarrow, with which DuckDB and pandas read, cannot compare texts of the type `string_view`."""
    rows = [with_values(table, full_row(table), snapshot_id=ID + n) for n in range(4)]
    by_driver.replace_rows(table, rows[:3], of_cluster("east"))
    by_driver.delete(table, of_snapshots("east", [ID]))
    assert by_driver.merge(table, rows[2:], "east", "true") == (1, 1)
    by_driver.replace_rows(table, rows[:1], of_snapshots("east", [ID]))
    monkeypatch.setattr("pipeline.lake.driver_tables.MOST_FILES", 1)
    by_driver.replace_rows(table, rows[1:2], of_snapshots("east", [ID + 1]))
    assert found(by_driver.read(table)) == found(by_driver.frame_of(table, rows))
    assert odd_types(tmp_path / "lake") == []


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """What has been synced, in order; in the place of a checkpoint, also the versions that the log then had."""
    places = []

    def recorded(opened: int) -> None:
        place = Path(f"/proc/self/fd/{opened}").readlink()
        if ".checkpoint." in place.name:
            places.extend(sorted(place.parent.glob("*.json")))
        places.append(place)
        FSYNC(opened)

    monkeypatch.setattr(os, "fsync", recorded)
    return places


def test_what_the_driver_has_committed_is_on_the_disk(
    by_driver: Lake, monkeypatch: pytest.MonkeyPatch, synced: list[Path], tmp_path: Path
) -> None:
    monkeypatch.setattr("pipeline.lake.driver_tables.MOST_FILES", 1)
    rows = [with_values(COMPUTED, full_row(COMPUTED), snapshot_id=ID + n) for n in range(2)]
    for n, row in enumerate(rows):
        by_driver.replace_rows(COMPUTED, [row], of_snapshots("east", [ID + n]))
    table = tmp_path / "lake" / "computed"
    versions = [table / "_delta_log" / f"{version:020}.json" for version in (1, 2, 3)]
    assert [place for place in synced if place.suffix == ".json"] == versions, "the last one joins the files"
    assert {place for place in synced if place.suffix == ".parquet"} == {*table.rglob("cluster=*/*.parquet")}
    assert synced[-1] == table / "_delta_log"


def committed(tables: DriverTables, number: int) -> None:
    row = with_values(COMPUTED, full_row(COMPUTED), snapshot_id=ID + number)
    tables.overwrite(COMPUTED, arrow_rows(COMPUTED, [row]), of_snapshots("east", [ID + number]))


def expire(log: Path) -> None:
    for file in log.iterdir():
        os.utime(file, (0, 0))


@pytest.mark.parametrize("is_asked_for", [False, True], ids=["made by a commit", "asked for"])
def test_a_checkpoint_is_on_the_disk_before_the_commits_that_it_replaces_are_deleted(
    synced: list[Path], tmp_path: Path, is_asked_for: bool
) -> None:
    tables, log = DriverTables(tmp_path), tmp_path / "computed" / "_delta_log"
    tables.create(COMPUTED, {} if is_asked_for else {"delta.checkpointInterval": str(MOST_COMMITS + 1)})
    for number in range(MOST_COMMITS - 1):
        committed(tables, number)
    expire(log)
    synced.clear()
    committed(tables, MOST_COMMITS)
    if is_asked_for:
        synced.clear()
        assert tables.checkpoint(COMPUTED)
    versions = [log / f"{number:020}.json" for number in range(MOST_COMMITS + 1)]
    checkpoint = log / f"{MOST_COMMITS:020}.checkpoint.parquet"
    assert synced[-len(versions) - 3 :] == [*versions, checkpoint, log / "_last_checkpoint", log]
    assert [*log.glob("*.json")] == versions[-1:]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("delta.enableExpiredLogCleanup", "false"),
        ("delta.logRetentionDuration", "interval 1 days"),
        ("delta.logRetentionDuration", "interval 6 months"),
    ],
)
def test_a_commit_that_makes_a_checkpoint_keeps_the_log_as_the_tables_owner_says(
    tmp_path: Path, name: str, value: str
) -> None:
    tables, log = DriverTables(tmp_path), tmp_path / "computed" / "_delta_log"
    tables.create(COMPUTED, {"delta.checkpointInterval": "3", name: value})
    committed(tables, 1)
    expire(log)
    committed(tables, 2)
    assert (log / f"{2:020}.checkpoint.parquet").exists()
    assert len([*log.glob("*.json")]) == 3


def test_a_file_that_is_gone_does_not_keep_the_others_of_a_commit_from_the_disk(
    synced: list[Path], tmp_path: Path
) -> None:
    tables, table = DriverTables(tmp_path), tmp_path / "computed"
    tables.create(COMPUTED, {})
    committed(tables, 1)
    (data,) = table.rglob("cluster=*/*.parquet")
    data.unlink()
    synced.clear()
    sync_versions(table, [1])
    assert synced == [table / "_delta_log" / f"{1:020}.json", table / "_delta_log"]


@pytest.mark.parametrize("is_there", [True, False])
def test_a_merge_does_not_need_the_machines_folder_for_temporary_files(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, is_there: bool
) -> None:
    temporary = tmp_path / "a%20folder"
    if is_there:
        temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    tables = DriverTables(tmp_path / "lake")
    tables.create(FINDINGS, {})
    row = with_values(FINDINGS, full_row(FINDINGS), finding_id="a")
    rows = arrow_rows(FINDINGS, [row, with_values(FINDINGS, row, finding_id="b")])
    assert tables.merge(FINDINGS, rows.slice(0, 1), "east", "") == (1, 0)
    assert tables.merge(FINDINGS, rows, "east", "true") == (1, 1)
    assert [*(tmp_path / "lake" / "_staging").iterdir()] == []
