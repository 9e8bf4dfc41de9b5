"""A lake takes and returns rows, however many there are, on the driver or in Spark."""

import pyarrow as pa

from pipeline.common.data_source import arrow_schema
from pipeline.common.epoch import utc, utc_date
from pipeline.common.rows import Rows
from pipeline.lake import Lake
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
