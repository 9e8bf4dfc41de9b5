"""When retention will delete the records that a group has not read.

An expression here is SQL text for DuckDB: see `suspects` for its columns.
"""

from __future__ import annotations

from pipeline.analytics.lag.ladder import HAS_UNREAD, READ_UP_TO
from pipeline.analytics.status.rules import FALLING_BEHIND, WAITS
from pipeline.common.arrow_sql import epoch_ms_sql

TRANSACTION = ("transaction_producer_id", "transaction_start_offset", "transaction_timestamp_ms")
"""The columns of WATERMARKS about the transaction that holds back a partition's last stable offset."""
RETENTION = ("cleanup_policy", "retention_ms", "retention_bytes")
STATE = (
    *("topic_id", "log_start_offset", "committed_offset", "consumed_offset", "high_watermark"),
    *("offset_status", "member_id"),
)
"""The columns of `lag` that `past` has of an earlier snapshot, with ends_ms and commits_ms, when both were read."""
IS_WRITTEN = f"coalesce(high_watermark > past['high_watermark'] OR max_timestamp_ms > {epoch_ms_sql('since')}, false)"
"""Whether records were written since the earlier snapshot, or since the status of the reader began."""


def time_left(within_ms: int) -> dict[str, str]:
    """How long until unread records are deleted: `deleted_in_ms`, NULL unless it is at most `within_ms`.

    It is the shorter of two times. The first is what is left of `retention.ms` for the oldest unread record, for a
    reader that has waited too long, falls behind, or whose group has no members. Kafka deletes whole segments, and
    therefore later than that, but not before. The second is what is left of the headroom while log start moves faster
    than the group reads, whatever the reason for which it moves. It moves by whole segments, so its speed counts at
    most as that at which records are written: a segment that is deleted at once says nothing about the next ones. An
    application that deletes what it has read, as Kafka Streams does, endangers nothing: see `_BY_LOG_START`. Records
    that are already deleted are not a danger, but a loss.

    Also `records_per_s`, the speed at which records are written to the partition, NULL if it is not known. An
    expression may name one of those before it.
    """
    return {
        **_SINCE_THEN,
        **_READ_ON,
        "left_of_age_ms": _BY_AGE,
        "left_of_headroom_ms": _BY_LOG_START,
        "left_ms": "least(left_of_age_ms, left_of_headroom_ms)",
        "deleted_in_ms": f"CASE WHEN left_ms <= {within_ms} THEN CAST(left_ms AS bigint) END",
        "written_since": "high_watermark::double - past['high_watermark']",
        "records_per_s": "CASE WHEN is_same_log AND written_since >= 0 THEN written_since * 1000 / passed_ms END",
    }


_SINCE_THEN = {
    # NULL if the later snapshot was not read later.
    "passed_ms": "CASE WHEN ends_ms > past['ends_ms'] THEN ends_ms - past['ends_ms'] END",
    "commits_passed_ms": "CASE WHEN commits_ms > past['commits_ms'] THEN commits_ms - past['commits_ms'] END",
    "is_same_log": "past['topic_id'] IS NOT DISTINCT FROM topic_id",
}
_IS_READABLE = f"{READ_UP_TO} < high_watermark AND {READ_UP_TO} >= log_start_offset"
_READ_ON = {
    # Whether the next record to read still exists, in the log that the commit belongs to. A marker is not a record.
    "is_unread": f"offset_status IN ('ok', 'deleted_uncommitted') AND coalesce({HAS_UNREAD}, true) AND {_IS_READABLE}",
    # Timestamps in the future, which are set aside, say nothing about the age.
    "is_arrival": "time_method IS NOT DISTINCT FROM 'arrival'",
    "is_reported": "consumed_offset IS NOT NULL AND past['consumed_offset'] IS NOT NULL",
    "now_at": "greatest(committed_offset, CASE WHEN is_reported THEN consumed_offset END)",
    "then_at": "greatest(past['committed_offset'], CASE WHEN is_reported THEN past['consumed_offset'] END)",
    "deleted_per_ms": "(log_start_offset - past['log_start_offset']) / passed_ms",
    "written_per_ms": "(high_watermark - past['high_watermark']) / passed_ms",
    "read_per_ms": "(now_at - then_at) / commits_passed_ms",
    # If a commit went back, the speed of the group is taken as 0: this does not show how fast it reads.
    "nearer_per_ms": (
        "least(deleted_per_ms, written_per_ms) "
        "- CASE WHEN read_per_ms > 0 THEN read_per_ms WHEN read_per_ms <= 0 THEN 0 END"
    ),
}
_DOES_NOT_KEEP_UP = f"(status IN {(*WAITS, FALLING_BEHIND)} OR reason IS NOT DISTINCT FROM 'no_members')"
_HAS_LIMIT = "contains(cleanup_policy, 'delete') AND retention_ms >= 0"
_LEFT = "TRY_CAST(retention_ms::HUGEINT - consumer_age_ms AS bigint)"
_BY_AGE = f"""
    CASE WHEN is_unread AND {_HAS_LIMIT} AND {_DOES_NOT_KEEP_UP} AND NOT is_arrival
    THEN CASE WHEN retention_ms < consumer_age_ms THEN 0 ELSE {_LEFT} END END
"""
"""By the age of the oldest unread record; NULL if the age is not known."""
# What is younger than half of `retention.ms` will not be deleted soon because of its age. What is not known may be.
_IS_OLD = "retention_ms >= 0 AND coalesce(CASE WHEN NOT is_arrival THEN consumer_age_ms END >= retention_ms / 2, true)"
_MAY_BE_RETENTION = f"""
    coalesce(contains(cleanup_policy, 'delete'), true)
    AND (coalesce({_IS_OLD}, true) OR coalesce(retention_bytes >= 0, true))
"""
"""Whether retention may delete the next records that the group reads, because of their age or of the log's size."""
_IS_NEAR = "is_unread AND is_same_log AND now_at - log_start_offset >= 0 AND deleted_per_ms > 0 AND nearer_per_ms > 0"
# An application that deletes what it has read moves log start to a commit, so to that of `past` or a later one.
_IS_APART = "coalesce(log_start_offset < then_at, true)"
_BY_LOG_START = f"""
    CASE WHEN {_IS_NEAR} AND ({_IS_APART} OR ({_MAY_BE_RETENTION}))
    THEN round((now_at - log_start_offset) / nearer_per_ms) END
"""
"""By the headroom, which shrinks while log start moves faster than the group reads.

If log start has reached what the group had read by then, and retention cannot be the reason, an application deletes
what it has read with DeleteRecords. Kafka Streams does that in repartition topics every 30 seconds
(`repartition.purge.interval.ms`); their headroom is always small.
"""
