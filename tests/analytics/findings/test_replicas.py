"""Partitions whose replicas are not in sync: one problem of the cluster, if this lasts."""

import json
from typing import Any

import pytest

from pipeline.analytics.findings.replicas import find_missing_replicas, seen_before
from pipeline.tables import LAG, WATERMARKS
from tests.helpers.rows import few_rows
from tests.helpers.worded import worded_rows

MINUTE_MS = 60_000
THEN, JUST, NOW = 0, 4 * MINUTE_MS, 5 * MINUTE_MS
Log = tuple[int | None, list[int], list[int]]
"""Leader, replicas, replicas in sync."""
WELL: Log = (1, [1, 2, 3], [1, 2, 3])
WITHOUT_3: Log = (1, [1, 2, 3], [1, 2])
WITHOUT_2: Log = (1, [1, 2, 3], [3, 1])
ONLY_1: Log = (1, [1, 2, 3], [1])
NO_LEADER: Log = (None, [4], [4])


def problem(then: list[Log], now: list[Log], just: list[Log] | None = None) -> dict[str, Any] | None:
    """The problem, where partition n of topic t{n} was like this five minutes ago, just so, and is like that now.

    Groups a and b read each partition.
    """
    by_time = ((THEN, then), (JUST, then if just is None else just), (NOW, now))
    rows = [(at, f"t{n}", n, *log) for at, logs in by_time for n, log in enumerate(logs)]
    readers = [(NOW, group, f"t{n}", n) for group in ("a", "b") for n in range(len(now))]
    parts = {
        "watermarks": few_rows(WATERMARKS, "snapshot_id topic partition leader replicas isr", *rows),
        "lag": few_rows(LAG, "snapshot_id group_id topic partition", *readers),
    }
    found = worded_rows(find_missing_replicas(parts, {NOW: THEN}, {NOW: JUST}).collected_table())
    assert len(found) <= 1
    return next((row | {"evidence": json.loads(row["evidence"])} for row in found), None)


CASES = [
    ("all in sync", [WELL], [WELL], None),
    ("just now", [WELL], [WITHOUT_3], None),
    ("no longer", [WITHOUT_3], [WELL], None),
    ("another broker, as while one after the other restarts", [WITHOUT_2], [WITHOUT_3], None),
    ("a new topic", [], [WITHOUT_3], None),
    ("for five minutes", [WITHOUT_3], [WITHOUT_3], ("warning", 3, 1)),
    ("half in sync", [(1, [1, 2], [1])], [(1, [1, 2], [1])], ("warning", 2, 1)),
    ("fewer than half", [ONLY_1], [ONLY_1], ("critical", 2, 1)),
    ("one of two brokers is back", [ONLY_1], [WITHOUT_3], ("warning", 3, 1)),
    ("no leader", [NO_LEADER], [NO_LEADER], ("critical", 4, 1)),
    ("the worst broker", [WITHOUT_2, WITHOUT_3, WITHOUT_3], [WITHOUT_2, WITHOUT_3, WITHOUT_3], ("warning", 3, 3)),
]


@pytest.mark.parametrize(("then", "now", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_a_broker_that_stays_away_is_a_problem(
    then: list[Log], now: list[Log], expected: tuple[str, int, int] | None
) -> None:
    row = problem(then, now)
    assert (row and (row["severity"], row["evidence"]["broker"], row["magnitude"])) == expected


@pytest.mark.parametrize(
    ("just", "now", "magnitude"),
    [(NO_LEADER, NO_LEADER, 1), (WELL, NO_LEADER, None), (NO_LEADER, WELL, None), (WITHOUT_3, WITHOUT_3, None)],
)
def test_a_partition_without_a_leader_is_a_problem_in_two_successive_snapshots(
    just: Log, now: Log, magnitude: int | None
) -> None:
    """A replica that is only out of sync must be missing for five minutes."""
    row = problem([WELL], [now], [just])
    assert (row and row["magnitude"]) == magnitude


def test_the_words_name_the_broker() -> None:
    logs = [WITHOUT_3, WITHOUT_3, ONLY_1, NO_LEADER, WELL]
    row = problem(logs, logs)
    assert row
    assert row["summary"] == (
        "Replicas of 4 partitions of 4 topics are not in sync; broker 3 is missing from 3. 1 partition has no leader, "
        "so that 2 groups (a, b) cannot read there."
    )
    assert row["advice"].startswith("Look at broker 3: whether it runs")
    assert row["evidence"] == {
        "partitions": 4,
        "topics": ["t0", "t1", "t2", "t3"],
        "topics_affected": 4,
        "broker": 3,
        "partitions_of_broker": 3,
        "brokers": [2, 3, 4],
        "partitions_without_leader": 1,
        "critical_partitions": 2,
        "groups": ["a", "b"],
        "groups_affected": 2,
    }
    assert (row["kind"], row["group_id"], row["topic"]) == ("under_replicated", None, None)


@pytest.mark.parametrize(
    ("minutes", "expected"),
    [
        (range(8), {5: 0, 6: 1, 7: 2}),
        (range(0, 60, 15), {15: 0, 30: 15, 45: 30}),
        ([0, 4, 5, 20], {5: 0, 20: 5}),
        # Every ten seconds; at most three back.
        ([n / 6 for n in range(5)], {3 / 6: 0, 4 / 6: 1 / 6}),
    ],
)
def test_snapshots_are_compared_with_those_five_minutes_older(minutes: Any, expected: dict[float, float]) -> None:
    ids = [round(minute * MINUTE_MS) for minute in minutes]
    most = 3 if ids[1] < MINUTE_MS else 10
    found = seen_before(ids, ids, most)
    assert found == {round(at * MINUTE_MS): round(then * MINUTE_MS) for at, then in expected.items()}
