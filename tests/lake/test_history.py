"""Former versions of a table can be read for a week or longer, and its log stays short."""

import os
import time
from pathlib import Path

import pytest

from pipeline.common.errors import LakeError
from pipeline.lake import Lake, lake_tables
from pipeline.lake.history import FILES_RETENTION, LOG_RETENTION, MOST_COMMITS, keeps_too_little, retention_hours
from pipeline.tables import LOG_INDEX, Table
from tests.helpers.rows import literal_rows
from tests.helpers.stored import store

DAY_S = 86_400


@pytest.mark.parametrize(
    ("text", "hours"),
    [
        ("interval 1 hours", 168),
        ("interval 1 week", 168),
        ("interval 30 days", 720),
        ("30 DAYS 90 minutes", 722),
        ("interval 0 seconds", 168),
    ],
)
def test_files_are_kept_for_a_week_or_as_long_as_the_table_says(text: str, hours: int) -> None:
    assert retention_hours({FILES_RETENTION: text}) == hours
    assert retention_hours({}) == 168
    assert keeps_too_little({FILES_RETENTION: text}) is (text in ("interval 1 hours", "interval 0 seconds"))
    assert not keeps_too_little({})


def test_files_stay_if_it_is_not_known_for_how_long() -> None:
    with pytest.raises(LakeError, match="which is not an interval"):
        retention_hours({FILES_RETENTION: "interval 6 months"})


def folder(lake: Lake, table: Table) -> Path:
    return Path(str(lake._config.root), table.name)


def set_property(lake: Lake, name: str, value: str) -> None:
    lake.spark.sql(f"ALTER TABLE {lake.identifier(LOG_INDEX)} SET TBLPROPERTIES ('{name}' = '{value}')")


def aged(file: Path, days: float) -> Path:
    at = time.time() - days * DAY_S
    os.utime(file, (at, at))
    return file


@pytest.mark.parametrize("way", ["driver", "spark"])
def test_neither_a_property_nor_a_setting_shortens_the_week(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    set_property(lake, FILES_RETENTION, "interval 1 hours")
    lake.spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    if way == "spark":
        monkeypatch.setattr(lake_tables, "driver_tables", lambda *_: None)
        lake = lake.guarded(lambda: None)
    files = {}
    for days in (2, 8, 31):
        file = folder(lake, LOG_INDEX) / f"part-{days}.parquet"
        file.write_bytes(b"of a former version")
        files[days] = aged(file, days)
    try:
        assert lake.vacuum(LOG_INDEX) == 2
        assert [days for days, file in files.items() if file.exists()] == [2]
        assert lake.vacuum(LOG_INDEX) == 0
        set_property(lake, FILES_RETENTION, "interval 30 days")
        aged(files[2], 29)
        assert lake.vacuum(LOG_INDEX) == 0
        aged(files[2], 31)
        assert lake.vacuum(LOG_INDEX) == 1
    finally:
        lake.spark.conf.unset("spark.databricks.delta.retentionDurationCheck.enabled")


def commit(lake: Lake, times: int) -> None:
    for number in range(times):
        store(lake, LOG_INDEX, literal_rows("topic partition restarts", ("t", 0, number)), "cluster = 'east'")


@pytest.mark.parametrize(("kept", "left"), [(None, 1), ("interval 1 days", MOST_COMMITS + 1)])
def test_the_log_of_a_table_that_is_rarely_written_stays_short(lake: Lake, kept: str | None, left: int) -> None:
    log = folder(lake, LOG_INDEX) / "_delta_log"
    first = log / "00000000000000000000.json"
    # As an earlier laglake has made it.
    first.write_text(first.read_text().replace('"delta.checkpointInterval":"10"', '"delta.checkpointInterval":"100"'))
    commit(lake, MOST_COMMITS - 2)
    assert not lake.checkpoint(LOG_INDEX)
    commit(lake, 2)
    for file in log.glob("*.json"):
        aged(file, 40)
    if kept:
        text = first.read_text().replace('"configuration":{', f'"configuration":{{"{LOG_RETENTION}":"{kept}",')
        first.write_text(text)
        aged(first, 40)
    assert lake.checkpoint(LOG_INDEX)
    assert len(list(log.glob("*.json"))) == left
    assert not lake.checkpoint(LOG_INDEX)
    (row,) = lake.frame(LOG_INDEX).collect()
    assert row["restarts"] == 1
    # Spark takes the log up where delta-rs has left it.
    lake.spark.sql(f"DELETE FROM {lake.identifier(LOG_INDEX)} WHERE true")
    assert lake.frame(LOG_INDEX).count() == 0
