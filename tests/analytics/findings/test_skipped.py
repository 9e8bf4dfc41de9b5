"""The words and figures of `skipped`, and what it is computed from: rows of `lag`, and commits without an epoch."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from pipeline.analytics.arrow_series import bytes_of_rows
from pipeline.analytics.findings.skipped import MOST_OFFSETS, SKIPPED_PARTS, find_skipped
from pipeline.analytics.status.memory import Memory
from pipeline.common.epoch import MINUTE_MS
from pipeline.common.rows import Rows
from pipeline.tables import COMMITTED_OFFSETS, GROUP_STATUS, LAG, PARTITION_STATUS
from tests.helpers.rows import few_rows, frame
from tests.helpers.statuses import judged
from tests.helpers.worded import worded_rows

T0 = 1_769_860_800_000
RESET = T0 + 5 * MINUTE_MS
WRITTEN = T0 - 90 * MINUTE_MS
TO = " --bootstrap-server $BOOTSTRAP"


def memory(**values: int) -> bytes:
    found = Memory.empty(1)
    for name, value in values.items():
        part, field = (found.commit, "offset") if name == "committed" else (found.resets, name)
        getattr(part, field)[0] = value
    stored: bytes = bytes_of_rows(found.rows())[0].as_py()
    return stored


def remembered(stored: bytes) -> list[int]:
    return [int.from_bytes(stored[at : at + 8], "little", signed=True) for at in range(0, len(stored), 8)]


def reader(group: str, topic: str, partition: int, first: int | None, end: int = 0, **more: int) -> tuple[Any, ...]:
    known = {"committed": end, "epochs": 3}
    if first is not None:
        known |= {"skip_ms": RESET, "skip_from": first, "skip_to": end}
    return (RESET, group, topic, partition, memory(**known, **more))


def parts_of(*readers: tuple[Any, ...], group_type: str | None = None) -> dict[str, Rows]:
    sizes = {group: sum(row[1] == group for row in readers) for group in {row[1] for row in readers}}
    of_groups = [(RESET, group, group_type, size) for group, size in sizes.items()]
    return {
        "partitions": few_rows(PARTITION_STATUS, "snapshot_id group_id topic partition remembered", *readers),
        "groups": few_rows(GROUP_STATUS, "snapshot_id group_id group_type partitions", *of_groups),
    }


def found_in(*readers: tuple[Any, ...], group_type: str | None = None) -> dict[str, dict[str, Any]]:
    problems = find_skipped(parts_of(*readers, group_type=group_type)).collected_table()
    return {row["group_id"]: row for row in worded_rows(problems)}


EVIDENCE = {
    "since": "2026-01-31T12:05:00Z",
    "partitions": 2,
    "partitions_of_group": 3,
    "topics": ["clicks", "orders"],
    "worst_topic": "orders",
    "worst_partition": 3,
    "skipped_offsets": 1_500,
    "skipped_bytes": 80_000,
    "bytes_error": 2_000,
    "first_written_at": "2026-01-31T10:30:00Z",
    "offsets": [
        {"topic": "clicks", "partition": 0, "from": 5, "to": 505},
        {"topic": "orders", "partition": 3, "from": 100, "to": 1_100},
    ],
}
"""The evidence about the group `shop` of the next test."""


def test_a_group_has_one_problem_with_the_old_offset_of_each_partition() -> None:
    known = {"skip_written_ms": WRITTEN, "skip_bytes": 40_000, "skip_error": 1_000}
    found = found_in(
        reader("shop", "orders", 3, 100, 1_100, **known),
        reader("shop", "clicks", 0, 5, 505, **known | {"skip_written_ms": WRITTEN + MINUTE_MS}),
        reader("shop", "clicks", 1, None),
        reader("one", "orders", 0, 7, 8, skip_written_ms=WRITTEN),
        reader("none", "orders", 0, None),
    )
    assert found.keys() == {"shop", "one"}
    shop, one = found["shop"], found["one"]
    assert shop["summary"] == (
        "Commits were moved ahead at 2026-01-31 12:05 UTC in 2 of 3 partitions while the group had no members, and "
        "skip up to 1,500 records (80 kB ± 2 kB), the first of them written at 2026-01-31 10:30 UTC. This looks like a "
        "reset by a tool or an admin client."
    )
    assert (shop["kind"], shop["severity"], shop["magnitude"], shop["topic"], shop["partitions"]) == (
        *("skipped", "warning", 1_500.0, None, None),
    )
    assert json.loads(shop["evidence"]) == EVIDENCE
    command = f"kafka-consumer-groups{TO} --reset-offsets --group shop --topic orders:3 --to-offset 100 --dry-run"
    assert shop["advice"].endswith(f"{command}. The evidence has the old offset of each partition.")
    assert one["summary"] == (
        "Commits were moved ahead at 2026-01-31 12:05 UTC while the group had no members, and skip up to 1 record, the "
        "first of them written at 2026-01-31 10:30 UTC. This looks like a reset by a tool or an admin client."
    )
    assert (one["topic"], one["partitions"]) == ("orders", [0])
    assert one["advice"].endswith("--topic orders:0 --to-offset 7 --dry-run")


def test_what_is_not_known_of_all_partitions_is_not_said() -> None:
    known = {"skip_written_ms": WRITTEN, "skip_bytes": 40_000, "skip_error": 0}
    found = found_in(reader("g", "t", 0, 0, 10, **known), reader("g", "t", 1, 0, 10))["g"]
    assert "skip up to 20 records. This" in found["summary"]
    assert not {"skipped_bytes", "bytes_error", "first_written_at"} & json.loads(found["evidence"]).keys()


def test_a_streams_group_has_no_command() -> None:
    found = found_in(reader("g", "t", 0, 0, 10), group_type="streams")["g"]
    assert found["advice"].startswith("If the group must read these records, stop its consumers")
    assert "kafka-" not in found["advice"]


def test_the_evidence_has_the_partitions_with_most_skipped_records() -> None:
    many = [reader("g", "t", number, 0, 10 + number) for number in range(MOST_OFFSETS + 2)]
    facts = json.loads(found_in(*many)["g"]["evidence"])
    assert [one["partition"] for one in facts["offsets"]] == list(range(2, MOST_OFFSETS + 2))
    assert (facts["partitions"], facts["skipped_offsets"]) == (102, 10 * 102 + 101 * 102 // 2)


def test_many_readers_have_the_same_problems_as_few(spark: SparkSession) -> None:
    skips = [reader(group, "t", number, 0, 10 + number) for group in ("a", "b", "c") for number in range(2)]
    few = parts_of(*skips, reader("a", "t", 2, None), reader("d", "t", 0, None))
    many = {
        name: Rows(rows.chosen(SKIPPED_PARTS[name]).frame(spark, SKIPPED_PARTS[name])) for name, rows in few.items()
    }
    found = find_skipped(many, 2).collected()
    assert sorted(found, key=str) == sorted(find_skipped(few).collected(), key=str)
    assert sorted(row["group_id"] for row in found) == ["a", "b", "c"]


LOOKED = (
    "snapshot_id group_id topic topic_id partition captured_at committed_captured_at group_state committed_offset "
    "verified_epoch log_start_offset high_watermark consumer_lag consumer_age_ms offset_status high_watermark_bytes "
    "high_watermark_error_bytes consumer_lag_bytes bytes_error"
)


def look(minute: int, group: str, committed: int, epoch: int | None, end: int = 2_000) -> tuple[Any, ...]:
    """A row of `lag`; the group has members until minute 3. Each record has 10 bytes, 200 more were estimated."""
    at_ms = T0 + minute * MINUTE_MS
    at = datetime.fromtimestamp(at_ms / 1000, UTC)
    state, lag = "Stable" if minute < 3 else "Empty", end - committed
    drift, error = 100 + 200 * (minute == 4), 30
    known = (at_ms, group, "t", "A", 0, at, at, state, committed, epoch, 0, end, lag, 60_000 if lag else 0, "ok")
    return (*known, 10 * end, drift, 10 * lag, error)


@pytest.fixture(scope="module")
def memories(spark: SparkSession) -> dict[str, list[int]]:
    """What is remembered of a group that was reset, of one that read on, and of one that stores no epochs."""
    steps = {"reset": [(1, 7)] * 3 + [(0, 7), (0, None)], "reads": [(1, 7)] * 3 + [(0, 7), (0, 7)]}
    steps["plain"] = [(1, None)] * 3 + [(0, None), (0, None)]
    offsets = (100, 200, 300, 300, 1_500)
    looks = [
        look(minute, group, offset, epoch)
        for group, of_group in steps.items()
        for minute, (offset, (_, epoch)) in enumerate(zip(offsets, of_group, strict=True))
    ]
    commits = [(*row[:3], row[4], row[8], row[9]) for row in looks]
    names = "snapshot_id group_id topic partition committed_offset leader_epoch"
    stored = frame(spark, COMMITTED_OFFSETS, names, *commits)
    nothing: DataFrame = frame(spark, PARTITION_STATUS, "snapshot_id")
    rows = judged(frame(spark, LAG, LOOKED, *looks), nothing, stored).where(f"snapshot_id = {T0 + 4 * MINUTE_MS}")
    return {row.group_id: remembered(row.remembered) for row in rows.collect()}


def test_a_reset_is_remembered_with_its_bytes_and_the_time_of_its_first_record(memories: dict[str, list[int]]) -> None:
    names = ("skip_ms", "skip_from", "skip_to", "skip_written_ms", "skip_bytes", "skip_error")
    found = {name: memories["reset"][Memory.place(name)] for name in names}
    assert found == {
        "skip_ms": T0 + 4 * MINUTE_MS,
        "skip_from": 300,
        "skip_to": 1_500,
        "skip_written_ms": T0 + 2 * MINUTE_MS,
        "skip_bytes": 12_000,
        # The error of both positions, and the growth that was estimated between them.
        "skip_error": 30 + 30 + 200,
    }


def test_what_only_a_reset_needs_is_not_stored_of_other_readers(memories: dict[str, list[int]]) -> None:
    longest = Memory.place("reset_ms")
    assert {group: len(found) <= longest for group, found in memories.items()} == {
        "reset": False,
        "reads": True,
        "plain": True,
    }
