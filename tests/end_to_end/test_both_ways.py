"""Runs on a quiet cluster give equal tables: by the driver, by Spark, and with `--local` before or after Spark.

All compute them in several buckets.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql.types import StringType

from demo.embedded_kafka.broker import EmbeddedKafka
from jobs import report, run, schedule
from pipeline.config import LakeConfig
from pipeline.derive import backlog
from pipeline.lake import Lake, lake_tables
from pipeline.tables import TABLES
from tests.conftest import ROOT
from tests.helpers.arrow_types import odd_types
from tests.helpers.both_engines import code_of, queries_of
from tests.helpers.contents import contents
from tests.helpers.quiet import seed, write_config

PREFIX = "both"
FIRST = datetime.now(UTC).replace(minute=59, second=0, microsecond=0) - timedelta(hours=1)
INSTANTS = [FIRST + timedelta(minutes=minute) for minute in range(2)]
"""The second run is in the next hour."""
LOCAL = {"local": ["--local"]}
OBJECTIVE = f'[slo.x]\ngroups = "^{PREFIX}"\nobjective = "consumer_lag < 5"\ntarget = 0.99\n'
WAYS = {
    "by_driver": ("driver", "driver"),
    "by_spark": ("spark", "spark"),
    "spark_last": ("local", "driver"),
    "spark_first": ("driver", "local"),
}
"""Who reads, computes and writes in each run: the driver of a session, Spark alone, or a process without Spark."""


@dataclass(frozen=True)
class Made:
    """What the runs of one way have left: the folder of the lake, the contents of its tables, a report's size."""

    root: Path
    tables: dict[str, list[str]]
    page_bytes: int


@pytest.fixture(scope="module")
def quiet(kafka: EmbeddedKafka) -> EmbeddedKafka:
    seed(kafka, PREFIX)
    return kafka


@pytest.fixture(scope="module")
def made(spark: SparkSession, quiet: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Made]:
    """What each of the WAYS has made."""
    return {way: made_by_runs(spark, quiet, tmp_path_factory.mktemp(way), who) for way, who in WAYS.items()}


def made_by_runs(spark: SparkSession, kafka: EmbeddedKafka, folder: Path, who: Sequence[str]) -> Made:
    """What the runs at INSTANTS leave. The report is made as the last of them is."""
    file = write_config(folder, PREFIX, {"c": kafka.bootstrap_servers}, 'schedule = "1m"\nmax_delay = "3h"')
    with file.open("a") as text:
        text.write(OBJECTIVE)
    for at, of in zip(INSTANTS, who, strict=True):
        with as_run(of) as patch:
            patch.setattr(schedule, "utc_now", lambda at=at: at + timedelta(seconds=1))
            arguments = ["--config", str(file), "--output", str(folder / "report.html"), "--fail-on", "partial"]
            assert run.main([*arguments, "--at", at.isoformat(), *LOCAL.get(of, [])]) == 0
    page = folder / "report.json"
    with as_run(who[-1]):
        assert report.main(["--config", str(file), "--output", str(page), "--format", "json", *LOCAL.get(of, [])]) == 0
    lake = Lake(spark, LakeConfig(root=str(folder / "lake")))
    return Made(folder / "lake", contents(lake), page.stat().st_size)


@contextmanager
def as_run(who: str) -> Iterator[pytest.MonkeyPatch]:
    """As WAYS says, and in several buckets, as the rows of a large cluster."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backlog, "ROWS_A_BUCKET", 2)
        patch.setattr(backlog, "RULERS_A_BUCKET", 1)
        if who == "spark":
            patch.setattr(lake_tables, "driver_tables", lambda *_: None)
        yield patch


@pytest.mark.parametrize("way", ["by_driver", "spark_last", "spark_first"])
def test_all_ways_give_equal_tables(made: dict[str, Made], way: str) -> None:
    found, expected = made[way], made["by_spark"]
    assert found.tables == expected.tables
    filled = ("snapshots", "computed", "lag", "group_status", "partition_status", "log_index", "lag_histograms", "slo")
    assert all(found.tables[name] for name in filled)
    assert abs(found.page_bytes - expected.page_bytes) < 0.05 * expected.page_bytes


@pytest.mark.parametrize("way", WAYS)
def test_every_file_that_a_run_has_written_has_texts_of_the_plain_type(made: dict[str, Made], way: str) -> None:
    assert odd_types(made[way].root) == []


@pytest.mark.parametrize("way", WAYS)
def test_pandas_duckdb_and_polars_can_filter_each_text_that_a_run_has_written(made: dict[str, Made], way: str) -> None:
    """By a value that is there: files without it, by what Delta knows of them, would not be opened."""
    filtered = set()
    for table in TABLES:
        found = DeltaTable(made[way].root / table.name)
        stored = found.to_pyarrow_table()
        texts = [field.name for field in table.schema if isinstance(field.dataType, StringType)]
        known = {name: stored[name].drop_null() for name in texts}
        for name, value in ((name, values[0].as_py()) for name, values in known.items() if len(values)):
            assert len(found.to_pandas(filters=[(name, "=", value)], columns=[name]))
            duck = duckdb.connect().register("found", found.to_pyarrow_dataset())
            assert duck.execute(f'SELECT count(*) FROM found WHERE "{name}" = ?', [value]).fetchall() != [(0,)]
            assert pl.scan_delta(found).filter(pl.col(name) == value).select(pl.len()).collect().item()
            filtered.add(table.name)
    assert {"snapshots", "findings", "lag", "group_status", "computed"} <= filtered


def test_each_query_and_snippet_of_the_docs_runs_on_the_lake_of_a_run(made: dict[str, Made], tmp_path: Path) -> None:
    """What they find is tested with rows of their own; here, that each engine can read what a run has written."""
    places = {"/lake": str(made["by_driver"].root), "/var/lib/node_exporter": str(tmp_path)}
    pages = sorted(page.name for page in (ROOT / "docs").glob("*.md"))
    queries = queries_of(*pages)
    names: dict[str, Any] = {}
    for page in pages:
        for block in code_of(page):
            exec(re.sub("|".join(places), lambda place: places[place[0]], block), names)
    assert {"spark", "duck", "tuesday", "registry"} <= names.keys(), "each engine's code is among them"
    assert {"lost", "losing", "owners"} <= queries.keys()
    names["duck"].execute(f"CREATE VIEW causes AS {queries['causes']}")  # in Spark, open_lake does it
    for name, query in queries.items():
        in_spark = names["spark"].sql(query).toPandas()
        assert [*in_spark.columns] == [*names["duck"].sql(query).df().columns], name
