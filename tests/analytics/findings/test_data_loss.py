"""When retention will delete records that a group has not read."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.helpers.scene import DAY_MS, HOUR_MS, Scene, moved, problems


@pytest.fixture
def scene() -> Iterator[Scene]:
    return Scene()


AGES = [
    # Hours that the topic keeps records, hours of age, status, and the hours that are left.
    (1, None, "stopped", None),
    (26, 2, "stopped", 24),
    (26.01, 2, "stopped", None),
    (3, 2, "warning", 1),
    (3, 2, "ok", None),
    (3, 2, "no_members", 1),
    (1, 2, "stopped", 0),
]


@pytest.mark.parametrize(("kept", "age", "status", "left"), AGES)
def test_records_that_reach_the_age_of_retention_will_be_deleted(
    scene: Scene, kept: float, age: int | None, status: str, left: int | None
) -> None:
    scene.topics["old"] = ("delete", int(kept * HOUR_MS))
    reason, status = ("no_members", "ok") if status == "no_members" else (None, status)
    scene.waiting(
        ("g", "old", 0), 10, status=status, reason=reason, consumer_age_ms=None if age is None else age * HOUR_MS
    )
    found = problems(scene).get(("data_loss_ahead", "g", "old"))
    assert (found and -found["magnitude"]) == (None if left is None else left * HOUR_MS)


def test_neither_compaction_nor_an_unlimited_retention_nor_an_arrival_time_deletes_by_age(scene: Scene) -> None:
    scene.topics |= {"compacted": ("compact", HOUR_MS), "unlimited": ("delete", -1), "future": ("delete", HOUR_MS)}
    for topic in ("compacted", "unlimited", "future"):
        scene.waiting(("g", topic, 0), 10, consumer_age_ms=DAY_MS, time_method="arrival" if topic == "future" else None)
    assert set(problems(scene)) == {("no_progress", "g", None)}


LOG_STARTS = [
    # Ten minutes ago log start and commit were there, and the log's end was at 800. Now log start is at 100 and the end
    # at 900. The minutes until log start reaches the commit.
    ("stuck", moved(0, 200), {"committed_offset": 200}, 10),
    ("slower", moved(0, 150), {"committed_offset": 200}, 20),
    ("less is written", moved(0, 200, high_watermark=890), {"committed_offset": 200}, 100),
    ("nothing is written", moved(0, 200, high_watermark=900), {"committed_offset": 200}, None),
    ("as fast", moved(0, 100), {"committed_offset": 200}, None),
    ("log start rests", moved(100, 200), {"committed_offset": 200}, None),
    ("set back", moved(0, 500), {"committed_offset": 200}, 10),
    ("another log", moved(0, 200, topic_id="B"), {"committed_offset": 200}, None),
    ("read further", moved(0, 150, consumed_offset=200), {"committed_offset": 150, "consumed_offset": 300}, None),
    ("nothing unread", moved(0, 900), {"committed_offset": 900}, None),
    ("only markers unread", moved(0, 200), {"committed_offset": 200, "unread_markers": 700}, None),
    ("a record and markers unread", moved(0, 200), {"committed_offset": 200, "unread_markers": 699}, 10),
    ("lost already", moved(0, 50), {"committed_offset": 50, "offset_status": "deleted_unread"}, None),
]


@pytest.mark.parametrize(("then", "now", "left"), [case[1:] for case in LOG_STARTS], ids=[c[0] for c in LOG_STARTS])
def test_log_start_that_gains_on_the_reader_will_delete_unread_records(
    scene: Scene, then: dict[str, Any], now: dict[str, Any], left: int | None
) -> None:
    reader = ("g", "t", 1)
    scene.add(
        reader,
        "unknown",
        **{"topic_id": "A", "log_start_offset": 100, "high_watermark": 900, "consumer_lag": 700, **now},
    )
    scene.then[reader] = then
    found = problems(scene).get(("data_loss_ahead", "g", "t"))
    assert (found and -found["magnitude"]) == (None if left is None else left * 60_000)
    if found and left == 10:
        assert found["summary"].startswith(
            "Retention may delete unread records from 2026-01-31 12:10 UTC on, in 10 min, first of partition 1 of "
            "topic t; unread: 700 records"
        )
        assert found["evidence"]["deleted_at"] == "2026-01-31T12:10:00Z"


PURGED = [
    # In ten minutes, an application has read 95 records, and 100 were written. Log start is where it had read lately.
    # The topic's retention.ms and retention.bytes, the age of the next record to read, the log start now, and the
    # minutes that are left.
    ("repartition topic of Streams", -1, -1, 1_000, 190, None),
    ("all that is read is deleted", -1, -1, 1_000, 195, None),
    ("records far younger than the retention", 7 * DAY_MS, -1, 1_000, 190, None),
    ("not known for how long records are kept", None, None, 1_000, 190, 10),
    ("age not known", 7 * DAY_MS, -1, None, 190, 10),
    ("half as old as the retention", 7 * DAY_MS, -1, 7 * DAY_MS // 2, 190, 10),
    ("by size", -1, 1_000_000, 1_000, 190, 10),
    ("deleted up to where the group was", -1, -1, 1_000, 100, None),
    ("deleted up to before that", -1, -1, 1_000, 99, 240),
]


@pytest.mark.parametrize(
    ("retention_ms", "retention_bytes", "age_ms", "start", "left"), [c[1:] for c in PURGED], ids=[c[0] for c in PURGED]
)
def test_an_application_that_deletes_what_it_has_read_endangers_nothing(
    scene: Scene,
    retention_ms: int | None,
    retention_bytes: int | None,
    age_ms: int | None,
    start: int,
    left: int | None,
) -> None:
    """Its headroom is small, and by chance a little smaller or greater than ten minutes ago."""
    reader = ("g", "t", 1)
    now = {"log_start_offset": start, "committed_offset": 195, "high_watermark": 900}
    scene.topics["t"] = ("delete", retention_ms)
    scene.retention_bytes = retention_bytes
    scene.add(reader, "ok", topic_id="A", consumer_lag=10, consumer_age_ms=age_ms, **now)
    scene.then[reader] = moved(0, 100)
    found = problems(scene).get(("data_loss_ahead", "g", "t"))
    assert (found and -found["magnitude"]) == (None if left is None else left * 60_000)
