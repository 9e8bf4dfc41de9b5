"""Spark's settings for queries on few rows, for which compiling or adaptive planning costs more than it saves.

A job begins with the settings for few rows. As soon as it finds many rows, it restores the session's own settings.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Lock
from weakref import WeakKeyDictionary

from pyspark.sql import SparkSession

from pipeline.databricks import is_databricks
from pipeline.lake.conflicts import SPARK_ERRORS

log = logging.getLogger(__name__)

FEW_ROWS = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
MANY_ROWS = 50_000
"""From so many rows on compiled queries are worth what they cost, even in a process that runs each once."""

_own: WeakKeyDictionary[SparkSession, dict[str, str]] = WeakKeyDictionary()
"""Sessions with the settings for few rows, and their own."""
_lock = Lock()


@contextmanager
def for_few_rows(spark: SparkSession) -> Iterator[None]:
    """Run queries as is best for few rows, until `expect_rows` is called with many; the session's own settings last.

    On Databricks, and where a server refuses the settings, it does nothing. Of jobs side by side in one session the
    first sets them and the first that ends puts them back; all see the same rows with either.
    """
    with _lock:
        if spark not in _own and not is_databricks():
            _own[spark] = {}
            try:
                for name, value in FEW_ROWS.items():
                    own = spark.conf.get(name) or ""
                    spark.conf.set(name, value)
                    _own[spark][name] = own
            except SPARK_ERRORS as exc:
                log.debug("the session keeps its settings: %s", exc)
                _put_back(spark)
    try:
        yield
    finally:
        with _lock:
            _put_back(spark)


def expects_few(spark: SparkSession) -> bool:
    """Whether a job of this session expects few rows, as far as it knows."""
    return bool(_own.get(spark))


def expect_rows(spark: SparkSession, rows: int) -> None:
    """Say how many rows the next queries will read. If these are many, the session's own settings come back."""
    if rows >= MANY_ROWS:
        with _lock:
            _put_back(spark)


def own_setting(spark: SparkSession, name: str) -> str:
    """A setting of FEW_ROWS as the session itself has it: few rows may still be much work, such as logs to be read."""
    return _own.get(spark, {}).get(name) or spark.conf.get(name) or ""


def _put_back(spark: SparkSession) -> None:
    for name, value in _own.pop(spark, {}).items():
        with suppress(*SPARK_ERRORS):  # a session that is gone must not hide why
            spark.conf.set(name, value)
