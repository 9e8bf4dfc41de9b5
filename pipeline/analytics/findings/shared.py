"""A finding that groups share, and the problems of groups that it consists of. Plain Python.

If the same problem of three or more groups begins at one partition at about the same time, it is one finding of the
topic, also of groups with the problem at its other partitions. Several such findings of a topic differ in when the
problem began: groups that stop today do not belong to those that stopped last month.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, NamedTuple

from pipeline.analytics.findings.identity import Key
from pipeline.analytics.findings.past import Row
from pipeline.analytics.findings.shared_groups import digest, digests
from pipeline.analytics.findings.spans import Span, judged_between
from pipeline.common.epoch import to_epoch_ms
from pipeline.kinds.kind import RESOLVED_AFTER

FEWEST = 3
"""How many groups must have a problem at about the same time, so that it is one of their topic."""
LONGEST = 3
"""How long it may take until the problem has begun in all of them, as a multiple of the time between two of them."""


class Place(NamedTuple):
    """A partition in which a group has a problem, and when that began."""

    topic: str
    partition: int
    cause_ms: int


@dataclass(frozen=True)
class Look:
    """The problem of one group in one snapshot, in some places. `finding` is the group's own, if it has one."""

    row: Row
    places: tuple[Place, ...]
    finding: Span | None

    @property
    def group_id(self) -> str:
        """The group that has the problem."""
        return str(self.row["group_id"])

    @property
    def is_later(self) -> bool:
        """Whether the problem began in one of the places after the group's own finding."""
        return self.finding is not None and any(place.cause_ms > self.finding.first_ms for place in self.places)

    def without(self, other: Look) -> Look:
        """The same without the places of another look."""
        taken = {*other.places}
        return replace(self, places=tuple(place for place in self.places if place not in taken))


@dataclass
class Shared:
    """A finding of a topic that groups share, as it is after some snapshots.

    The problem began in one group after the other, from `first_ms` to `latest_ms`. `seen_ms` is when each group had it,
    by the group's digest. `groups` are those that took part so far, as far as they are known by name, and `partitions`
    those of the topic that had it.
    """

    key: Key
    span: Span
    first_ms: int
    latest_ms: int
    groups: set[str] = field(default_factory=set)
    partitions: set[int] = field(default_factory=set)
    seen_ms: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))

    @classmethod
    def known(cls, key: Key, row: Row, span: Span) -> Shared:
        """From a row of `findings`."""
        facts = json.loads(row["evidence"] or "{}")
        of_row = {*facts.get("groups", ())}, {*(row["partitions"] or ())}
        return cls(key, span, *_began(facts, row["first_seen"]), *of_row)

    def remember(self, row: Row) -> None:
        """Continues from an earlier row of `finding_history`; the rows come in order."""
        facts = json.loads(row["evidence"] or "{}")
        self.groups |= {*facts.get("groups", ())}
        self.partitions |= {*(row["partitions"] or ())}
        for name in digests(facts):
            self.seen_ms[name].append(row["snapshot_id"])
        for name, seen_ms in facts.get("absent_groups", ()):
            if name not in self.seen_ms:
                self.seen_ms[name].append(seen_ms)
        self.first_ms, self.latest_ms = _began(facts, self.first_ms)

    def meets(self, place: Place, apart_ms: int) -> bool:
        """Whether a problem belongs to it by its topic, and because it began soon before or after the others."""
        if place.topic != self.key.of_topic:
            return False
        earliest = max(self.first_ms - apart_ms, self.latest_ms - LONGEST * apart_ms)
        latest = min(self.latest_ms + apart_ms, self.first_ms + LONGEST * apart_ms)
        return min(earliest, self.first_ms) <= place.cause_ms <= max(latest, self.latest_ms)

    def has(self, group_id: str | None, at_ms: int, judged_at: Sequence[int]) -> bool:
        """Whether a group takes part at an instant. It no longer does after RESOLVED_AFTER snapshots without it."""
        times = self.seen_ms.get(digest(group_id or ""), [])
        before = bisect_right(times, at_ms)
        return before > 0 and judged_between(times[before - 1], at_ms, judged_at) < RESOLVED_AFTER

    def add(self, looks: Iterable[Look], at_ms: int) -> None:
        """Adds the problems of groups that belong to it in a snapshot."""
        for look in looks:
            self.groups.add(look.group_id)
            self.seen_ms[digest(look.group_id)].append(at_ms)
            self.partitions |= {place.partition for place in look.places}

    def absent(self, at_ms: int, judged_at: Callable[[str | None], Sequence[int]]) -> list[tuple[str, int]]:
        """The groups that may still take part, but do not have the problem in a snapshot, and when they had it last."""
        names = {digest(name): name for name in self.groups}
        last = ((name, times[-1]) for name, times in sorted(self.seen_ms.items()) if times[-1] < at_ms)
        return [
            (name, seen_ms)
            for name, seen_ms in last
            if judged_between(seen_ms, at_ms, judged_at(names.get(name))) < RESOLVED_AFTER
        ]

    def extend(self, place: Place) -> None:
        """Adds when the problem of a group began."""
        self.first_ms, self.latest_ms = min(self.first_ms, place.cause_ms), max(self.latest_ms, place.cause_ms)


def _began(evidence: Mapping[str, Any], at_ms: int) -> tuple[int, int]:
    """When a problem began first and last, from its evidence; an instant in place of what is not known."""
    since, latest = (evidence.get(name) for name in ("since", "latest_since"))
    first_ms = at_ms if since is None else to_epoch_ms(datetime.fromisoformat(since))
    return first_ms, first_ms if latest is None else to_epoch_ms(datetime.fromisoformat(latest))


def chains(looks: Iterable[Look], topic: str, apart_ms: int) -> list[list[Look]]:
    """Problems of groups at a topic which began one soon after the other, three or more of them at one partition.

    The looks have only those places. The chain that began last is the last one.
    """
    ordered = sorted(
        ((place, look) for look in looks for place in look.places if place.topic == topic),
        key=lambda pair: (pair[0].cause_ms, pair[1].group_id, pair[0].partition),
    )
    found: list[list[tuple[Place, Look]]] = []
    for place, look in ordered:
        first_ms, latest_ms = (found[-1][at][0].cause_ms for at in (0, -1)) if found else (0, 0)
        if not found or place.cause_ms > min(latest_ms + apart_ms, first_ms + LONGEST * apart_ms):
            found.append([])
        found[-1].append((place, look))
    return [_by_group(chain) for chain in found if _is_crowded(chain)]


def _is_crowded(chain: Sequence[tuple[Place, Look]]) -> bool:
    """Whether FEWEST groups have a partition in common."""
    groups: dict[int, set[str]] = defaultdict(set)
    for place, look in chain:
        groups[place.partition].add(look.group_id)
    return any(len(names) >= FEWEST for names in groups.values())


def _by_group(chain: Sequence[tuple[Place, Look]]) -> list[Look]:
    places: dict[str, list[Place]] = defaultdict(list)
    for place, look in chain:
        places[look.group_id].append(place)
    looks = {look.group_id: look for _, look in chain}
    return [replace(looks[name], places=tuple(of_group)) for name, of_group in places.items()]
