"""What Databricks does with wheel tasks: there is a session, entry points are called in it, and it must stay.

    spark-submit wheel_tasks.py '[["laglake-run", "--config", …], …]' ENDED.json

The file gets how each command ended, and the newest lag of the tables in the schema `lakes`.
"""

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import distribution
from pathlib import Path

from pyspark.sql import SparkSession

commands, output = json.loads(sys.argv[1]), Path(sys.argv[2])
spark = SparkSession.builder.getOrCreate()
spark.sql("CREATE SCHEMA lakes")
ended = []
for name, *arguments in commands:
    (point,) = distribution("laglake").entry_points.select(name=name)
    sys.argv[:] = [name, *arguments]
    # In a thread of its own no session is active, and yet there is one.
    with ThreadPoolExecutor(1) as pool:
        error = pool.submit(point.load()).exception()
    if error and not isinstance(error, SystemExit):
        raise error
    ended.append([name, error.code if error else "returned"])
lag = spark.table("lakes.lag").where("snapshot_id = (SELECT max(snapshot_id) FROM lakes.lag)")
rows = lag.select("group_id", "partition", "consumer_lag").collect()
output.write_text(json.dumps({"ended": ended, "lag": [list(row) for row in rows]}))
