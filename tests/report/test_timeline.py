"""What the report says happened to a group."""

from typing import Any

import pytest

from pipeline.report.charts.timeline import Event, change_words, events
from pipeline.report.model.details import Change, Finding
from pipeline.tables import CHANGES
from tests.helpers.reports import MINUTE, NOON, group, report


def change(change: str, rows: int = 1, partitions: int = 0, minute: int = 0, **more: Any) -> Change:
    values: dict[str, Any] = {"before": None, "after": None, "clients": (), "group_id": "g", "cluster": "east", **more}
    return Change(snapshot_id=NOON + minute * MINUTE, change=change, rows=rows, partitions=partitions, **values)


def finding(**more: Any) -> Finding:
    values: dict[str, Any] = {
        "kind": "no_progress",
        "cluster": "east",
        "group_id": "g",
        "client_id": None,
        "topic": "t",
        "partitions": (0,),
        "severity": "critical",
        "first_seen_ms": NOON,
        "last_seen_ms": NOON + 5 * MINUTE,
        "resolved_ms": None,
        "summary": "It waits.",
        "evidence": {},
        "advice": None,
        **more,
    }
    return Finding(**values)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ([change("appeared", after="Stable")], "the group appeared"),
        ([change("vanished", before="Empty")], "the group was deleted or has expired"),
        ([change("state", before="Stable", after="Empty")], "state: Stable → Empty"),
        ([change("assignor", after="range")], "assignor: now range"),
        ([change("assignor", before="range")], "assignor: no longer range"),
        ([change("epoch", before="4", after="5")], "epoch: 4 → 5"),
        ([change("type", before="classic", after="consumer")], "type: classic → consumer"),
        ([change("joined", 1, clients=("a-1",))], "1 member joined (a-1)"),
        ([change("left", 2, clients=("a-1", "a-2"))], "2 members left (a-1, a-2)"),
        ([change("restarted", 50, clients=("a-1", "a-2", "a-3", "a-4"))], "50 members restarted (a-1, a-2, a-3, …)"),
        ([change("restarted", 8, clients=("app",))], "8 members restarted (app)"),
        ([change("joined", 2)], "2 members joined"),
        ([change("joined", 1, clients=("a\nb",))], "1 member joined (a\\nb)"),
        ([change("moved", 2, 1_200)], "1,200 partitions moved to another member"),
        (
            [change("assigned", 1, 1), change("unassigned", 1, 3)],
            "1 partition assigned; 3 partitions not assigned any more",
        ),
        ([change("commits_removed", 1, 2)], "the commits of 2 partitions were removed"),
        # The group first, then its members, then its partitions, in whatever order they come.
        (
            [change("moved", 1, 1), change("left", 1), change("state", before="Stable", after="Empty")],
            "state: Stable → Empty; 1 member left; 1 partition moved to another member",
        ),
    ],
)
def test_changes_of_one_snapshot_are_one_sentence(changes: list[Change], words: str) -> None:
    assert change_words(changes) == words


def test_every_kind_of_change_has_words() -> None:
    assert all(change_words([change(kind, before="a", after="b")]) for kind in CHANGES)


def test_findings_and_changes_are_in_the_order_of_time() -> None:
    found = finding(worst_ms=NOON + 3 * MINUTE, resolved_ms=NOON + 6 * MINUTE)
    changes = (change("left", 1, minute=2), change("joined", 1, minute=6), change("moved", 1, 4, minute=6))
    assert events(report(group(), findings=(found,), changes=changes), "east", "g") == [
        Event(NOON, "bad", "no progress begins"),
        Event(NOON + 2 * MINUTE, "plain", "1 member left"),
        Event(NOON + 3 * MINUTE, "bad", "no progress at its worst: It waits."),
        Event(NOON + 6 * MINUTE, "good", "no progress is resolved"),
        Event(NOON + 6 * MINUTE, "plain", "1 member joined; 4 partitions moved to another member"),
    ]


@pytest.mark.parametrize(
    ("more", "first"),
    [
        ({"group_id": None, "evidence": {"groups": ["f", "g"]}}, "no progress (topic t) begins"),
        ({"group_id": None, "topic": None, "evidence": {"groups": ["g"]}}, "no progress (cluster) begins"),
        ({"group_id": None, "evidence": {"groups": ["f"]}}, None),
        ({"group_id": None}, None),
        ({"group_id": "f"}, None),
        ({"cluster": "west"}, None),
    ],
)
def test_a_group_has_the_findings_that_concern_it(more: dict[str, Any], first: str | None) -> None:
    found = events(report(group(), findings=(finding(**more),)), "east", "g")
    assert (found[0].sentence if found else None) == first


def test_changes_of_other_groups_are_left_out() -> None:
    changes = (change("left", group_id="f"), change("left", cluster="west"))
    assert events(report(group(), changes=changes), "east", "g") == []
