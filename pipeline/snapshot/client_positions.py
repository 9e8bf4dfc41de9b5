"""Reads what a cluster's clients report now, from all configured endpoints and files."""

from __future__ import annotations

from functools import reduce

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from pipeline.analytics.clients.instances import origin
from pipeline.config import ClusterConfig
from pipeline.config.consumers import PositionsConfig


def read_client_positions(spark: SparkSession, cluster: ClusterConfig, snapshot_id: int) -> DataFrame | None:
    """Rows of `client_positions`: the last report of each client, and an error for what could not be read.

    The latter is an endpoint, a file or a line. Returns None if no positions are configured. A client whose last report
    is older than `positions_max_age` is left out, because it may have ended. The options in the plan contain secrets:
    never log it.
    """
    sources = [
        spark.read.format(p.source)
        .options(**positions_options(cluster, p, snapshot_id))
        .load()
        .withColumn("default_group", F.lit(p.group_id))
        for p in cluster.positions
    ]
    if not sources:
        return None
    rows = reduce(DataFrame.unionByName, sources)
    of_client = Window.partitionBy("source", origin(), "host", "client_id")
    oldest = F.current_timestamp() - F.make_dt_interval(secs=F.lit(cluster.positions_max_age_ms / 1000))
    is_newest = (F.col("captured_at") == F.max("captured_at").over(of_client)) & (
        F.max("as_of").over(of_client) >= oldest
    )
    return (
        rows.withColumn("is_reported", is_newest | F.col("error").isNotNull())
        .where("is_reported")
        .withColumn("group_id", F.coalesce("group_id", "default_group"))
        .drop("default_group", "is_reported")
    )


def positions_options(cluster: ClusterConfig, positions: PositionsConfig, snapshot_id: int) -> dict[str, str]:
    """The options of a data source. What is older than `positions_max_age` is not used, and the source says so.

    At least half of the time that is left for the snapshot remains for Kafka.
    """
    aged = {"max_age_ms": str(cluster.positions_max_age_ms)}
    timeout_ms = max(1, min(cluster.positions_timeout_ms, cluster.limits.read_timeout_ms // 2))
    return positions.options(snapshot_id) | aged | {"read_timeout_ms": str(timeout_ms)}
