"""Which findings have a cause in common: problems in batches of every size. Small integers stand for minutes."""

import json
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.analytics.findings.findings import finding_history
from pipeline.analytics.findings.known_findings import KnownFindings, as_known
from pipeline.common.epoch import MINUTE_MS
from tests.helpers.group_problems import (
    APART,
    BATCHES,
    OF_PROBLEMS,
    ONE_BY_ONE,
    causes_in,
    during,
    found_in,
    ms,
    problem,
    rows_found,
)
from tests.helpers.worded import NOON_MS

NOT_HOT = {"kind": "falling_behind"}
LOST = {"kind": "deleted_unread"}


@BATCHES
def test_each_group_has_its_own_finding_with_the_cause(batches: list[range]) -> None:
    """In minute 33, c cannot be read. From minute 40 on, only a still waits, until minute 50."""
    rows = during(range(30, 40), "ab") + during([*range(30, 33), *range(34, 40)], "c") + during(range(40, 50), "a")
    ends = {("no_progress", "a", 30): 50, ("no_progress", "b", 30): 40, ("no_progress", "c", 30): 40}
    assert found_in(batches, rows, unjudged=(33,)) == ends
    assert causes_in(batches, rows, unjudged=(33,)) == {"t 0 30": "abc"}


@BATCHES
def test_each_is_resolved_although_no_snapshot_is_whole(batches: list[range]) -> None:
    """A log of another topic can never be read. Later, one of the groups has the problem again, alone."""
    rows = during(range(30, 40), "abc", **LOST) + during(range(50, 60), "a", **LOST)
    expected = {("deleted_unread", group, 30): 40 for group in "abc"} | {("deleted_unread", "a", 50): None}
    assert found_in(batches, rows, unjudged=tuple(range(60)), of="topic") == expected
    assert causes_in(batches, rows, unjudged=tuple(range(60)), of="topic") == {"t 30 30": "abc"}


@BATCHES
def test_a_group_that_was_found_before_the_others_keeps_its_finding(batches: list[range]) -> None:
    rows = during([30], "a") + during(range(31, 50), "abc")
    assert found_in(batches, rows) == {
        ("no_progress", "a", 30): 50,
        ("no_progress", "b", 31): 50,
        ("no_progress", "c", 31): 50,
    }
    assert causes_in(batches, rows) == {"t 0 31": "abc"}
    _, history = rows_found(batches, rows)
    causes = {(row["group_id"], row["snapshot_id"]): row["cause_id"] for row in history}
    assert causes["a", ms(30)] is None
    assert {causes[group, ms(minute)] for group in "abc" for minute in range(31, 50)} == {causes["b", ms(31)]}


@BATCHES
def test_groups_that_stop_beside_abandoned_ones_have_another_cause(batches: list[range]) -> None:
    """The abandoned ones have waited since long before; the finding about them is open and has been sent."""
    rows = during(range(30, 60), "abc") + during(range(45, 60), "xyz", since=40)
    assert causes_in(batches, rows) == {"t 0 30": "abc", "t 40 45": "xyz"}


@BATCHES
@pytest.mark.parametrize(
    ("since", "shared"), [((0, 10, 20), True), ((0, 10, 21), False), ((20, 10, 0), True), ((0, 0, 11), False)]
)
def test_each_must_have_stopped_soon_after_the_one_before(
    batches: list[range], since: tuple[int, ...], shared: bool
) -> None:
    rows = [problem(m, group, at) for m in range(30, 60) for group, at in zip("abc", since, strict=True)]
    assert found_in(batches, rows) == {("no_progress", group, 30): None for group in "abc"}
    assert causes_in(batches, rows) == ({"t 0 30": "abc"} if shared else {})


@BATCHES
def test_a_group_that_is_found_late_has_the_cause_if_it_stopped_then(batches: list[range]) -> None:
    """A wait of d is unusual only from minute 40 on. The wait of e began when nobody else stopped."""
    rows = during(range(30, 60), "abc") + during(range(40, 60), "d", since=9) + during(range(40, 60), "e", since=22)
    assert causes_in(batches, rows) == {"t 0 30": "abcd"}


@BATCHES
def test_two_causes_of_a_topic_may_be_found_at_once(batches: list[range]) -> None:
    rows = during(range(30, 60), "abc") + during(range(30, 60), "xyz", since=25)
    assert causes_in(batches, rows) == {"t 0 30": "abc", "t 25 30": "xyz"}


@BATCHES
def test_groups_that_stop_in_several_topics_have_the_cause_with_most_groups(batches: list[range]) -> None:
    """All three read t; a and b read u as well, where they are not enough, and b waits longer."""
    rows = during(range(30, 40), "ab", topics="tu") + during(range(30, 40), "c")
    rows += during(range(40, 60), "b", topics="u")
    ends = {("no_progress", "a", 30): 40, ("no_progress", "b", 30): None, ("no_progress", "c", 30): 40}
    assert found_in(batches, rows) == ends
    assert causes_in(batches, rows) == {"t 0 30": "abc"}


@BATCHES
def test_a_finding_has_the_cause_under_which_it_was_first_grouped(batches: list[range]) -> None:
    """Three groups abandoned u long ago. In minute 40 they stop in t, too: each of them has its finding already."""
    rows = during(range(30, 40), "abc", topics="u")
    rows += during(range(40, 60), "abc", at=[("u", 0, 0), ("t", 0, 38)])
    assert causes_in(batches, rows) == {"u 0 30": "abc"}


@BATCHES
@pytest.mark.parametrize("kind", ["falling_behind", "deleted_unread", "data_loss_ahead"])
def test_other_problems_have_a_cause_if_they_begin_together(batches: list[range], kind: str) -> None:
    """Three groups that begin within ten minutes share a cause, and one that begins ten minutes after the last."""
    rows = during(range(30, 58), "ab", kind=kind)
    rows += during(range(35, 58), "c", kind=kind) + during(range(45, 58), "d", kind=kind)
    rows += during(range(56, 58), "e", kind=kind)
    begins = {"a": 30, "b": 30, "c": 35, "d": 45, "e": 56}
    assert found_in(batches, rows) == {(kind, group, minute): None for group, minute in begins.items()}
    assert causes_in(batches, rows) == {"t 30 35": "abcd"}


@BATCHES
def test_a_group_that_recovers_and_has_the_problem_again_much_later_stands_alone(batches: list[range]) -> None:
    rows = during(range(30, 60), "abc", **LOST) + during([*range(30, 34), *range(50, 60)], "d", **LOST)
    of_d = {at: end for (_, group, at), end in found_in(batches, rows).items() if group == "d"}
    assert of_d == {30: 34, 50: None}
    known, _ = rows_found(batches, rows)
    causes = {row["first_seen"]: row["cause_id"] for row in known.values() if row["group_id"] == "d"}
    assert [cause is not None for _, cause in sorted(causes.items())] == [True, False]


@BATCHES
def test_three_groups_must_have_a_partition_in_common(batches: list[range]) -> None:
    rows = during(range(30, 60), "ab") + during(range(30, 60), "x", at=[("t", 1, 0)])
    assert causes_in(batches, rows) == {}
    rows += during(range(35, 60), "c") + during(range(40, 60), "y", at=[("t", 2, 0)])
    assert causes_in(batches, rows) == {"t 0 35": "abcxy"}


@BATCHES
def test_a_partition_that_cannot_be_read_for_long_begins_nothing_else(batches: list[range]) -> None:
    """For a quarter of an hour, only partition 0 can be read."""
    both = [("t", 0, 0), ("t", 1, 0)]
    rows = during([30, 31, *range(47, 60)], "abc", at=both) + during(range(32, 47), "abc")
    unread = tuple(range(32, 47))
    assert found_in(batches, rows, unjudged=unread) == {("no_progress", group, 30): None for group in "abc"}
    assert causes_in(batches, rows, unjudged=unread) == {"t 0 30": "abc"}


@BATCHES
def test_what_happens_to_groups_of_other_topics_is_not_shared(batches: list[range]) -> None:
    rows = [row for group in "abc" for row in during(range(30, 60), group, topics=group)]
    assert causes_in(batches, rows) == {}


@BATCHES
def test_old_waits_hide_no_stop_of_several_groups(batches: list[range]) -> None:
    """They abandoned u one after the other, and stop in t at once. Each of them has its finding already."""
    rows = []
    for group, since in zip("abc", (0, 12, 25), strict=True):
        rows += during(range(30, 45), group, at=[("u", 0, since)])
        rows += during(range(45, 60), group, at=[("u", 0, since), ("t", 0, 44)])
    assert found_in(batches, rows) == {("no_progress", group, 30): None for group in "abc"}
    assert causes_in(batches, rows) == {"t 44 45": "abc"}
    known, _ = rows_found(batches, rows)
    assert {row["topic"] for row in known.values()} == {"u"}  # that of the worst moment, the first one


@BATCHES
def test_a_group_that_cannot_be_read_for_long_keeps_its_finding_and_its_cause(batches: list[range]) -> None:
    """From minute 32 to 46, nothing can be judged, and d and e have no rows."""
    always = during(range(30, 60), "abc", **NOT_HOT)
    rows = always + during([30, 31, *range(47, 60)], "de", **NOT_HOT)
    unread = tuple(range(32, 47))
    assert found_in(batches, rows, unjudged=unread) == {("falling_behind", group, 30): None for group in "abcde"}
    assert causes_in(batches, rows, unjudged=unread) == {"t 30 30": "abcde"}


def test_waits_are_compared_in_milliseconds() -> None:
    """Each begins ten minutes after the one before, but for milliseconds, and the last half an hour after the first."""
    rows = []
    for group, since_ms in zip("abcd", (999, 600_900, 1_200_800, 1_800_700), strict=True):
        of_group = during(range(30, 40), group)
        for row in of_group:
            row["places"] = json.dumps([{"topic": "t", "partition": 0, "since_ms": NOON_MS + since_ms}])
        rows += of_group if group != "d" else of_group[2:]
    at_once, by_minute = (causes_in(batches, rows) for batches in ([range(30, 40)], ONE_BY_ONE))
    assert at_once == by_minute == {"t 0 30": "abcd"}


def test_an_older_snapshot_that_is_computed_again_keeps_its_rows() -> None:
    """Minute 30 alone, when all later ones are known, too. In minute 30, c is not there yet."""
    rows = during(range(30, 33), "ab") + during(range(31, 33), "c") + during(range(30, 33), "xyz", since=25)
    known, history = rows_found([range(30, 33)], rows)
    judged = {name: [ms(minute) for minute in range(33)] for name in ("group", "topic")}
    again = pa.Table.from_pylist([row for row in rows if row["snapshot_id"] == ms(30)], OF_PROBLEMS)
    past = KnownFindings(as_known(known.values()), judged, together_ms=APART * MINUTE_MS)
    first = [row for row in history if row["snapshot_id"] == ms(30)]
    assert sorted(finding_history(again, past).to_pylist(), key=str) == sorted(first, key=str)
    assert [row["group_id"] for row in first if row["cause_id"] is None] == ["a", "b"]


@pytest.mark.parametrize("batches", [[range(60)], [range(minute, minute + 1) for minute in range(60)]])
def test_what_begins_in_groups_over_more_than_the_window_has_another_cause(batches: list[range]) -> None:
    """One group each four minutes: what begins more than half an hour after the first has another cause."""
    rows = [row for at, group in enumerate("abcdefghijklmno") for row in during(range(4 * at, 60), group, **NOT_HOT)]
    assert causes_in(batches, rows) == {"t 0 8": "abcdefgh", "t 32 40": "ijklmno"}


def test_a_late_snapshot_begins_nothing_beside_what_followed() -> None:
    """Minute 29 is computed after minute 30."""
    batches, rows = [range(30, 31), range(29, 30), range(31, 32)], during([29, 30, 31], "abc")
    assert found_in(batches, rows) == {("no_progress", group, 30): None for group in "abc"}
    assert causes_in(batches, rows) == {"t 0 30": "abc"}


def test_a_late_snapshot_changes_no_cause_that_followed() -> None:
    """Minute 30 is computed last: only then is it seen that d, which has recovered, had stopped like the others."""
    elsewhere = [("t", 1, 0)]
    rows = during([29], "cd", at=elsewhere) + during([30], "cd") + during([31], "c") + during([29, 30, 31], "ab")
    batches = [range(29, 30), range(31, 32), range(30, 31)]
    assert causes_in(batches, rows) == {"t 0 31": "abc"}


@BATCHES
def test_a_cause_has_three_groups_that_have_no_other_one(batches: list[range]) -> None:
    """Without a and b, which have waited elsewhere since minute 0, x is alone in partition 1 of t."""
    both = [("t", 0, 0), ("t", 1, 25)]
    rows = during(range(30, 60), "ab", at=both) + during(range(30, 60), "c")
    rows += during(range(30, 60), "x", at=[("t", 1, 26)])
    assert causes_in(batches, rows) == {"t 0 30": "abc"}


@BATCHES
def test_a_later_wait_of_a_group_brings_no_other_into_the_cause(batches: list[range]) -> None:
    """Between the first waits and that of e lie 30 minutes, although a waits elsewhere since minute 25."""
    rows = during(range(30, 60), "bc") + during(range(30, 60), "a", at=[("t", 0, 0), ("t", 1, 25)])
    rows += during(range(30, 60), "e", since=30)
    assert causes_in(batches, rows) == {"t 0 30": "abc"}


@BATCHES
@pytest.mark.parametrize(("reach", "shared"), [((35, 46, 57), {}), ((35, 36, 37), {"t 35 37": "abc"})])
def test_groups_that_fall_behind_elsewhere_share_what_begins_in_a_topic_together(
    batches: list[range], reach: tuple[int, ...], shared: dict[str, str]
) -> None:
    """They fall behind in topics of their own since minute 30, and later in t."""
    rows = []
    for group, own, at in zip("abc", "uvw", reach, strict=True):
        rows += during(range(30, at), group, since=29, topics=own, **NOT_HOT)
        rows += during(range(at, 60), group, at=[(own, 0, 29), ("t", 0, at)], **NOT_HOT)
    assert causes_in(batches, rows) == shared


@BATCHES
def test_a_snapshot_that_cannot_be_read_makes_nothing_begin_together(batches: list[range]) -> None:
    """The groups fall behind one after the other; in minute 55, the status of all of them begins again."""
    rows = []
    for group, first in zip("abc", (30, 41, 53), strict=True):
        rows += during(range(first, 55), group, since=first, **NOT_HOT) + during(range(55, 60), group, 55, **NOT_HOT)
    assert causes_in(batches, rows) == {}


@BATCHES
def test_two_early_groups_elsewhere_do_not_hide_three_that_follow(batches: list[range]) -> None:
    """The first two wait at another partition, and the last one began more than half an hour after the first."""
    rows = during(range(33, 60), "a", at=[("t", 1, 0)]) + during(range(33, 60), "b", at=[("t", 1, 9)])
    for group, since in zip("cde", (18, 27, 31), strict=True):
        rows += during(range(33, 60), group, since)
    assert causes_in(batches, rows) == {"t 9 33": "bcde"}


@settings(max_examples=60)
@given(
    st.lists(st.lists(st.booleans(), min_size=12, max_size=12), min_size=5, max_size=5),
    st.lists(st.integers(1, 11), max_size=4),
    st.sampled_from(["no_progress", "deleted_unread", "falling_behind"]),
)
def test_however_the_snapshots_are_cut_into_batches_the_findings_and_causes_are_the_same(
    has_problem: list[list[bool]], cuts: list[int], kind: str
) -> None:
    """Of five groups with two partitions each. A wait begins at the first snapshot that shows it."""
    rows = []
    for number, (group, minutes) in enumerate(zip("abcde", has_problem, strict=True)):
        since = 0
        for minute, has in enumerate(minutes):
            since = since if has else minute + 1
            places = [("t", 0, since), ("t", 1, max(since - 7 * number, 0)), ("u", number % 2, minute)]
            rows += [problem(minute, group, since, kind=kind, at=places[: 1 + (minute + number) % 3])] * has
    batches = [range(*pair) for pair in pairwise(sorted({0, 12, *cuts}))]
    for of in (found_in, causes_in):
        assert of(batches, rows) == of([range(12)], rows)
