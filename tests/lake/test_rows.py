"""A lake takes and returns rows, however many there are, on the driver or in Spark."""

from collections.abc import Iterator
from uuid import uuid4

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from pipeline.common.data_source import arrow_schema
from pipeline.common.epoch import utc, utc_date
from pipeline.common.rows import Rows
from pipeline.lake import Lake
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
        assert lake.read_few_or_many(FINDING_HISTORY, "finding_id = 'f'").distinct("snapshot_id") == {at_ms}
        assert lake.read_few_or_many(FINDING_HISTORY, "finding_id = 'g'").collected() == []


@pytest.mark.parametrize("can_checkpoint", [True, False], ids=["classic", "serverless"])
def test_rows_that_are_kept_are_computed_once(
    by_spark: Lake, can_checkpoint: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(rows: DataFrame) -> DataFrame:
        raise PySparkException("[NOT_SUPPORTED_WITH_SERVERLESS] localCheckpoint is not supported on serverless compute")

    def named(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield pa.RecordBatch.from_pydict({"name": [uuid4().hex for _ in range(len(batch))]})

    random = by_spark.spark.range(10).mapInArrow(named, "name string")
    assert sorted(random.collect()) != sorted(random.collect())
    if not can_checkpoint:
        monkeypatch.setattr(type(random), "localCheckpoint", refuse)
    kept = by_spark.keep(random, "readers_east")
    assert kept.columns == ["name"]
    assert sorted(kept.collect()) == sorted(kept.where("name > ''").collect())
    if not can_checkpoint:
        by_spark.keep(random, "readers_east")
        with pytest.raises(PySparkException, match=STAGED_OVER.partition(":")[0]):
            kept.collect()
