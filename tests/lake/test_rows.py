"""A lake takes and returns rows, however many there are, on the driver or in Spark."""

from collections.abc import Iterator
from uuid import uuid4

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

from pipeline.common.data_source import arrow_schema
from pipeline.common.epoch import utc, utc_date
from pipeline.common.rows import Rows
from pipeline.lake import SPARK_ERRORS, Lake
from pipeline.lake import lake as lake_module
from pipeline.lake.few_rows import for_few_rows
from pipeline.lake.lake import STAGED_OVER
from pipeline.tables import FINDING_HISTORY


def test_the_driver_writes_few_rows_as_spark_writes_them(by_driver: Lake, by_spark: Lake) -> None:
    """With snapshot_at, which a stored table has in addition."""
    at_ms = 1_769_860_800_123
    row = {"cluster": "east", "snapshot_id": at_ms, "snapshot_date": utc_date(at_ms), "finding_id": "f"}
    few = Rows(pa.Table.from_pylist([row], arrow_schema(FINDING_HISTORY.schema)))
    for lake in (by_driver, by_spark):
        lake.replace(FINDING_HISTORY, few, "cluster = 'east'")
        stored = lake.spark.table(lake.identifier(FINDING_HISTORY)).toArrow().to_pylist()
        assert [(r["finding_id"], r["snapshot_at"], r["kind"]) for r in stored] == [("f", utc(at_ms), None)]
        assert lake.rows(FINDING_HISTORY, "finding_id = 'f'").distinct("snapshot_id") == {at_ms}
        assert lake.rows(FINDING_HISTORY, "finding_id = 'g'").collected() == []


def named(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Other names whenever they are computed."""
    for batch in batches:
        yield pa.RecordBatch.from_pydict({"name": [uuid4().hex for _ in range(len(batch))]})


@pytest.fixture
def serverless(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(rows: DataFrame) -> DataFrame:
        raise PySparkException("[NOT_SUPPORTED_WITH_SERVERLESS] localCheckpoint is not supported on serverless compute")

    monkeypatch.setattr(ClassicDataFrame, "localCheckpoint", refuse)


def test_rows_are_computed_once(by_spark: Lake) -> None:
    names = by_spark.spark.range(10).mapInArrow(named, "name string")
    assert sorted(names.collect()) != sorted(names.collect())
    kept = by_spark.computed_or_staged(names, "readers_east", 60_000)
    assert sorted(kept.collect()) == sorted(kept.where("name > ''").collect())


@pytest.mark.usefixtures("serverless")
def test_rows_are_computed_once_where_no_session_keeps_rows(by_spark: Lake) -> None:
    names = by_spark.spark.range(10).mapInArrow(named, "name string")
    first, next_ones = (by_spark.computed_or_staged(names, "readers_east", at_ms) for at_ms in (0, 60_000))
    assert first.columns == ["name"]
    assert sorted(first.collect()) == sorted(first.where("name > ''").collect()) != sorted(next_ones.collect())


@pytest.mark.usefixtures("serverless")
def test_rows_that_another_job_has_staged_are_not_taken_for_ours(by_spark: Lake) -> None:
    names = by_spark.spark.range(10).mapInArrow(named, "name string")
    ours, others = (by_spark.computed_or_staged(names, "readers_east", 0) for _ in range(2))
    assert others.count() == 10
    # In a folder, the files that were listed are gone; in a catalog, a session may read the table as it is now.
    with pytest.raises(SPARK_ERRORS, match=f"FILE_NOT_EXIST|{STAGED_OVER.partition(':')[0]}"):
        ours.collect()


def test_a_failure_that_is_not_about_checkpoints_is_not_hidden(by_spark: Lake) -> None:
    def fail(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        raise OSError("no space left")
        yield from batches

    with pytest.raises(PySparkException, match="no space left"):
        by_spark.computed_or_staged(by_spark.spark.range(1).mapInArrow(fail, "id long"), "readers_east", 0)


def test_rows_that_turn_out_to_be_few_are_on_the_driver(
    by_driver: Lake, by_spark: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = Rows(by_driver.spark.range(10).mapInArrow(named, "name string"))
    few = by_driver.collected_if_few(names)
    assert isinstance(few.rows, pa.Table)
    assert len(few.collected()) == 10
    assert isinstance(by_spark.collected_if_few(names).rows, DataFrame)  # the driver could not write them
    monkeypatch.setattr(lake_module, "ROWS_TO_COLLECT", 10)
    monkeypatch.setattr(lake_module, "FEW_FOR_SPARK", 10)
    many = by_driver.collected_if_few(names)
    assert isinstance(many.rows, DataFrame)
    assert len(many.collected()) == 10
    assert many.distinct("name") == many.distinct("name")


def test_rows_that_are_many_all_the_same_are_computed_in_buckets(
    by_driver: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the watermarks of a long tail of the log index, of a cluster with few rows in each snapshot."""
    names = by_driver.spark.range(10).mapInArrow(named, "name string")
    with for_few_rows(by_driver.spark):
        lake = by_driver.for_one_cluster()
        assert isinstance(lake.computed(names).rows, pa.Table)
        monkeypatch.setattr(lake_module, "ROWS_TO_COLLECT", 10)
        many = lake.computed(names)
        assert isinstance(many.rows, DataFrame)
        assert many.distinct("name") == many.distinct("name")
