"""Which finding groups that have stopped together belong to. Small integers stand for minutes."""

import json
from typing import Any

import pyarrow as pa
import pytest

from pipeline.analytics.findings.cohorts import Cohort, by_cohort
from pipeline.analytics.findings.findings import Past, as_known, finding_history, findings, findings_seen
from pipeline.analytics.findings.problem import WORDED
from pipeline.common.data_source import arrow_schema
from pipeline.common.epoch import MINUTE_MS, to_epoch_ms, utc_text
from tests.helpers.worded import NOON_MS

APART = 10
OF_PROBLEMS = arrow_schema(WORDED)
Waits = tuple[int, int]
"""When the first and the last wait of some groups began."""


def ms(minute: int) -> int:
    return NOON_MS + minute * MINUTE_MS


def evidence(waits: Waits) -> str:
    first, last = (utc_text(ms(minute)) for minute in waits)
    return json.dumps({"since": first, "latest_since": last})


def seen(minute: int, *several: Waits) -> list[dict[str, Any]]:
    return [{"snapshot_id": ms(minute), "cluster": "c", "topic": "t", "evidence": evidence(each)} for each in several]


def known(minute: int, waits: Waits) -> dict[str, Any]:
    return {"first_seen": ms(minute), "last_seen": ms(minute), "evidence": evidence(waits)}


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [((0, 5), (15, 20), True), ((0, 5), (16, 20), False), ((15, 20), (0, 5), True), ((16, 20), (0, 5), False)],
)
def test_cohorts_that_overlap_or_are_near_are_one(first: Waits, second: Waits, expected: bool) -> None:
    cohorts = [Cohort(*map(ms, waits)) for waits in (first, second)]
    assert cohorts[0].meets(cohorts[1], APART * MINUTE_MS) is expected


@pytest.mark.parametrize(
    ("before", "now", "begun"),
    [
        pytest.param([known(30, (0, 5))], seen(40, (2, 5)), [30], id="some have recovered"),
        pytest.param([known(30, (0, 5))], seen(40, (0, 15)), [30], id="some are found late"),
        pytest.param([known(30, (0, 5))], seen(40, (16, 20)), [40], id="others have stopped"),
        pytest.param([known(30, (0, 5))], seen(40, (0, 5), (35, 36)), [40, 30], id="others have stopped, too"),
        pytest.param([], seen(40, (0, 5), (35, 36)) + seen(41, (0, 5), (35, 36)), [40, 40, 41], id="one at a time"),
        pytest.param([known(30, (0, 24))], seen(40, (0, 1), (23, 24)), [30], id="those in between have recovered"),
        pytest.param(
            [], seen(40, (0, 5)) + seen(41, (12, 14)) + seen(42, (21, 22)), [40, 40, 40], id="one after another"
        ),
        pytest.param([], [{**row, "evidence": "{}"} for row in seen(40, (0, 5))], [], id="it is not known since when"),
    ],
)
def test_a_cohort_keeps_its_finding(before: list[Any], now: list[Any], begun: list[int]) -> None:
    named = [name for _, name in by_cohort(now, before, APART * MINUTE_MS)]
    assert named == [str(ms(minute)) for minute in begun]


def problem(minute: int, kind: str, group: str | None, waits: Waits, *, continues: bool = False) -> dict[str, Any]:
    of = {"cluster": "c", "kind": kind, "group_id": group, "client_id": None, "instance": None, "topic": "t"}
    worst = {"partitions": [0], "severity": "critical", "magnitude": 1.0, "summary": "-", "advice": "-"}
    return {"snapshot_id": ms(minute), "evidence": evidence(waits), "continues": continues} | of | worst


def of_groups(minute: int, groups: str, *, continues: bool) -> list[dict[str, Any]]:
    return [problem(minute, "no_progress", group, (0, 0), continues=continues) for group in groups]


def together(minute: int, groups: str) -> list[dict[str, Any]]:
    return [problem(minute, "stopped_together", None, (0, 5)), *of_groups(minute, groups, continues=True)]


def found_in(batches: list[range], problems: list[dict[str, Any]], unjudged: tuple[int, ...] = ()) -> dict[Any, Any]:
    """The first minute of each finding, and that in which it is resolved, by kind and group; batch after batch."""
    known: dict[str, dict[str, Any]] = {}
    for batch in batches:
        judged = {name: [ms(m) for m in range(batch.stop) if m not in unjudged] for name in ("group", "topic")}
        past = Past(as_known(known.values()), judged, together_ms=APART * MINUTE_MS)
        rows = pa.Table.from_pylist([row for row in problems if minute_of(row["snapshot_id"]) in batch], OF_PROBLEMS)
        history = finding_history(rows, past)
        known |= {row["finding_id"]: row for row in findings(findings_seen(history).to_pylist(), past)}
    return {
        (row["kind"], row["group_id"], minute_of(to_epoch_ms(row["first_seen"]))): None
        if row["resolved_at"] is None
        else minute_of(to_epoch_ms(row["resolved_at"]))
        for row in known.values()
    }


def minute_of(at_ms: int) -> int:
    return (at_ms - NOON_MS) // MINUTE_MS


BATCHES = [
    pytest.param([range(30, 60)], id="at once"),
    pytest.param([range(minute, minute + 1) for minute in range(30, 60)], id="minute by minute"),
    pytest.param([range(30, 34), range(34, 41), range(41, 60)], id="three"),
]


@pytest.mark.parametrize("batches", BATCHES)
def test_a_group_has_a_finding_of_its_own_only_when_the_others_read_again(batches: list[range]) -> None:
    """In minute 33, c cannot be read, and two are not together. From minute 40 on, only a still waits."""
    rows = [row for minute in range(30, 40) if minute != 33 for row in together(minute, "abc")]
    rows += of_groups(33, "ab", continues=False)
    rows += [row for minute in range(40, 60) for row in of_groups(minute, "a", continues=False)]
    assert found_in(batches, rows, unjudged=(33,)) == {
        ("stopped_together", None, 30): 40,
        ("no_progress", "a", 42): None,
    }


@pytest.mark.parametrize("batches", BATCHES)
def test_a_group_that_was_found_before_the_others_keeps_its_finding(batches: list[range]) -> None:
    rows = of_groups(30, "a", continues=False)
    rows += [row for minute in range(31, 50) for row in together(minute, "abc")]
    assert found_in(batches, rows) == {("stopped_together", None, 31): 50, ("no_progress", "a", 30): 50}


@pytest.mark.parametrize("batches", BATCHES)
def test_groups_that_stop_beside_abandoned_ones_are_found(batches: list[range]) -> None:
    """The abandoned ones have waited since long before; the finding about them is open and has been sent."""
    rows = [row for minute in range(30, 60) for row in together(minute, "abc")]
    for minute in range(45, 60):
        rows.append(problem(minute, "stopped_together", None, (40, 41)))
        rows += [problem(minute, "no_progress", group, (40, 41), continues=True) for group in "xyz"]
    assert found_in(batches, rows) == {("stopped_together", None, 30): None, ("stopped_together", None, 45): None}
