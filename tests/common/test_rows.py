"""Functions of Arrow tables give the same rows, however many there are, on the driver or in Spark."""

from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from pipeline.common import rows as rows_module
from pipeline.common.arrow_sql import queried
from pipeline.common.buckets import Bucket
from pipeline.common.data_source import arrow_schema
from pipeline.common.rows import Rows, bucketed
from pipeline.tables.columns import LONG, STRING, schema

ROWS = schema(("name", STRING, ""), ("value", LONG, ""))
VALUES = [("a", 1), ("b", 5), ("a", 3), (None, 7), (None, 9)]

VALUES_WITH_NAME = [("a", 1), ("a", 3), ("b", 5)]


def rows_of(spark: SparkSession, are_few: bool, values: list[tuple[Any, Any]] = VALUES) -> Rows:
    if are_few:
        found = [dict(zip(ROWS.names, value, strict=True)) for value in values]
        return Rows(pa.Table.from_pylist(found, arrow_schema(ROWS)))
    return Rows(spark.createDataFrame(values, ROWS).repartition(3))


OTHERS = schema(("name", STRING, ""), ("other", STRING, ""))


def joined(bucket: Bucket) -> pa.Table:
    others = {row["name"]: row["other"] for row in bucket["others"].to_pylist()}
    found = [row | {"other": others.get(row["name"])} for row in bucket["rows"].to_pylist()]
    return pa.Table.from_pylist(found, arrow_schema(JOINED))


JOINED = StructType([*ROWS, *OTHERS[1:]])


@pytest.mark.parametrize("few", [(True, True), (False, False), (True, False)], ids=["few", "many", "of both kinds"])
def test_rows_of_several_tables_have_the_types_of_their_schemas(spark: SparkSession, few: tuple[bool, bool]) -> None:
    """With `useLargeVarTypes`, Spark returns other types of text than delta-rs. A column that a table lacks is NULL."""
    large = pa.Table.from_pylist([{"name": "a", "other": "o"}]).cast(
        pa.schema([("name", pa.large_string()), ("other", pa.large_string())])
    )
    others = Rows(large if few[1] else spark.createDataFrame([("a", "o")], OTHERS))
    lacking = StructType([*ROWS, *OTHERS[1:]])
    parts = {"rows": rows_of(spark, few[0]), "others": others}
    found = bucketed(parts, {"rows": lacking, "others": OTHERS}, ["name"], joined, JOINED)
    rows = [(row["name"], row["value"], row["other"]) for row in found.collected()]
    assert sorted(rows, key=str) == sorted(((*value, "o" if value[0] == "a" else None) for value in VALUES), key=str)


def doubled(rows: pa.Table) -> pa.Table:
    found = [row | {"value": 2 * row["value"]} for row in rows.to_pylist()]
    return pa.Table.from_pylist(found, arrow_schema(ROWS))


def summed(rows: pa.Table, more: int = 0) -> pa.Table:
    sums: dict[str | None, int] = {}
    for row in rows.to_pylist():
        sums[row["name"]] = sums.get(row["name"], more) + row["value"]
    found = [{"name": name, "value": value} for name, value in sums.items()]
    return pa.Table.from_pylist(found, arrow_schema(ROWS))


def plain(rows: Rows) -> set[tuple[Any, Any]]:
    return {(row["name"], row["value"]) for row in rows.collected()}


@pytest.mark.parametrize("are_few", [True, False], ids=["few", "many"])
def test_a_function_gets_all_rows_and_all_of_a_key_together(spark: SparkSession, are_few: bool) -> None:
    rows = rows_of(spark, are_few)
    assert plain(rows.mapped(doubled, ROWS)) == {("a", 2), ("b", 10), ("a", 6), (None, 14), (None, 18)}
    assert plain(rows.grouped(["name"], summed, ROWS)) == {("a", 4), ("b", 5), (None, 16)}
    assert plain(rows.grouped(["name"], partial(summed, more=1), ROWS)) == {("a", 5), ("b", 6), (None, 17)}
    assert rows.distinct("name") == {"a", "b", None}
    assert not rows.is_empty()
    assert sorted(tuple(row) for row in rows.frame(spark, ROWS).where("name IS NOT NULL").collect()) == VALUES_WITH_NAME


@pytest.mark.parametrize("are_few", [True, False], ids=["few", "many"])
def test_no_rows_are_no_rows(spark: SparkSession, are_few: bool) -> None:
    rows = rows_of(spark, are_few, [])
    assert rows.mapped(doubled, ROWS).collected() == rows.grouped(["name"], summed, ROWS).collected() == []
    assert rows.distinct("name") == set()
    assert rows.is_empty()
    assert rows.frame(spark, ROWS).collect() == []


def counted(rows: pa.Table) -> pa.Table:
    return queried("SELECT name, count(*) AS rows, max(value) AS most FROM given GROUP BY name", given=rows)


@pytest.mark.parametrize("are_few", [True, False], ids=["few", "many"])
def test_a_little_of_each_group_is_collected_in_order(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, are_few: bool
) -> None:
    monkeypatch.setattr(rows_module, "ROWS_A_BUCKET", 2)  # few rows are in three buckets
    found = rows_of(spark, are_few).collected_groups(["name"], counted).to_pylist()
    assert [tuple(row.values()) for row in found] == [("a", 2, 3), ("b", 1, 5), (None, 2, 9)]
    assert rows_of(spark, are_few, []).collected_groups(["name"], counted).num_rows == 0


@pytest.mark.parametrize("are_few", [True, False], ids=["few", "many"])
def test_rows_are_fetched_in_an_order(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, are_few: bool) -> None:
    monkeypatch.setattr(rows_module, "ROWS_A_BUCKET", 2)
    rows, order = rows_of(spark, are_few), "rows.name DESC NULLS LAST, value"
    assert [(r["name"], r["value"]) for r in rows.in_order(order)] == [
        ("b", 5),
        ("a", 1),
        ("a", 3),
        (None, 7),
        (None, 9),
    ]
    assert [r["value"] for r in rows.in_order(order, 2)] == [5, 1]
    assert rows.count() == len(VALUES)
