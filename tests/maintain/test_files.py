"""The files of a table: past days are sorted, no row is lost or returned again, and repeating does nothing."""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow.parquet as pq
import pytest

from pipeline.common.epoch import HOUR_MS, to_epoch_ms, utc_date
from pipeline.lake import Lake, lake_tables, of_snapshots
from pipeline.lake.sorted_rows import WITHOUT_DICTIONARY, settings
from pipeline.maintain import Done
from pipeline.maintain.files import ROWS_OF_A_FILE, Day, batches, is_sorted, tidy
from pipeline.tables import FORECASTS, LAG, PARTITION_STATUS, TABLES, Table
from tests.helpers.deltas import delta
from tests.helpers.rows import literal_rows
from tests.helpers.stored import store, stored

TODAY = date(2026, 2, 1)
DAY = "2026-01-31"
MIDNIGHT_MS = to_epoch_ms(datetime(2026, 1, 31, tzinfo=UTC))
GROUPS = ("a", "b", "c")
NAMES = "snapshot_id snapshot_date group_id topic partition consumer_lag"


@pytest.fixture(params=["driver", "spark"])
def any_lake(lake: Lake, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Lake:
    """A lake whose few rows the driver writes, or Spark does."""
    if request.param == "spark":
        monkeypatch.setattr(lake_tables, "driver_tables", lambda *_: None)
    return lake.guarded(lambda: None)


def land(lake: Lake, hour: int, groups: tuple[str, ...] = GROUPS) -> None:
    """Writes the lag of a snapshot, as a job does."""
    snapshot_id = MIDNIGHT_MS + hour * HOUR_MS
    day = utc_date(snapshot_id)
    rows = [(snapshot_id, day, group, "t", partition, hour) for group in groups for partition in (1, 0)]
    store(lake, LAG, literal_rows(NAMES, *rows), of_snapshots("east", [snapshot_id]))


def land_all(lake: Lake, hours: Iterable[int]) -> None:
    for hour in hours:
        land(lake, hour)


def run(lake: Lake) -> Done:
    """Tidies the files of `lag`, as `maintain` does for each table."""
    done = Done()
    tidy(lake, LAG, TODAY, done)
    return done


def parquet_files(lake: Lake, table: Table = LAG, day: str = DAY) -> list[str]:
    return [unquote(urlsplit(name).path) for name in lake.files(table) if f"snapshot_date={day}" in name]


def found(lake: Lake) -> list[tuple[Any, ...]]:
    columns = ("snapshot_id", "group_id", "topic", "partition", "consumer_lag")
    return sorted(tuple(row) for row in stored(lake, LAG, "true", *columns))


def expected(hours: range) -> list[tuple[Any, ...]]:
    return sorted((MIDNIGHT_MS + h * HOUR_MS, g, "t", p, h) for h in hours for g in GROUPS for p in (0, 1))


def test_a_past_day_becomes_one_file_sorted_by_series_and_then_by_time(any_lake: Lake) -> None:
    land_all(any_lake, (2, 0, 1, 24))
    before, today = found(any_lake), parquet_files(any_lake, day="2026-02-01")
    assert run(any_lake).joined[LAG.name] == (3, 1)
    (file,) = parquet_files(any_lake)
    parquet = pq.ParquetFile(file)
    series = parquet.read(["group_id", "partition", "snapshot_id"]).to_pylist()
    assert series == sorted(series, key=lambda row: tuple(row.values()))
    columns = {c.path_in_schema: c for c in map(parquet.metadata.row_group(0).column, range(len(parquet.schema)))}
    assert columns["committed_offset"].compression == "ZSTD"
    assert columns["committed_offset"].encodings == ("DELTA_BINARY_PACKED",)
    assert "RLE_DICTIONARY" in columns["group_id"].encodings
    assert any_lake.spark.conf.get("parquet.writer.version", "own") == "own"
    assert found(any_lake) == before
    assert parquet_files(any_lake, day="2026-02-01") == today
    version = delta(any_lake, LAG).version()
    assert run(any_lake) == Done()
    assert delta(any_lake, LAG).version() == version
    # A day of which all was written at once has one file as well, but is not sorted.
    any_lake.spark.sql(f"DELETE FROM {any_lake.identifier(LAG)} WHERE snapshot_date = DATE'{DAY}' AND group_id = 'b'")
    assert run(any_lake).joined[LAG.name] == (1, 1)


def test_a_late_snapshot_is_sorted_into_its_day(any_lake: Lake) -> None:
    land_all(any_lake, (0, 2))
    run(any_lake)
    land(any_lake, 1)
    assert run(any_lake).joined == {LAG.name: (2, 1)}
    assert found(any_lake) == expected(range(3))


def test_neither_a_stream_nor_time_travel_sees_the_rewriting(lake: Lake, tmp_path: Path) -> None:
    land_all(lake, range(3))
    version = delta(lake, LAG).version()

    def streamed() -> int:
        rows = lake.spark.readStream.format("delta").load(f"{lake._config.root}/lag").select("snapshot_id")
        place, where = str(tmp_path / "streamed"), str(tmp_path / "checkpoint")
        query = (
            rows.writeStream.format("delta").option("checkpointLocation", where).trigger(availableNow=True).start(place)
        )
        query.awaitTermination()
        return lake.spark.read.format("delta").load(place).count()

    assert streamed() == 18
    assert run(lake).joined == {LAG.name: (3, 1)}
    assert streamed() == 18
    land(lake, 3)
    assert streamed() == 24
    then = lake.spark.sql(f"SELECT * FROM {lake.identifier(LAG)} VERSION AS OF {version}")
    assert then.count() == 18


@pytest.mark.thorough
def test_no_row_is_lost_that_is_added_or_replaced_while_the_day_is_rewritten(any_lake: Lake) -> None:
    """Late snapshots are written, and computed again, while `maintain` rewrites the same day over and over."""
    land(any_lake, 0)
    hours = range(4)
    writer = any_lake.guarded(lambda: None)
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(land_all, writer, [*hours, *hours])
        while not late.done():
            run(any_lake)
        late.result()
    run(any_lake)
    assert found(any_lake) == expected(hours)
    assert len(parquet_files(any_lake)) == 1


def test_a_rewrite_takes_the_rows_of_the_version_that_it_replaces(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A snapshot that lands after the rows were named, but before they are written, is among them."""
    monkeypatch.setattr(lake_tables, "driver_tables", lambda *_: None)  # Spark's writers do not wait for each other
    any_lake = lake.guarded(lambda: None)
    land_all(any_lake, (0, 1))
    kind = type(any_lake.spark.range(1))
    real = kind.sortWithinPartitions
    left = [2]

    def late(rows: Any, *columns: Any) -> Any:
        while left:
            land(any_lake, left.pop())
        return real(rows, *columns)

    monkeypatch.setattr(kind, "sortWithinPartitions", late)
    run(any_lake)
    assert left == []
    assert found(any_lake) == expected(range(3))


@pytest.mark.parametrize(
    ("files", "sorted_"),
    [
        (["/part-00000-x.c000.zstd.parquet"], True),
        (["/part-00000-x.c000.zstd.parquet", "/part-00001-y.c000.zstd.parquet"], True),
        (["/part-00000-x.c000.zstd.parquet", "/part-00000-y.c000.zstd.parquet"], False),
        (["/part-00000-x.c000.zstd.parquet", "/part-00001-y.c000.snappy.parquet"], False),
        (["/part-00000-x.c000.snappy.parquet"], False),
        (["/0-2b9.parquet"], False),
    ],
)
def test_a_sorted_day_is_known_by_the_names_of_its_files(files: list[str], sorted_: bool) -> None:
    assert is_sorted(f"file:/lake/lag/cluster=east/snapshot_date=2026-01-31{name}" for name in files) is sorted_


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([], []),
        ([0, 0], [2]),
        ([ROWS_OF_A_FILE - 1, 1, 1], [2, 1]),
        ([9 * ROWS_OF_A_FILE, 1, 9 * ROWS_OF_A_FILE], [1, 1, 1]),
    ],
)
def test_small_days_are_sorted_together(rows: list[int], expected: list[int]) -> None:
    days = [(Day(f"{number}", ("east",)), count) for number, count in enumerate(rows)]
    found = list(batches(days))
    assert [len(batch) for batch in found] == expected
    assert [day for batch in found for day in batch] == [day for day, _ in days]


@pytest.mark.parametrize("table", [pytest.param(t, id=t.name) for t in TABLES])
def test_each_table_has_an_order_of_series_and_time(table: Table) -> None:
    assert table.sort_order[: len(table.partitioned_by)] == table.partitioned_by
    assert set(table.sort_order) <= set(table.columns)
    assert len(set(table.sort_order)) == len(table.sort_order) > len(table.partitioned_by)
    if "snapshot_id" in table.columns:
        assert table.sort_order[-1] == "snapshot_id"


@pytest.mark.parametrize("table", [pytest.param(t, id=t.name) for t in TABLES])
def test_the_settings_of_the_writer_name_columns_of_the_table(table: Table) -> None:
    found = {name.partition("#")[2] for name in settings(table) if "#" in name}
    assert found <= set(table.stored.names)
    assert ("remembered" in found) is (table in (FORECASTS, PARTITION_STATUS))


def test_every_column_without_a_dictionary_is_in_a_table() -> None:
    assert {name for table in TABLES for name in table.stored.names} >= WITHOUT_DICTIONARY
