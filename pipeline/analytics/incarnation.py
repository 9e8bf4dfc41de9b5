"""Which incarnation of a topic a committed offset belongs to.

A topic that is deleted and created again has the same name and a new topic id; an offset committed before counts in a
log that is gone. A commit belongs to the incarnation under which it was first seen.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

SERIES = ("cluster", "group_id", "topic", "partition")
"""What names one reader of one partition across snapshots."""


def with_committed_topic_id(rows: DataFrame, previous: DataFrame) -> DataFrame:
    """Add `committed_topic_id`: the topic id at the first snapshot that saw the row's committed offset.

    `rows` and `previous` have SERIES, snapshot_id, committed_offset, topic_id; `previous` are earlier rows that already
    have committed_topic_id. A commit that is unknown in between (NULL) does not count as a change. NULL where there is
    no commit, or no topic id (brokers before 2.8).
    """
    columns = [*SERIES, "snapshot_id", "committed_offset"]
    known = F.coalesce("committed_topic_id", "topic_id").alias("known_topic_id")
    history = previous.select(*columns, known, F.lit(None).alias("row"))
    fresh = rows.select(*columns, F.col("topic_id").alias("known_topic_id"), F.struct(*rows.columns).alias("row"))
    series = Window.partitionBy(*SERIES).orderBy("snapshot_id")
    before = F.last("committed_offset", ignorenulls=True).over(series.rowsBetween(Window.unboundedPreceding, -1))
    is_new_commit = F.col("committed_offset").isNotNull() & ~F.col("committed_offset").eqNullSafe(before)
    commit = Window.partitionBy(*SERIES, "commits").orderBy("snapshot_id")
    first_id = F.first("known_topic_id", ignorenulls=True).over(
        commit.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    return (
        fresh.unionByName(history)
        .withColumn("commits", F.sum(is_new_commit.cast("int")).over(series))
        .withColumn("first_topic_id", F.when(F.col("committed_offset").isNotNull(), first_id))
        .where(F.col("row").isNotNull())
        .select("row.*", F.col("first_topic_id").alias("committed_topic_id"))
    )
