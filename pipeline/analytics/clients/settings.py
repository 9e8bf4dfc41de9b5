"""How clients are set up, beside what they report."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from pipeline.config.consumers import ConsumerSettings
from pipeline.tables import LONG, STRING

SETTINGS = (
    StructType()
    .add("group_id", STRING)
    .add("isolation_level", STRING)
    .add("queued_max_message_chunks", LONG)
    .add("fetch_message_max_bytes", LONG)
    .add("auto_commit_interval_ms", LONG)
    .add("fetch_max_wait_ms", LONG)
    .add("fetch_wait_max_ms", LONG)
    .add("fetch_max_bytes", LONG)
    .add("max_partition_fetch_bytes", LONG)
    .add("queued_max_messages_kbytes", LONG)
    .add("threads", LONG)
    .add("heap_bytes", LONG)
)
"""The columns of ConsumerSettings; NULL where nothing is said."""


def with_settings(rows: DataFrame, settings: Mapping[str, ConsumerSettings], *names: str) -> DataFrame:
    """`rows` with a column `settings`: of each setting the first that is said of what one of the columns `names` has.

    `settings` are the tables `[clients."NAME"]`, by client id or group.
    """
    if not settings:
        return rows.withColumn("settings", F.struct(*(F.lit(None).cast(f.dataType).alias(f.name) for f in SETTINGS)))
    said = [(name, tuple(getattr(s, f) for f in SETTINGS.names)) for name, s in settings.items()]
    frame = rows.sparkSession.createDataFrame(said, StructType().add("name", STRING).add("said", SETTINGS))
    found = []
    for number, name in enumerate(names):
        of_name = frame.select(F.col("name").alias(f"name_{number}"), F.col("said").alias(f"said_{number}"))
        rows = rows.join(F.broadcast(of_name), rows[name] == F.col(f"name_{number}"), how="left")
        found.append(f"said_{number}")
    first = F.struct(*(F.coalesce(*(F.col(s)[f] for s in found)).alias(f) for f in SETTINGS.names))
    return rows.withColumn("settings", first).drop(*found, *(f"name_{n}" for n in range(len(names))))
