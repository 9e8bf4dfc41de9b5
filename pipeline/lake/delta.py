"""Whether a Spark session of this process has Delta, without which it neither reads nor writes a lake."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from typing import Any

from pyspark.sql import SparkSession

from pipeline.common.errors import LakeError
from pipeline.config.databricks import is_databricks
from pipeline.lake.stores import is_classic

EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
RESTART = "restart Python (the kernel of a notebook), and let laglake.spark_session make its first session"


def require_delta(spark: SparkSession) -> None:
    """Raises LakeError if the session has no Delta.

    Spark itself would say that the first table cannot be found. On Databricks, and behind Spark Connect, the session is
    not ours to judge.
    """
    if is_databricks() or not is_classic(spark):
        return
    if EXTENSION not in (spark.conf.get("spark.sql.extensions", None) or ""):
        raise LakeError(f"this Spark session has no Delta, so it cannot read a lake: {RESTART}")
    require_classes(spark.sparkContext._jvm, [EXTENSION])  # noqa: SLF001


def require_classes(jvm: Any, names: Iterable[str]) -> None:
    """Raises LakeError if Spark's JVM does not have one of these classes, of Delta or of laglake.

    Spark loads packages only when its JVM starts, so a session without Delta leaves the process without it, also after
    the session has been stopped. A later session would fail in its first query.
    """
    from py4j.java_gateway import JavaPackage  # pyspark-client does not have py4j

    for name in names:
        if not isinstance(reduce(getattr, name.split("."), jvm), JavaPackage):  # what py4j takes for an unknown class
            continue
        if name == EXTENSION:
            raise LakeError(f"an earlier session of this process has started Spark's JVM without Delta: {RESTART}")
        raise LakeError(f"Spark's JVM does not have {name}: in a checkout run make jars, and {RESTART}")
