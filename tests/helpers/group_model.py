"""Which changes two looks at a group show, in plain Python: what `group_changes` must find."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

REBALANCING = ("PreparingRebalance", "CompletingRebalance")
UNKNOWN, ABSENT = "unknown", "absent"
"""What is known of a group that could not be read, and of one that a complete snapshot does not have."""
Place = tuple[str, int]
"""A topic and a partition."""


class Member(NamedTuple):
    """A member of a group, as Kafka describes it."""

    member_id: str
    client_id: str | None = None
    host: str | None = None
    instance_id: str | None = None

    def looks(self) -> tuple[str | None, ...]:
        """What it has in common with the member that replaces it."""
        if self.instance_id is not None:
            return ("instance", self.instance_id)
        has_address = self.client_id is not None and self.host is not None
        return ("client", self.client_id, self.host) if has_address else ("member", self.member_id)


class Row(NamedTuple):
    """A row of `group_changes` without the columns that name the group and the snapshot."""

    change: str
    before: str | None = None
    after: str | None = None
    member_id: str | None = None
    client_id: str | None = None
    host: str | None = None
    instance_id: str | None = None
    topic: str | None = None
    partitions: tuple[int, ...] | None = None


Assigned = Mapping[Member, Iterable[Place]]


@dataclass
class Look:
    """A group in one snapshot. `members` is None if it could not be described, `commits` if they could not be read.

    `is_garbled`: the assignment of one of its members could not be read. A commit is False if it could not be read.
    """

    state: str | None = "Stable"
    group_type: str | None = "classic"
    assignor: str | None = None
    group_epoch: int | None = None
    members: dict[Member, frozenset[Place]] | None = field(default_factory=dict)
    is_garbled: bool = False
    commits: dict[Place, bool] | None = field(default_factory=dict)


@dataclass
class Taken:
    """A snapshot: its groups, and the ids of its topics."""

    snapshot_id: int
    is_complete: bool
    groups: dict[str, Look]
    topics: dict[str, str | None]


def member_changes(before: Assigned, after: Assigned) -> Iterator[Row]:
    """The members that have joined, left or restarted."""
    old, new = ({m.member_id: m for m in members} for members in (before, after))
    left, joined = sorted(old.keys() - new.keys()), sorted(new.keys() - old.keys())
    for gone in [*left]:
        same = [name for name in joined if new[name].looks() == old[gone].looks()]
        if same:
            left.remove(gone)
            joined.remove(same[0])
            yield _of(new[same[0]], "restarted", gone, same[0])
    yield from (_of(old[name], "left", name, None) for name in left)
    yield from (_of(new[name], "joined", None, name) for name in joined)


def _of(member: Member, change: str, before: str | None, after: str | None, *where: Any) -> Row:
    return Row(change, before, after, *member, *where)


def assignment_changes(before: Assigned, after: Assigned) -> Iterator[Row]:
    """The partitions that have another member, have one now, or have none any more."""
    was, now = _owners(before), _owners(after)
    old_ids, new_ids = ({m.member_id for m in members} for members in (before, after))
    found: dict[tuple[str, Member | None, Member | None, str], list[int]] = {}
    for topic, partition in {*was, *now}:
        old, new = was.get((topic, partition)), now.get((topic, partition))
        if old and new:
            is_restart = old.looks() == new.looks() and old.member_id not in new_ids and new.member_id not in old_ids
            change = None if old.member_id == new.member_id or is_restart else "moved"
        else:
            change = "assigned" if new else "unassigned"
        if change:
            found.setdefault((change, old, new, topic), []).append(partition)
    for (change, old, new, topic), partitions in found.items():
        ids = (old.member_id if old else None, new.member_id if new else None)
        owner = new or old
        assert owner
        yield _of(owner, change, *ids, topic, tuple(sorted(partitions)))


def _owners(members: Assigned) -> dict[Place, Member]:
    """The member of each partition, the first one by id if there are several."""
    in_order = sorted(members, key=lambda m: m.member_id, reverse=True)
    return {place: member for member in in_order for place in members[member]}


def removed_commits(before: Mapping[Place, bool], after: Mapping[Place, bool], was: Taken, now: Taken) -> Iterator[Row]:
    """The commits that are gone, although their topic is still there with the same id."""
    gone: dict[str, list[int]] = {}
    for topic, partition in sorted(place for place, is_read in before.items() if is_read and place not in after):
        if topic in was.topics and topic in now.topics and was.topics[topic] == now.topics[topic]:
            gone.setdefault(topic, []).append(partition)
    yield from (Row("commits_removed", topic=topic, partitions=tuple(some)) for topic, some in gone.items())


def history_of(taken: Sequence[Taken], reach: Mapping[int, int]) -> Iterator[tuple[str, int, int, Row]]:
    """What has changed in each snapshot: group, snapshot, the one that it is compared with, and the change."""
    for number, now in enumerate(taken):
        before = [t for t in taken[:number] if t.snapshot_id >= reach[now.snapshot_id]][::-1]
        for group in {name for t in taken for name in t.groups}:
            for aspect in ASPECTS:
                was = next((t for t in before if known(t, group, aspect) is not UNKNOWN), None)
                if was and known(now, group, aspect) is not UNKNOWN:
                    for row in _changes(aspect, group, was, now, before):
                        yield group, now.snapshot_id, was.snapshot_id, row


VALUES = {"state": "state", "type": "group_type", "assignor": "assignor", "epoch": "group_epoch"}
ASPECTS = ("group", "members", "assignments", "commits", *VALUES)


def known(taken: Taken, group: str, aspect: str) -> Any:
    """What a snapshot shows of one aspect of a group."""
    look = taken.groups.get(group)
    if look is None:
        return ABSENT if taken.is_complete else UNKNOWN
    if aspect == "group":
        return look
    if aspect == "commits":
        return UNKNOWN if look.commits is None else look.commits
    if look.members is None:
        return UNKNOWN
    if aspect in VALUES:
        value = getattr(look, VALUES[aspect])
        return UNKNOWN if value is None else str(value)
    if look.group_type not in (None, "classic", "consumer"):
        return UNKNOWN
    is_unsettled = aspect == "assignments" and (look.is_garbled or look.state in REBALANCING)
    return UNKNOWN if is_unsettled else look.members


def _changes(aspect: str, group: str, was: Taken, now: Taken, before: Sequence[Taken]) -> Iterator[Row]:
    old, new = known(was, group, aspect), known(now, group, aspect)
    if aspect == "group":
        if old is ABSENT and new is not ABSENT:
            yield Row("appeared", None, new.state if new.members is not None else None)
        if old is not ABSENT and new is ABSENT:
            states = (known(t, group, "state") for t in before)
            state = next((state for state in states if state is not UNKNOWN), UNKNOWN)
            yield Row("vanished", None if state in (UNKNOWN, ABSENT) else state, None)
    elif aspect in VALUES:
        if ABSENT not in (old, new) and old != new:
            yield Row(aspect, old, new)
    else:
        old, new = ({} if value is ABSENT else value for value in (old, new))
        if aspect == "commits":
            yield from removed_commits(old, new, was, now)
        else:
            yield from (member_changes if aspect == "members" else assignment_changes)(old, new)
