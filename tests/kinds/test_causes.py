"""What is said of findings that have a cause in common: one row in place of them."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from pipeline.kinds.causes import by_cause, merged, with_causes_merged
from pipeline.kinds.text import LISTED
from pipeline.tables import FINDINGS


def at(minute: int) -> datetime:
    return datetime(2026, 1, 31, 12, minute, tzinfo=UTC)


def row(group: str, kind: str = "no_progress", cause: str | None = "c0ffee", **more: Any) -> dict[str, Any]:
    """A finding that is first seen in minute 30, with 5 records unread in partition 0 of t."""
    evidence = {
        "status": "stopped",
        "since": "2026-01-31T12:00:00Z",
        "partitions": 1,
        "topics": ["t"],
        "worst_topic": "t",
        "worst_partition": 0,
        "consumer_lag": 5,
    }
    values = {
        "finding_id": f"of {group}",
        "kind": kind,
        "cluster": "east",
        "group_id": group,
        "topic": "t",
        "partitions": [0],
        "cause_id": cause,
        "cause_topic": "t",
        "cause_since": at(0),
        "grouped_at": at(30),
        "first_seen": at(30),
        "last_seen": at(40),
        "worst_at": at(35),
        "severity": "critical",
        "magnitude": 5.0,
        "summary": f"of {group}",
        "advice": "-",
    }
    found = values | {name: more.pop(name) for name in [*more] if name in FINDINGS.columns}
    return dict.fromkeys(FINDINGS.columns) | found | {"evidence": json.dumps(evidence | more)}


def test_findings_with_a_cause_become_one_row() -> None:
    rows = [row("a", owner="shop"), row("b", owner="shop"), row("c", owner="shop", consumer_lag=7, worst_partition=3)]
    found = merged(rows)
    assert found["summary"] == (
        "3 groups (a, b, c) have stopped at about the same time in 1 partition of topic t: commits have not moved "
        "since 2026-01-31 12:00 UTC; unread by all of them together: 17 records."
    )
    assert json.loads(found["evidence"]) == {
        "status": "stopped",
        "since": "2026-01-31T12:00:00Z",
        "partitions": 3,
        "topics": ["t"],
        "groups": ["a", "b", "c"],
        "groups_affected": 3,
        "worst_topic": "t",
        "worst_partition": 3,
        "consumer_lag": 17,
    }
    whose = {"finding_id": "c0ffee", "kind": "stopped_together", "group_id": None, "topic": "t", "owner": "shop"}
    assert {name: found[name] for name in whose} == whose
    assert (found["partitions"], found["severity"], found["magnitude"]) == ([0], "critical", 15.0)


def test_only_findings_with_the_same_cause_are_one() -> None:
    rows = [row("a"), row("x", cause=None), row("b"), row("y", cause="d1ff"), row("z", cause=None)]
    assert [[one["group_id"] for one in several] for several in by_cause(rows)] == [["a", "b"], ["x"], ["y"], ["z"]]
    found = with_causes_merged(rows)
    assert [one["finding_id"] for one in found] == ["c0ffee", "of x", "d1ff", "of z"]
    assert found[1] is rows[1]


def test_it_is_first_seen_when_the_groups_are_and_ends_with_the_last_of_them() -> None:
    """The finding of a is older, and was worst before the others began. Later, b is well before c."""
    early = row("a", first_seen=at(10), worst_at=at(12), grouped_at=at(31), consumer_lag=50, resolved_at=at(45))
    others = [row("b", grouped_at=at(31), resolved_at=at(41)), row("c", grouped_at=at(31), last_seen=at(44))]
    found = merged([early, *others])
    assert [found[name] for name in ("first_seen", "worst_at", "last_seen")] == [at(31), at(35), at(44)]
    assert (found["resolved_at"], found["resolution_confirmed_at"]) == (None, None)
    others[1] |= {"resolved_at": at(47), "resolution_confirmed_at": at(49)}
    found = merged([early, *others])
    assert (found["resolved_at"], found["resolution_confirmed_at"]) == (at(47), at(49))
    assert found["worst_at"] == at(31)


def test_numbers_are_those_of_groups_that_are_not_well_again() -> None:
    rows = [row("a", resolved_at=at(41)), row("b", resolved_at=at(42)), row("c", consumer_lag=7)]
    found = merged(rows)
    assert found["summary"].endswith(
        " 2026-01-31 12:00 UTC; 2 of them are well again; unread by the others: 7 records."
    )
    facts = json.loads(found["evidence"])
    names = ("groups", "groups_affected", "groups_well", "consumer_lag", "partitions")
    assert [facts[name] for name in names] == [["a", "b", "c"], 3, 2, 7, 1]
    assert found["magnitude"] == 5.0
    over = merged([one | {"resolved_at": at(45)} for one in rows])
    assert over["summary"].endswith("unread by all of them together: 17 records.")


def test_what_was_deleted_unread_is_lost_to_groups_that_are_well_again_too() -> None:
    rows = [row(group, "deleted_unread", deleted_offsets=3, magnitude=3.0, resolved_at=at(41)) for group in "ab"]
    found = merged([*rows, row("c", "deleted_unread", deleted_offsets=4, magnitude=4.0)])
    assert "had read them: 10 offsets" in found["summary"]
    assert "; 2 of them are well again." in found["summary"]
    assert found["magnitude"] == 10.0


def test_of_groups_with_the_problem_in_several_topics_the_partitions_are_not_known() -> None:
    rows = [row("a", topic=None, partitions=None, topics=["t", "u"], consumer_lag=9), row("b"), row("c")]
    found = merged(rows)
    assert (found["topic"], found["partitions"]) == ("t", None)
    assert "at about the same time in topic t: " in found["summary"]


def test_it_is_silenced_if_all_that_last_are() -> None:
    rows = [row("a") | {"silenced": "known"}, row("b") | {"silenced": "too"}]
    assert merged([*rows, row("c", resolved_at=at(44)) | {"silenced": None}])["silenced"] == "known"
    assert merged([*rows, row("c") | {"silenced": None}])["silenced"] is None


def test_columns_that_differ_are_unknown() -> None:
    found = merged([row("a", owner="shop", tier="1"), row("b", owner="pay", tier="1"), row("c", tier="1")])
    assert (found["owner"], found["tier"], found["cause_id"]) == (None, "1", "c0ffee")


def test_what_is_deleted_first_is_worst() -> None:
    times = {"a": "2026-01-31T14:00:00Z", "b": "2026-01-31T13:00:00Z", "c": "2026-01-31T15:00:00Z"}
    rows = [
        row(group, "data_loss_ahead", deleted_at=time, magnitude=-float(1_000 * n), worst_partition=n)
        for n, (group, time) in enumerate(times.items(), 1)
    ]
    found = merged(rows)
    assert (found["magnitude"], json.loads(found["evidence"])["deleted_at"]) == (-1_000.0, times["b"])
    assert "first of partition 2" in found["summary"]
    assert found["kind"] == "data_loss_ahead"


@pytest.mark.parametrize("kind", ["deleted_unread", "falling_behind", "hot_partition"])
def test_each_kind_that_groups_share_has_words(kind: str) -> None:
    found = merged([row(group, kind, deleted_offsets=3, partitions=[n]) for n, group in enumerate("abc")])
    assert "3 groups (a, b, c)" in found["summary"]
    assert found["partitions"] == [0, 1, 2]
    assert json.loads(found["evidence"]).get("deleted_offsets") in (None, 9)


def test_all_groups_are_counted_although_not_all_are_named() -> None:
    many = merged([row(f"g{n:05}") for n in range(LISTED + 5)])
    facts = json.loads(many["evidence"])
    assert (len(facts["groups"]), facts["groups_affected"]) == (LISTED, LISTED + 5)
    long = merged([row("x" * 32_000), row("y" * 32_000), row("short")])
    facts = json.loads(long["evidence"])
    assert (facts["groups"], facts["groups_affected"]) == (["short", "x" * 32_000], 3)


def test_rows_of_the_history_have_no_times() -> None:
    lacking = ("first_seen", "last_seen", "worst_at", "resolved_at", "resolution_confirmed_at")
    rows = [{name: value for name, value in row(group).items() if name not in lacking} for group in "abc"]
    found = merged(rows)
    assert not {*lacking} & {*found}
    assert json.loads(found["evidence"])["groups_affected"] == 3
