"""What is removed from a lake, what stays, and that a second run has nothing to do."""

import os
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from jobs import maintain as maintain_job
from pipeline.common.epoch import DAY_MS, HOUR_MS, to_epoch_ms, utc_date
from pipeline.common.errors import ConfigError
from pipeline.config import Config, LakeConfig, RetentionConfig
from pipeline.derive import oldest_needed
from pipeline.derive.backlog import JOB, REMOVED, read_backlog
from pipeline.derive.log_index import LONGEST_TAIL
from pipeline.lake import Lake, lake_tables
from pipeline.lake.few_rows import MANY_ROWS
from pipeline.maintain import Done, maintain
from pipeline.maintain.files import tidy
from pipeline.maintain.maintain import _counted, _mark_removed, first_days, rules
from pipeline.tables import COMPUTED, FINDINGS, LAG, LAG_HISTOGRAMS, LOG_INDEX, SNAPSHOTS, TABLES, WATERMARKS, Table
from tests.helpers.copied import copied
from tests.helpers.deltas import delta
from tests.helpers.rows import literal_rows
from tests.helpers.stored import append, stored

NOW = datetime(2026, 6, 30, 12, tzinfo=UTC)
NOW_MS = to_epoch_ms(NOW)
DAYS = 500
PENDING_DAY = 40
"""A cluster has snapshots without lag since this many days ago."""
A_DAY = 10
"""Snapshots per day, so that the index looks back over twelve days."""
AGES = [number / A_DAY for number in range(A_DAY * 60)] + [100, DAYS]
"""How many days ago each cluster's snapshots were taken."""
CLUSTERS = ("east", "behind")


def at(days_ago: float) -> int:
    return NOW_MS - int(days_ago * DAY_MS)


def put(lake: Lake, table: Table, names: str, *rows: tuple[Any, ...]) -> None:
    """Adds rows, each with its snapshot_date if the table has this column."""
    if "snapshot_date" in table.columns:
        at_column = names.split().index("window_start" if "window_start" in names else "snapshot_id")
        days = [row[at_column] for row in rows]
        dates = [day.date() if isinstance(day, datetime) else utc_date(day) for day in days]
        names, rows = f"{names} snapshot_date", tuple((*row, day) for row, day in zip(rows, dates, strict=True))
    append(lake, table, literal_rows(names, *rows))


def days_left(lake: Lake, table: Table, cluster: str, where: str = "true") -> list[int]:
    """How many days ago the snapshots with rows were taken, the newest first."""
    days = lake.rows(table, f"cluster = '{cluster}' AND {where}", "snapshot_date").distinct("snapshot_date")
    return sorted((NOW.date() - day).days for day in days)


@pytest.fixture(scope="module")
def old_folder(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`east` has lag for all snapshots, `behind` has none since PENDING_DAY, and `elsewhere` is not in the config."""
    root = tmp_path_factory.mktemp("old") / "lake"
    lake = Lake(spark, LakeConfig(root=str(root)))
    lake.prepare()
    snapshots, marks, ends, lags, counts = [], [], [], [], []
    for cluster in (*CLUSTERS, "elsewhere"):
        for days_ago in AGES:
            snapshot_id = at(days_ago)
            snapshots.append((cluster, snapshot_id, "complete", {"watermarks": 1}))
            if cluster != "behind" or days_ago > PENDING_DAY:
                marks.append((cluster, JOB, snapshot_id))
        for days in (0, 1, 13, 15, PENDING_DAY + 10, PENDING_DAY + 20, 100, DAYS):
            ends.append((cluster, at(days), "t", 0))
            lags.append((cluster, at(days), "g", "t", 0))
            start = datetime.fromtimestamp(at(days) / 1000, UTC)
            counts += [(cluster, window_ms, start, "consumer_lag", "cluster") for window_ms in (0, HOUR_MS, DAY_MS)]
    put(lake, SNAPSHOTS, "cluster snapshot_id status rows", *snapshots)
    put(lake, COMPUTED, "cluster job snapshot_id", *marks)
    put(lake, WATERMARKS, "cluster snapshot_id topic partition", *ends)
    put(lake, LAG, "cluster snapshot_id group_id topic partition", *lags)
    put(lake, LAG_HISTOGRAMS, "cluster window_ms window_start measure dimension", *counts)
    put(lake, FINDINGS, "cluster finding_id kind", ("east", "f", "slow"))
    return root


@pytest.fixture
def old_lake(spark: SparkSession, old_folder: Path, tmp_path: Path) -> Lake:
    """The lake of `old_folder` in the test's own folder."""
    return copied(spark, old_folder, tmp_path)


def run(lake: Lake, **retention: str) -> Done:
    return maintain(lake, RetentionConfig.model_validate(retention), CLUSTERS, lambda: NOW)


def contents(lake: Lake) -> dict[str, int]:
    return {table.name: len(stored(lake, table)) for table in (WATERMARKS, LAG, LAG_HISTOGRAMS, SNAPSHOTS, COMPUTED)}


def versions(lake: Lake) -> dict[str, int]:
    tables = (WATERMARKS, LAG, LAG_HISTOGRAMS, SNAPSHOTS)
    return {t.name: delta(lake, t).version() for t in tables}


def test_rows_older_than_their_retention_are_removed_unless_needed(old_lake: Lake) -> None:
    done = run(old_lake)
    assert days_left(old_lake, WATERMARKS, "east") == [0, 1, 13]
    assert days_left(old_lake, LAG, "east") == [0, 1, 13, 15, PENDING_DAY + 10, PENDING_DAY + 20]
    assert days_left(old_lake, LAG_HISTOGRAMS, "east", "window_ms = 0")[-1] == PENDING_DAY + 20
    assert days_left(old_lake, LAG_HISTOGRAMS, "east", f"window_ms = {HOUR_MS}")[-1] == 100
    assert days_left(old_lake, LAG_HISTOGRAMS, "east", f"window_ms = {DAY_MS}")[-1] == DAYS
    # From PENDING_DAY on there is no lag.
    assert days_left(old_lake, WATERMARKS, "behind")[-1] == PENDING_DAY + 10 < PENDING_DAY + LONGEST_TAIL / A_DAY
    assert days_left(old_lake, WATERMARKS, "elsewhere")[-1] == DAYS
    assert len(stored(old_lake, SNAPSHOTS)) == 3 * len(AGES)
    assert len(stored(old_lake, FINDINGS)) == 1
    assert done.rows[WATERMARKS.name, "east"] == 5
    assert done.rows[LAG_HISTOGRAMS.name, "east"] == 2 + 1
    assert "elsewhere" not in {cluster for _, cluster in done.rows}
    # Snapshots before the first day with lag are neither looked for by a report, nor due.
    marks = Counter(row.job for row in stored(old_lake, COMPUTED, "cluster = 'east'"))
    assert marks == {JOB: A_DAY * 60, REMOVED: 2}
    assert read_backlog(old_lake, "east", 9).batch == []
    assert read_backlog(old_lake, "behind", 9).batch[0].snapshot_id == at(PENDING_DAY)
    # A second run has nothing to do.
    before = versions(old_lake)
    assert run(old_lake) == Done()
    assert versions(old_lake) == before


def test_rows_with_retention_forever_are_never_removed(lake: Lake) -> None:
    # So many that the index needs no rows of the oldest one.
    ages = [*(number / A_DAY for number in range(LONGEST_TAIL)), DAYS]
    put(lake, SNAPSHOTS, "snapshot_id status rows", *((at(days), "complete", {"watermarks": 1}) for days in ages))
    put(lake, COMPUTED, "job snapshot_id", *((JOB, at(days)) for days in ages))
    for days in (0, DAYS):
        put(lake, WATERMARKS, "snapshot_id topic partition", (at(days), "t", 0))
        put(lake, LAG, "snapshot_id group_id topic partition", (at(days), "g", "t", 0))
        start = datetime.fromtimestamp(at(days) / 1000, UTC)
        put(lake, LAG_HISTOGRAMS, "window_ms window_start measure", (HOUR_MS, start, "consumer_lag"))
    before = contents(lake)
    assert run(lake, bronze="forever", lag="forever", hours="forever").rows == {}
    assert contents(lake) == before
    assert {*run(lake).rows} == {(table.name, "east") for table in (WATERMARKS, LAG, LAG_HISTOGRAMS)}


@pytest.mark.thorough
def test_spark_counts_and_marks_what_the_driver_does(old_lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    needed = oldest_needed(old_lake, CLUSTERS)
    kept = rules(RetentionConfig())
    days = {rule: first_days(rule.kept_ms, NOW_MS, needed) for rule in kept if rule.kept_ms is not None}
    counted = _counted(old_lake, days)
    assert {row["name"].split()[0] for row in counted} == {WATERMARKS.name, LAG.name, LAG_HISTOGRAMS.name}
    monkeypatch.setattr(lake_tables, "driver_tables", lambda *_: None)
    by_spark = old_lake.guarded(lambda: None)
    by_spark.expect_rows(MANY_ROWS)
    assert by_spark._driver is None
    assert oldest_needed(by_spark, CLUSTERS) == needed
    assert _counted(by_spark, days) == counted
    (of_lag,) = (rule for rule in days if rule.table is LAG)
    _mark_removed(by_spark, "east", days[of_lag]["east"])
    monkeypatch.undo()
    marks = Counter(row.job for row in stored(old_lake, COMPUTED, "cluster = 'east'"))
    assert marks == {JOB: A_DAY * 60, REMOVED: 2}


@pytest.mark.thorough
@pytest.mark.parametrize(("step", "calls"), [("delete", 1), ("rewrite_sorted", 1), ("vacuum", 2)])
def test_a_killed_job_can_be_repeated(old_lake: Lake, monkeypatch: pytest.MonkeyPatch, step: str, calls: int) -> None:
    """It ends before a step, after some calls of it. test_killed.py kills the process."""
    real, left = getattr(Lake, step), [None] * calls

    def call(*arguments: Any) -> Any:
        if not left:
            raise KeyboardInterrupt
        left.pop()
        return real(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Lake, step, call)
        with pytest.raises(KeyboardInterrupt):
            run(old_lake)
    run(old_lake)
    assert contents(old_lake) == {
        # Of three clusters, the third is unchanged.
        WATERMARKS.name: 3 + 5 + 8,
        LAG.name: 6 + 6 + 8,
        LAG_HISTOGRAMS.name: 2 * (6 + 7 + 8) + 24,
        SNAPSHOTS.name: 3 * len(AGES),
        COMPUTED.name: 3 * len(AGES) - A_DAY * PENDING_DAY - 1,
    }


def test_small_files_of_past_days_become_one_and_those_of_today_stay(lake: Lake) -> None:
    for number in range(4):
        for days in (0, 1):
            put(lake, LAG, "cluster snapshot_id group_id topic partition", ("east", at(days), "g", "t", number))
    done = run(lake)
    assert done.joined == {LAG.name: (4, 1)}
    assert len(stored(lake, LAG)) == 8
    files = lake.spark.table(lake.identifier(LAG)).selectExpr("snapshot_date", "_metadata.file_path").distinct()
    assert sorted(row["count"] for row in files.groupBy("snapshot_date").count().collect()) == [1, 4]


@pytest.mark.thorough
@pytest.mark.parametrize("way", ["driver", "spark"])
def test_files_that_no_table_needs_are_deleted_when_they_are_old(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    if way == "spark":
        monkeypatch.setattr(lake_tables, "driver_tables", lambda *_: None)
        lake = lake.guarded(lambda: None)
    assert (lake._driver is None) is (way == "spark")
    folder = tmp_path / "lake" / "log_index"
    old, new = folder / "part-old.parquet", folder / "part-new.parquet"
    for file in (old, new):
        file.write_bytes(b"left by a job that was killed")
    eight_days_ago = time.time() - timedelta(days=8).total_seconds()
    os.utime(old, (eight_days_ago, eight_days_ago))
    done = Done()
    tidy(lake, LOG_INDEX, NOW.date(), done)
    assert done.deleted == {"log_index": 1}
    assert (old.exists(), new.exists()) == (False, True)


@pytest.mark.parametrize(
    ("kept_days", "needed_days_ago", "first"),
    [
        (14, 0, date(2026, 6, 16)),
        (14, 13.9, date(2026, 6, 16)),
        (14, 14.6, date(2026, 6, 15)),
        (14, 100, date(2026, 3, 22)),
    ],
)
def test_the_first_day_that_stays_is_that_of_the_retention_or_of_a_snapshot_still_needed(
    kept_days: int, needed_days_ago: float, first: date
) -> None:
    assert first_days(kept_days * DAY_MS, NOW_MS, {"east": at(needed_days_ago)}) == {"east": first}


def test_the_oldest_snapshot_that_is_needed(old_lake: Lake) -> None:
    found = oldest_needed(old_lake, [*CLUSTERS, "of no snapshot"])
    # The next snapshot looks back over LONGEST_TAIL; if some snapshots lack lag, the first of them does.
    assert found == {"east": at((LONGEST_TAIL - 1) / A_DAY), "behind": at(PENDING_DAY + LONGEST_TAIL / A_DAY)}


def test_each_table_that_grows_with_every_snapshot_has_a_retention() -> None:
    growing = {table.name for table in TABLES if "snapshot_date" in table.partitioned_by}
    assert {rule.table.name for rule in rules(RetentionConfig())} == growing


def test_a_retention_may_be_ten_years_or_forever(load: Callable[..., Config]) -> None:
    lines = '[retention]\nlag = "3650d"\nhours = "forever"\n[clusters.c]\nbootstrap_servers = ["k:1"]\n'
    found = load(f'[lake]\nroot = "lake"\n{lines}').retention
    assert (found.lag_ms, found.hours_ms) == (3650 * DAY_MS, None)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ('bronze = "1d"', "bronze must be at least 2 days"),
        ('hours = "1d"', "hours must be at least 2 days"),
        ('lag = "for ever"', "must be a duration"),
        ('days = "2d"', "days"),
        ('bronze = "2d"\n[snapshot]\nmax_delay = "2d"', "retention.bronze must be a day more than snapshot.max_delay"),
    ],
)
def test_a_retention_that_is_too_short_gives_an_error_of_one_line(
    load: Callable[..., Config], line: str, why: str
) -> None:
    text = f'[lake]\nroot = "lake"\n[retention]\n{line}\n[clusters.c]\nbootstrap_servers = ["k:1"]\n'
    with pytest.raises(ConfigError, match=why) as raised:
        load(text)
    assert "\n" not in str(raised.value)


def test_the_job_finds_nothing_to_do_in_a_new_lake(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "config.toml"
    file.write_text(f'[lake]\nroot = "{tmp_path}/lake"\n[clusters.c]\nbootstrap_servers = ["127.0.0.1:1"]\n')
    Lake(spark, LakeConfig(root=f"{tmp_path}/lake")).prepare()
    with caplog.at_level("INFO"):
        assert maintain_job.main(["--config", str(file)]) == 0
    assert "maintain: 0 rows removed, 0 files fewer, 0 files deleted" in caplog.text
    assert stored(Lake(spark, LakeConfig(root=f"{tmp_path}/lake")), SNAPSHOTS) == []
