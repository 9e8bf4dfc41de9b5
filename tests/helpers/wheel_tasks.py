"""Acts like Databricks with wheel tasks: it has a session, calls entry points in it, and the session must stay.

    spark-submit wheel_tasks.py '[["laglake-run", "--config", …], …]' ENDED.json

It writes into the file how each command ended, and the newest lag in the tables of the schema `lakes`.
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
    # In another thread, no session is active, although there is one.
    with ThreadPoolExecutor(1) as pool:
        error = pool.submit(point.load()).exception()
    if error and not isinstance(error, SystemExit):
        raise error
    ended.append([name, error.code if error else "returned"])
lag = spark.table("lakes.lag").where("snapshot_id = (SELECT max(snapshot_id) FROM lakes.lag)")
rows = lag.select("group_id", "partition", "consumer_lag").collect()
output.write_text(json.dumps({"ended": ended, "lag": [list(row) for row in rows]}))
