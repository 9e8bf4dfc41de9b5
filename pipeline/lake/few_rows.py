"""Spark settings for queries on few rows, for which code generation and adaptive planning cost more than they save.

A job begins with the settings for few rows. As soon as it finds more rows, it restores the session's own settings.
Whether the driver reads, computes and writes the rows is decided for each `Lake`, by MANY_ROWS.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Lock
from weakref import WeakKeyDictionary, WeakSet

from pyspark.sql import SparkSession

from pipeline.config.databricks import is_databricks
from pipeline.lake.conflicts import SPARK_ERRORS

log = logging.getLogger(__name__)

FEW_ROWS = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    # A broadcast is a job of its own. Rows of one partition are joined by sorting them, within the job.
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
FEW_FOR_SPARK = 50_000
"""From this number of rows on, generated code saves Spark more than it costs, even if a process runs each query once.
Fewer rows may also become part of a plan."""
ROWS_TO_COLLECT = 2_500_000
"""From this number of rows on, what Spark has computed is written by Spark. The driver writes fewer rows faster, but
all of them are in the memory of the JVM meanwhile."""
MANY_ROWS = 10_000_000
"""From this number of rows in the bronze tables of a batch on, Spark's workers compute it. With fewer rows, the driver
takes half the time and less than half the CPU time, and keeps 2 GB in files for each million readers."""

_own: WeakKeyDictionary[SparkSession, dict[str, str]] = WeakKeyDictionary()
"""Sessions that now have the settings for few rows, and the values that these settings had before."""
_begun: WeakSet[SparkSession] = WeakSet()
"""Sessions with a job that has begun with the settings for few rows, even if they have their own settings again."""
_lock = Lock()


@contextmanager
def for_few_rows(spark: SparkSession) -> Iterator[None]:
    """Runs queries with the settings for few rows, until the end or until `expect_rows` is called with more rows.

    After that, the session has its own settings again. On Databricks, or if a server refuses the settings, it does
    nothing. If several jobs run in one session, the first one changes the settings, and the first one that ends
    restores them; the settings do not change the results.
    """
    with _lock:
        if spark not in _own and not is_databricks():
            _own[spark] = {}
            try:
                for name, value in FEW_ROWS.items():
                    own = spark.conf.get(name) or ""
                    spark.conf.set(name, value)
                    _own[spark][name] = own
                _begun.add(spark)
            except SPARK_ERRORS as exc:
                log.debug("the session keeps its settings: %s", exc)
                _put_back(spark)
    try:
        yield
    finally:
        with _lock:
            _begun.discard(spark)
            _put_back(spark)


def expects_few(spark: SparkSession) -> bool:
    """Whether a job of this session expects few rows of a cluster of which it knows nothing yet."""
    return spark in _begun


def expect_rows(spark: SparkSession, rows: int) -> None:
    """Announces how many rows the next queries read. If these are more, the session's own settings are restored."""
    if rows >= FEW_FOR_SPARK:
        with _lock:
            _put_back(spark)


def own_setting(spark: SparkSession, name: str) -> str:
    """The session's own value of a setting in FEW_ROWS, for queries whose few rows need much work."""
    return _own.get(spark, {}).get(name) or spark.conf.get(name) or ""


def _put_back(spark: SparkSession) -> None:
    for name, value in _own.pop(spark, {}).items():
        with suppress(*SPARK_ERRORS):  # if the session has ended, this must not hide the error that ended it
            spark.conf.set(name, value)
