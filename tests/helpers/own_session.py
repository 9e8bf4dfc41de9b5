"""What laglake says in a session that somebody else has made: called as a program, in a process without a session."""

import json
import os
import sys
from collections.abc import Callable
from typing import Any

from pyspark.sql import SparkSession

import laglake
from pipeline.config import LakeConfig
from pipeline.lake import Lake


def session() -> SparkSession:
    """A session as a user makes it, without Delta."""
    return SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()


def said(action: Callable[[], Any]) -> str:
    """The type and the message of what the action raises."""
    try:
        return f"nothing, but returned {action()!r}"
    except Exception as error:  # noqa: BLE001
        return f"{type(error).__name__}: {error}"


def brokers(spark: SparkSession) -> list[str]:
    """The errors of brokers where nothing listens."""
    read = spark.read.format("kafka_brokers").option("bootstrap_servers", "127.0.0.1:1")
    return [row["error"] for row in read.load().collect()]


def main(folder: str, other_python: str) -> dict[str, Any]:
    """What is said, step by step, in sessions of one process."""
    found: dict[str, Any] = {}
    spark = session()
    found["register"] = said(lambda: laglake.register(spark))
    found["brokers"] = said(lambda: brokers(spark))
    found["open_lake"] = said(lambda: laglake.open_lake(spark, folder))
    found["prepare"] = said(Lake(spark, LakeConfig(root=folder)).prepare)
    spark.stop()
    os.environ["PYSPARK_PYTHON"] = other_python
    spark = session()
    found["register with another python"] = said(lambda: laglake.register(spark))
    found["spark_session with another python"] = said(lambda: laglake.spark_session("tests"))
    spark.stop()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    found["spark_session after a session without Delta"] = said(lambda: laglake.spark_session("tests"))
    return found


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(*sys.argv[1:])) + "\n")
