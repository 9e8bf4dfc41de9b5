"""Spark's Python workers: whether they can run laglake's data sources, which need its package and those it uses."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from pipeline.common.errors import SessionError, first_line
from pipeline.config.databricks import is_databricks
from pipeline.lake.stores import is_classic

FOLDER = Path(__file__).resolve().parents[2]
"""The folder that has the package."""
DEFAULT_PYTHON = "python3"
_REASON = re.compile(r"^(?:\w+\.)*\w*Error: .+$", re.MULTILINE)
"""The last line of a Python traceback."""


def use_own_python(spark: SparkSession) -> None:
    """Lets the workers of a session on one machine use the Python of this process, unless another one is chosen.

    By default Spark takes the `python3` of PATH. In a kernel, an IDE or cron, where the environment is not activated,
    that is another one, which does not have laglake. `spark_session` makes the same choice for its own sessions.
    """
    if is_databricks() or not is_classic(spark) or "PYSPARK_PYTHON" in os.environ:
        return
    context = spark.sparkContext
    if context.pythonExec == DEFAULT_PYTHON and is_local(context.master or ""):
        context.pythonExec = sys.executable


def is_local(master: str) -> bool:
    """Whether driver and executors are one process."""
    return master == "local" or master.startswith("local[")


def require_workers(spark: SparkSession) -> None:
    """Raises SessionError if a Python worker cannot import laglake. No broker is asked."""
    try:
        spark.read.format("kafka_brokers").option("bootstrap_servers", "127.0.0.1:1").load().schema  # noqa: B018
    except Exception as error:  # of many types: of Spark, of py4j, of a server
        reasons = _REASON.findall(str(error))
        reason = reasons[-1] if reasons else first_line(error)
        raise SessionError(f"Spark's Python workers cannot run laglake ({reason}): {_remedy(spark)}") from error


def _remedy(spark: SparkSession) -> str:
    if is_databricks():
        return "install laglake on the cluster"
    if not is_classic(spark):
        return "let laglake.spark_session make the session, and install laglake's dependencies on the server"
    if spark.sparkContext.pythonExec == sys.executable:
        return f"put {FOLDER} on PYTHONPATH before the first session is made"
    return f"set PYSPARK_PYTHON to a Python that has laglake, such as {sys.executable}, before the session is made"
