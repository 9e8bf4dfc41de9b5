"""The offset ladder: rungs, the distances between them, and what unusual distances mean.

Lags keep their sign. A rung that was not observed is NULL, and so is every lag that needs it.

Rungs move while they are read. So the lower rung of three lags is read after the upper one: `committed_offset` and
`last_stable_offset` after `high_watermark`, and `high_watermark` once more after `log_end_offset`. Such a lag is 0 if
the lower rung has caught up with the upper one. Otherwise the true lag is at least this distance; the error is by how
much it can have been larger.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

LAGS: dict[str, tuple[str, str]] = {
    "consumer_lag": ("committed_offset", "high_watermark"),
    "consumer_lag_stable": ("committed_offset", "last_stable_offset"),
    "fetcher_lag": ("fetched_offset", "high_watermark"),
    "divergence": ("committed_offset", "fetched_offset"),
    "buffered": ("consumed_offset", "fetched_offset"),
    "uncommitted": ("committed_offset", "consumed_offset"),
    "transaction_lag": ("last_stable_offset", "high_watermark"),
    "replication_lag": ("high_watermark", "log_end_offset"),
    "headroom": ("log_start_offset", "committed_offset"),
}
"""The lags in offsets, each with the rung that it starts from and the rung that it ends at."""


def lags() -> dict[str, Column]:
    """The columns of LAGS and their errors, for a frame that has the rungs.

    The true lag is at least the value, and at most the value and its error.
    """
    distances = {name: F.col(upper) - F.col(lower) for name, (lower, upper) in LAGS.items()}
    caught_up = F.lit(0).cast("bigint")
    # If the high watermark was not read again, it is not known whether it has moved.
    after = F.coalesce("log_after", "log_high_watermark")
    unreplicated = F.col("log_end") - after
    unstable = distances["transaction_lag"]
    return distances | {
        **{
            name: F.when(has_overtaken_older(LAGS[name][1]), caught_up).otherwise(distances[name])
            for name in ("consumer_lag", "consumer_lag_stable")
        },
        "consumer_lag_error": consumer_lag_error(),
        "replication_lag": F.when(unreplicated < 0, caught_up).otherwise(unreplicated),
        "replication_lag_error": F.when(unreplicated > 0, F.col("log_after") - F.col("log_high_watermark")).when(
            unreplicated <= 0, caught_up
        ),
        "transaction_lag_error": F.when(unstable > 0, F.col("high_watermark_after") - F.col("high_watermark")).when(
            unstable <= 0, caught_up
        ),
    }


def counted_lag(lag: Column) -> Column:
    """A lag as a part of a sum: 0 if it is negative; NULL if it is not known.

    A commit beyond the end of one partition takes nothing away from what is unread in the others. One admin client that
    committed 2^63 − 1 in a single partition made the sum of its group −9.2 × 10^18.
    """
    return F.when(lag < 0, F.lit(0).cast("bigint")).otherwise(lag)


def has_overtaken(end: str) -> Column:
    """Whether the group has committed beyond an end of the log after that end was read, so that it is not behind.

    If the commit was already beyond the end before that, the log was truncated or recreated, and this is false.
    """
    return (F.col("committed_offset") > F.col(end)) & (F.col("earlier_offset") <= F.col(end))


def has_overtaken_older(end: str) -> Column:
    """`has_overtaken`; also true if no end was read with the commit, and the partition's own end is older than it."""
    is_older = F.col("end_offset").isNull() & (F.col("captured_at") < F.col("committed_captured_at"))
    is_later_commit = F.coalesce(is_older, F.lit(False)) & (F.col("committed_offset") > F.col(end))
    return F.coalesce(has_overtaken(end), F.lit(False)) | is_later_commit


def consumer_lag_error() -> Column:
    """How far the group's commit moved while the end was read; NULL if the end was not read with the commit."""
    moved = F.least("committed_offset", "high_watermark") - F.col("earlier_offset")
    return F.when(moved < 0, 0).otherwise(moved).cast("bigint")


def has_unread() -> Column:
    """Whether a record may be unread, for a row of `lag`: not if all of its lag is known to be transaction markers."""
    return F.col("consumer_lag") > F.coalesce("unread_markers", F.lit(0))


def has_no_watermark() -> Column:
    """The log's end is unknown."""
    return F.col("high_watermark").isNull()


def has_unknown_commit() -> Column:
    """The committed offset could not be read; whether there is one is not known."""
    return F.col("committed_error").isNotNull()


def has_no_commit() -> Column:
    """The group has committed nothing here."""
    return F.col("committed_offset").isNull()


def is_recreated() -> Column:
    """The topic has another id than when this offset was committed, so the offset refers to a log that was deleted."""
    return F.col("committed_topic_id") != F.col("topic_id")


def is_truncated() -> Column:
    """The leader epoch stored with the commit ends below it now, but did not when the same commit was seen earlier."""
    return F.coalesce("is_truncated", F.lit(False))


def is_beyond_end() -> Column:
    """The commit is beyond the end: the log was truncated, or was recreated without a snapshot noticing it."""
    # Redpanda does not report the log end offset.
    is_past = F.col("committed_offset") > F.coalesce("log_end_offset", "high_watermark")
    end = F.when(F.col("log_end_offset").isNotNull(), has_overtaken_older("log_end_offset"))
    return is_past & ~F.coalesce(end, has_overtaken_older("high_watermark"))


def is_deleted() -> Column:
    """Records after the commit have been deleted."""
    return F.col("committed_offset") < F.col("log_start_offset")


def read_up_to() -> Column:
    """The offset up to which the group has certainly read: the greater of its commit and a client's consumed offset.

    NULL if neither is known.
    """
    return F.greatest("committed_offset", "consumed_offset")


def deleted_unread_offsets() -> Column:
    """How many offsets from `read_up_to` to log start were deleted; 0 or less if none were."""
    return F.col("log_start_offset") - read_up_to()


def is_deleted_unread() -> Column:
    """Records were deleted that the group has not read, as far as it is known."""
    return deleted_unread_offsets() > 0


def offset_status() -> Column:
    """The first status that holds, in order of severity; NULL if the commit is unknown."""
    return (
        F.when(has_no_watermark(), "no_watermark")
        .when(has_unknown_commit(), F.lit(None).cast("string"))
        .when(has_no_commit(), "no_commit")
        .when(is_recreated(), "recreated")
        .when(is_beyond_end(), "beyond_end")
        .when(is_truncated(), "truncated")
        .when(is_deleted_unread(), "deleted_unread")
        .when(is_deleted(), "deleted_uncommitted")
        .otherwise("ok")
    )
