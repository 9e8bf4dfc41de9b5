"""Which failures of Spark come from the data itself, and would come again with the same rows."""

import importlib
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pipeline.common.errors import data_exception, first_line, is_data_exception


def overflows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        yield pa.RecordBatch.from_pydict({"id": pa.array([2**63], pa.int64())})


def cannot_be_packed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """As a ruler that is stored in bytes."""
    for batch in batches:
        struct.pack("<q", 2**63)
        yield batch


def is_missing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        raise FileNotFoundError("a disk that is not there now")
    yield from ()


def is_a_bug(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch.no_such_method()


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (overflows, "OverflowError"),
        (cannot_be_packed, "struct.error"),
        (is_missing, None),
        (is_a_bug, None),
    ],
)
def test_a_value_that_fits_no_type_is_a_data_exception_and_a_failing_disk_or_a_bug_is_not(
    spark: SparkSession, function: Any, reason: str | None
) -> None:
    with pytest.raises(PySparkException) as failure:
        spark.range(1).mapInArrow(function, "id bigint").collect()
    assert is_data_exception(failure.value) == (reason is not None)
    if reason is not None:
        assert data_exception(failure.value).startswith(reason)


def test_an_overflow_in_sql_is_a_data_exception(spark: SparkSession) -> None:
    with pytest.raises(PySparkException) as failure:
        spark.sql("SELECT 9223372036854775807 + id FROM VALUES (1L) AS t(id)").collect()
    assert is_data_exception(failure.value)
    assert data_exception(failure.value).startswith("[ARITHMETIC_OVERFLOW")


NOT_EXIST = (
    "org.apache.spark.SparkException: [FAILED_READ_FILE.FILE_NOT_EXIST] Encountered error while reading file "
    "{}/snapshots/_delta_log/00000000000000000000.json. File does not exist. It is possible the underlying files have "
    "been updated.\nYou can explicitly invalidate the cache …"
)
"""What Spark 4.2 said on a standalone cluster whose worker had an empty file system over the folder of the lake."""


def test_a_lake_that_only_the_driver_sees_is_named_as_the_cause(tmp_path: Path) -> None:
    lake = tmp_path / "my lake"
    failure = PySparkException(NOT_EXIST.format(lake.as_uri().replace("file:///", "file:/")))
    as_spark_says = NOT_EXIST.splitlines()[0].format(f"file:{tmp_path}/my%20lake")
    assert first_line(failure) == as_spark_says, "the lake is gone"
    log = lake / "snapshots" / "_delta_log"
    log.mkdir(parents=True)
    assert first_line(failure) == as_spark_says, "the file is gone: the driver does not see it either"
    (log / f"{0:020}.json").touch()
    assert first_line(failure) == (
        f"{lake}: the driver sees this lake, and an executor does not: with executors on other machines, a lake must "
        "be where all of them see it, such as an object store, HDFS or a folder that all machines mount"
    )
    assert first_line(PySparkException(NOT_EXIST.format("s3a://bucket/lake"))).startswith("org.apache.spark.")


def test_a_package_that_workers_lack_is_named(spark: SparkSession) -> None:
    def compute(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        importlib.import_module("no_such_package.part")
        yield from batches

    with pytest.raises(PySparkException) as failure:
        spark.range(1).mapInArrow(compute, "id long").collect()
    assert first_line(failure.value) == (
        "a Python worker of Spark lacks the package no_such_package: install laglake, with all that it requires, "
        "where the executors run"
    )


def test_many_blank_lines_are_read_only_once_each() -> None:
    """If each blank line were also read from those before it, this would take hours."""
    assert first_line(OSError("first" + "\n" * 1_000_000 + "last")) == "first"
    message = "Generic error" + "\n" * 1_000_000 + "  ↳ Too many open files (os error 24)"
    expected = "Generic error: Too many open files; raise the limit on open files (ulimit -n)"
    assert first_line(OSError(message)) == expected
