"""Which times of records are looked up."""

from typing import Any

import pyarrow as pa

from pipeline.analytics.log_index.index import INDEX_PARTS, rulers_in_bucket
from pipeline.analytics.log_index.wanted_times import WANTED_PARTS, wanted_times
from pipeline.tables import COMMITTED_OFFSETS, LOG_INDEX, LOG_SAMPLES, WATERMARKS
from tests.analytics.log_index.test_index import COLUMNS, GROWING, MINUTE, START_MS, seen_at
from tests.helpers.rows import few_rows

COMMITS = [(3, "g", "t", 0, 50), (3, "h", "t", 0, 300), (3, "i", "t", 0, None), (3, "j", "t", 0, 250)]


def found(newest: tuple[Any, ...], commits: pa.Table, *, with_tiered: bool = False) -> list[dict[str, Any]]:
    """What is looked up in a growing log, of which `newest` is the row of the newest snapshot."""
    tables = {
        "stored": few_rows(LOG_INDEX, "topic"),
        "watermarks": few_rows(WATERMARKS, COLUMNS, *GROWING[:2], newest),
        "samples": few_rows(LOG_SAMPLES, "topic"),
    }
    rulers = rulers_in_bucket({name: rows.chosen(INDEX_PARTS[name]).rows for name, rows in tables.items()}, 3)
    bucket = {"rulers": rulers, "watermarks": few_rows(WATERMARKS, COLUMNS, newest).rows, "commits": commits}
    chosen = {name: rows.select(WANTED_PARTS[name].names) for name, rows in bucket.items()}
    return wanted_times(chosen, with_tiered).to_pylist()


def wanted(newest: tuple[Any, ...], *, with_tiered: bool = False) -> list[tuple[Any, ...]]:
    commits = few_rows(COMMITTED_OFFSETS, "snapshot_id group_id topic partition committed_offset", *COMMITS)
    rows = found(newest, commits.rows, with_tiered=with_tiered)
    return [(row["leader"], row["topic"], row["partition"], row["rungs"]) for row in rows]


def test_log_start_and_unread_offsets_are_looked_up() -> None:
    assert wanted(GROWING[2]) == [(1, "t", 0, [0, 50, 250])]
    assert wanted(seen_at(3, 300, 3_500, log_start_offset=60)) == [(1, "t", 0, [60, 250])]


def test_in_a_moving_log_both_commits_and_the_last_record_are_looked_up() -> None:
    """The newest timestamp is that of a record written after the end of the log was read."""
    commits = [(3, "g", "t", 0, 240, 250, 300), (3, "h", "t", 0, 290, 300, 300)]
    names = "snapshot_id group_id topic partition earlier_offset committed_offset high_watermark"
    newest = seen_at(3, 300, 3_500, max_timestamp_offset=301)
    (row,) = found(newest, few_rows(COMMITTED_OFFSETS, names, *commits).rows)
    assert row["rungs"] == [0, 240, 250, 290, 299]


def test_a_tiered_log_is_looked_up_only_if_asked_for() -> None:
    tiered = seen_at(3, 300, 3_500, local_log_start_offset=40)
    assert wanted(tiered) == []
    assert wanted(tiered, with_tiered=True) == [(1, "t", 0, [0, 50, 250])]


def test_a_partition_without_a_leader_is_not_looked_up() -> None:
    assert wanted(seen_at(3, 300, 3_500, leader=None)) == []


def test_if_the_newest_timestamp_is_in_the_future_nothing_is_looked_up() -> None:
    assert wanted(seen_at(3, 300, 3_500, max_timestamp_ms=START_MS + 60 * MINUTE)) == []


def test_if_no_record_has_a_time_nothing_is_looked_up() -> None:
    assert wanted(seen_at(3, 300, 3_500, max_timestamp_ms=None, max_timestamp_offset=299)) == []


def test_if_the_newest_timestamp_is_unknown_older_ones_are_still_looked_up() -> None:
    unknown = seen_at(3, 300, 3_500, max_timestamp_ms=None, max_timestamp_offset=None)
    assert wanted(unknown) == [(1, "t", 0, [0, 50, 250, 299])]


def test_without_a_log_end_the_ruler_reaches_the_high_watermark() -> None:
    unknown = seen_at(3, 300, 3_500, log_end_offset=None, max_timestamp_ms=None, max_timestamp_offset=None)
    assert wanted(unknown) == [(1, "t", 0, [0, 50, 250, 299])]


def test_a_known_time_counts_by_how_much_its_error_exceeds_the_tolerance() -> None:
    """Record 200 was written at some time in the last minute, and in even steps 59.4 s before its end.

    The time may be wrong by as much. One percent of the age is tolerated.
    """
    names = "snapshot_id group_id topic partition committed_offset"
    commits = few_rows(COMMITTED_OFFSETS, names, (3, "g", "t", 0, 250))
    (row,) = found(seen_at(3, 300, 3_500), commits.rows)
    assert (row["rungs"], row["excess_ms"]) == ([0, 250], float("inf")), "log start has no time"
    (row,) = found(seen_at(3, 300, 3_500, log_start_offset=200), commits.rows)
    assert (row["rungs"], row["excess_ms"]) == ([200, 250], 59_400 - 594)
