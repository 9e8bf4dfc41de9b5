"""Tables of version 14 are upgraded: what their rows remember was an array, and is bytes now."""

import tarfile

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from pipeline.analytics.arrow_series import NONE, rows_of_bytes
from pipeline.config import LakeConfig
from pipeline.lake import Lake, of_snapshots
from pipeline.lake.few_rows import MANY_ROWS
from pipeline.tables import FORECASTS, PARTITION_STATUS, Table
from tests.conftest import ROOT

WIDTH = 1_000
"""More numbers than any row remembers."""


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    folder = tmp_path_factory.mktemp("upgraded")
    with tarfile.open(ROOT / "tests" / "data" / "lakes" / "14.tar.xz") as file:
        file.extractall(folder, filter="data")
    upgraded = Lake(spark, LakeConfig(root=str(folder / "lake")))
    upgraded.prepare()
    return upgraded


@pytest.mark.parametrize("table", [PARTITION_STATUS, FORECASTS], ids=lambda table: table.name)
def test_the_newest_rows_remember_what_they_did(lake: Lake, table: Table) -> None:
    rows = lake.spark.table(lake.identifier(table)).select("snapshot_id", "memory", "remembered").collect()
    newest = [row for row in rows if row.snapshot_id == max(row.snapshot_id for row in rows)]
    assert newest
    stored = pa.chunked_array([pa.array([bytes(row.remembered) for row in newest], pa.binary())])
    found = rows_of_bytes(stored, WIDTH).tolist()
    assert found == [row.memory + [NONE] * (WIDTH - len(row.memory)) for row in newest]
    assert any(number < 0 for row in newest for number in row.memory)


def test_spark_writes_rows_into_a_table_that_still_has_the_old_column(lake: Lake) -> None:
    """The driver does so whenever a kept lake is continued."""
    rows = lake.frame(PARTITION_STATUS)
    newest = max(row.snapshot_id for row in rows.select("snapshot_id").distinct().collect())
    again = rows.where(rows.snapshot_id == newest)
    expected = {(row.group_id, row.topic, row.partition): bytes(row.remembered) for row in again.collect()}
    lake.replace(PARTITION_STATUS, again, of_snapshots("demo", [newest]), most=MANY_ROWS)
    written = lake.spark.table(lake.identifier(PARTITION_STATUS)).where(f"snapshot_id = {newest}").collect()
    assert {(row.group_id, row.topic, row.partition): bytes(row.remembered) for row in written} == expected
    assert {row.memory for row in written} == {None}
