"""Which findings of groups have a cause in common: three or more groups, one topic, about the same time. Plain Python.

Each group keeps its own finding. What it shares with others is the `Cause` under which it was first grouped, for ever.
A problem begins where a group's status says (`Kind.is_dated`), else with the first snapshot of its finding.
"""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from operator import attrgetter
from typing import Any, NamedTuple

from pipeline.analytics.findings.identity import Key, cause_id, finding_id
from pipeline.analytics.findings.known_findings import KnownFindings, Row
from pipeline.analytics.findings.spans import Span
from pipeline.kinds import SHARED, kind_named
from pipeline.kinds.kind import RESOLVED_AFTER

FEWEST = 3
"""How many groups must have a problem at one partition at about the same time, so that they share its cause."""
LONGEST = 3
"""How long it may take until the problem has begun in all of them, as a multiple of the time between two of them."""

CAUSE_COLUMNS = ("cause_id", "cause_topic", "cause_since", "grouped_at")
"""The columns of `findings` and `finding_history` about the cause of a finding."""
Named = tuple[Row, Key, Span]
"""A problem, and the finding that it belongs to: the key, and since when it lasts."""


class Cause(NamedTuple):
    """What groups share: a kind of problem of a topic, which began in the first of them at `since_ms`."""

    cause_id: str
    topic: str
    since_ms: int


class Place(NamedTuple):
    """A partition in which a group has a problem, and when that began there."""

    topic: str
    partition: int
    began_ms: int


class Grouped(NamedTuple):
    """The cause of a finding, and the first snapshot that shows that it has this cause."""

    cause: Cause
    at_ms: int


@dataclass(frozen=True)
class Sighting:
    """A finding of a group in one snapshot, and the places that have its problem there."""

    finding_id: str
    row: Row
    key: Key
    span: Span
    places: tuple[Place, ...]

    @property
    def group_id(self) -> str:
        """The group that has the problem."""
        return str(self.row["group_id"])


Pairs = Sequence[tuple[Place, Sighting]]
"""Places of a topic, each with its finding, in the order in which the problem began."""


class Causes:
    """The causes of the findings of one kind in a cluster, snapshot by snapshot.

    `past` has the findings so far. A snapshot that is computed again gives the same causes, because a finding counts as
    one with a cause only after the snapshot that first showed it.
    """

    def __init__(self, kind: str, past: KnownFindings) -> None:
        self._kind, self._past, self._apart_ms = kind, past, past.together_ms
        self._grouped: dict[str, Grouped] = {}
        self._members: dict[str, dict[Cause, dict[str, tuple[Key, Span]]]] = defaultdict(lambda: defaultdict(dict))
        self._judged_at = cache(past.judged_at)
        for row in past.findings:
            if row["kind"] == kind and row["cause_id"] is not None:
                cause = Cause(row["cause_id"], row["cause_topic"], row["cause_since"])
                self._grouped[row["finding_id"]] = Grouped(cause, row["grouped_at"])
                self._members[cause.topic][cause][row["finding_id"]] = Key.of(row), Span.of_row(row)

    def at(self, at_ms: int, problems: Sequence[Named]) -> Iterator[dict[str, Any]]:
        """The rows of the problems in a snapshot, with the columns of their causes."""
        seen = [self._sighting(*problem) for problem in problems]
        for one in seen:
            self._keep(one)
        members: dict[Cause, list[Sighting]] = defaultdict(list)
        free = {}
        for one in seen:
            if self._has_cause(one, at_ms - 1):
                members[self._grouped[one.finding_id].cause].append(one)
            elif not one.row.get("is_weak"):
                free[one.finding_id] = one
        by_topic = _by_topic(free.values())
        for one, cause in (*self._joining(at_ms, members, by_topic, free), *self._beginning(at_ms, by_topic, free)):
            self._grouped.setdefault(one.finding_id, Grouped(cause, at_ms))
            self._keep(one)
        for one in seen:
            yield self._with_cause(one, at_ms)

    def _sighting(self, row: Row, key: Key, span: Span) -> Sighting:
        places = tuple(self._places(row, span.first_ms))
        return Sighting(finding_id(key, span.first_ms), row, key, span, places)

    def _places(self, row: Row, first_ms: int) -> Iterator[Place]:
        found = [
            Place(place["topic"], place["partition"], place.get("since_ms", first_ms))
            for place in json.loads(row["places"] or "[]")
        ]
        yield from found if kind_named(self._kind).is_dated else _since_first_seen(found, first_ms)

    def _keep(self, one: Sighting) -> None:
        """Keeps until when a finding with a cause lasts."""
        if grouped := self._grouped.get(one.finding_id):
            self._members[grouped.cause.topic][grouped.cause][one.finding_id] = one.key, one.span

    def _has_cause(self, one: Sighting, at_ms: int) -> bool:
        grouped = self._grouped.get(one.finding_id)
        return grouped is not None and grouped.at_ms <= at_ms

    def _joining(
        self,
        at_ms: int,
        members: Mapping[Cause, Sequence[Sighting]],
        by_topic: Mapping[str, Pairs],
        free: dict[str, Sighting],
    ) -> Iterator[tuple[Sighting, Cause]]:
        """The findings that have a cause which lasts already. They are taken from those that are free."""
        for topic, pairs in by_topic.items():
            for cause in sorted(self._members[topic], key=attrgetter("since_ms", "cause_id")):
                near = self._within(pairs, cause)
                if near and self._lasts(cause, at_ms):
                    latest_ms = self._latest(cause, members[cause])
                    for place, one in near:
                        if place.began_ms > latest_ms + self._apart_ms:
                            break
                        if latest_ms > place.began_ms + LONGEST * self._apart_ms:
                            continue  # it began before the others, too long before the last of them
                        latest_ms = max(latest_ms, place.began_ms)
                        if free.pop(one.finding_id, None) is not None:
                            yield one, cause

    def _within(self, pairs: Pairs, cause: Cause) -> Pairs:
        """The places whose problem began at most one step before a cause, and at most LONGEST steps after it."""
        first_ms, until_ms = cause.since_ms - self._apart_ms, cause.since_ms + LONGEST * self._apart_ms
        begin = bisect_left(pairs, first_ms, key=_began)
        return pairs[begin : bisect_right(pairs, until_ms, key=_began)]

    def _latest(self, cause: Cause, members: Iterable[Sighting]) -> int:
        """When the problem began in the last of the findings with a cause: each soon after the one before."""
        latest_ms = cause.since_ms
        for place, _ in self._within(_by_topic(members).get(cause.topic, ()), cause):
            if place.began_ms > latest_ms + self._apart_ms:
                break
            latest_ms = max(latest_ms, place.began_ms)
        return latest_ms

    def _lasts(self, cause: Cause, at_ms: int) -> bool:
        """Whether one of the findings that were known to have it before has not ended."""
        return any(
            self._grouped[name].at_ms < at_ms and span.lasts(at_ms, self._judged_at(key), RESOLVED_AFTER)
            for name, (key, span) in self._members[cause.topic][cause].items()
        )

    def _beginning(
        self, at_ms: int, by_topic: Mapping[str, Pairs], free: dict[str, Sighting]
    ) -> Iterator[tuple[Sighting, Cause]]:
        """The findings whose cause begins with them, topic by topic: those with most groups first."""
        for topic, pairs in sorted(by_topic.items(), key=_most_groups_first):
            while chain := self._first_chain([pair for pair in pairs if pair[1].finding_id in free]):
                members = {one.finding_id: one for _, one in chain}
                place, first = chain[0]
                name = cause_id(SHARED[self._kind], first.row["cluster"], topic, place.began_ms, at_ms)
                cause = Cause(name, topic, place.began_ms)
                # In a snapshot that comes late, later ones may have shown another cause of some. It begins nothing.
                is_late = any(self._has_other(name, cause) for name in members)
                for name, one in members.items():
                    del free[name]
                    if not is_late:
                        yield one, cause

    def _has_other(self, name: str, cause: Cause) -> bool:
        return name in self._grouped and self._grouped[name].cause != cause

    def _first_chain(self, pairs: Pairs) -> Pairs:
        """The first problems which began one soon after the other, three or more of them at one partition."""
        begin, longest_ms = 0, LONGEST * self._apart_ms
        for end, after in enumerate([*pairs[1:], None], 1):
            is_near = after is not None and _began(after) <= _began(pairs[end - 1]) + self._apart_ms
            if after is not None and is_near and _began(after) <= _began(pairs[begin]) + longest_ms:
                continue
            if _is_crowded(pairs[begin:end]):
                return pairs[begin:end]
            begin = begin if is_near else end
            while after is not None and _began(after) > _began(pairs[begin]) + longest_ms:
                begin += 1
        return []

    def _with_cause(self, one: Sighting, at_ms: int) -> dict[str, Any]:
        row = {**one.row, "finding_id": one.finding_id, **dict.fromkeys(CAUSE_COLUMNS)}
        if not self._has_cause(one, at_ms):
            return row
        cause, grouped_ms = self._grouped[one.finding_id]
        return {**row, **dict(zip(CAUSE_COLUMNS, (*cause, grouped_ms), strict=True))}


def with_causes(named: Iterable[Named], past: KnownFindings) -> Iterator[dict[str, Any]]:
    """The rows of problems of kinds that groups may share, with the columns of their causes and their `finding_id`."""
    by_kind: dict[str, dict[int, list[Named]]] = defaultdict(lambda: defaultdict(list))
    for problem in named:
        row = problem[0]
        by_kind[row["kind"]][row["snapshot_id"]].append(problem)
    for kind, by_snapshot in by_kind.items():
        causes = Causes(kind, past)
        for at_ms, problems in sorted(by_snapshot.items()):
            yield from causes.at(at_ms, sorted(problems, key=lambda problem: str(problem[0]["group_id"])))


def _since_first_seen(places: Sequence[Place], first_ms: int) -> Iterator[Place]:
    """The places of a problem that begins when it is first seen.

    If it was there at that time in some topics, it has begun later in others: when its status did. Otherwise a snapshot
    that could not be read may have made all of these begin again.
    """
    from_beginning = {place.topic for place in places if place.began_ms <= first_ms}
    for place in places:
        is_later = from_beginning and place.topic not in from_beginning
        yield place if is_later else place._replace(began_ms=first_ms)


def _began(pair: tuple[Place, Sighting]) -> int:
    return pair[0].began_ms


def _by_topic(seen: Iterable[Sighting]) -> dict[str, Pairs]:
    """The places of each topic, in the order in which the problem began."""
    found: dict[str, list[tuple[Place, Sighting]]] = defaultdict(list)
    for one in seen:
        for place in one.places:
            found[place.topic].append((place, one))
    for pairs in found.values():
        pairs.sort(key=lambda pair: (pair[0].began_ms, pair[1].group_id, pair[0].partition))
    return dict(found)


def _most_groups_first(of: tuple[str, Pairs]) -> tuple[int, str]:
    topic, pairs = of
    return -len({one.group_id for _, one in pairs}), topic


def _is_crowded(chain: Pairs) -> bool:
    """Whether FEWEST groups have a partition in common."""
    groups: Mapping[int, set[str]] = defaultdict(set)
    for place, one in chain:
        groups[place.partition].add(one.group_id)
    return any(len(names) >= FEWEST for names in groups.values())
