"""Which findings groups share: histories of problems, in batches of every size. Small integers stand for minutes."""

import json
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.analytics.findings.findings import finding_history
from pipeline.analytics.findings.past import Past, as_known
from pipeline.common.epoch import MINUTE_MS
from tests.helpers.group_problems import (
    APART,
    BATCHES,
    OF_PROBLEMS,
    ONE_BY_ONE,
    during,
    found_in,
    ms,
    problem,
    rows_found,
)
from tests.helpers.worded import NOON_MS

NOT_HOT = {"kind": "falling_behind"}


@BATCHES
def test_what_groups_share_lasts_until_the_last_of_them_is_well(batches: list[range]) -> None:
    """In minute 33, c cannot be read. From minute 40 on, only a still waits, until minute 50."""
    rows = during(range(30, 40), "ab") + during([*range(30, 33), *range(34, 40)], "c") + during(range(40, 50), "a")
    assert found_in(batches, rows, unjudged=(33,)) == {("stopped_together", "t", 30): 50}


@BATCHES
def test_it_is_resolved_although_no_snapshot_is_whole(batches: list[range]) -> None:
    """A log of another topic can never be read. Later, one of the groups has the problem again."""
    rows = during(range(30, 40), "abc", kind="deleted_unread") + during(range(50, 60), "a", kind="deleted_unread")
    expected = {("deleted_unread", "t", 30): 40, ("deleted_unread", "a", 50): None}
    assert found_in(batches, rows, unjudged=tuple(range(60)), of="topic") == expected


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
def test_groups_that_stop_in_several_topics_have_one_finding_of_each(batches: list[range]) -> None:
    """All three read t; a and b read u as well, where they are not enough, and b waits longer."""
    rows = during(range(30, 40), "ab", topics="tu") + during(range(30, 40), "c")
    rows += during(range(40, 60), "b", topics="u")
    of_groups = {("no_progress", "a", 30): 40, ("no_progress", "b", 30): None}
    assert found_in(batches, rows) == {("stopped_together", "t", 30): 40} | of_groups


@BATCHES
def test_an_old_wait_elsewhere_hides_no_new_one(batches: list[range]) -> None:
    """Three groups abandoned u long ago. In minute 40 they stop in t, too, and a group in a new partition of t."""
    rows = during(range(30, 40), "abc", topics="u")
    rows += during(range(40, 60), "abc", at=[("u", 0, 0), ("t", 0, 38)])
    assert found_in(batches, rows) == {("stopped_together", "u", 30): None, ("stopped_together", "t", 40): None}


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
def test_three_groups_must_have_a_partition_in_common(batches: list[range]) -> None:
    rows = during(range(30, 60), "ab") + during(range(30, 60), "x", at=[("t", 1, 0)])
    assert {group for _, group, _ in found_in(batches, rows)} == {*"abx"}
    rows += during(range(35, 60), "c") + during(range(40, 60), "y", at=[("t", 2, 0)])
    found = found_in(batches, rows)
    assert found.keys() - {("stopped_together", "t", 35)} == {("no_progress", group, 30) for group in "abx"}


@BATCHES
def test_a_partition_that_cannot_be_read_for_long_begins_no_other_finding(batches: list[range]) -> None:
    """For a quarter of an hour, only partition 0 can be read."""
    both = [("t", 0, 0), ("t", 1, 0)]
    rows = during([30, 31, *range(47, 60)], "abc", at=both) + during(range(32, 47), "abc")
    assert found_in(batches, rows, unjudged=tuple(range(32, 47))) == {("stopped_together", "t", 30): None}


@BATCHES
def test_what_happens_to_groups_of_other_topics_is_not_shared(batches: list[range]) -> None:
    rows = [row for group in "abc" for row in during(range(30, 60), group, topics=group)]
    assert {group for _, group, _ in found_in(batches, rows)} == {*"abc"}


@BATCHES
def test_old_waits_of_their_own_hide_no_stop_of_several_groups(batches: list[range]) -> None:
    """They abandoned u one after the other, and stop in t at once."""
    rows = []
    for group, since in zip("abc", (0, 12, 25), strict=True):
        rows += during(range(30, 45), group, at=[("u", 0, since)])
        rows += during(range(45, 60), group, at=[("u", 0, since), ("t", 0, 44)])
    of_groups = {("no_progress", group, 30): None for group in "abc"}
    assert found_in(batches, rows) == of_groups | {("stopped_together", "t", 45): None}


@BATCHES
def test_a_group_that_cannot_be_read_for_long_still_takes_part(batches: list[range]) -> None:
    """From minute 32 to 46, nothing can be judged, and d and e have no rows."""
    always = during(range(30, 60), "abc", **NOT_HOT)
    rows = always + during([30, 31, *range(47, 60)], "de", **NOT_HOT)
    assert found_in(batches, rows, unjudged=tuple(range(32, 47))) == {("falling_behind", "t", 30): None}


def test_waits_are_compared_in_seconds_as_the_evidence_has_them() -> None:
    """Each begins ten minutes after the one before, but for milliseconds, and the last half an hour after the first."""
    rows = []
    for group, since_ms in zip("abcd", (999, 600_900, 1_200_800, 1_800_700), strict=True):
        of_group = during(range(30, 40), group)
        for row in of_group:
            row["places"] = json.dumps([{"topic": "t", "partition": 0, "since_ms": NOON_MS + since_ms}])
        rows += of_group if group != "d" else of_group[2:]
    at_once, by_minute = (found_in(batches, rows) for batches in ([range(30, 40)], ONE_BY_ONE))
    assert at_once == by_minute == {("stopped_together", "t", 30): None}


def test_an_older_snapshot_that_is_computed_again_keeps_its_rows() -> None:
    """Minute 30 alone, when the finding of minute 31 is known, too."""
    rows = during(range(30, 33), "abc") + during(range(30, 33), "xyz", since=25)
    known, _ = rows_found([range(30, 33)], rows)
    judged = {name: [ms(minute) for minute in range(33)] for name in ("group", "topic")}
    again = pa.Table.from_pylist([row for row in rows if row["snapshot_id"] == ms(30)], OF_PROBLEMS)
    past = Past(as_known(known.values()), judged, together_ms=APART * MINUTE_MS)
    (row,) = finding_history(again, past).to_pylist()
    assert json.loads(row["evidence"])["groups"] == [*"xyz"]


@pytest.mark.parametrize("batches", [[range(60)], [range(minute, minute + 1) for minute in range(60)]])
def test_what_begins_in_groups_over_more_than_the_window_is_not_one_finding(batches: list[range]) -> None:
    """One group each four minutes: what begins more than half an hour after the first is another finding."""
    rows = [row for at, group in enumerate("abcdefghijklmno") for row in during(range(4 * at, 60), group, **NOT_HOT)]
    of_groups = {("falling_behind", group, 4 * "abcdefghij".index(group)): None for group in "abij"}
    of_topic = {("falling_behind", "t", 8): None, ("falling_behind", "t", 40): None}
    assert found_in(batches, rows) == of_groups | of_topic


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
