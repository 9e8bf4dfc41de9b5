"""Judging many readers at once, in any order and in any batches, gives the same as judging each alone."""

import random
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pipeline.analytics.arrow_series import NONE, bytes_of_rows, rows_of_bytes
from pipeline.analytics.status.memory import Memory
from pipeline.analytics.status.partition_status import OF_KNOWN, STATUS_PARTS, partition_status
from pipeline.common.data_source import arrow_schema
from pipeline.common.epoch import MINUTE_MS, utc
from pipeline.config.status import StatusConfig
from pipeline.tables import PARTITION_STATUS
from tests.helpers.judged import RATE, T0, Step, judged

READERS, SNAPSHOTS = 30, 90
Row = dict[str, Any]


def a_readers_steps(chance: random.Random) -> Iterator[tuple[Step, int]]:
    """A reader's committed offset, the log's end, and its topic."""
    committed = end = chance.choice([0, 1_000])
    mood, topic = "steady", 1
    for _ in range(SNAPSHOTS):
        if chance.random() < 0.06:
            mood = chance.choice(["steady", "steady", "stopped", "slow", "quiet"])
        if chance.random() < 0.01:
            topic, committed, end = topic + 1, 0, 0
        end += 0 if mood == "quiet" else 100
        committed = {"steady": end, "slow": min(end, committed + 60)}.get(mood, committed)
        if chance.random() < 0.03:
            committed = max(0, committed - 250)
        yield (None if chance.random() < 0.03 else committed, None if chance.random() < 0.03 else end), topic


def histories(seed: int) -> list[list[tuple[Step, int]]]:
    chance = random.Random(seed)
    return [list(a_readers_steps(chance)) for _ in range(READERS)]


def observation(reader: int, number: int, step: Step, topic: int) -> Row:
    committed, end = step
    lag = None if committed is None or end is None else end - committed
    at_ms = T0 + number * MINUTE_MS
    return {
        "cluster": "c",
        "group_id": f"g{reader % 7}",
        "topic": f"t{reader % 3}",
        "partition": reader,
        "snapshot_id": at_ms,
        "committed_captured_at": utc(at_ms),
        "topic_id": str(topic),
        "committed_offset": committed,
        "high_watermark": end,
        "consumer_lag": lag,
        "consumer_age_ms": None if lag is None else max(lag, 0) * MINUTE_MS // RATE,
        "group_state": "Stable",
    }


def judged_together(rows: list[Row], reach: dict[int, int] | None = None) -> list[Row]:
    """The statuses of rows of `lag`, which continue from rows that have been judged: those have `remembered`."""
    given = {
        "lag": [row for row in rows if "remembered" not in row],
        "known": [row for row in rows if "remembered" in row],
        "commits": [],
    }
    bucket = {name: pa.Table.from_pylist(of, arrow_schema(STATUS_PARTS[name])) for name, of in given.items()}
    found = partition_status(bucket, StatusConfig(), reach or {})
    assert found.column_names == PARTITION_STATUS.columns
    rows_found: list[Row] = found.to_pylist()
    return rows_found


def known(row: Row) -> Row:
    return {name: row[name] for name in OF_KNOWN}


@pytest.mark.parametrize(
    ("steps", "was_within"),
    [
        pytest.param([(5, 10), (5, 10), (5, 3), (5, 3)], True, id="the log was cut off"),
        pytest.param([(5, 10), (5, 10), (999, 10), (999, 10)], False, id="the commit is wrong"),
        pytest.param([(999, 10), (999, 10)], False, id="the commit was wrong from the beginning"),
    ],
)
def test_the_status_of_a_commit_beyond_the_end_began_when_it_was_first_seen_there(
    steps: list[Step], was_within: bool
) -> None:
    """The reader is new, and its status was unknown before, for another reason."""
    rows = [observation(0, number, step, 1) for number, step in enumerate(steps)]
    for row, (committed, end) in zip(rows, steps, strict=True):
        assert committed is not None
        assert end is not None
        row["offset_status"] = "beyond_end" if committed > end else "ok"
    last = judged_together(rows)[-1]
    assert (last["status"], last["reason"]) == ("unknown", "beyond_end")
    assert (last["since"] > last["commit_since"]) == was_within


def minute_of(at: datetime) -> float:
    return (at.timestamp() * 1_000 - T0) / MINUTE_MS


@pytest.mark.parametrize("batch", [1, 7, SNAPSHOTS])
def test_judging_readers_together_gives_the_same_as_judging_each_alone(batch: int) -> None:
    readers = histories(seed=batch)
    expected = {
        (reader, T0 + number * MINUTE_MS): status
        for reader, steps in enumerate(readers)
        for number, status in enumerate(judged([step for step, _ in steps], topics=[topic for _, topic in steps]))
    }
    assert {"ok", "not_progressing", "rewound", "warning", "unknown"} <= set(expected.values())
    chance, found, before = random.Random(0), {}, []
    for first in range(0, SNAPSHOTS, batch):
        rows = [
            observation(reader, number, *steps[number])
            for reader, steps in enumerate(readers)
            for number in range(first, min(first + batch, SNAPSHOTS))
        ]
        rows += map(known, before)
        chance.shuffle(rows)
        new = judged_together(rows)
        found |= {(row["partition"], row["snapshot_id"]): row["status"] for row in new}
        # Of several known snapshots, the newest counts.
        before = [row for row in new if row["snapshot_id"] >= T0 + (first + batch - 3) * MINUTE_MS]
    assert found == expected


@pytest.mark.parametrize("batch", [1, 5, 20])
def test_a_snapshot_read_after_its_successor_does_not_reset_the_memory(batch: int) -> None:
    """Each snapshot is complete, so that a reader that one of them lacks is a new one."""
    steps: list[Step] = [*((n * 100, n * 100) for n in range(8)), *((700, 700 + n * 100) for n in range(1, 13))]
    rows = [observation(0, number, step, 1) for number, step in enumerate(steps)]
    rows[14]["committed_captured_at"] = rows[15]["committed_captured_at"] + timedelta(seconds=1)
    ids = [row["snapshot_id"] for row in rows]
    reach = dict(zip(ids[1:], ids, strict=False))
    found: list[Row] = []
    for first in range(0, len(rows), batch):
        new = judged_together([*map(known, found[-1:]), *rows[first : first + batch]], reach)
        found += sorted(new, key=lambda row: row["snapshot_id"])
    assert [row["status"] for row in found] == ["ok"] * 10 + ["not_progressing"] * 10
    assert {row["since"] for row in found[10:]} == {rows[8]["committed_captured_at"]}


def test_a_status_keeps_the_time_at_which_it_began() -> None:
    steps: list[Step] = [(n * 100, n * 100) for n in range(10)] + [(900, 900 + n * 100) for n in range(1, 9)]
    steps += [(9_000, 9_000)] * 3
    rows = judged_together([observation(0, number, step, 1) for number, step in enumerate(steps)])
    minutes = {(row["status"], minute_of(row["since"])) for row in rows}
    # Since the first snapshot of the wait, not since the one from which it counts as a wait.
    assert minutes == {("ok", 0), ("not_progressing", 10), ("ok", 18)}
    times = sorted((row["snapshot_id"], minute_of(row["commit_since"])) for row in rows)
    assert [minute for _, minute in times] == [*range(10), *[9] * 8, *[18] * 3]
    assert {row["waiting_since"] for row in rows} == {None, utc(T0 + 10 * MINUTE_MS)}


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"consumer_lag_stable": 0}, "open_transaction"),
        ({"consumer_lag_stable": 1}, "open_transaction"),  # the marker of the transaction before
        ({"consumer_lag_stable": 2}, None),
        ({"consumer_lag_stable": -1}, None),
        ({"group_state": "Empty"}, "no_members"),
        ({"group_state": "Empty", "consumer_lag_stable": 0}, "open_transaction"),
        ({}, None),
    ],
)
def test_the_reason_of_a_wait(values: Row, reason: str | None) -> None:
    steps: list[Step] = [(n * 100, n * 100) for n in range(10)] + [(900, 900 + n * 100) for n in range(1, 9)]
    rows = judged_together([observation(0, number, step, 1) | values for number, step in enumerate(steps)])
    newest = max(rows, key=lambda row: row["snapshot_id"])
    assert newest["status"] in ("not_progressing", "stopped")
    assert newest["reason"] == reason


def test_a_marker_at_the_end_is_named() -> None:
    steps: list[Step] = [(n * 100, n * 100) for n in range(10)] + [(900, 901)] * 9
    rows = judged_together([observation(0, number, step, 1) for number, step in enumerate(steps)])
    newest = max(rows, key=lambda row: row["snapshot_id"])
    assert (newest["status"], newest["reason"]) == ("ok", "transaction_marker")


@pytest.mark.parametrize(
    ("committed", "log_start", "end", "markers", "expected"),
    [
        pytest.param(900, 0, 901, 1, ("ok", "transaction_marker"), id="a marker"),
        pytest.param(900, 900, 903, 3, ("ok", "transaction_marker"), id="three markers"),
        pytest.param(900, 0, 901, 0, ("not_progressing", None), id="a record"),
        pytest.param(900, 0, 903, 2, ("not_progressing", None), id="a record and two markers"),
        pytest.param(900, 0, 900, 0, ("ok", None), id="nothing"),
        pytest.param(900, 901, 901, 0, ("ok", "transaction_marker"), id="deleted, perhaps a marker"),
        pytest.param(900, 901, 902, 1, ("not_progressing", None), id="deleted, more than the setting"),
    ],
)
def test_counted_markers_decide_the_status_and_its_reason(
    committed: int, log_start: int, end: int, markers: int, expected: tuple[str, str | None]
) -> None:
    steps: list[Step] = [(n * 100, n * 100) for n in range(10)] + [(committed, end)] * 60
    rows = [observation(0, number, step, 1) for number, step in enumerate(steps)]
    for row in rows[10:]:
        row |= {"log_start_offset": log_start, "unread_markers": markers}
    newest = max(judged_together(rows), key=lambda row: row["snapshot_id"])
    assert (newest["status"], newest["reason"]) == expected
    is_known = markers >= end - committed
    assert (newest["waiting_since"] is None) == is_known


def test_impossible_numbers_affect_no_other_reader() -> None:
    """Numbers that overflow may give their own reader any status, but do not affect other readers."""
    odd: list[Step] = [(2**63 - 1, 5), (-(2**63) + 2, 2**63 - 1), (0, 2**63 - 1)]
    steps: list[Step] = [(n * 100, n * 100) for n in range(3)]
    rows = [observation(0, number, step, 1) for number, step in enumerate(steps)]
    for number, (committed, end) in enumerate(odd):
        lag = int(np.int64(end) - np.int64(committed)) if number == 2 else NONE + 1
        rows.append(observation(1, number, (committed, end), 1) | {"consumer_lag": lag, "consumer_age_ms": lag})
    found = judged_together(rows)
    assert len(found) == len(rows)
    assert {row["status"] for row in found if row["partition"] == 0} == {"ok"}


def test_rows_that_remember_more_or_less_are_read_together() -> None:
    width = Memory.width()
    rows = np.array([[1, 2, *[NONE] * (width - 2)], [*range(width)], [NONE] * width, [NONE, 5, *[NONE] * (width - 2)]])
    stored = bytes_of_rows(rows)
    assert [len(one) for one in stored.to_pylist()] == [8 * 2, 8 * width, 0, 8 * 2]
    chunks = pa.chunked_array([stored.slice(0, 2), stored.slice(2), pa.array([None], pa.binary())])
    assert rows_of_bytes(chunks, width).tolist() == [*rows.tolist(), [NONE] * width]


@pytest.mark.parametrize("count", [0, 3])
def test_rows_that_remember_as_much_are_read_back(count: int) -> None:
    rows = np.arange(count * 4).reshape(count, 4) - 5
    assert rows_of_bytes(pa.chunked_array([bytes_of_rows(rows)]), 6)[:, :4].tolist() == rows.tolist()


def test_known_rows_alone_give_no_rows() -> None:
    assert judged_together([*map(known, judged_together([observation(0, 0, (1, 1), 1)]))]) == []


@pytest.mark.parametrize(("reach", "minute"), [(11, 13), (10, 8), (None, 8)])
def test_a_reader_that_was_in_no_snapshot_since_a_complete_one_is_new(reach: int | None, minute: int) -> None:
    """It has waited since minute 8, and is not in the snapshots of minutes 11 and 12."""
    steps: list[Step] = [(n * 100, n * 100) for n in range(8)] + [(700, n * 100) for n in range(8, 14)]
    rows = [observation(0, number, step, 1) for number, step in enumerate(steps) if number not in (11, 12)]
    reaches = {T0 + 13 * MINUTE_MS: T0 + reach * MINUTE_MS} if reach else {}
    for is_known in (False, True):
        given, last = rows[:-1], rows[-1:]
        if is_known:
            given = [*map(known, judged_together(given))]
        newest = max(judged_together([*given, *last], reaches), key=lambda row: row["snapshot_id"])
        assert newest["waiting_since"] == utc(T0 + minute * MINUTE_MS)
