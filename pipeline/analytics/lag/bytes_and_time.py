"""Lag in bytes and in milliseconds: the distance between two rungs on the ruler of their partition.

A rung is an offset with its READING: its position and time. Lags keep their sign, and are NULL if a rung is not known
or the ruler does not reach it. Expressions are SQL text for DuckDB, on the columns that `rung_readings` adds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

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
    """The column of an offset, and the name before each column of its READING: `<reading>_position_bytes` and so on."""

    offset: str
    reading: str

    def at(self, name: str) -> str:
        """The column of one value of the READING."""
        return f"{self.reading}_{name}"


RUNGS = {
    "log_start": Rung("log_start_offset", "log_start"),
    "high_watermark": Rung("high_watermark", "high_watermark"),
    "log_end": Rung("log_end_offset", "log_end"),
    "committed": Rung("valid_offset", "committed"),
    "consumed": Rung("consumed_offset", "consumed"),
    "fetched": Rung("fetched_offset", "fetched"),
    "unread": Rung("unread_offset", "unread"),
    "earlier": Rung("earlier_readable_offset", "earlier_readable"),
    "kip532": Rung("kip532_offset", "kip532"),
}
"""The rungs between which distances are measured. `unread` and `earlier` are the commit and the earlier commit, but log
start if the records in between are deleted, because they cannot be read any more."""


def bytes_between(lower: Rung, upper: Rung) -> str:
    """The bytes of the batches from one rung to the other."""
    span = f"{upper.at('position_bytes')} - {lower.at('position_bytes')}"
    return f"CASE WHEN {lower.offset} = {upper.offset} THEN 0 ELSE {span} END"


def bytes_error(lower: Rung, upper: Rung) -> str:
    """The error of `bytes_between`."""
    errors = f"{lower.at('position_error_bytes')} + {upper.at('position_error_bytes')} + {drift(lower, upper)}"
    return f"CASE WHEN {lower.offset} = {upper.offset} THEN 0 ELSE {errors} END"


def drift(lower: Rung, upper: Rung) -> str:
    """The part of the error of `bytes_between` that comes from estimated growth between the two rungs."""
    return f"greatest({upper.at('drift_after_bytes')} - {lower.at('drift_before_bytes')}, 0)"


def bytes_method(lower: Rung, upper: Rung) -> str:
    """How the bytes were determined.

    `exact`; `interpolated`; `extrapolated` if growth between the rungs was estimated; `local_only` if the lower rung is
    below what is on the broker's disk, so that the bytes are not known.
    """
    return f"""CASE
        WHEN {lower.offset} = {upper.offset} THEN 'exact'
        WHEN NOT {lower.at("is_local")} THEN 'local_only'
        WHEN ({bytes_between(lower, upper)}) IS NULL THEN NULL
        WHEN {lower.at("is_exact")} AND {upper.at("is_exact")} THEN 'exact'
        WHEN {drift(lower, upper)} > 0 THEN 'extrapolated'
        ELSE 'interpolated' END"""


def ms_between(lower: Rung, upper: Rung) -> str:
    """The time from the first record of the span to the last: 0 for one record, and for none."""
    return f"""CASE
        WHEN {lower.offset} = {upper.offset} THEN 0
        WHEN {lower.offset} < {upper.offset} THEN {upper.at("newest_before_ms")} - {lower.at("timestamp_ms")}
        ELSE {upper.at("timestamp_ms")} - {lower.at("newest_before_ms")} END"""


def ms_error(lower: Rung, upper: Rung) -> str:
    """The error of `ms_between`."""
    return f"""CASE
        WHEN {lower.offset} = {upper.offset} THEN 0
        WHEN ({ms_between(lower, upper)}) IS NOT NULL
        THEN {lower.at("timestamp_error_ms")} + {upper.at("newest_before_error_ms")} END"""


def time_method(lower: Rung, upper: Rung) -> str:
    """`exact`, `interpolated`, or `arrival` if the times are those at which snapshots saw the offsets."""
    return f"""CASE
        WHEN {lower.offset} = {upper.offset} THEN 'exact'
        WHEN ({ms_between(lower, upper)}) IS NULL THEN NULL
        WHEN {lower.at("is_exact")} AND {upper.at("is_exact")} THEN 'exact'
        WHEN {lower.at("is_arrival")} OR {upper.at("is_arrival")} THEN 'arrival'
        ELSE 'interpolated' END"""


def age_ms(lower: Rung, upper: Rung) -> str:
    """How long ago the first unread record was written; 0 if no record is unread, as far as unread_markers shows it."""
    records = f"{upper.offset} - {lower.offset} - coalesce(unread_markers, 0)"
    return f"CASE WHEN {records} <= 0 THEN 0 ELSE captured_ms - {lower.at('timestamp_ms')} END"


def _moved(between: Callable[[Rung, Rung], str], error: Callable[[Rung, Rung], str]) -> str:
    """By how much the lag may have been larger when the log end was read, because the commit was read after it.

    This is the distance from the earlier commit, read before the log end, to the commit, plus its error.
    """
    moved = RUNGS["earlier"], RUNGS["unread"]
    more = f"({between(*moved)}) + ({error(*moved)})"
    return f"CASE WHEN {moved[0].offset} < {moved[1].offset} THEN {more} ELSE 0 END"


def unit_columns() -> dict[str, str]:
    """The columns of `lag` in bytes and ms, on rows that have `beyond_bytes` and `captured_ms`."""
    consumer = RUNGS["unread"], RUNGS["high_watermark"]
    return {
        **{name: bytes_between(RUNGS[low], RUNGS[high]) for name, (low, high) in BYTE_LAGS.items()},
        **{name: ms_between(RUNGS[low], RUNGS[high]) for name, (low, high) in TIME_LAGS.items()},
        "consumer_lag_bytes": f"({bytes_between(*consumer)}) + beyond_bytes",
        "consumer_age_ms": age_ms(*consumer),
        "bytes_method": f"CASE WHEN beyond_bytes IS NOT NULL THEN {bytes_method(*consumer)} END",
        "bytes_error": f"({bytes_error(*consumer)}) + ({_moved(bytes_between, bytes_error)}) + beyond_bytes",
        # The ruler of a compacted log counts from another start each time.
        "high_watermark_bytes": "CASE WHEN NOT is_compacted THEN end_on_ruler_position_bytes + beyond_bytes END",
        "high_watermark_error_bytes": "CASE WHEN NOT is_compacted THEN end_on_ruler_drift_after_bytes END",
        "time_method": time_method(*consumer),
        "time_error_ms": f"({ms_error(*consumer)}) + ({_moved(ms_between, ms_error)}) + beyond_ms",
    }


BEYOND_BYTES = (
    """CASE WHEN beyond_records > 0 THEN try_cast(ceil(beyond_records * record_bytes) AS bigint) ELSE 0 END"""
)
"""The bytes between the end of the ruler and the end that was read with a commit, which may lie beyond it.

They are estimated from the mean size of a record. If that is not known, the bytes are not known either."""


def reader_age() -> dict[str, str]:
    """The age of the record that the reader fetches next, as far as it is known: KIP-532 measures from this rung."""
    reader = RUNGS["kip532"]
    return {
        "is_tail_reader": f"{reader.offset} >= high_watermark",
        "reader_age_ms": f"captured_ms - {reader.at('timestamp_ms')}",
        "reader_age_error_ms": reader.at("timestamp_error_ms"),
    }
