"""A function of the rows of several tables gives the same, however many rows there are."""

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, StructType

from pipeline.common import buckets
from pipeline.common.arrow_sql import arrow_queries
from pipeline.common.buckets import Bucket, Form, Spread, packed_rows
from pipeline.common.data_source import arrow_schema
from pipeline.common.errors import BadValueError, data_exception, is_data_exception
from pipeline.common.rows import Rows, bucketed, tables_in_buckets
from pipeline.lake.conflicts import SPARK_ERRORS
from pipeline.tables.columns import BINARY, BOOLEAN, DATE, INT, LONG, STRING, TIMESTAMP

NOON = datetime(2026, 1, 31, 12, 0, 0, 1_500, tzinfo=UTC)
SCHEMAS = {
    "ends": StructType().add("topic", STRING).add("end", LONG).add("seen", TIMESTAMP).add("replicas", ArrayType(INT)),
    "commits": StructType()
    .add("group", STRING)
    .add("topic", STRING)
    .add("offset", LONG)
    .add("start", LONG)
    .add("error", STRING),
    "odd": StructType().add("topic", STRING).add("ruler", BINARY).add("is_odd", BOOLEAN).add("date", DATE),
}
ROWS = {
    "ends": [("a", 10, NOON, [1, 2]), ("b", 20, None, None), ("c", None, NOON, [])],
    "commits": [("g", "a", 7, 1, None), ("h", "a", 8, None, "X"), ("g", "b", 5, 2, None), ("g", "d", 1, 0, None)],
    "odd": [("a", b"\x00\xff", True, NOON.date()), ("b", None, None, None)],
}
FOUND = StructType().add("group", STRING).add("topic", STRING).add("lag", LONG).add("facts", STRING)
EXPECTED = [
    ("g", "a", 3, f"{round(NOON.timestamp() * 1_000_000)} [1, 2] \\x00\\xFF true 2026-01-31 1"),
    ("g", "b", 15, None),
    ("g", "d", None, None),
    ("h", "a", 2, None),
]


def lags(bucket: Bucket) -> pa.Table:
    for name, rows in bucket.items():
        assert rows.schema.equals(arrow_schema(SCHEMAS[name])), f"{name}: {rows.schema}"
    with arrow_queries(bucket) as queries:
        found = queries.rows("""
            SELECT "group", topic, "end" - "offset" AS lag,
                epoch_us(seen) || ' ' || replicas::varchar || ' ' || ruler::varchar
                || ' ' || is_odd || ' ' || date || ' ' || start AS facts
            FROM commits LEFT JOIN ends USING (topic) LEFT JOIN odd USING (topic)
        """)
    return found.cast(arrow_schema(FOUND))


def parts_of(spark: SparkSession, rows: dict[str, list[tuple[object, ...]]], *many: str) -> dict[str, Rows]:
    def rows_of(name: str) -> Rows:
        frame = spark.createDataFrame(rows[name], SCHEMAS[name])
        return Rows(frame.repartition(3) if name in many else frame.toArrow())

    return {name: rows_of(name) for name in rows}


@pytest.mark.parametrize(
    ("many", "buckets", "on_driver"),
    [((), None, 1), ((), 4, 4), (("commits",), 4, 0), (tuple(ROWS), 4, 0)],
    ids=["few", "few in buckets", "some many", "many"],
)
def test_a_function_of_several_tables_gets_all_rows_of_a_key(
    spark: SparkSession, many: tuple[str, ...], buckets: int | None, on_driver: int
) -> None:
    called: list[int] = []  # by threads of the driver; Spark's workers have a list of their own

    def lags_of(bucket: Bucket) -> pa.Table:
        called.append(len(bucket["commits"]))
        return lags(bucket)

    found = bucketed(parts_of(spark, ROWS, *many), SCHEMAS, ["topic"], lags_of, FOUND, buckets)
    assert sorted((tuple(row.values()) for row in found.collected()), key=str) == EXPECTED
    assert len(called) == on_driver
    assert max(called, default=0) < len(ROWS["commits"]) or on_driver < 2, "the rows are spread"


@pytest.mark.parametrize("many", [(), tuple(ROWS)], ids=["few", "many"])
def test_without_a_key_every_row_is_in_some_bucket(spark: SparkSession, many: tuple[str, ...]) -> None:
    found = bucketed(parts_of(spark, ROWS, *many), SCHEMAS, (), counted, COUNTED)
    counts: dict[str, int] = {}
    for row in found.collected():
        counts[row["name"]] = counts.get(row["name"], 0) + row["count"]
    assert counts == {"ends": 3, "commits": 4, "odd": 2}


COUNTED = StructType().add("name", STRING).add("count", LONG)


def counted(bucket: Bucket) -> pa.Table:
    found = [{"name": name, "count": len(rows)} for name, rows in bucket.items()]
    return pa.Table.from_pylist(found, arrow_schema(COUNTED))


@pytest.mark.parametrize("many", [(), tuple(ROWS)], ids=["few", "many"])
@pytest.mark.parametrize("engine", ["duckdb", "pyarrow", "python"])
def test_a_value_that_fits_no_type_is_one_error(spark: SparkSession, many: tuple[str, ...], engine: str) -> None:
    poisoned = ROWS | {"commits": [*ROWS["commits"], ("poisoned", "a", 1 - 2**63, 0, None)]}

    def failing(bucket: Bucket) -> pa.Table:
        worst = min(bucket["commits"]["offset"].to_pylist(), default=0)
        if engine == "pyarrow":
            pa.array([worst], pa.int64()).cast(pa.int32())
        if engine == "python":
            worst.to_bytes(1)
        return lags(bucket)

    with pytest.raises((BadValueError, *SPARK_ERRORS)) as failure:
        bucketed(parts_of(spark, poisoned, *many), SCHEMAS, ["topic"], failing, FOUND).collected()
    assert is_data_exception(failure.value)
    expected = {
        "duckdb": "Out of Range Error: Overflow in subtraction of INT64 (10 - -9223372036854775807)!",
        "pyarrow": "Integer value -9223372036854775807 not in range",
        "python": "OverflowError: can't convert negative int to unsigned",
    }
    assert expected[engine] in data_exception(failure.value)


def lags_and_groups(bucket: Bucket) -> Bucket:
    return {"lags": lags(bucket), "groups": bucket["commits"].select(["group", "topic"])}


@pytest.mark.parametrize("many", [(), tuple(ROWS)], ids=["few", "many"])
def test_several_tables_of_one_pass_are_computed_once_and_go_on_in_buckets(
    spark: SparkSession, many: tuple[str, ...]
) -> None:
    kept: list[Any] = []

    def compute_once(rows: Any) -> Any:
        kept.append(rows.localCheckpoint() if isinstance(rows, DataFrame) else rows.slice(0))
        return kept[-1]

    by_topic, by_group = Spread(("topic",), 3), Spread(("group",), 2)
    some = StructType([FOUND["group"], FOUND["lag"]])
    groups = StructType().add("group", STRING).add("topic", STRING)
    returns = {"lags": [Form(FOUND, by_topic), Form(some, by_group)], "groups": [Form(groups, by_group)]}
    made = tables_in_buckets(parts_of(spark, ROWS, *many), SCHEMAS, by_topic, lags_and_groups, returns, compute_once)
    assert sorted((tuple(row.values()) for row in made["lags"].collected()), key=str) == EXPECTED
    assert sorted(tuple(row.values()) for row in made["groups"].collected()) == [row[:2] for row in EXPECTED]

    if many:
        assert made["lags"].packed_for(by_group, some, spark) is made["lags"].packed[1], "they are packed once"
        assert made["lags"].packed_for(Spread(), FOUND, spark) is made["lags"].packed[0]
        assert made["lags"].packed_for(by_group, FOUND, spark) not in made["lags"].packed

    def summed(bucket: Bucket) -> pa.Table:
        with arrow_queries(bucket) as queries:
            rows = queries.rows("""
                SELECT "group" AS name, (SELECT sum(lag) FROM lags WHERE lags."group" = groups."group") AS count
                FROM groups GROUP BY ALL
            """)
        return rows.cast(arrow_schema(COUNTED))

    sums = bucketed(made, {"lags": some, "groups": groups}, ("group",), summed, COUNTED, 2 if many else None)
    assert sorted(tuple(row.values()) for row in sums.collected()) == [("g", 18), ("h", 2)]
    packed, of_bucket = ["part", "bucket", "packed"], [FOUND.names, groups.names]
    assert [rows.schema.names for rows in kept] == ([packed] if many else of_bucket * 3)


def test_a_row_has_the_same_bucket_in_each_process_and_null_has_one() -> None:
    """The numbers are literals: if they changed, workers of two versions would put a key into two buckets."""
    rows = pa.table({"topic": ["a", "b", "", None, "\u00e9" * 300, "a"], "partition": pa.array([0, 1, 2, None, 7, 0])})
    numbers = [4, 22, 4, 22, 0, 4]
    spread = Spread(("topic", "partition"), 5)
    assert spread.bucket_numbers(rows).tolist() == numbers
    assert spread.bucket_numbers(rows.slice(3)).tolist() == numbers[3:]
    assert len({*Spread().bucket_numbers(rows).tolist()}) == 1


@pytest.mark.parametrize("buckets", [1, 2, 20])
def test_spark_puts_each_bucket_into_a_task_of_its_own(spark: SparkSession, buckets: int) -> None:
    """Tasks with several buckets would take several times as long, while cores are idle."""
    rows = pa.table({"topic": [str(number) for number in range(50 * buckets)]})
    numbers = {*Spread(("topic",), buckets).bucket_numbers(rows).tolist()}
    assert len(numbers) == buckets
    frame = spark.createDataFrame([(number,) for number in numbers], "bucket int")
    tasks = frame.repartition(buckets, "bucket").select(F.spark_partition_id()).collect()
    assert sorted(row[0] for row in tasks) == [*range(buckets)]


@pytest.mark.parametrize(("joined_bytes", "expected"), [(1, [2, 3, 4]), (10**6, [9])])
def test_small_buckets_of_one_task_are_computed_together_and_large_ones_are_not(
    monkeypatch: pytest.MonkeyPatch, joined_bytes: int, expected: list[int]
) -> None:
    monkeypatch.setattr(buckets, "JOINED_BYTES", joined_bytes)
    names = [name for name in "abc" for _ in range("_abc".index(name) + 1)]
    rows = pa.table({"topic": names})
    form = Form(StructType().add("topic", STRING), Spread(("topic",)))
    # Two packed values of each bucket, as two workers send them.
    batches = [*packed_rows(rows.slice(0, 4), {"x": form}), *packed_rows(rows.slice(4), {"x": form})]
    made = [bucket["x"] for bucket in buckets._by_bucket(batches, form.spread)]
    counts = [sum(buckets._unpacked(packed, [0]).num_rows for packed in each) for each in made]
    assert sorted(counts) == expected
