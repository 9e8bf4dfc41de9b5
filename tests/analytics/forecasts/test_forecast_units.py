"""Rates in bytes, and when retention deletes records, from rows of `lag`."""

from typing import Any

import pytest

from pipeline.common.epoch import MINUTE_MS
from tests.helpers.forecast_rows import NAMES, T0, followed, lag_of, lag_row, summed

IN_BYTES = f"{NAMES} log_start_offset high_watermark_bytes high_watermark_error_bytes consumer_lag_bytes bytes_error"


def in_bytes(number: int, partition: int = 0, **odd: Any) -> tuple[Any, ...]:
    """After so many minutes: 6,000 records of 100 bytes were written each minute, 3,000 of 50 bytes were committed."""
    end, commit = 6_000 * number, 3_000 * number
    values = {
        "log_start_offset": 0,
        "high_watermark_bytes": 7_000 + 100 * end,
        "high_watermark_error_bytes": 0,
        "consumer_lag_bytes": 100 * end - 50 * commit,
        "bytes_error": 10,
    } | odd
    row = lag_row(T0 + number * MINUTE_MS, "g", "t", partition, commit, end)
    return (*row, *(values[name] for name in IN_BYTES.removeprefix(NAMES).split()))


Case = tuple[list[tuple[Any, ...]], tuple[float | None, float | None, str | None]]
BYTES_KNOWN: dict[str, Case] = {
    "known": ([in_bytes(0), in_bytes(5)], (10_000.0, 2_500.0, None)),
    "of two partitions": (
        [in_bytes(0), in_bytes(0, 1), in_bytes(5), in_bytes(5, 1)],
        (20_000.0, 5_000.0, None),
    ),
    "not known in one partition": (
        [in_bytes(0), in_bytes(0, 1), in_bytes(5), in_bytes(5, 1, high_watermark_bytes=None)],
        (None, None, "not_known"),
    ),
    "not known before": ([in_bytes(0, high_watermark_bytes=None), in_bytes(5)], (None, None, "too_little_history")),
    "where the commit is, is not known": (
        [in_bytes(0), in_bytes(5, consumer_lag_bytes=None)],
        (10_000.0, None, "not_known"),
    ),
    "the commit is below log start": (
        [in_bytes(0), in_bytes(5, log_start_offset=15_001)],
        (10_000.0, None, "not_known"),
    ),
    "at log start": ([in_bytes(0), in_bytes(5, log_start_offset=15_000)], (10_000.0, 2_500.0, None)),
    # 3,000,000 bytes were written, and 750,000 committed.
    "a quarter was estimated": (
        [in_bytes(0, high_watermark_error_bytes=9), in_bytes(5, high_watermark_error_bytes=750_009)],
        (10_000.0, None, "too_uncertain"),
    ),
    "more was estimated": (
        [in_bytes(0), in_bytes(5, high_watermark_error_bytes=750_001)],
        (None, None, "too_uncertain"),
    ),
    "the lag is uncertain by a quarter": ([in_bytes(0), in_bytes(5, bytes_error=187_490)], (10_000.0, 2_500.0, None)),
    "by more": ([in_bytes(0), in_bytes(5, bytes_error=187_491)], (10_000.0, None, "too_uncertain")),
    "the position goes back": (
        [in_bytes(0), in_bytes(5, high_watermark_bytes=6_999, consumer_lag_bytes=0)],
        (None, None, "too_uncertain"),
    ),
}


@pytest.mark.parametrize("case", BYTES_KNOWN)
def test_rates_in_bytes_are_given_where_they_are_known_well_enough(case: str) -> None:
    rows, expected = BYTES_KNOWN[case]
    found = followed(lag_of(IN_BYTES, *rows))
    newest = [row for row in found if row.snapshot_id == T0 + 5 * MINUTE_MS]
    assert {row.topic for row in newest} == {"t", None}
    for row in newest:
        assert (row.written_bytes_per_s_5m, row.committed_bytes_per_s_5m, row.bytes_reason) == expected
        assert row.written_per_s_5m is not None
        assert (row.written_bytes_per_s_1h, row.committed_bytes_per_s_1d) == (None, None)


def test_without_records_no_bytes_are_written_even_if_their_sizes_are_not_known() -> None:
    rows = [(*lag_row(T0 + n * MINUTE_MS, "g", "t", 0, 5, 10), *[None] * 5) for n in range(6)]
    row = followed(lag_of(IN_BYTES, *rows))[-1]
    assert (row.written_bytes_per_s_5m, row.committed_bytes_per_s_5m, row.bytes_reason) == (0, 0, None)


IN_TIME = f"{NAMES} log_start_offset headroom_ms consumer_age_ms time_method"
RETENTION: dict[str, tuple[list[tuple[Any, ...]], tuple[int | None, int | None, int | None]]] = {
    # lag; log start, headroom, age, method
    "one partition": ([(3, 5, 100, 20, "interpolated")], (20, 5, T0 + 1_000 - 120)),
    "the one that is nearest": (
        [(3, 5, 100, 20, "interpolated"), (3, 6, 99, 10, "exact"), (3, 7, 101, 30, None)],
        (10, 18, T0 + 2_000 - 109),
    ),
    "one with unread records": ([(3, 5, 100, 20, None), (0, 6, 7, 0, None)], (20, 11, T0 + 1_000 - 120)),
    "none is unread": ([(0, 5, 100, 0, None), (0, 6, 99, 0, None)], (0, 11, T0 + 2_000 - 99)),
    "one is not known": ([(3, 5, 100, 20, None), (3, 6, None, 10, None)], (None, 11, None)),
    "one is not known, but read": ([(3, 5, 100, 20, None), (0, 6, None, 0, None)], (20, 11, T0 + 1_000 - 120)),
    "of times of snapshots": ([(3, 5, 100, 20, "arrival")], (None, 5, None)),
    "at log start": ([(3, 500, 0, 20, None)], (20, 500, T0 + 1_000 - 20)),
    "below log start": ([(3, 501, 0, 20, None)], (None, 501, None)),
    "log start is not known": ([(3, None, None, 20, None)], (None, None, None)),
}


@pytest.mark.parametrize("case", RETENTION)
def test_retention_is_looked_at_where_it_is_nearest_to_the_commit(case: str) -> None:
    partitions, expected = RETENTION[case]
    rows = [(*lag_row(T0, "g", "t", n, 500, 500 + lag), *more) for n, (lag, *more) in enumerate(partitions)]
    found = {topic: row for (_, topic), row in summed(IN_TIME, *rows).items()}
    assert (found["t"].oldest_ms, found["t"].log_starts, found["t"].start_ms) == expected
    assert (found[None].oldest_ms, found[None].log_starts, found[None].start_ms) == (None, None, None)


def test_a_group_loses_records_where_one_of_its_topics_loses_them_first() -> None:
    """Both topics are read until minute 30, a third one always. Log start moves at minute 10."""

    def row(minute: int, topic: str, kept_min: int) -> tuple[Any, ...]:
        read = minute if topic == "read" else min(minute, 30)
        has_moved = minute >= 10
        age = minute - read
        first = -kept_min + (60 if has_moved else 0)
        in_time = (1_000 if has_moved else 0, (read - first) * MINUTE_MS, age * MINUTE_MS, "exact")
        return (
            *lag_row(T0 + minute * MINUTE_MS, "g", topic, 0, 6_000 + 6_000 * read, 6_000 + 6_000 * minute),
            *in_time,
        )

    topics = {"long": 720, "short": 360, "read": 240}
    rows = [row(minute, *topic) for minute in range(91) for topic in topics.items()]
    found = followed(lag_of(IN_TIME, *rows))
    newest = {row.topic: row for row in found if row.snapshot_id == T0 + 90 * MINUTE_MS}
    names = ("deleted_in_ms", "deleted_in_low_ms", "deleted_in_high_ms")
    minutes = {
        topic: [None if row[name] is None else row[name] / MINUTE_MS for name in names] for topic, row in newest.items()
    }
    # Records of 310 to 370 minutes, and of 670 to 730, were deleted. The oldest unread ones are 60 minutes old.
    short = [280, 250, 310]
    assert minutes == {"short": short, "long": [640, 610, 670], "read": [None] * 3, None: short}
    assert {topic: row.deleted_reason for topic, row in newest.items()} == {
        "short": None,
        "long": None,
        "read": "caught_up",
        None: None,
    }
