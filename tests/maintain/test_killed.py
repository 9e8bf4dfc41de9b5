"""`maintain` is killed at each of its steps, in a process of its own, and then repeated: nothing is lost or doubled."""

import os
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipeline.common.epoch import to_epoch_ms, utc_date
from pipeline.config import LakeConfig, RetentionConfig
from pipeline.derive.backlog import JOB
from pipeline.lake import Lake
from pipeline.maintain import Done, maintain
from pipeline.tables import COMPUTED, LAG, SNAPSHOTS, TABLES, WATERMARKS, Table
from tests.conftest import ROOT
from tests.helpers import killed_job
from tests.helpers.killed_job import Run
from tests.helpers.rows import literal_rows
from tests.helpers.stored import store, stored

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(3 * killed_job.TIMEOUT_S)]

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
KILLS = ("sort 1 amid",)
"""While a file is half written. test_maintain.py ends jobs between the steps, within its own process."""
MORE_KILLS = (
    *("delete 1 before", "delete 1 after", "replace 1 after", "sort 1 before"),
    *("sort 1 after", "join 1 after", "checkpoint 9 after", "vacuum 3 before"),
)
SIGKILLED = -9


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("killed")


def lake_of(spark: SparkSession, folder: Path, name: str) -> Lake:
    return Lake(spark, LakeConfig(root=str(folder / name / "lake")))


@pytest.fixture(scope="module")
def original(spark: SparkSession, folder: Path) -> Lake:
    """A lake with old rows of two tables, and with several files of past days and of the ledger."""
    lake = lake_of(spark, folder, "original")
    lake.prepare()
    ids = [to_epoch_ms(NOW - timedelta(days=days, hours=hour)) for days in (100, 20, 2) for hour in range(3)]
    ids += [to_epoch_ms(NOW - timedelta(minutes=minute)) for minute in range(150)]
    for some in (ids[:80], ids[80:]):
        days = [utc_date(snapshot_id) for snapshot_id in some]
        ledger = [(i, day, "complete", {"watermarks": 1}) for i, day in zip(some, days, strict=True)]
        marks = [(i, day, JOB) for i, day in zip(some, days, strict=True)]
        add(lake, SNAPSHOTS, "snapshot_id snapshot_date status rows", *ledger)
        add(lake, COMPUTED, "snapshot_id snapshot_date job", *marks)
    for snapshot_id in ids[:9]:
        day = utc_date(snapshot_id)
        add(lake, WATERMARKS, "snapshot_id snapshot_date topic partition", (snapshot_id, day, "t", 0))
        add(lake, LAG, "snapshot_id snapshot_date group_id topic partition", (snapshot_id, day, "g", "t", 0))
    return lake


def add(lake: Lake, table: Table, names: str, *rows: tuple[Any, ...]) -> None:
    snapshot_ids = ", ".join(str(row[0]) for row in rows)
    where = f"cluster = 'east' AND snapshot_id IN ({snapshot_ids})"
    store(lake, table, literal_rows(names, *rows), where)


def contents(lake: Lake) -> dict[str, list[str]]:
    return {table.name: sorted(map(str, stored(lake, table))) for table in TABLES}


@pytest.fixture(scope="module")
def undisturbed(spark: SparkSession, original: Lake, folder: Path) -> dict[str, list[str]]:
    shutil.copytree(folder / "original", folder / "undisturbed")
    lake = lake_of(spark, folder, "undisturbed")
    done = run(lake)
    assert done.rows == {(WATERMARKS.name, "east"): 6, (LAG.name, "east"): 3}
    assert {LAG.name, WATERMARKS.name, SNAPSHOTS.name} <= set(done.joined)
    return contents(lake)


def run(lake: Lake) -> Done:
    return maintain(lake, RetentionConfig(), ["east"], lambda: NOW)


@pytest.fixture(scope="module")
def killed(request: pytest.FixtureRequest, original: Lake, folder: Path) -> dict[str, Path]:
    """The folder of each kill, with what the job has left."""
    env = {name: value for name, value in os.environ.items() if name != "SPARK_REMOTE"}
    env |= {"PYTHONPATH": str(ROOT), "SPARK_LOCAL_IP": "127.0.0.1"}
    selected = [
        kill for kill in (*KILLS, *MORE_KILLS) if any(f"[{kill}]" in item.name for item in request.session.items)
    ]
    folders = {kill: folder / kill.replace(" ", "-") for kill in selected}
    for place in folders.values():
        shutil.copytree(folder / "original", place)
        text = f'[lake]\nroot = "{place}/lake"\n[clusters.east]\nbootstrap_servers = ["127.0.0.1:1"]\n'
        (place / "laglake.toml").write_text(text)
    for number, some in enumerate(selected[n : n + 3] for n in range(0, len(selected), 3)):  # each has a JVM
        runs = [Run(str(folders[kill] / "laglake.toml"), ["east"], NOW.isoformat(), "maintain", kill) for kill in some]
        logs = folder / f"runs-{number}"
        assert killed_job.results(killed_job.start(runs, logs, env)) == [SIGKILLED] * len(some), texts(logs)
    return folders


def texts(folder: Path) -> str:
    return "\n".join(f"{log.name}:\n{log.read_text()[-3000:]}" for log in sorted(folder.glob("*.log")))


@pytest.mark.parametrize("kill", [*KILLS, *(pytest.param(kill, marks=pytest.mark.lengthy) for kill in MORE_KILLS)])
def test_a_job_that_was_killed_is_repeated(
    spark: SparkSession, folder: Path, killed: dict[str, Path], undisturbed: dict[str, list[str]], kill: str
) -> None:
    lake = lake_of(spark, folder, killed[kill].name)
    run(lake)
    assert contents(lake) == undisturbed
    assert run(lake) == Done()
