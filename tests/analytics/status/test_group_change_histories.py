"""`group_changes` of random histories has the rows of a model in plain Python."""

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from pipeline.config import LakeConfig
from pipeline.lake import Lake
from pipeline.tables import CHANGES
from tests.helpers.group_change_rows import (
    Found,
    Histories,
    bronze,
    changed_by_driver,
    changed_by_spark,
    expected,
    found,
    instant,
)
from tests.helpers.group_model import Look, Member, Place, Taken
from tests.helpers.reports import HOSTILE

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


@settings(max_examples=4)
@given(seed=st.integers(0, 10**6))
def test_the_rows_are_those_of_the_model_however_many_snapshots_are_computed_together(seed: int) -> None:
    histories = histories_of(seed, clusters=25, snapshots=16)
    whole = found(histories)
    assert whole == expected(histories)
    chance, ids = random.Random(seed), [instant(minute) for minute in range(16)]
    parts: Found = Counter()
    while ids:
        size = chance.choice([1, 3, 12])
        parts += found(histories, ids[:size])
        ids = ids[size:]
    assert parts == whole


@pytest.fixture(scope="module")
def many(spark: SparkSession, few_rows: None) -> Lake:
    """A lake that nothing is read from: it has the session that computes many rows."""
    return Lake(spark, LakeConfig(root="no-lake"))


def test_many_rows_give_the_rows_of_the_model(many: Lake) -> None:
    histories = histories_of(1, clusters=25, snapshots=16)
    assert found(histories, many=many) == expected(histories)


def test_the_driver_finds_the_groups_that_spark_finds(many: Lake) -> None:
    """The same ones in the same snapshots, with the same values: in a batch of sixteen snapshots of 25 clusters."""
    histories = histories_of(2, clusters=25, snapshots=16)
    ids = [instant(minute) for minute in range(16)]
    reach = {snapshot_id: ids[max(number - 3, 0)] for number, snapshot_id in enumerate(ids)}
    complete = [t.snapshot_id for t in histories["c0"] if t.is_complete]
    parts = bronze(histories, ids)
    by_driver = changed_by_driver(parts, complete, reach)
    assert len(by_driver) > 100
    assert sorted(by_driver, key=repr) == sorted(changed_by_spark(parts, complete, reach, many), key=repr)


def test_random_histories_have_changes_of_every_kind() -> None:
    kinds = Counter(row.change for seed in range(3) for *_, row in expected(histories_of(seed, 25, 16)))
    assert kinds.keys() == {*CHANGES}
    assert min(kinds.values()) > 5
