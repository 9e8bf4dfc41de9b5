"""Which incarnation of a topic a commit belongs to.

A topic that is deleted and created again has the same name and a new id, and a commit belongs to the id under which it
was first seen. Where a topic has had one id all along there is nothing to find out: so what this costs follows the
topics that have moved, not the commits.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

_TOPIC = ["cluster", "topic"]
_PARTITION = [*_TOPIC, "partition"]
_SERIES = [*_PARTITION, "group_id"]
"""What names one reader of one partition across snapshots."""


def commits_of_moved_topics(committed_offsets: DataFrame, watermarks: DataFrame, previous: DataFrame) -> DataFrame:
    """The topic ids of what is committed in topics that have not had one id all along.

    A row for each reader and snapshot: committed_topic_id, and is_recreated where it is not the topic's id any more.
    `previous` are rows of `lag` before. What is committed in all other topics belongs to the id that they have.
    """
    moved = F.broadcast(_moved_topics(watermarks, previous))
    ids = watermarks.select(*_PARTITION, "snapshot_id", "topic_id")
    now = committed_offsets.join(moved, _TOPIC, how="left_semi").join(ids, [*_PARTITION, "snapshot_id"], how="left")
    earlier = previous.join(moved, _TOPIC, how="left_semi").withColumn("topic_id", _known_id())
    columns = [*_SERIES, "snapshot_id", "committed_offset", "topic_id"]
    rows = _with_first_seen(
        now.select(*columns, F.lit(True).alias("is_now")).unionByName(
            earlier.select(*columns, F.lit(False).alias("is_now"))
        )
    )
    return rows.where("is_now").select(
        *_SERIES,
        "snapshot_id",
        "committed_topic_id",
        (F.col("committed_topic_id") != F.col("topic_id")).alias("is_recreated"),
    )


def _known_id() -> Column:
    """The id of a row of `lag`, NULL where none was known (before Kafka 2.8)."""
    return F.coalesce("committed_topic_id", "topic_id")


def _moved_topics(watermarks: DataFrame, previous: DataFrame) -> DataFrame:
    """The topics with several ids, with one that is not known everywhere, or that are not listed any more."""
    seen = watermarks.where(F.col("topic").isNotNull()).select(*_TOPIC, "topic_id", F.lit(True).alias("is_listed"))
    known = previous.select(*_TOPIC, _known_id().alias("topic_id"), F.lit(False).alias("is_listed"))
    ids = seen.unionByName(known.where(F.col("topic_id").isNotNull())).groupBy(*_TOPIC, "topic_id")
    # Of several ids one may be NULL; a topic without any is not among them.
    topics = ids.agg(F.max("is_listed").alias("is_listed")).groupBy(*_TOPIC)
    counted = topics.agg(F.count("*").alias("ids"), F.max("is_listed").alias("is_listed"))
    return counted.where((F.col("ids") > 1) | ~F.col("is_listed")).select(*_TOPIC)


def _with_first_seen(rows: DataFrame) -> DataFrame:
    """With committed_topic_id: the topic id at the first snapshot that saw the commit.

    A commit that is unknown in between (NULL) does not count as a change.
    """
    series = Window.partitionBy(*_SERIES).orderBy("snapshot_id")
    before = F.last("committed_offset", ignorenulls=True).over(series.rowsBetween(Window.unboundedPreceding, -1))
    is_new = F.col("committed_offset").isNotNull() & ~F.col("committed_offset").eqNullSafe(before)
    commit = Window.partitionBy(*_SERIES, "commits").orderBy("snapshot_id")
    first = F.first("topic_id", ignorenulls=True).over(commit.rowsBetween(Window.unboundedPreceding, Window.currentRow))
    return rows.withColumn("commits", F.sum(is_new.cast("int")).over(series)).withColumn(
        "committed_topic_id", F.when(F.col("committed_offset").isNotNull(), first)
    )
