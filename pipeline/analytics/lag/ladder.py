"""The offset ladder: rungs, the distances between them, and what unusual distances mean.

Lags keep their sign. A rung that was not observed is NULL, and so is every lag that needs it.

Rungs move while they are read. So the lower rung of three lags is read after the upper one: `committed_offset` and
`last_stable_offset` after `high_watermark`, and `high_watermark` once more after `log_end_offset`. Such a lag is 0 if
the lower rung has caught up with the upper one. Otherwise the true lag is at least this distance; the error is by how
much it can have been larger.

An expression here is SQL text that DuckDB and Spark both understand, with the same result: overflow is an error, and
`least` and `greatest` pass over NULL. Its columns are those of a row of readers, see `lag.readers`.
"""

from __future__ import annotations

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


HAS_UNREAD = "consumer_lag > coalesce(unread_markers, 0)"
"""Whether a record may be unread, for a row of `lag`: not if all of its lag is known to be transaction markers."""
READ_UP_TO = "greatest(committed_offset, consumed_offset)"
"""The offset up to which the group has certainly read: the greater of its commit and a client's consumed offset.

NULL if neither is known.
"""
DELETED_UNREAD_OFFSETS = f"log_start_offset - {READ_UP_TO}"
"""How many offsets from READ_UP_TO to log start were deleted; 0 or less if none were."""


def lags() -> dict[str, str]:
    """The columns of LAGS and their errors, for rows that have the rungs.

    The true lag is at least the value, and at most the value and its error.
    """
    distances = {name: f"{upper} - {lower}" for name, (lower, upper) in LAGS.items()}
    # If the high watermark was not read again, it is not known whether it has moved.
    unreplicated = "log_end - coalesce(log_after, log_high_watermark)"
    unstable = distances["transaction_lag"]
    return distances | {
        **{
            name: f"CASE WHEN {has_overtaken_older(LAGS[name][1])} THEN 0 ELSE {distances[name]} END"
            for name in ("consumer_lag", "consumer_lag_stable")
        },
        "consumer_lag_error": counted_lag("least(committed_offset, high_watermark) - earlier_offset"),
        "replication_lag": counted_lag(unreplicated),
        "replication_lag_error": _growth_if_behind(unreplicated, "log_after - log_high_watermark"),
        "transaction_lag_error": _growth_if_behind(unstable, "high_watermark_after - high_watermark"),
    }


def _growth_if_behind(lag: str, growth: str) -> str:
    """The error of a lag whose upper rung was read first, and has grown since then; 0 if there is no lag."""
    return f"CASE WHEN {lag} > 0 THEN {growth} WHEN {lag} <= 0 THEN 0 END"


def counted_lag(lag: str) -> str:
    """A lag as a part of a sum: 0 if it is negative; NULL if it is not known.

    A commit beyond the end of one partition takes nothing away from what is unread in the others. One admin client that
    committed 2^63 − 1 in a single partition made the sum of its group −9.2 × 10^18.
    """
    return f"CASE WHEN {lag} < 0 THEN 0 ELSE {lag} END"


def has_overtaken(end: str) -> str:
    """Whether the group has committed beyond an end of the log after that end was read, so that it is not behind.

    If the commit was already beyond the end before that, the log was truncated or recreated, and this is false.
    """
    return f"(committed_offset > {end} AND earlier_offset <= {end})"


def has_overtaken_older(end: str) -> str:
    """`has_overtaken`; also true if no end was read with the commit, and the partition's own end is older than it."""
    is_older = "end_offset IS NULL AND captured_at < committed_captured_at"
    return f"(coalesce({has_overtaken(end)}, false) OR (coalesce({is_older}, false) AND committed_offset > {end}))"


HAS_NO_WATERMARK = "high_watermark IS NULL"
"""The log's end is unknown."""
HAS_UNKNOWN_COMMIT = "committed_error IS NOT NULL"
"""The committed offset could not be read; whether there is one is not known."""
HAS_NO_COMMIT = "committed_offset IS NULL"
"""The group has committed nothing here."""
IS_RECREATED = "committed_topic_id <> topic_id"
"""The topic has another id than when this offset was committed, so the offset refers to a log that was deleted."""
IS_TRUNCATED = "coalesce(is_truncated, false)"
"""The leader epoch stored with the commit ends below it now, but did not when the same commit was seen earlier."""
IS_DELETED = "committed_offset < log_start_offset"
"""Records after the commit have been deleted."""
IS_DELETED_UNREAD = f"{DELETED_UNREAD_OFFSETS} > 0"
"""Records were deleted that the group has not read, as far as it is known."""


def is_beyond_end() -> str:
    """The commit is beyond the end: the log was truncated, or was recreated without a snapshot noticing it."""
    # Redpanda does not report the log end offset.
    has_log_end = f"CASE WHEN log_end_offset IS NOT NULL THEN {has_overtaken_older('log_end_offset')} END"
    has_overtaken_end = f"coalesce({has_log_end}, {has_overtaken_older('high_watermark')})"
    return f"committed_offset > coalesce(log_end_offset, high_watermark) AND NOT {has_overtaken_end}"


def offset_status() -> str:
    """The first status that holds, in order of severity; NULL if the commit is unknown."""
    cases = {
        HAS_NO_WATERMARK: "'no_watermark'",
        HAS_UNKNOWN_COMMIT: "NULL",
        HAS_NO_COMMIT: "'no_commit'",
        IS_RECREATED: "'recreated'",
        is_beyond_end(): "'beyond_end'",
        IS_TRUNCATED: "'truncated'",
        IS_DELETED_UNREAD: "'deleted_unread'",
        IS_DELETED: "'deleted_uncommitted'",
    }
    whens = (f"WHEN {condition} THEN {status}" for condition, status in cases.items())
    return f"CASE {' '.join(whens)} ELSE 'ok' END"
