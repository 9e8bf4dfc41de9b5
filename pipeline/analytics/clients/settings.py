"""Joins the configured settings of clients with what they report."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from pipeline.config.consumers import ConsumerSettings
from pipeline.tables.columns import LONG, STRING

_STRINGS = ("group_id", "isolation_level")
SETTINGS = StructType(
    [StructField(name, STRING if name in _STRINGS else LONG) for name in ConsumerSettings.model_fields]
)
"""The settings of ConsumerSettings as columns; NULL where a setting is not given."""


def with_settings(rows: DataFrame, settings: Mapping[str, ConsumerSettings], *names: str) -> DataFrame:
    """Adds `settings`: for each setting, the first value configured under any of the names in columns `names`.

    `settings` are the tables `[clients."NAME"]`, by client id or group.
    """
    if not settings:
        return rows.withColumn("settings", F.struct(*(F.lit(None).cast(f.dataType).alias(f.name) for f in SETTINGS)))
    configured = [(name, tuple(getattr(s, f) for f in SETTINGS.names)) for name, s in settings.items()]
    frame = rows.sparkSession.createDataFrame(configured, StructType().add("name", STRING).add("values", SETTINGS))
    found = []
    for number, name in enumerate(names):
        of_name = frame.select(F.col("name").alias(f"name_{number}"), F.col("values").alias(f"values_{number}"))
        rows = rows.join(F.broadcast(of_name), rows[name] == F.col(f"name_{number}"), how="left")
        found.append(f"values_{number}")
    first = F.struct(*(F.coalesce(*(F.col(s)[f] for s in found)).alias(f) for f in SETTINGS.names))
    return rows.withColumn("settings", first).drop(*found, *(f"name_{n}" for n in range(len(names))))
