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
from pipeline.analytics.findings.past import Past, as_known
from pipeline.analytics.findings.problem import WORDED
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
    """The problem of a group at partition 0 of each topic, with 5 records unread; `at` has other places."""
    at = more.pop("at", None) or [(topic, 0, since) for topic in topics]
    topics = "".join(sorted({topic for topic, *_ in at}))
    places = [{"topic": topic, "partition": number, "since_ms": ms(minute)} for topic, number, minute in at]
    evidence = {
        "status": "stopped",
        "since": utc_text(ms(since)),
        "partitions": len(at),
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
        "partitions": topic and sorted({number for _, number, _ in at}),
        "places": json.dumps(places),
        "severity": SEVERITIES.get(kind, "critical"),
        "magnitude": 5.0,
        "summary": f"of {group}",
        "evidence": json.dumps(evidence | more),
        "advice": "-",
    }


def during(minutes: Iterable[int], groups: str, since: int = 0, **more: Any) -> list[dict[str, Any]]:
    return [problem(minute, group, since, **more) for minute in minutes for group in groups]


def rows_found(
    batches: list[range], problems: list[dict[str, Any]], unjudged: tuple[int, ...] = (), of: str = ""
) -> tuple[dict[str, dict[str, Any]], list[dict[str, Any]]]:
    """The findings by id, and their history, batch after batch, each of them computed twice.

    In minutes that are `unjudged`, nothing can be judged, or only what is given by `of` cannot.
    """
    known: dict[str, dict[str, Any]] = {}
    history: list[dict[str, Any]] = []
    for batch in batches:
        judged = {
            name: [ms(m) for m in range(batch.stop) if m not in unjudged or of not in ("", name)]
            for name in ("group", "topic")
        }
        rows = pa.Table.from_pylist([row for row in problems if minute_of(row["snapshot_id"]) in batch], OF_PROBLEMS)
        last_seen = {to_epoch_ms(row["last_seen"]) for row in known.values()}
        before = [row for row in history if row["group_id"] is None and was_read(row, batch, last_seen)]
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


def was_read(row: dict[str, Any], batch: range, last_seen: set[int]) -> bool:
    """Whether a row of the history is one that a job reads: of the ten snapshots before the batch, or the last one."""
    at_ms = row["snapshot_id"]
    return at_ms < ms(batch.start) and (at_ms >= ms(batch.start - 10) or at_ms in last_seen)


def found_in(
    batches: list[range], problems: list[dict[str, Any]], unjudged: tuple[int, ...] = (), of: str = ""
) -> Found:
    known, _ = rows_found(batches, problems, unjudged, of)
    return {
        (row["kind"], row["group_id"] or row["topic"], minute_of(to_epoch_ms(row["first_seen"]))): None
        if row["resolved_at"] is None
        else minute_of(to_epoch_ms(row["resolved_at"]))
        for row in known.values()
    }


def minute_of(at_ms: int) -> int:
    return (at_ms - NOON_MS) // MINUTE_MS


ONE_BY_ONE = [range(minute, minute + 1) for minute in range(30, 40)]
BATCHES = pytest.mark.parametrize(
    "batches",
    [
        pytest.param([range(30, 60)], id="at once"),
        pytest.param([range(minute, minute + 1) for minute in range(30, 60)], id="minute by minute"),
        pytest.param([range(30, 34), range(34, 41), range(41, 60)], id="three"),
    ],
)


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


HOT = {"kind": "falling_behind", "is_hot_partition": True}
NOT_HOT = {"kind": "falling_behind"}
OTHER_WORST = NOT_HOT | {"worst_partition": 7}


@BATCHES
def test_a_hot_partition_is_found_instead_of_a_group_that_falls_behind(batches: list[range]) -> None:
    """It is not hot in each snapshot. From minute 50 on, another partition is the worst one."""
    rows = during([*range(30, 35), *range(40, 50)], "a", **HOT) + during(range(35, 40), "a", **NOT_HOT)
    rows += during(range(50, 60), "a", worst_partition=7, **NOT_HOT)
    assert found_in(batches, rows) == {("hot_partition", "a", 30): 50, ("falling_behind", "a", 52): None}


@BATCHES
def test_a_group_that_falls_behind_has_no_hot_partition_as_well(batches: list[range]) -> None:
    rows = during(range(30, 33), "a", **NOT_HOT) + during(range(33, 60), "a", **HOT)
    assert found_in(batches, rows) == {("falling_behind", "a", 30): None}


@BATCHES
def test_groups_with_hot_partitions_fall_behind_with_no_others(batches: list[range]) -> None:
    rows = during(range(30, 60), "ab", **HOT) + during(range(50, 60), "c", **NOT_HOT)
    of_two = {("hot_partition", group, 30): None for group in "ab"}
    assert found_in(batches, rows) == of_two | {("falling_behind", "c", 50): None}


@BATCHES
def test_hot_partitions_of_different_topics_are_not_shared(batches: list[range]) -> None:
    rows = []
    for group, topic in zip("abc", "xyz", strict=True):
        hot = {"worst_topic": topic, "worst_partition": 3, **HOT}
        rows += during(range(30, 60), group, at=[("t", 0, 0), (topic, 3, 0)], **hot)
    assert {kind: group for kind, group, _ in found_in(batches, rows)}.keys() == {"hot_partition"}
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
def test_a_hot_partition_of_several_groups_ends_when_another_one_is_the_worst(batches: list[range]) -> None:
    rows = during(range(30, 40), "abc", **HOT) + during(range(40, 60), "abc", at=[("t", 7, 0)], **OTHER_WORST)
    assert found_in(batches, rows) == {("hot_partition", "t", 30): 40, ("falling_behind", "t", 42): None}


@BATCHES
def test_a_group_with_one_of_the_two_kinds_takes_part_in_no_other_one(batches: list[range]) -> None:
    rows = during(range(30, 60), "a", **HOT) + during(range(35, 60), "bcd", **NOT_HOT)
    assert found_in(batches, rows) == {("hot_partition", "a", 30): None, ("falling_behind", "t", 35): None}
    known, _ = rows_found(batches, rows)
    assert [
        json.loads(row["evidence"])["groups"] for row in known.values() if row["topic"] and not row["group_id"]
    ] == [[*"bcd"]]


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


@pytest.mark.parametrize(
    ("unread", "ends"),
    [
        ({}, [41, 43]),
        ({"a": (41,)}, [42, 44]),
        ({"a": (41, 44), "b": (42, 45), "c": (43,)}, [42, 45]),
        ({"a": tuple(range(41, 60))}, []),
        ({"else": tuple(range(41, 60))}, [41, 43]),
    ],
)
def test_it_has_ended_when_each_group_was_judged_without_it(
    unread: dict[str, tuple[int, ...]], ends: list[int]
) -> None:
    """The groups a, b and c had it last in minute 40. Some cannot be read in some minutes."""
    others = {f"group {group}": {ms(minute): False for minute in minutes} for group, minutes in unread.items()}
    past = Past(whole={"group": [ms(minute) for minute in range(60)]}, others=others)
    assert past.all_left(["a", "b", "c"], ms(40)) == [ms(minute) for minute in ends]


@pytest.mark.parametrize("batches", [[range(60)], [range(minute, minute + 1) for minute in range(60)]])
def test_what_begins_in_groups_over_more_than_the_window_is_not_one_finding(batches: list[range]) -> None:
    """One group each four minutes: what begins more than half an hour after the first is another finding."""
    rows = [row for at, group in enumerate("abcdefghijklmno") for row in during(range(4 * at, 60), group, **NOT_HOT)]
    of_groups = {("falling_behind", group, 4 * "abcdefghij".index(group)): None for group in "abij"}
    of_topic = {("falling_behind", "t", 8): None, ("falling_behind", "t", 40): None}
    assert found_in(batches, rows) == of_groups | of_topic


def test_what_groups_share_is_summed_up() -> None:
    rows = [*during([30], "ab"), problem(30, "c", 5, consumer_lag=7, consumer_age_ms=1_000, worst_partition=3)]
    known, history = rows_found([range(30, 31)], rows)
    ((finding,), (row,)) = known.values(), history
    assert row["summary"] == (
        "3 groups (a, b, c) have stopped at about the same time in 1 partition of topic t: commits have not moved "
        "since 2026-01-31 12:00 UTC; unread by all of them together: 17 records, the oldest 1 s old."
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


@pytest.mark.parametrize("kind", ["no_progress", "deleted_unread"])
def test_of_many_groups_all_take_part_although_not_all_are_named(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr("pipeline.analytics.findings.shared_groups.LISTED", 4)
    rows = during(range(30, 60), "abcdefgh", kind=kind)
    others = during(range(50, 60), "z", since=50, kind=kind)
    known, _ = rows_found([range(minute, minute + 1) for minute in range(30, 60)], rows + others)
    (shared,) = (row for row in known.values() if row["group_id"] is None)
    evidence = json.loads(shared["evidence"])
    assert (evidence["groups"], evidence["groups_affected"], len(evidence["other_groups"])) == ([*"abcd"], 8, 4 * 8)
    # What happens to another group much later is not hidden.
    assert [row["group_id"] for row in known.values() if row["group_id"]] == ["z"]


def test_a_finding_names_all_groups_that_took_part() -> None:
    """At its worst, in minute 30, d was not there yet."""
    rows = during(range(30, 35), "abc", kind="data_loss_ahead") + during(range(36, 40), "abcd", kind="data_loss_ahead")
    for row in rows:
        row["magnitude"] = -1.0 if row["snapshot_id"] < ms(35) else -2.0
    (finding,) = rows_found([range(30, 36), range(36, 60)], rows)[0].values()
    assert minute_of(to_epoch_ms(finding["worst_at"])) == 30
    assert json.loads(finding["evidence"])["groups"] == [*"abcd"]


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
