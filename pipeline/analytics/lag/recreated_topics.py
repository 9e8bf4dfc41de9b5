"""Which log a commit belongs to: which incarnation of its topic, and whether the log was truncated since.

A topic that is deleted and created again has the same name and a new id, and a commit belongs to the id under which it
was first seen. An unclean election may truncate a log below a commit, and the log may grow again beyond it; then the
leader epoch stored with the commit ends below the commit (KIP-320). That alone proves nothing, because Sarama stores an
older epoch than that of the records that it has read (IBM/sarama#2694, #3418): an earlier snapshot must have seen the
same commit within the same epoch.

If a topic has always had the same id, and no commit is beyond its epoch, there is nothing to find out. So the cost
depends on the number of recreated or truncated topics, not on the number of commits.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F

from pipeline.analytics.keys import PARTITION, READER, TOPIC
from pipeline.analytics.series import read_ms, run_number


def moved_topics(committed_offsets: DataFrame, watermarks: DataFrame, previous: DataFrame) -> DataFrame:
    """The topics that have several ids, an id that is not known in all rows, or are no longer listed.

    Topics in which a commit is beyond the end of its leader epoch are included. If there are no such topics, no commit
    needs `commits_of_moved_topics`. With groups that use Sarama (see above), there may always be some.
    """
    cut_off = committed_offsets.where(_is_cut_off()).select(*TOPIC).distinct()
    seen = watermarks.where(F.col("topic").isNotNull()).select(*TOPIC, "topic_id", F.lit(True).alias("is_listed"))
    known = previous.select(*TOPIC, _known_id().alias("topic_id"), F.lit(False).alias("is_listed"))
    ids = seen.unionByName(known.where(F.col("topic_id").isNotNull())).groupBy(*TOPIC, "topic_id")
    # NULL counts as one of several ids; a topic that has only NULL is not included.
    topics = ids.agg(F.max("is_listed").alias("is_listed")).groupBy(*TOPIC)
    counted = topics.agg(F.count("*").alias("ids"), F.max("is_listed").alias("is_listed"))
    moved = counted.where((F.col("ids") > 1) | ~F.col("is_listed")).select(*TOPIC)
    return moved.unionByName(cut_off)


def commits_of_moved_topics(
    committed_offsets: DataFrame,
    watermarks: DataFrame,
    previous: DataFrame,
    reach: Mapping[int, int] = MappingProxyType({}),
) -> DataFrame:
    """Which log the commits in `moved_topics` belong to. In all other topics, commits belong to the current topic id.

    A row for each reader and snapshot: READER, snapshot_id, committed_topic_id and verified_epoch (as in LAG), and
    is_recreated and is_truncated, which say that the commit belongs to another log than the current one. `previous` are
    rows of `lag` of earlier snapshots. `reach` maps a snapshot to the newest complete one before it: if no snapshot
    since then had the commit, it is a new one, even at the same offset.
    """
    moved = F.broadcast(moved_topics(committed_offsets, watermarks, previous))
    ids = watermarks.select(*PARTITION, "snapshot_id", "topic_id", F.col("leader_epoch").alias("log_epoch"))
    now = committed_offsets.join(moved, TOPIC, how="left_semi").join(ids, [*PARTITION, "snapshot_id"], how="left")
    earlier = previous.join(moved, TOPIC, how="left_semi").withColumn("topic_id", _known_id())
    columns = [*READER, "snapshot_id", "committed_offset", "topic_id"]
    stored = now.select(
        *columns,
        read_ms().alias("read_ms"),
        "leader_epoch",
        _is_cut_off().alias("is_cut_off"),
        verified_epoch("leader_epoch", "log_epoch").alias("verified_epoch"),
        F.lit(True).alias("is_now"),
    )
    read = read_ms("committed_captured_at").alias("read_ms")
    known = earlier.select(*columns, read, "verified_epoch", F.lit(False).alias("is_now"))
    rows = _with_first_seen(stored.unionByName(known, allowMissingColumns=True), reach)
    was_within = F.coalesce(F.col("verified_epoch") == F.col("leader_epoch"), F.lit(False))
    return rows.where("is_now").select(
        *READER,
        "snapshot_id",
        "committed_topic_id",
        "verified_epoch",
        (F.col("committed_topic_id") != F.col("topic_id")).alias("is_recreated"),
        (F.col("is_cut_off") & was_within).alias("is_truncated"),
    )


def verified_epoch(committed_epoch: str, log_epoch: str) -> Column:
    """The leader epoch stored with a commit, if it reaches the commit; NULL if it does not, or this is not known."""
    is_going_on = F.col("epoch_end_offset").isNull() & (F.col(committed_epoch) == F.col(log_epoch))
    is_within = is_going_on | (F.col("epoch_end_offset") >= F.col("committed_offset"))
    return F.when(is_within, F.col(committed_epoch))


def _is_cut_off() -> Column:
    return F.coalesce(F.col("epoch_end_offset") < F.col("committed_offset"), F.lit(False))


def _known_id() -> Column:
    """The topic id in a row of `lag`; NULL if it was not known (before Kafka 2.8)."""
    return F.coalesce("committed_topic_id", "topic_id")


def _with_first_seen(rows: DataFrame, reach: Mapping[int, int]) -> DataFrame:
    """Adds committed_topic_id, the topic id when the commit was first read; sets verified_epoch to the newest one.

    The order is that in which the commits were read, because a late snapshot may be read after its successor. If a
    commit is unknown in between (NULL), that is not a change, unless a complete snapshot had no commit. To decide this,
    the snapshots are taken in the order of their ids, as in `reach`.
    """
    order = ("read_ms", "snapshot_id")
    series = Window.partitionBy(*READER).orderBy(*order)
    is_known = F.col("committed_offset").isNotNull()
    is_same = F.col("committed_offset").eqNullSafe(_last_before(series, F.when(is_known, F.col("committed_offset"))))
    if reach:
        by_id = Window.partitionBy(*READER).orderBy("snapshot_id")
        known_at = _last_before(by_id, F.when(is_known, F.col("snapshot_id")))
        since = F.element_at(F.create_map(*(F.lit(i) for pair in reach.items() for i in pair)), F.col("snapshot_id"))
        is_same &= F.coalesce(known_at >= since, F.lit(True))
    is_new = is_known & ~is_same
    commit = Window.partitionBy(*READER, "commits").orderBy(*order)
    first = F.first("topic_id", ignorenulls=True).over(commit.rowsBetween(Window.unboundedPreceding, Window.currentRow))
    verified = F.last("verified_epoch", ignorenulls=True).over(
        commit.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    return (
        rows.withColumn("is_new", is_new)
        .withColumn("commits", run_number(F.col("is_new"), series))
        .withColumns({"committed_topic_id": F.when(is_known, first), "verified_epoch": F.when(is_known, verified)})
    )


def _last_before(series: WindowSpec, value: Column) -> Column:
    return F.last(value, ignorenulls=True).over(series.rowsBetween(Window.unboundedPreceding, -1))
