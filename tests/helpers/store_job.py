"""A process that writes to a store, and prints the result as JSON: `store_job.py SETTINGS PROGRAM ARGUMENTS`."""

import json
import sys
import threading
from collections.abc import Sequence
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pipeline.config import LakeConfig
from pipeline.lake import Lake
from pipeline.session import spark_session
from pipeline.tables import COMPUTED
from tests.helpers.short_lived import SHORT_LIVED


def _log_store(spark: SparkSession, root: str) -> Any:
    """laglake's log store for a place."""
    jvm, conf = spark._jvm, spark._jsc.hadoopConfiguration()
    return jvm.laglake.S3LogStore(conf) if root.startswith("s3a:") else jvm.laglake.FolderLogStore(conf)


def commits(spark: SparkSession, root: str, versions: str) -> list[list[str]]:
    """Two threads commit each version at once; returns the results of both for each version."""
    jvm, conf = spark._jvm, spark._jsc.hadoopConfiguration()
    store = _log_store(spark, root)
    outcomes = [["", ""] for _ in range(int(versions))]
    together = threading.Barrier(2)

    def writer(number: int) -> None:
        for version, outcome in enumerate(outcomes):
            actions = jvm.java.util.ArrayList()
            actions.add(f"{number}")
            path = jvm.org.apache.hadoop.fs.Path(f"{root}/_delta_log/{version:020}.json")
            together.wait()
            try:
                store.write(path, actions.iterator(), False, conf)
                outcome[number] = "written"
            except Py4JJavaError as exc:
                outcome[number] = exc.java_exception.toString()
            except PySparkException as exc:  # PySpark converts some exceptions to this
                outcome[number] = str(exc)

    threads = [threading.Thread(target=writer, args=[number]) for number in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes


def loop(spark: SparkSession, root: str, name: str, count: str) -> int:
    """Makes `count` commits, each of the first free version; returns how often another writer was first."""
    jvm, conf = spark._jvm, spark._jsc.hadoopConfiguration()
    store = _log_store(spark, root)
    done = version = 0
    while done < int(count):
        actions = jvm.java.util.ArrayList()
        actions.add(f"{name} {done}")
        try:
            store.write(
                jvm.org.apache.hadoop.fs.Path(f"{root}/_delta_log/{version:020}.json"), actions.iterator(), False, conf
            )
            done += 1
        except Py4JJavaError as exc:
            if "FileAlreadyExistsException" not in exc.java_exception.toString():
                raise
        version += 1
    return version - done


def merges(spark: SparkSession, root: str, cluster: str, count: str, way: str = "spark") -> int:
    """Writes `count` marks, each in its own commit; by the driver or by Spark, where both can."""
    lake = Lake(spark, LakeConfig(root=root))
    if way == "spark":
        vars(lake)["_driver"] = None
    lake.prepare()
    rows = ((cluster, "lag", snapshot_id, None, "run", None) for snapshot_id in range(int(count)))
    return sum(lake.merge(COMPUTED, [row], cluster).inserted for row in rows)


def main(settings: str, program: str, arguments: Sequence[str]) -> None:
    """Runs the program in its own session."""
    session = spark_session("store", SHORT_LIVED | {"spark.master": "local[1]", **json.loads(settings)})
    found = {"commits": commits, "loop": loop, "merges": merges}[program](session, *arguments)
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
