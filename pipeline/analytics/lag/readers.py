"""Every reader (a group at a partition) in a snapshot: its commit, the topic id of that commit, and its member."""

from __future__ import annotations

from pipeline.analytics.keys import PARTITION_AT, READER_AT
from pipeline.analytics.lag.ladder import has_overtaken
from pipeline.analytics.lag.recreated_topics import OF_ITS_LOG, commits_of_moved_topics
from pipeline.common.arrow_sql import columns_sql, names_sql

COMMIT = {
    "committed_offset": "committed_offset",
    "earlier_offset": "earlier_offset",
    "end_offset": "high_watermark",
    "stable_offset": "last_stable_offset",
    "start_offset": "log_start_offset",
    "end_after": "high_watermark_after",
    "ends_at": "ends_at",
    "committed_epoch": "leader_epoch",
    "epoch_end_offset": "epoch_end_offset",
    "committed_at": "committed_at",
    "committed_captured_at": "captured_at",
    "committed_error": "error",
}
"""What a reader has of its commit: its column → the column of `committed_offsets`."""
MEMBER = ("member_id", "client_id", "host")
_PARTITION_AT, _READER_AT = names_sql(PARTITION_AT), names_sql(READER_AT)


def readers_sql(*, has_previous: bool) -> str:
    """The query for a row for each group and partition that the group has committed in, or its members or clients read.

    It reads `commits`, `watermarks`, `members`, `reported` and, if a topic has moved, `previous` and `reach`: see
    `commits_of_moved_topics`. A partition of a deleted topic has no rows, even if a member of a group still holds it.

    The columns are READER_AT; those of COMMIT; committed_topic_id, verified_epoch and is_truncated, if
    `commits_of_moved_topics` knows them; valid_offset, the committed offset at the time when end_offset was read, NULL
    if it belongs to another incarnation of the topic or to a truncated log; MEMBER; and what clients report.
    """
    if has_previous:
        ids = f"LEFT JOIN ({commits_of_moved_topics()}) AS moved USING ({_READER_AT})"
    else:
        ids = (
            f"CROSS JOIN (SELECT {columns_sql({name: f'NULL::{kind}' for name, kind in OF_ITS_LOG.items()})}) AS moved"
        )
    as_of_end = f"CASE WHEN {has_overtaken('end_offset')} THEN end_offset ELSE committed_offset END"
    return f"""
        WITH own_commits AS (SELECT {_READER_AT}, {columns_sql(COMMIT)} FROM commits),
        valid_commits AS (
            SELECT *, CASE WHEN NOT coalesce(is_recreated OR is_truncated, false) THEN {as_of_end} END AS valid_offset
            FROM own_commits {ids}
        ),
        own_members AS (
            -- During a rebalance, two members may have a partition. The row has the first of them by name.
            SELECT DISTINCT ON ({_READER_AT}) {_READER_AT}, {names_sql(MEMBER)}
            FROM members ORDER BY {names_sql(MEMBER)}
        )
        SELECT * EXCLUDE (is_recreated)
        FROM valid_commits FULL JOIN own_members USING ({_READER_AT}) FULL JOIN reported USING ({_READER_AT})
        ANTI JOIN ({_DELETED}) AS deleted USING ({_PARTITION_AT})
    """


_DELETED = f"""
    SELECT DISTINCT {_PARTITION_AT} FROM commits ANTI JOIN watermarks USING ({_PARTITION_AT})
    WHERE ends_at IS NOT NULL AND high_watermark IS NULL
"""
"""The partitions that are proven to be deleted. In all others, what is not known has an error.

The metadata of the snapshot does not list such a partition. A broker that was asked for it by name said that it does
not exist, and the commits in it are not denied: the row of a commit has `ends_at`, but no end. A member may hold a
deleted topic for minutes, until it refreshes its metadata. Its group was unknown, and the cluster unreadable.
"""
