"""Whether the poll loops of Java and librdkafka clients keep up, and which topic holds the others up.

Such a client asks for no more records of what it has buffered. One that has nothing buffered asks each broker at least
every fetch.max.wait.ms (500 ms); one that is slow in its application hardly asks at all, and its records-lag, which is
as of the records that came last, tells nothing of that. A partition that stands still though its client asks is paused.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pipeline.analytics.clients import CLIENT, totals

ASKING_PER_S = 0.5
"""Fetches in a second below which a client has not been asking all the time."""
CLIENT_PARTITION = ["cluster", "group_id", "client_id", "topic", "partition"]


def asking(positions: DataFrame) -> DataFrame:
    """How often each client has asked since the snapshot before: CLIENT, asked_per_s; NULL at the first.

    A counter that has become smaller began anew in between: 0.
    """
    series = Window.partitionBy("cluster", "client_id").orderBy("snapshot_id")
    seconds = (F.col("snapshot_id") - F.lag("snapshot_id").over(series)) / 1000
    asked = F.greatest(F.col("requests") - F.lag("requests").over(series), F.lit(0))
    counted = totals(positions).where(F.col("requests").isNotNull())
    return counted.select(*CLIENT, (asked / seconds).alias("asked_per_s"))


def poll_states(lag: DataFrame, positions: DataFrame) -> DataFrame:
    """How each client gets on with each partition whose consumed offset is known, at each snapshot but the first.

    cluster, snapshot_id, CLIENT_PARTITION; unread: records from consumed_offset to last_stable_offset; moved, grown:
    by how much either has moved since the snapshot before; is_waiting: it has not moved though its log has grown;
    is_slow: its client has hardly asked and has fallen behind, for two intervals; is_paused: it waits while its client
    asks, for two intervals, or has gone without while the client got records of others; or the client tells it. `lag`
    and `positions` are rows of successive snapshots.
    """
    series = Window.partitionBy(*CLIENT_PARTITION).orderBy("snapshot_id")
    of_client = Window.partitionBy(*CLIENT)

    def twice(name: str) -> Column:
        return F.col(name) & F.coalesce(F.lag(name).over(series), F.lit(False))

    # librdkafka throws away what a paused partition had buffered, and fetches of the others only.
    is_empty = (F.col("fetched_offset") == F.col("consumed_offset")) & (F.col("unread") > 0)
    is_left_out = F.col("is_waiting") & is_empty & F.lag(is_empty).over(series) & (F.max("fetched").over(of_client) > 0)
    run = Window.partitionBy(*CLIENT_PARTITION, "run").orderBy("snapshot_id")
    is_asking = F.col("asked_per_s") >= ASKING_PER_S
    return (
        lag.where(F.col("consumed_offset").isNotNull())
        .join(F.broadcast(asking(positions)), CLIENT, how="left")
        .join(F.broadcast(_told_paused(positions)), [*CLIENT, "topic", "partition"], how="left")
        # What is beyond an open transaction some cannot read: it is not what keeps a partition.
        .withColumn("end", F.coalesce("last_stable_offset", "high_watermark"))
        .withColumns(
            {
                "unread": F.col("end") - F.col("consumed_offset"),
                "moved": F.col("consumed_offset") - F.lag("consumed_offset").over(series),
                "fetched": F.col("fetched_offset") - F.lag("fetched_offset").over(series),
                "grown": F.col("end") - F.lag("end").over(series),
            }
        )
        .withColumn("is_waiting", (F.col("moved") == 0) & (F.col("grown") > 0) & (F.col("unread") > 0))
        .withColumn(
            "is_behind",
            F.coalesce(~is_asking, F.lit(False)) & (F.sum("moved").over(of_client) < F.sum("grown").over(of_client)),
        )
        .withColumn("run", F.sum(F.coalesce(~F.col("is_waiting"), F.lit(True)).cast("int")).over(series))
        .withColumn("left_out", F.sum(F.coalesce(is_left_out, F.lit(False)).cast("int")).over(run))
        .withColumn("waits_while_asking", F.coalesce(F.col("is_waiting") & is_asking, F.lit(False)))
        .withColumn("is_slow", twice("is_behind"))
        .withColumn(
            "is_paused",
            F.coalesce(
                F.col("told_paused") & (F.col("unread") > 0),
                twice("waits_while_asking") | (F.col("is_waiting") & (F.col("left_out") > 0)),
            ),
        )
        .where(F.col("moved").isNotNull())
        .select(*CLIENT_PARTITION, "snapshot_id", "unread", "moved", "grown", "is_waiting", "is_slow", "is_paused")
    )


def _told_paused(positions: DataFrame) -> DataFrame:
    """The partitions of which a client itself tells whether they are paused: CLIENT, topic, partition, told_paused."""
    told = positions.where(F.col("is_paused").isNotNull() & F.col("partition").isNotNull())
    return told.groupBy(*CLIENT, "topic", "partition").agg(F.max_by("is_paused", "as_of").alias("told_paused"))
