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

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipeline.analytics.keys import PARTITION, PARTITION_AT, READER, READER_AT, TOPIC
from pipeline.analytics.series import read_ms_sql
from pipeline.common.arrow_sql import columns_sql, names_sql

OF_ITS_LOG = {
    "committed_topic_id": "string",
    "verified_epoch": "int",
    "is_recreated": "boolean",
    "is_truncated": "boolean",
}
"""The columns that `commits_of_moved_topics` adds to a commit."""
_IS_CUT_OFF = "coalesce(epoch_end_offset < committed_offset, false)"
_KNOWN_ID = "coalesce(committed_topic_id, topic_id)"
"""The topic id in a row of `lag`; NULL if it was not known (before Kafka 2.8)."""


def moved_topics(committed_offsets: DataFrame, watermarks: DataFrame, previous: DataFrame) -> DataFrame:
    """The topics that have several ids, an id that is not known in all rows, or are no longer listed.

    Topics in which a commit is beyond the end of its leader epoch are included. If there are no such topics, no commit
    needs `commits_of_moved_topics`. With groups that use Sarama (see above), there may always be some.
    """
    cut_off = committed_offsets.where(_IS_CUT_OFF).select(*TOPIC, *_shown("NULL", is_cut_off=True))
    listed = watermarks.where("topic IS NOT NULL").select(*TOPIC, *_shown("topic_id", is_listed=True))
    earlier = previous.where(f"{_KNOWN_ID} IS NOT NULL").select(*TOPIC, *_shown(_KNOWN_ID))
    topics = cut_off.union(listed).union(earlier).groupBy(*TOPIC)
    has_moved = F.expr("max(is_cut_off) OR NOT max(is_listed) OR min(id) <> max(id)")
    return topics.agg(has_moved.alias("has_moved")).where("has_moved").select(*TOPIC)


def _shown(topic_id: str, *, is_listed: bool = False, is_cut_off: bool = False) -> list[Column]:
    """What a row shows of its topic. NULL is an id, too. Ids are hashed, because Spark would sort texts."""
    return [
        F.xxhash64(F.expr(topic_id)).alias("id"),
        F.lit(is_listed).alias("is_listed"),
        F.lit(is_cut_off).alias("is_cut_off"),
    ]


def commits_of_moved_topics() -> str:
    """The query for which log the commits in moved topics belong to. In others, they belong to the current topic id.

    It reads `commits`, `watermarks` and `previous`, rows of `lag` of earlier snapshots, all of the same partitions.
    `reach` (snapshot_id, since) has for each snapshot the newest complete one before it: if no snapshot since then had
    the commit, it is a new one, even at the same offset.

    A row for each reader and snapshot: READER_AT, committed_topic_id and verified_epoch (as in LAG), and is_recreated
    and is_truncated, which say that the commit belongs to another log than the current one.
    """
    now = {
        "committed_offset": "committed_offset",
        "topic_id": "topic_id",
        "read_ms": read_ms_sql("commits.captured_at"),
        "leader_epoch": "commits.leader_epoch",
        "is_cut_off": _IS_CUT_OFF,
        "verified_epoch": verified_epoch("commits.leader_epoch", "watermarks.leader_epoch"),
        "is_now": "true",
    }
    before = {
        "committed_offset": "committed_offset",
        "topic_id": _KNOWN_ID,
        "read_ms": read_ms_sql("committed_captured_at"),
        "leader_epoch": "NULL",
        "is_cut_off": "false",
        "verified_epoch": "verified_epoch",
        "is_now": "false",
    }
    partition, partition_at, reader_at = (names_sql(key) for key in (PARTITION, PARTITION_AT, READER_AT))
    return f"""
        WITH moved AS ({_MOVED_PARTITIONS}),
        seen AS (
            SELECT {reader_at}, {columns_sql(now)}
            FROM commits SEMI JOIN moved USING ({partition}) LEFT JOIN watermarks USING ({partition_at})
            UNION ALL
            SELECT {reader_at}, {columns_sql(before)} FROM previous SEMI JOIN moved USING ({partition})
        ),
        {_FIRST_SEEN}
        SELECT {reader_at}, committed_topic_id, verified_epoch, committed_topic_id <> topic_id AS is_recreated,
            is_cut_off AND coalesce(verified_epoch = leader_epoch, false) AS is_truncated
        FROM first_seen WHERE is_now
    """


def verified_epoch(committed_epoch: str, log_epoch: str) -> str:
    """The leader epoch stored with a commit, if it reaches the commit; NULL if it does not, or this is not known."""
    is_going_on = f"(epoch_end_offset IS NULL AND {committed_epoch} = {log_epoch})"
    is_within = f"{is_going_on} OR epoch_end_offset >= committed_offset"
    return f"CASE WHEN {is_within} THEN {committed_epoch} END"


_MOVED_PARTITIONS = f"""
    WITH ids AS (
        SELECT {names_sql(PARTITION)}, topic_id, true AS is_listed FROM watermarks
        UNION ALL
        SELECT {names_sql(PARTITION)}, {_KNOWN_ID}, false FROM previous WHERE {_KNOWN_ID} IS NOT NULL
    )
    -- NULL counts as one of several ids.
    SELECT {names_sql(PARTITION)} FROM ids GROUP BY ALL
    HAVING count(DISTINCT topic_id) + CAST(bool_or(topic_id IS NULL) AS int) > 1 OR NOT bool_or(is_listed)
    UNION
    SELECT {names_sql(PARTITION)} FROM commits WHERE {_IS_CUT_OFF}
"""
"""The partitions in which `moved_topics` would find something. In others, there is nothing to find out."""

_SERIES = f"PARTITION BY {names_sql(READER)} ORDER BY read_ms, snapshot_id"
_COMMIT = f"PARTITION BY {names_sql(READER)}, commits ORDER BY read_ms, snapshot_id ROWS UNBOUNDED PRECEDING"
_FIRST_SEEN = f"""
    compared AS (
        SELECT seen.*, since,
            last_value(committed_offset IGNORE NULLS) OVER (
                {_SERIES} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
            ) AS offset_before,
            last_value(CASE WHEN committed_offset IS NOT NULL THEN snapshot_id END IGNORE NULLS) OVER (
                PARTITION BY {names_sql(READER)} ORDER BY snapshot_id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
            ) AS known_at
        FROM seen LEFT JOIN reach USING (snapshot_id)
    ),
    runs AS (
        SELECT *, sum(CAST(
            committed_offset IS NOT NULL
            AND NOT (committed_offset IS NOT DISTINCT FROM offset_before AND coalesce(known_at >= since, true))
        AS int)) OVER ({_SERIES} ROWS UNBOUNDED PRECEDING) AS commits
        FROM compared
    ),
    first_seen AS (
        SELECT * REPLACE (
            CASE WHEN committed_offset IS NOT NULL
            THEN last_value(verified_epoch IGNORE NULLS) OVER ({_COMMIT}) END AS verified_epoch
        ), CASE WHEN committed_offset IS NOT NULL
            THEN first_value(topic_id IGNORE NULLS) OVER ({_COMMIT}) END AS committed_topic_id
        FROM runs
    )
"""
"""Adds committed_topic_id, the topic id when the commit was first read; sets verified_epoch to the newest one.

The order is that in which the commits were read, because a late snapshot may be read after its successor. If a commit
is unknown in between (NULL), that is not a change, unless a complete snapshot had no commit. To decide this, the
snapshots are taken in the order of their ids, as in `reach`.
"""
