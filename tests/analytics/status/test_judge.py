"""Judging many readers at once, in any order and in any batches, gives the same as judging each alone."""

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pipeline.analytics.arrow_series import NONE, lists_as_rows
from pipeline.analytics.status.judge import JUDGEMENT, judging
from pipeline.analytics.status.memory import Memory
from pipeline.common.epoch import MINUTE_MS
from pipeline.config.status import StatusConfig
from tests.analytics.status.test_rules import RATE, T0, Step, judged

READERS, SNAPSHOTS = 30, 90
NAMES = ("cluster", "group_id", "topic", "partition", "snapshot_id")
INTS = ("at_ms", "topic_hash", "committed", "end", "consumer_lag", "has_members", "consumer_age_ms", "stable_lag")
IN_LOG = ("verified_epoch", "log_start", "position_bytes", "error_since", "error_until")
LOOKS = pa.schema(
    [
        *((name, pa.string()) for name in ("cluster", "group_id", "topic")),
        ("partition", pa.int32()),
        ("snapshot_id", pa.int64()),
        ("is_observation", pa.bool_()),
        *((name, pa.int64()) for name in (*INTS, *IN_LOG, "committed_at_ms", "since_ms", "members_seen_ms")),
        *((name, pa.bool_()) for name in ("is_new", "is_not_committed", "is_plain")),
        ("status", pa.string()),
        ("memory", pa.list_(pa.int64())),
    ]
)
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
        "is_observation": True,
        "at_ms": at_ms,
        "topic_hash": topic,
        "committed": committed,
        "end": end,
        "consumer_lag": lag,
        "consumer_age_ms": None if lag is None else max(lag, 0) * MINUTE_MS // RATE,
        "has_members": 1,
        "is_new": False,
        "is_not_committed": False,
    }


def judged_together(rows: list[Row], reach: dict[int, int] | None = None) -> list[Row]:
    judge = judging(StatusConfig(), list(NAMES), reach or {})
    return judge((pa.scalar(0),), pa.Table.from_pylist(rows, LOOKS)).to_pylist()  # type: ignore[no-any-return]


@pytest.mark.parametrize("batch", [1, 7, SNAPSHOTS])
def test_judging_readers_together_gives_the_same_as_judging_each_alone(batch: int) -> None:
    readers = histories(seed=batch)
    expected = {
        (reader, T0 + number * MINUTE_MS): status
        for reader, steps in enumerate(readers)
        for number, status in enumerate(judged([step for step, _ in steps], topics=[topic for _, topic in steps]))
    }
    assert {"ok", "not_progressing", "rewound", "warning", "unknown"} <= set(expected.values())
    chance, found, known = random.Random(0), {}, []
    for first in range(0, SNAPSHOTS, batch):
        rows = [
            observation(reader, number, *steps[number])
            for reader, steps in enumerate(readers)
            for number in range(first, min(first + batch, SNAPSHOTS))
        ]
        rows += [row | {"is_observation": False, "at_ms": row["snapshot_id"]} for row in known]
        chance.shuffle(rows)
        new = judged_together(rows)
        found |= {(row["partition"], row["snapshot_id"]): row["status"] for row in new}
        # Of several known snapshots, the newest counts.
        known = [row for row in new if row["snapshot_id"] >= T0 + (first + batch - 3) * MINUTE_MS]
    assert found == expected


@pytest.mark.parametrize("batch", [1, 5, 20])
def test_a_snapshot_read_after_its_successor_does_not_reset_the_memory(batch: int) -> None:
    """Each snapshot is complete, so that a reader that one of them lacks is a new one."""
    steps: list[Step] = [*((n * 100, n * 100) for n in range(8)), *((700, 700 + n * 100) for n in range(1, 13))]
    rows = [observation(0, number, step, 1) for number, step in enumerate(steps)]
    rows[14]["at_ms"] = rows[15]["at_ms"] + 1_000
    ids = [row["snapshot_id"] for row in rows]
    reach = dict(zip(ids[1:], ids, strict=False))
    found: list[Row] = []
    for first in range(0, len(rows), batch):
        known = [row | {"is_observation": False, "at_ms": row["snapshot_id"]} for row in found[-1:]]
        new = judged_together([*known, *rows[first : first + batch]], reach)
        found += sorted(new, key=lambda row: row["snapshot_id"])
    assert [row["status"] for row in found] == ["ok"] * 10 + ["not_progressing"] * 10
    assert {row["since_ms"] for row in found[10:]} == {rows[8]["at_ms"]}


def test_a_status_keeps_the_time_at_which_it_began() -> None:
    steps: list[Step] = [(n * 100, n * 100) for n in range(10)] + [(900, 900 + n * 100) for n in range(1, 9)]
    steps += [(9_000, 9_000)] * 3
    rows = judged_together([observation(0, number, step, 1) for number, step in enumerate(steps)])
    assert set(rows[0]) == {*NAMES, *JUDGEMENT}
    minutes = {
        (row["status"], (row["since_ms"] - T0) // MINUTE_MS) for row in sorted(rows, key=lambda r: r["snapshot_id"])
    }
    # Since the first snapshot of the wait, not since the one from which it counts as a wait.
    assert minutes == {("ok", 0), ("not_progressing", 10), ("ok", 18)}
    times = sorted((row["snapshot_id"], (row["commit_since_ms"] - T0) // MINUTE_MS) for row in rows)
    assert [minute for _, minute in times] == [*range(10), *[9] * 8, *[18] * 3]
    waiting = {row["waiting_since_ms"] for row in rows}
    assert waiting == {None, T0 + 10 * MINUTE_MS}


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"stable_lag": 0}, "open_transaction"),
        ({"has_members": 0}, "no_members"),
        ({"has_members": 0, "stable_lag": 0}, "open_transaction"),
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


def test_the_shorter_memory_of_an_older_laglake_is_read_beside_a_newer_one() -> None:
    lists = pa.chunked_array([pa.array([[1, 2], list(range(Memory.width())), []], pa.list_(pa.int64()))])
    found = lists_as_rows(lists, Memory.width())
    assert found.shape == (3, Memory.width())
    assert found[0].tolist() == [1, 2, *[NONE] * (Memory.width() - 2)]
    assert found[1].tolist() == [*range(Memory.width())]
    assert set(found[2].tolist()) == {NONE}


def test_known_rows_alone_give_no_rows() -> None:
    known = judged_together([observation(0, 0, (1, 1), 1)])
    assert judged_together([row | {"is_observation": False, "at_ms": 0} for row in known]) == []


@pytest.mark.parametrize(("reach", "minute"), [(11, 13), (10, 8), (None, 8)])
def test_a_reader_that_was_in_no_snapshot_since_a_complete_one_is_new(reach: int | None, minute: int) -> None:
    """It has waited since minute 8, and is not in the snapshots of minutes 11 and 12."""
    steps: list[Step] = [(n * 100, n * 100) for n in range(8)] + [(700, n * 100) for n in range(8, 14)]
    rows = [observation(0, number, step, 1) for number, step in enumerate(steps) if number not in (11, 12)]
    reaches = {T0 + 13 * MINUTE_MS: T0 + reach * MINUTE_MS} if reach else {}
    for known in (False, True):
        given, last = rows[:-1], rows[-1:]
        if known:
            given = [r | {"is_observation": False, "at_ms": 0} for r in judged_together(given)]
        newest = max(judged_together([*given, *last], reaches), key=lambda row: row["snapshot_id"])
        assert newest["waiting_since_ms"] == T0 + minute * MINUTE_MS
