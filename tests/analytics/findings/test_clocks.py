"""Records with timestamps in the future, or in seconds: one problem for each topic."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from pipeline.analytics.findings.clocks import find_clocks
from pipeline.common.rows import Rows
from pipeline.tables import WATERMARKS
from tests.helpers.rows import few_rows
from tests.helpers.worded import worded_rows

NOW_MS = 1_769_860_800_000
NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
MINUTE_MS, DAY_MS = 60_000, 86_400_000
CASES = {
    "past": (-DAY_MS, None),
    "five": (5 * MINUTE_MS, None),
    "more": (5 * MINUTE_MS + 1, "info"),
    "less-than-a-day": (DAY_MS - 1, "info"),
    "a-day": (DAY_MS, "warning"),
    "nanoseconds": (1_769_860_800_000_000_000, "warning"),
    "greatest": (2**63 - 1 - NOW_MS, "warning"),
}


def found_in(watermarks: Rows) -> dict[str, dict[str, Any]]:
    """The problem of each topic."""
    return {row["topic"]: row for row in worded_rows(find_clocks(watermarks).collected_table())}


def test_a_topic_with_timestamps_that_are_ahead_is_a_problem() -> None:
    names = "snapshot_id topic partition captured_at max_timestamp_ms max_timestamp_offset"
    rows = [(NOW_MS, topic, 0, NOW, NOW_MS + ahead, 7) for topic, (ahead, _) in CASES.items()]
    rows += [(NOW_MS, "empty", 0, NOW, None, None), (NOW_MS, "a-day", 3, NOW, NOW_MS + 6 * MINUTE_MS, 9)]
    rows += [(NOW_MS, "a-day", 4, NOW, NOW_MS, 9), (NOW_MS, None, None, NOW, None, None)]
    found = found_in(few_rows(WATERMARKS, names, *rows))
    assert {topic: row["severity"] for topic, row in found.items()} == {t: s for t, (_, s) in CASES.items() if s}
    row = found["a-day"]
    assert row["summary"] == (
        "Timestamps of records in 2 partitions are in the future, by up to 1 d: times of lag are not exact there, "
        "and retention keeps these records longer."
    )
    assert (row["kind"], row["group_id"], row["partitions"], row["magnitude"]) == (
        "clock_ahead",
        None,
        [0, 3],
        float(DAY_MS),
    )
    assert json.loads(row["evidence"]) == {
        "ahead_ms": DAY_MS,
        "newest_timestamp_ms": NOW_MS + DAY_MS,
        "newest_offset": 7,
        "newest_partition": 0,
    }
    assert row["advice"].endswith(
        "kafka-configs --bootstrap-server $BOOTSTRAP --alter --entity-type topics --entity-name a-day --add-config "
        "message.timestamp.after.max.ms=3600000"
    )
    assert found["greatest"]["magnitude"] == pytest.approx(2**63 - 1 - NOW_MS)


SECONDS = {
    # The newest timestamp, and whether it is seconds in place of milliseconds.
    "now": (NOW_MS // 1_000, True),
    "written-hours-ago": (NOW_MS // 1_000 - 7_200, True),
    "a-clock-that-is-ahead-by-hours": (NOW_MS // 1_000 + 7_200, True),
    "the-first-second": (1_000_000_000, True),
    "before-it": (999_999_999, False),
    "february-1970": (32 * DAY_MS, False),
    "1999": (925_000_000_000, False),
    "milliseconds": (NOW_MS, False),
    "one": (1, False),
    "none": (None, False),
    "the least": (-(2**63), False),
}


def test_a_topic_with_seconds_in_place_of_milliseconds_is_a_problem() -> None:
    names = "snapshot_id topic partition captured_at max_timestamp_ms max_timestamp_offset"
    rows = [(NOW_MS, topic, 0, NOW, stamp, 7) for topic, (stamp, _) in SECONDS.items()]
    rows += [(NOW_MS, "now", 3, NOW, NOW_MS // 1_000 - 60, 9), (NOW_MS, "now", 4, NOW, NOW_MS, 9)]
    found = found_in(few_rows(WATERMARKS, names, *rows, (NOW_MS, None, None, NOW, None, None)))
    assert found.keys() == {topic for topic, (_, is_wrong) in SECONDS.items() if is_wrong}
    row = found["now"]
    assert row["summary"] == (
        "Timestamps of records in 2 partitions look like seconds, where Kafka has milliseconds: 1,769,860,740 is an "
        "instant in January 1970. Times of lag are 1,000 times too small there, ages are 20,464 d, and retention by "
        "time, if the topic has one, deletes these records as soon as it can."
    )
    behind = NOW_MS - (NOW_MS // 1_000 - 60)
    assert (row["kind"], row["group_id"], row["partitions"], row["magnitude"]) == (
        "clock_behind",
        None,
        [0, 3],
        float(behind),
    )
    assert row["severity"] == "warning"
    assert json.loads(row["evidence"]) == {
        "behind_ms": behind,
        "newest_timestamp_ms": NOW_MS // 1_000 - 60,
        "newest_offset": 9,
        "newest_partition": 3,
    }
    assert row["advice"].endswith("--entity-name now --add-config message.timestamp.before.max.ms=31536000000")
