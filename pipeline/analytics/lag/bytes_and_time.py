"""Lag in bytes and in milliseconds: the distance between two rungs on the ruler of their partition.

A rung is an offset with its READING: its position and time. Lags keep their sign, and are NULL if a rung is not known
or the ruler does not reach it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from pyspark.sql import Column
from pyspark.sql import functions as F

BYTE_LAGS: dict[str, tuple[str, str]] = {
    "consumer_lag_bytes": ("unread", "high_watermark"),
    "fetcher_lag_bytes": ("fetched", "high_watermark"),
    "buffered_bytes": ("consumed", "fetched"),
    "uncommitted_bytes": ("committed", "consumed"),
    "headroom_bytes": ("log_start", "committed"),
    "kip532_bytes": ("kip532", "log_end"),
}
TIME_LAGS: dict[str, tuple[str, str]] = {
    "consumer_lag_ms": ("unread", "high_watermark"),
    "fetcher_lag_ms": ("fetched", "high_watermark"),
    "headroom_ms": ("log_start", "committed"),
    "kip532_ms": ("kip532", "log_end"),
}
"""The lags in bytes and in record time, each with the rung that it starts from and the rung that it ends at."""


class Rung(NamedTuple):
    """An offset, and its READING."""

    offset: Column
    reading: Column


def bytes_between(lower: Rung, upper: Rung) -> Column:
    """The bytes of the batches from one rung to the other."""
    span = upper.reading["position_bytes"] - lower.reading["position_bytes"]
    return F.when(lower.offset == upper.offset, 0).otherwise(span)


def bytes_error(lower: Rung, upper: Rung) -> Column:
    """The error of `bytes_between`."""
    low, high = lower.reading, upper.reading
    errors = low["position_error_bytes"] + high["position_error_bytes"] + drift(lower, upper)
    return F.when(lower.offset == upper.offset, 0).otherwise(errors)


def drift(lower: Rung, upper: Rung) -> Column:
    """The part of the error of `bytes_between` that comes from estimated growth between the two rungs."""
    between = upper.reading["drift_after_bytes"] - lower.reading["drift_before_bytes"]
    return F.greatest(between, F.lit(0).cast("bigint"))


def bytes_method(lower: Rung, upper: Rung) -> Column:
    """How the bytes were determined.

    `exact`; `interpolated`; `extrapolated` if growth between the rungs was estimated; `local_only` if the lower rung is
    below what is on the broker's disk, so that the bytes are not known.
    """
    return (
        F.when(lower.offset == upper.offset, "exact")
        .when(~lower.reading["is_local"], "local_only")
        .when(bytes_between(lower, upper).isNull(), F.lit(None).cast("string"))
        .when(lower.reading["is_exact"] & upper.reading["is_exact"], "exact")
        .when(drift(lower, upper) > 0, "extrapolated")
        .otherwise("interpolated")
    )


def ms_between(lower: Rung, upper: Rung) -> Column:
    """The time from the first record of the span to the last: 0 for one record, and for none."""
    forth = upper.reading["newest_before_ms"] - lower.reading["timestamp_ms"]
    back = upper.reading["timestamp_ms"] - lower.reading["newest_before_ms"]
    return F.when(lower.offset == upper.offset, 0).when(lower.offset < upper.offset, forth).otherwise(back)


def ms_error(lower: Rung, upper: Rung) -> Column:
    """The error of `ms_between`."""
    errors = lower.reading["timestamp_error_ms"] + upper.reading["newest_before_error_ms"]
    return F.when(lower.offset == upper.offset, 0).when(ms_between(lower, upper).isNotNull(), errors)


def time_method(lower: Rung, upper: Rung) -> Column:
    """`exact`, `interpolated`, or `arrival` if the times are those at which snapshots saw the offsets."""
    return (
        F.when(lower.offset == upper.offset, "exact")
        .when(ms_between(lower, upper).isNull(), F.lit(None).cast("string"))
        .when(lower.reading["is_exact"] & upper.reading["is_exact"], "exact")
        .when(lower.reading["is_arrival"] | upper.reading["is_arrival"], "arrival")
        .otherwise("interpolated")
    )


def age_ms(lower: Rung, upper: Rung, captured_ms: Column) -> Column:
    """How long ago the first unread record was written; 0 if no record is unread, as far as unread_markers shows it."""
    records = upper.offset - lower.offset - F.coalesce("unread_markers", F.lit(0))
    return F.when(records <= 0, 0).otherwise(captured_ms - lower.reading["timestamp_ms"])


def _moved(
    between: Callable[[Rung, Rung], Column], error: Callable[[Rung, Rung], Column], earlier: Rung, committed: Rung
) -> Column:
    """By how much the lag may have been larger when the log end was read, because the commit was read after it.

    This is the distance from the earlier commit, read before the log end, to the commit, plus its error.
    """
    more = between(earlier, committed) + error(earlier, committed)
    return F.when(earlier.offset < committed.offset, more).otherwise(F.lit(0).cast("bigint"))


def unit_columns(rungs: dict[str, Rung], captured_ms: Column) -> dict[str, Column]:
    """The columns of `lag` in bytes and ms. `rungs` are by name."""
    consumer = rungs["unread"], rungs["high_watermark"]
    moved = rungs["earlier"], rungs["unread"]
    # The end that was read with a commit may lie beyond the end of the ruler. The bytes in between are estimated from
    # the mean size of a record. If that is not known, the bytes are not known either.
    beyond = F.ceil(F.col("beyond_records") * F.col("record_bytes"))
    beyond_bytes = F.when(F.col("beyond_records") > 0, beyond).otherwise(0).cast("bigint")
    return {
        **{name: bytes_between(rungs[low], rungs[high]) for name, (low, high) in BYTE_LAGS.items()},
        **{name: ms_between(rungs[low], rungs[high]) for name, (low, high) in TIME_LAGS.items()},
        "consumer_lag_bytes": bytes_between(*consumer) + beyond_bytes,
        "consumer_age_ms": age_ms(*consumer, captured_ms),
        "bytes_method": F.when(beyond_bytes.isNotNull(), bytes_method(*consumer)),
        "bytes_error": bytes_error(*consumer) + _moved(bytes_between, bytes_error, *moved) + beyond_bytes,
        **_position(F.col("high_watermark_on_ruler"), beyond_bytes),
        "time_method": time_method(*consumer),
        "time_error_ms": ms_error(*consumer) + _moved(ms_between, ms_error, *moved) + F.col("beyond_ms"),
    }


def _position(end: Column, beyond_bytes: Column) -> dict[str, Column]:
    """Where the high watermark is on the ruler. The ruler of a compacted log counts from another start each time."""
    counts_on = ~F.col("is_compacted")
    return {
        "high_watermark_bytes": F.when(counts_on, end["position_bytes"] + beyond_bytes),
        "high_watermark_error_bytes": F.when(counts_on, end["drift_after_bytes"]),
    }


def reader_age(rungs: dict[str, Rung], captured_ms: Column) -> dict[str, Column]:
    """The age of the record that the reader fetches next, as far as it is known: KIP-532 measures from this rung."""
    reader = rungs["kip532"]
    return {
        "is_tail_reader": reader.offset >= rungs["high_watermark"].offset,
        "reader_age_ms": captured_ms - reader.reading["timestamp_ms"],
        "reader_age_error_ms": reader.reading["timestamp_error_ms"],
    }
