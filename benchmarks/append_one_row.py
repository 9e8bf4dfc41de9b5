"""The minimum that a job on Delta costs: start Spark, append a row. `python -m benchmarks.append_one_row FOLDER`.

The JVM has the options that spark-submit.sh gives to a single run.
"""

from __future__ import annotations

import sys

from pipeline.session import spark_session

SETTINGS = {
    "spark.master": "local[2]",
    "spark.driver.defaultJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseParallelGC",
}


def main(folder: str) -> int:
    """Appends a row to the Delta table in the folder, which is created if it does not exist."""
    spark = spark_session("one row", SETTINGS)
    spark.range(1).write.format("delta").mode("append").save(folder)
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
