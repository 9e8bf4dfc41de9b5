"""`group_changes`: what successive snapshots show about groups, case by case, and compared with a model in Python."""

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from pipeline.analytics.status.group_changes import group_changes
from pipeline.analytics.status.group_looks import changed_groups
from pipeline.common.epoch import MINUTE_MS, utc, utc_date
from pipeline.tables import CHANGES, COMMITTED_OFFSETS, GROUP_CHANGES, GROUP_MEMBERS, WATERMARKS
from tests.helpers.group_model import Look, Member, Place, Row, Taken, history_of
from tests.helpers.reports import HOSTILE, frame

T0 = 1_769_860_800_000  # 2026-01-31T12:00:00Z
LATE_MS = 2_000
"""How long after its scheduled instant a group is described."""
LOOK_BACK = 10
Histories = dict[str, list[Taken]]
"""The snapshots of each cluster. All clusters have the same snapshots."""
Found = Counter[tuple[str, str, int, int, Row]]
"""Cluster, group, snapshot, earlier snapshot and change."""


def instant(minute: int) -> int:
    return T0 + minute * MINUTE_MS


def reach_of(taken: Sequence[Taken]) -> dict[int, int]:
    ids = [t.snapshot_id for t in taken]
    return {snapshot_id: ids[max(number - LOOK_BACK, 0)] for number, snapshot_id in enumerate(ids)}


def bronze(spark: SparkSession, histories: Histories, ids: Iterable[int]) -> tuple[DataFrame, DataFrame, DataFrame]:
    """What the snapshots would have stored in group_members, committed_offsets and watermarks."""
    members, commits, ends = [], [], []
    for cluster, taken in histories.items():
        for t in taken:
            if t.snapshot_id in ids:
                at = {"cluster": cluster, "snapshot_id": t.snapshot_id, "snapshot_date": utc_date(t.snapshot_id)}
                at |= {"captured_at": utc(t.snapshot_id + LATE_MS)}
                for group, look in t.groups.items():
                    members += [at | {"group_id": group} | row for row in member_rows(look)]
                    commits += [at | {"group_id": group} | row for row in commit_rows(look)]
                for topic, topic_id in t.topics.items():
                    ends += [at | {"topic": topic, "topic_id": topic_id, "partition": n} for n in range(2)]
                if not t.is_complete:  # groups that could not be listed
                    unlisted = at | {"error": "COORDINATOR_NOT_AVAILABLE"}
                    members.append(unlisted)
                    commits.append(unlisted)
    return (
        frame(spark, GROUP_MEMBERS, *members),
        frame(spark, COMMITTED_OFFSETS, *commits),
        frame(spark, WATERMARKS, *ends),
    )


def member_rows(look: Look) -> Iterator[dict[str, Any]]:
    group: dict[str, Any] = {"state": look.state, "group_type": look.group_type}
    if look.members is None:
        yield group | {"error": "NOT_COORDINATOR"}
        return
    group |= {"assignor": look.assignor, "group_epoch": look.group_epoch}
    if not look.members:
        yield group
    for number, (member, places) in enumerate(look.members.items()):
        named = group | member._asdict()
        yield from (named | {"topic": topic, "partition": partition} for topic, partition in places)
        if not places:
            yield named | {"error": "INCONSISTENT_GROUP_PROTOCOL" if look.is_garbled and number == 0 else None}


def commit_rows(look: Look) -> Iterator[dict[str, Any]]:
    if look.commits is None:
        yield {"error": "NOT_COORDINATOR"}
        return
    for (topic, partition), is_read in look.commits.items():
        result = {"committed_offset": 7} if is_read else {"error": "TOPIC_AUTHORIZATION_FAILED"}
        yield {"topic": topic, "partition": partition} | result


def found(spark: SparkSession, histories: Histories, batch: Sequence[int] | None = None) -> Found:
    """The rows for a batch of snapshots, or for all, from bronze rows that are as old as needed."""
    taken = next(iter(histories.values()))
    reach = reach_of(taken)
    reach = {snapshot_id: reach[snapshot_id] for snapshot_id in batch or reach}
    ids = [t.snapshot_id for t in taken if min(reach.values()) <= t.snapshot_id <= max(reach)]
    complete = [t.snapshot_id for t in taken if t.is_complete and t.snapshot_id in ids]
    members, commits, ends = bronze(spark, histories, ids)
    changed = changed_groups(members, commits, complete, reach)
    changed = spark.createDataFrame(changed.collect(), changed.schema)  # as `Lake.computed` keeps them
    rows = group_changes(changed, members, commits, ends).collect()
    keys: Counter[Any] = Counter(tuple(row[name] for name in GROUP_CHANGES.key) for row in rows)
    assert not [key for key, count in keys.items() if count > 1]
    for row in rows:
        assert list(row.asDict()) == GROUP_CHANGES.columns
        assert row.snapshot_date == utc_date(row.snapshot_id)
        assert row.change in CHANGES
        # Of a group that does not exist any more, nothing was captured.
        is_there = any(row.group_id in t.groups for t in histories[row.cluster] if t.snapshot_id == row.snapshot_id)
        assert (row.captured_at is not None) is is_there
    return Counter(
        (row.cluster, row.group_id, row.snapshot_id, row.earlier_snapshot_id, change_of(row)) for row in rows
    )


def change_of(row: Any) -> Row:
    values = {name: row[name] for name in Row._fields}
    return Row(**values | {"partitions": None if row.partitions is None else tuple(row.partitions)})


def expected(histories: Histories) -> Found:
    reach = reach_of(next(iter(histories.values())))
    return Counter((cluster, *row) for cluster, taken in histories.items() for row in history_of(taken, reach))


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
def rows_of_cases(spark: SparkSession, few_rows: None) -> Found:
    """The rows of all cases. Those whose snapshots have the same statuses are computed together."""
    rows: Found = Counter()
    for statuses in {shots[0] for shots, *_ in CASES.values()}:
        rows += found(spark, {name: taken_of(case[0]) for name, case in CASES.items() if case[0][0] == statuses})
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


@pytest.mark.usefixtures("few_rows")
@pytest.mark.parametrize("now", [{}, {"t": "other"}, {"t": None}])
def test_commits_that_are_gone_with_their_topic_are_no_change(spark: SparkSession, now: dict[str, str | None]) -> None:
    before = look(commits={("t", 0): True}, state="Empty")
    taken = [
        Taken(instant(0), True, {"g": before}, {"t": "id-t"}),
        Taken(instant(1), True, {"g": look(state="Empty")}, now),
    ]
    assert found(spark, {"east": taken}) == Counter()


@pytest.mark.usefixtures("few_rows")
def test_before_topics_had_ids_a_topic_of_the_same_name_is_the_same(spark: SparkSession) -> None:
    before = look(commits={("t", 0): True}, state="Empty")
    groups = ({"g": before}, {"g": look(state="Empty")})
    taken = [Taken(instant(n), True, some, {"t": None}) for n, some in enumerate(groups)]
    (row,) = found(spark, {"east": taken})
    assert row[-1] == Row("commits_removed", topic="t", partitions=(0,))


@pytest.mark.usefixtures("few_rows")
def test_without_rows_nothing_has_changed(spark: SparkSession) -> None:
    taken = [Taken(instant(n), True, {}, {}) for n in range(2)]
    assert found(spark, {"east": taken}) == Counter()


# --- Random histories.

NAMES = ("", "'\\\"", "a,b|c", "null", *HOSTILE)
STATES = ("Stable", "Empty", "PreparingRebalance", "CompletingRebalance", None)


class Cluster:
    """A cluster whose groups change at random."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.names = chance.sample(NAMES, 3)
        self.topics: dict[str, str | None] = dict.fromkeys(chance.sample(NAMES, 2), "id-0")
        self.groups: dict[str, Look] = {}
        self.members = 0

    def taken(self, snapshot_id: int, is_complete: bool) -> Taken:
        """The next snapshot."""
        chance = self.chance
        for name in self.names:
            if chance.random() < 0.15:
                self.groups.pop(name, None)
            elif name in self.groups or chance.random() < 0.4:
                self.groups[name] = self._next(self.groups.get(name, Look()))
        topics = {name: id_ for name, id_ in self.topics.items() if chance.random() < 0.95}
        if chance.random() < 0.1:
            self.topics[chance.choice([*self.topics])] = chance.choice([None, "id-1", "id-2"])
        groups = dict(self.groups) if is_complete else dict(self._read())
        return Taken(snapshot_id, is_complete, groups, topics)

    def _next(self, group: Look) -> Look:
        """How a group goes on from here."""
        chance = self.chance
        members = {} if group.members is None else dict(group.members)
        for member in [*members]:
            if chance.random() < 0.15:
                del members[member]
                if chance.random() < 0.6:
                    members[member._replace(member_id=self._id())] = frozenset()
        if chance.random() < 0.3:
            unknown = chance.choice([None, "h", "\u202e"])
            members[Member(self._id(), chance.choice(["c", *NAMES[:3]]), unknown, chance.choice([None, None, "i"]))] = (
                frozenset()
            )
        is_same = chance.random() < 0.5
        held = (
            members if is_same else {m: frozenset(p for p in self._places() if chance.random() < 0.4) for m in members}
        )
        commits = {place: True for place in self._places() if chance.random() < (0.9 if is_same else 0.5)}
        state = chance.choice(STATES) if chance.random() < 0.5 else group.state
        is_moving = state in STATES[2:4]
        return Look(
            state=state,
            group_type=chance.choice(["classic", "consumer", "share", None])
            if chance.random() < 0.1
            else group.group_type,
            assignor=None if is_moving else chance.choice([group.assignor, "range", NAMES[1]]),
            group_epoch=chance.choice([group.group_epoch, None, 1, 2]),
            members={member: frozenset() for member in held} if is_moving else held,
            commits=commits,
        )

    def _id(self) -> str:
        self.members += 1
        return f"{self.members % 7}-{self.members}"

    def _places(self) -> list[Place]:
        return [(topic, partition) for topic in self.topics for partition in (0, 1)]

    def _read(self) -> Iterator[tuple[str, Look]]:
        """What a partial snapshot has of the groups."""
        chance = self.chance
        for name, group in self.groups.items():
            if chance.random() < 0.75:
                commits = {place: chance.random() < 0.8 for place in group.commits or {}}
                members = None if chance.random() < 0.2 else group.members
                first = next(iter(members.values()), None) if members else None
                is_garbled = first == frozenset() and chance.random() < 0.3
                yield (
                    name,
                    replace(
                        group,
                        members=members,
                        is_garbled=is_garbled,
                        commits=None if chance.random() < 0.2 else commits,
                    ),
                )


def histories_of(seed: int, clusters: int, snapshots: int) -> Histories:
    chance = random.Random(seed)
    is_complete = [chance.random() < 0.6 for _ in range(snapshots)]
    made = {f"c{number}": Cluster(chance) for number in range(clusters)}
    return {
        name: [cluster.taken(instant(minute), complete) for minute, complete in enumerate(is_complete)]
        for name, cluster in made.items()
    }


def check(spark: SparkSession, seed: int) -> None:
    histories = histories_of(seed, clusters=25, snapshots=16)
    whole = found(spark, histories)
    assert whole == expected(histories)
    chance, ids = random.Random(seed), [instant(minute) for minute in range(16)]
    parts: Found = Counter()
    while ids:
        size = chance.choice([1, 3, 12])
        parts += found(spark, histories, ids[:size])
        ids = ids[size:]
    assert parts == whole


@pytest.mark.usefixtures("few_rows")
def test_the_rows_are_those_of_the_model(spark: SparkSession) -> None:
    check(spark, 1)


@pytest.mark.thorough
@settings(max_examples=3)
@given(seed=st.integers(0, 10**6))
def test_the_rows_are_those_of_the_model_in_any_history(spark: SparkSession, few_rows: None, seed: int) -> None:
    check(spark, seed)


def test_random_histories_have_changes_of_every_kind() -> None:
    kinds = Counter(row.change for seed in range(3) for *_, row in expected(histories_of(seed, 25, 16)))
    assert kinds.keys() == {*CHANGES}
    assert min(kinds.values()) > 5
