"""`group_changes`: what each named case shows."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from tests.helpers.group_change_rows import Found, found, instant, reach_of
from tests.helpers.group_model import Look, Member, Place, Row, Taken, history_of

# --- Cases by name. Each is a cluster with one group, `g`; the last snapshot shows the changes.

A, B, C = (Member(f"{name}-1", name, f"10.0.0.{number}") for number, name in enumerate("abc"))
A2, B2 = A._replace(member_id="a-2"), B._replace(member_id="b-2")
STATIC, STATIC2 = Member("s-1", "s", "10.0.1.1", "pod-0"), Member("s-2", "s", "10.0.1.2", "pod-0")
TOPICS: dict[str, str | None] = {"t": "id-t", "u": "id-u"}


def places(topic: str = "t", *partitions: int) -> frozenset[Place]:
    return frozenset((topic, n) for n in partitions)


def look(*members: tuple[Member, frozenset[Place]], **values: Any) -> Look:
    return Look(members=dict(members), **values)


def member_row(change: str, member: Member, before: str | None, after: str | None, *where: Any) -> Row:
    return Row(change, before, after, *member, *where)


Shots = tuple[str, list[Look | None]]
"""For each snapshot, `c` (complete) or `p` (partial), and the group, or None if it is not listed."""
ALONE = look((A, places("t", 0, 1)))
BOTH = look((A, places("t", 0)), (B, places("t", 1)))
UNREAD = Look(state="Stable", members=None, commits=None)
REBALANCES = look((A, places()), (B, places()), state="PreparingRebalance")
COMMITTED = look(commits={("t", 0): True, ("t", 1): True, ("u", 0): True}, state="Empty")
# What happens → the snapshots, the minute that the last one is compared with, and its changes.
CASES: dict[str, tuple[Shots, int, list[Row]]] = {
    "nothing": (("cc", [BOTH, BOTH]), 0, []),
    "a group appears": (("cc", [None, look()]), 0, [Row("appeared", None, "Stable")]),
    "a group appears with members": (
        ("cc", [None, ALONE]),
        0,
        [
            Row("appeared", None, "Stable"),
            member_row("joined", A, None, "a-1"),
            member_row("assigned", A, None, "a-1", "t", (0, 1)),
        ],
    ),
    "a group vanishes": (
        ("cc", [replace(ALONE, commits={("t", 0): True}), None]),
        0,
        [
            Row("vanished", "Stable"),
            member_row("left", A, "a-1", None),
            member_row("unassigned", A, "a-1", None, "t", (0, 1)),
            Row("commits_removed", topic="t", partitions=(0,)),
        ],
    ),
    "a member joins": (
        ("cc", [ALONE, BOTH]),
        0,
        [member_row("joined", B, None, "b-1"), member_row("moved", B, "a-1", "b-1", "t", (1,))],
    ),
    "a member leaves": (
        ("cc", [BOTH, ALONE]),
        0,
        [member_row("left", B, "b-1", None), member_row("moved", A, "b-1", "a-1", "t", (1,))],
    ),
    "the last member leaves": (
        ("cc", [ALONE, look(state="Empty")]),
        0,
        [
            Row("state", "Stable", "Empty"),
            member_row("left", A, "a-1", None),
            member_row("unassigned", A, "a-1", None, "t", (0, 1)),
        ],
    ),
    "a member restarts": (
        ("cc", [BOTH, look((A2, places("t", 0)), (B, places("t", 1)))]),
        0,
        [member_row("restarted", A2, "a-1", "a-2")],
    ),
    "two members restart and exchange partitions": (
        ("cc", [BOTH, look((A2, places("t", 1)), (B2, places("t", 0)))]),
        0,
        [
            member_row("restarted", A2, "a-1", "a-2"),
            member_row("restarted", B2, "b-1", "b-2"),
            member_row("moved", A2, "b-1", "a-2", "t", (1,)),
            member_row("moved", B2, "a-1", "b-2", "t", (0,)),
        ],
    ),
    "two members exchange partitions": (
        ("cc", [BOTH, look((A, places("t", 1)), (B, places("t", 0)))]),
        0,
        [member_row("moved", A, "b-1", "a-1", "t", (1,)), member_row("moved", B, "a-1", "b-1", "t", (0,))],
    ),
    "a static member restarts on another host": (
        ("cc", [look((STATIC, places("t", 0))), look((STATIC2, places("t", 0)))]),
        0,
        [member_row("restarted", STATIC2, "s-1", "s-2")],
    ),
    "a member of unknown address is another member": (
        ("cc", [look((Member("x"), places())), look((Member("y"), places()))]),
        0,
        [member_row("left", Member("x"), "x", None), member_row("joined", Member("y"), None, "y")],
    ),
    "one of two members with the same client.id on a host leaves": (
        ("cc", [look((A, places("t", 0)), (A2, places("t", 1))), look((A2, places("t", 0, 1)))]),
        0,
        [member_row("left", A, "a-1", None), member_row("moved", A2, "a-1", "a-2", "t", (0,))],
    ),
    "partitions of two topics move": (
        (
            "cc",
            [
                look((A, places("t", 0, 1) | places("u", 0)), (B, places())),
                look((A, places("u", 1)), (B, places("t", 0, 1) | places("u", 0))),
            ],
        ),
        0,
        [
            member_row("moved", B, "a-1", "b-1", "t", (0, 1)),
            member_row("moved", B, "a-1", "b-1", "u", (0,)),
            member_row("assigned", A, None, "a-1", "u", (1,)),
        ],
    ),
    "values": (
        (
            "cc",
            [
                Look(assignor="range", group_type="classic"),
                Look(state="Reconciling", assignor="uniform", group_type="consumer", group_epoch=3),
            ],
        ),
        0,
        [
            Row("state", "Stable", "Reconciling"),
            Row("type", "classic", "consumer"),
            Row("assignor", "range", "uniform"),
        ],
    ),
    "a new epoch": (
        ("cc", [Look(group_type="consumer", group_epoch=9), Look(group_type="consumer", group_epoch=12)]),
        0,
        [Row("epoch", "9", "12")],
    ),
    "commits are removed": (
        ("cc", [COMMITTED, replace(COMMITTED, commits={("t", 1): True})]),
        0,
        [
            Row("commits_removed", topic="t", partitions=(0,)),
            Row("commits_removed", topic="u", partitions=(0,)),
        ],
    ),
    "a commit cannot be read": (
        ("cp", [COMMITTED, replace(COMMITTED, commits={("t", 0): False})]),
        0,
        [Row("commits_removed", topic="t", partitions=(1,)), Row("commits_removed", topic="u", partitions=(0,))],
    ),
    "nothing of the group can be read": (("cp", [replace(BOTH, commits={("t", 0): True}), UNREAD]), 0, []),
    "it is compared with when it was read": (
        ("cppc", [ALONE, UNREAD, None, BOTH]),
        0,
        [member_row("joined", B, None, "b-1"), member_row("moved", B, "a-1", "b-1", "t", (1,))],
    ),
    "a partial snapshot does not have it": (("cp", [BOTH, None]), 0, []),
    "it vanished in a partial snapshot": (("cppc", [look(), None, None, None]), 0, [Row("vanished", "Stable")]),
    "it was there in a partial snapshot": (("pc", [None, BOTH]), 0, []),
    "it comes back": (
        ("ccc", [ALONE, None, look(state="Empty")]),
        1,
        [Row("appeared", None, "Empty")],
    ),
    "it cannot be read when it appears": (("cp", [None, UNREAD]), 0, [Row("appeared", None, None)]),
    "its members are read after it has appeared": (
        ("cppc", [None, UNREAD, UNREAD, ALONE]),
        0,
        [member_row("joined", A, None, "a-1"), member_row("assigned", A, None, "a-1", "t", (0, 1))],
    ),
    "a rebalance has begun": (("cc", [BOTH, REBALANCES]), 0, [Row("state", "Stable", "PreparingRebalance")]),
    "a rebalance has ended": (
        ("ccc", [BOTH, REBALANCES, look((A, places("t", 0, 1)), (B, places()))]),
        0,
        [member_row("moved", A, "b-1", "a-1", "t", (1,))],
    ),
    "an assignment is garbled": (
        ("cp", [BOTH, look((A, places()), (B, places("t", 1)), is_garbled=True)]),
        0,
        [],
    ),
    "a share group": (
        ("cc", [Look(group_type="share"), Look(group_type="share", state="Empty")]),
        0,
        [Row("state", "Stable", "Empty")],
    ),
    "eleven snapshots ago": (("c" + "p" * 11, [ALONE, *[UNREAD] * 10, BOTH]), 0, []),
    "ten snapshots ago": (
        ("c" + "p" * 11, [ALONE, ALONE, *[UNREAD] * 9, BOTH]),
        1,
        [member_row("joined", B, None, "b-1"), member_row("moved", B, "a-1", "b-1", "t", (1,))],
    ),
}
# Compared with the snapshot before, except for the state, which is newer than the assignments.
COMPARED_WITH = {("a rebalance has ended", "state"): 1}
CASES["a rebalance has ended"][2].append(Row("state", "PreparingRebalance", "Stable"))


def taken_of(shots: Shots) -> list[Taken]:
    return [
        Taken(instant(minute), status == "c", {} if one is None else {"g": one}, TOPICS)
        for minute, (status, one) in enumerate(zip(*shots, strict=True))
    ]


@pytest.fixture(scope="module")
def rows_of_cases() -> Found:
    """The rows of all cases. Those whose snapshots have the same statuses are computed together."""
    rows: Found = Counter()
    for statuses in {shots[0] for shots, *_ in CASES.values()}:
        rows += found({name: taken_of(case[0]) for name, case in CASES.items() if case[0][0] == statuses})
    return rows


@pytest.mark.parametrize("name", CASES)
def test_the_last_snapshot_of_a_case_shows(rows_of_cases: Found, name: str) -> None:
    (statuses, _), compared_with, changes = CASES[name]
    last = instant(len(statuses) - 1)
    rows = Counter(row for row in rows_of_cases.elements() if row[0] == name and row[2] == last)
    assert rows == Counter(
        (name, "g", last, instant(COMPARED_WITH.get((name, row.change), compared_with)), row) for row in changes
    )


def test_the_first_snapshot_shows_no_changes(rows_of_cases: Found) -> None:
    assert rows_of_cases
    assert not [row for row in rows_of_cases if row[2] == instant(0)]


@pytest.mark.parametrize("name", CASES)
def test_the_model_agrees_with_each_case(name: str) -> None:
    (statuses, _), _, changes = CASES[name]
    taken = taken_of(CASES[name][0])
    last = [row for *_, at, _, row in history_of(taken, reach_of(taken)) if at == instant(len(statuses) - 1)]
    assert Counter(last) == Counter(changes)


@pytest.mark.parametrize("now", [{}, {"t": "other"}, {"t": None}])
def test_commits_that_are_gone_with_their_topic_are_no_change(now: dict[str, str | None]) -> None:
    before = look(commits={("t", 0): True}, state="Empty")
    taken = [
        Taken(instant(0), True, {"g": before}, {"t": "id-t"}),
        Taken(instant(1), True, {"g": look(state="Empty")}, now),
    ]
    assert found({"east": taken}) == Counter()


def test_before_topics_had_ids_a_topic_of_the_same_name_is_the_same() -> None:
    before = look(commits={("t", 0): True}, state="Empty")
    groups = ({"g": before}, {"g": look(state="Empty")})
    taken = [Taken(instant(n), True, some, {"t": None}) for n, some in enumerate(groups)]
    (row,) = found({"east": taken})
    assert row[-1] == Row("commits_removed", topic="t", partitions=(0,))


def test_without_rows_nothing_has_changed() -> None:
    taken = [Taken(instant(n), True, {}, {}) for n in range(2)]
    assert found({"east": taken}) == Counter()
