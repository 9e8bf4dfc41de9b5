"""A column that is computed by a function of Arrow arrays, even if Spark has no such functions."""

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType

from pipeline.common.arrow_udf import with_arrow_column

LARGEST = 2**63 - 1


def total_of_lists(lists: pa.Array, more: pa.Array) -> pa.Array:
    """The sum of each list and a number; NULL if either is NULL."""
    sums = [None if each is None else sum(v for v in each if v is not None) for each in lists.to_pylist()]
    return pc.add(pa.array(sums, pa.int64()), more)


@pytest.mark.parametrize("name", ["total", "more"])
@pytest.mark.parametrize("version", ["4.0", "4.1"])
def test_the_column_is_the_same_with_and_without_arrow_udf(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, version: str, name: str
) -> None:
    if version == "4.0":
        monkeypatch.delattr(F, "arrow_udf")
    given = [("a", [1, None, 2], 3), ("b", None, 1), ("c", [LARGEST - 1], 1), ("d", [], None), (None, [], 0)]
    rows = spark.createDataFrame(given, "key string, lists array<bigint>, more bigint")
    arguments = (F.col("lists"), F.col("more") + 0)
    found = with_arrow_column(rows, name, total_of_lists, LongType(), *arguments).select("key", name).collect()
    assert {row["key"]: row[name] for row in found} == {"a": 6, "b": None, "c": LARGEST, "d": None, None: 0}
