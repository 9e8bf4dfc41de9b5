"""Which findings groups share: whole days of problems, in batches of every size. Small integers stand for minutes."""

import json
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.analytics.findings.findings import finding_history, findings, findings_seen
from pipeline.analytics.findings.past import RESOLVED_AFTER, Past, as_known
from pipeline.analytics.findings.problem import WORDED
from pipeline.analytics.findings.words import parts
from pipeline.common.data_source import arrow_schema
from pipeline.common.epoch import MINUTE_MS, to_epoch_ms, utc_text
from tests.helpers.worded import NOON_MS

APART = 10
OF_PROBLEMS = arrow_schema(WORDED)
SEVERITIES = {"falling_behind": "warning"}
Found = dict[tuple[str, str | None, int], int | None]
"""The minute in which each finding is resolved, by kind, group or topic, and first minute."""


def ms(minute: int) -> int:
    return NOON_MS + minute * MINUTE_MS


def problem(
    minute: int, group: str, since: int, kind: str = "no_progress", topics: str = "t", **more: Any
) -> dict[str, Any]:
    """The problem of a group at partition 0 of each topic, with 5 records unread."""
    partition = more.pop("partition", 0)
    evidence = {
        "status": "stopped",
        "since": utc_text(ms(since)),
        "partitions": len(topics),
        "topics": [*topics],
        "worst_topic": topics[0],
        "worst_partition": 0,
        "consumer_lag": 5,
    }
    topic = topics if len(topics) == 1 else None
    return {
        "snapshot_id": ms(minute),
        "kind": kind,
        "cluster": "c",
        "group_id": group,
        "client_id": None,
        "instance": None,
        "topic": topic,
        "partitions": topic and [partition],
        "severity": SEVERITIES.get(kind, "critical"),
        "magnitude": 5.0,
        "summary": f"of {group}",
        "evidence": json.dumps(evidence | more),
        "advice": "-",
    }


def during(minutes: Iterable[int], groups: str, since: int = 0, **more: Any) -> list[dict[str, Any]]:
    return [problem(minute, group, since, **more) for minute in minutes for group in groups]


def rows_found(
    batches: list[range], problems: list[dict[str, Any]], unjudged: tuple[int, ...] = ()
) -> tuple[dict[str, dict[str, Any]], list[dict[str, Any]]]:
    """The findings by id, and their history, batch after batch, each of them computed twice."""
    known: dict[str, dict[str, Any]] = {}
    history: list[dict[str, Any]] = []
    for batch in batches:
        judged = {name: [ms(m) for m in range(batch.stop) if m not in unjudged] for name in ("group", "topic")}
        rows = pa.Table.from_pylist([row for row in problems if minute_of(row["snapshot_id"]) in batch], OF_PROBLEMS)
        before = [row for row in history if row["group_id"] is None][-2 * RESOLVED_AFTER :]
        once: list[dict[str, Any]] = []
        for time in range(2):
            open_or_newer = [
                row
                for row in known.values()
                if row["resolved_at"] is None or to_epoch_ms(row["resolution_confirmed_at"]) >= ms(batch.start)
            ]
            past = Past(as_known(open_or_newer), judged, history=before, together_ms=APART * MINUTE_MS)
            new = finding_history(rows, past)
            known |= {row["finding_id"]: row for row in findings(findings_seen(new).to_pylist(), past)}
            if time == 0:
                once = new.to_pylist()
            else:
                assert sorted(once, key=str) == sorted(new.to_pylist(), key=str)
        history += once
    return known, history


def found_in(batches: list[range], problems: list[dict[str, Any]], unjudged: tuple[int, ...] = ()) -> Found:
    known, _ = rows_found(batches, problems, unjudged)
    return {
        (row["kind"], row["group_id"] or row["topic"], minute_of(to_epoch_ms(row["first_seen"]))): None
        if row["resolved_at"] is None
        else minute_of(to_epoch_ms(row["resolved_at"]))
        for row in known.values()
    }


def minute_of(at_ms: int) -> int:
    return (at_ms - NOON_MS) // MINUTE_MS


BATCHES = pytest.mark.parametrize(
    "batches",
    [
        pytest.param([range(30, 60)], id="at once"),
        pytest.param([range(minute, minute + 1) for minute in range(30, 60)], id="minute by minute"),
        pytest.param([range(30, 34), range(34, 41), range(41, 60)], id="three"),
    ],
)


@BATCHES
def test_a_group_has_a_finding_of_its_own_only_when_the_others_read_again(batches: list[range]) -> None:
    """In minute 33, c cannot be read. From minute 40 on, only a still waits."""
    rows = during(range(30, 40), "ab") + during([*range(30, 33), *range(34, 40)], "c") + during(range(40, 60), "a")
    assert found_in(batches, rows, unjudged=(33,)) == {
        ("stopped_together", "t", 30): 40,
        ("no_progress", "a", 42): None,
    }


@BATCHES
def test_a_group_that_was_found_before_the_others_keeps_its_finding(batches: list[range]) -> None:
    rows = during([30], "a") + during(range(31, 50), "abc")
    assert found_in(batches, rows) == {("stopped_together", "t", 31): 50, ("no_progress", "a", 30): 50}


@BATCHES
def test_groups_that_stop_beside_abandoned_ones_are_found(batches: list[range]) -> None:
    """The abandoned ones have waited since long before; the finding about them is open and has been sent."""
    rows = during(range(30, 60), "abc") + during(range(45, 60), "xyz", since=40)
    assert found_in(batches, rows) == {("stopped_together", "t", 30): None, ("stopped_together", "t", 45): None}


@BATCHES
@pytest.mark.parametrize(
    ("since", "shared"), [((0, 10, 20), True), ((0, 10, 21), False), ((20, 10, 0), True), ((0, 0, 11), False)]
)
def test_each_must_have_stopped_soon_after_the_one_before(
    batches: list[range], since: tuple[int, ...], shared: bool
) -> None:
    rows = [problem(m, group, at) for m in range(30, 60) for group, at in zip("abc", since, strict=True)]
    found = found_in(batches, rows)
    assert {kind for kind, *_ in found} == {"stopped_together" if shared else "no_progress"}
    assert len(found) == (1 if shared else 3)


@BATCHES
def test_a_group_that_is_found_late_is_part_of_it_if_it_stopped_then(batches: list[range]) -> None:
    """A wait of d is unusual only from minute 40 on. The wait of e began when nobody else stopped."""
    rows = during(range(30, 60), "abc") + during(range(40, 60), "d", since=9) + during(range(40, 60), "e", since=22)
    assert found_in(batches, rows) == {("stopped_together", "t", 30): None, ("no_progress", "e", 40): None}


@BATCHES
def test_of_two_that_begin_at_once_the_other_follows_in_the_next_snapshot(batches: list[range]) -> None:
    rows = during(range(30, 60), "abc") + during(range(30, 60), "xyz", since=25)
    assert found_in(batches, rows) == {("stopped_together", "t", 30): None, ("stopped_together", "t", 31): None}


@BATCHES
def test_groups_that_stop_in_several_topics_share_that_of_most_of_them(batches: list[range]) -> None:
    """All three read t; a and b read u as well, and b still waits there when the others read again."""
    rows = during(range(30, 40), "ab", topics="tu") + during(range(30, 40), "c")
    rows += during(range(40, 60), "b", topics="u")
    assert found_in(batches, rows) == {("stopped_together", "t", 30): 40, ("no_progress", "b", 40): None}


@BATCHES
@pytest.mark.parametrize("kind", ["falling_behind", "deleted_unread", "data_loss_ahead"])
def test_other_problems_are_shared_if_they_begin_together(batches: list[range], kind: str) -> None:
    """Three groups that begin within ten minutes share a finding, and one that begins ten minutes after the last."""
    rows = during(range(30, 58), "ab", kind=kind)
    rows += during(range(35, 58), "c", kind=kind) + during(range(45, 58), "d", kind=kind)
    rows += during(range(56, 58), "e", kind=kind)
    assert found_in(batches, rows) == {
        (kind, "a", 30): None,
        (kind, "b", 30): None,
        (kind, "t", 35): None,
        (kind, "e", 56): None,
    }


@BATCHES
def test_a_group_that_recovers_and_has_the_problem_again_much_later_is_found(batches: list[range]) -> None:
    rows = during(range(30, 60), "abc", kind="deleted_unread") + during(
        [*range(30, 34), *range(50, 60)], "d", kind="deleted_unread"
    )
    assert found_in(batches, rows) == {("deleted_unread", "t", 30): None, ("deleted_unread", "d", 50): None}


@BATCHES
def test_groups_at_other_partitions_of_the_topic_are_no_part_of_it(batches: list[range]) -> None:
    rows = during(range(30, 60), "ab") + during(range(30, 60), "x", partition=1)
    assert {group for _, group, _ in found_in(batches, rows)} == {*"abx"}
    rows += during(range(35, 60), "c")
    found = found_in(batches, rows)
    assert found.keys() - {("stopped_together", "t", 35)} == {("no_progress", group, 30) for group in "abx"}


@BATCHES
def test_what_happens_to_groups_of_other_topics_is_not_shared(batches: list[range]) -> None:
    rows = [row for group in "abc" for row in during(range(30, 60), group, topics=group)]
    assert {group for _, group, _ in found_in(batches, rows)} == {*"abc"}


@BATCHES
def test_a_hot_partition_is_found_instead_of_a_group_that_falls_behind(batches: list[range]) -> None:
    """It is hot from minute 30 to 35, and again from 40 on; in between the others are behind too, but not for long."""
    hot = {"is_hot_partition": True, "worst_partition": 7}
    rows = during([*range(30, 35), *range(40, 50)], "a", kind="falling_behind", **hot)
    rows += during([35, 36, *range(50, 60)], "a", kind="falling_behind")
    assert found_in(batches, rows) == {
        ("hot_partition", "a", 30): 35,
        ("hot_partition", "a", 40): 50,
        ("falling_behind", "a", 52): None,
    }


@BATCHES
def test_a_partition_that_becomes_hot_is_a_finding_beside_the_one_that_began_before(batches: list[range]) -> None:
    rows = during(range(30, 33), "a", kind="falling_behind")
    rows += during(range(33, 60), "a", kind="falling_behind", is_hot_partition=True)
    assert found_in(batches, rows) == {("falling_behind", "a", 30): None, ("hot_partition", "a", 33): None}


def test_what_groups_share_is_summed_up() -> None:
    rows = [*during([30], "ab"), problem(30, "c", 5, consumer_lag=7, consumer_age_ms=1_000, worst_partition=3)]
    known, history = rows_found([range(30, 31)], rows)
    ((finding,), (row,)) = known.values(), history
    assert row["summary"] == (
        "3 groups (a, b, c) have stopped at about the same time in 1 partition: commits have not moved since "
        "2026-01-31 12:00 UTC; unread by all of them together: 17 records, the oldest 1 s old."
    )
    assert json.loads(row["evidence"]) == {
        "status": "stopped",
        "since": "2026-01-31T12:00:00Z",
        "latest_since": "2026-01-31T12:05:00Z",
        "partitions": 3,
        "topics": ["t"],
        "groups": ["a", "b", "c"],
        "groups_affected": 3,
        "worst_topic": "t",
        "worst_partition": 3,
        "consumer_lag": 17,
        "consumer_age_ms": 1_000,
    }
    assert (row["topic"], row["partitions"], row["severity"], row["magnitude"]) == ("t", [0], "critical", 15.0)
    assert finding["evidence"] == row["evidence"]


def test_of_many_groups_all_are_part_although_not_all_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.analytics.findings.words.shared.LISTED", 4)
    rows = during(range(30, 60), "abcdefgh")
    known, _ = rows_found([range(minute, minute + 1) for minute in range(30, 60)], rows)
    (finding,) = known.values()
    evidence = json.loads(finding["evidence"])
    assert (evidence["groups"], evidence["groups_affected"]) == ([*"abcd"], 8)
    assert parts.LISTED > parts.NAMED


def test_a_late_snapshot_begins_nothing_beside_what_followed() -> None:
    """Minute 29 is computed after minute 30."""
    rows = during([29, 30, 31], "abc")
    assert found_in([range(30, 31), range(29, 30), range(31, 32)], rows) == {("stopped_together", "t", 30): None}


@settings(max_examples=60)
@given(
    st.lists(st.lists(st.booleans(), min_size=12, max_size=12), min_size=5, max_size=5),
    st.lists(st.integers(1, 11), max_size=4),
    st.sampled_from(["no_progress", "deleted_unread"]),
)
def test_however_the_snapshots_are_cut_into_batches_the_findings_are_the_same(
    has_problem: list[list[bool]], cuts: list[int], kind: str
) -> None:
    """Of five groups. A wait begins at the first snapshot that shows it."""
    rows = []
    for group, minutes in zip("abcde", has_problem, strict=True):
        since = 0
        for minute, has in enumerate(minutes):
            since = since if has else minute + 1
            rows += [problem(minute, group, since, kind=kind)] * has
    edges = sorted({0, 12, *cuts})
    assert found_in([range(*pair) for pair in pairwise(edges)], rows) == found_in([range(12)], rows)
