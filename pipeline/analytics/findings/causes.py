"""Which findings of groups have a cause in common: three or more groups, one topic, about the same time. Plain Python.

Each group keeps its own finding. What it shares with others is the `Cause` under which it was first grouped, for ever.
A problem begins where a group's status says (`Kind.is_dated`), else with the first snapshot of its finding.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple

from pipeline.analytics.findings.identity import Key, cause_id, finding_id
from pipeline.analytics.findings.past import Past, Row
from pipeline.analytics.findings.spans import Span
from pipeline.kinds import SHARED, kind_named
from pipeline.kinds.kind import RESOLVED_AFTER

FEWEST = 3
"""How many groups must have a problem at one partition at about the same time, so that they share its cause."""
LONGEST = 3
"""How long it may take until the problem has begun in all of them, as a multiple of the time between two of them."""

Named = tuple[Row, Key, Span]
"""A problem, and the finding that it belongs to: the key, and since when it lasts."""


class Cause(NamedTuple):
    """What groups share: a kind of problem of a topic, which began in the first of them at `since_ms`."""

    cause_id: str
    topic: str
    since_ms: int

    def meets(self, place: Place, latest_ms: int, apart_ms: int) -> bool:
        """Whether a problem began soon before or after the others, of which the last began at `latest_ms`."""
        until_ms = min(latest_ms + apart_ms, self.since_ms + LONGEST * apart_ms)
        return place.topic == self.topic and self.since_ms - apart_ms <= place.began_ms <= max(until_ms, latest_ms)


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


class Causes:
    """The causes of the findings of one kind in a cluster, snapshot by snapshot.

    `past` has the findings so far. A snapshot that is computed again gives the same causes: a finding has its cause
    only from the snapshot on that first showed it.
    """

    def __init__(self, kind: str, past: Past) -> None:
        self._kind, self._past = kind, past
        self._grouped: dict[str, Grouped] = {}
        self._members: dict[Cause, dict[str, tuple[Key, Span]]] = defaultdict(dict)
        for row in past.findings:
            if row["kind"] == kind and row["cause_id"] is not None:
                cause = Cause(row["cause_id"], row["topic"], row["cause_since"])
                self._grouped[row["finding_id"]] = Grouped(cause, row["grouped_at"])
                ends_ms = row["resolution_confirmed_at"] or row["resolved_at"]
                span = Span(row["first_seen"], row["last_seen"], None, row["resolved_at"], ends_ms)
                self._members[cause][row["finding_id"]] = Key.of(row), span

    def at(self, at_ms: int, problems: Sequence[Named]) -> Iterator[dict[str, Any]]:
        """The rows of the problems in a snapshot, with the columns of their causes."""
        seen = [self._sighting(*problem) for problem in problems]
        free = {}
        for one in seen:
            if self._has_cause(one, at_ms):
                self._keep(one)
            elif not one.row.get("is_weak"):
                free[one.finding_id] = one
        for one, cause in (*self._joining(at_ms, seen, free), *self._beginning(at_ms, free)):
            self._grouped.setdefault(one.finding_id, Grouped(cause, at_ms))
            self._keep(one)
        for one in seen:
            yield self._with_cause(one, at_ms)

    def _sighting(self, row: Row, key: Key, span: Span) -> Sighting:
        places = tuple(self._places(row, span.first_ms))
        return Sighting(finding_id(key, span.first_ms), row, key, span, places)

    def _keep(self, one: Sighting) -> None:
        """Keeps until when a finding with a cause lasts."""
        self._members[self._grouped[one.finding_id].cause][one.finding_id] = one.key, one.span

    def _places(self, row: Row, first_ms: int) -> Iterator[Place]:
        is_dated = kind_named(self._kind).is_dated
        for place in json.loads(row["places"] or "[]"):
            began_ms = place.get("since_ms", first_ms) if is_dated else first_ms
            yield Place(place["topic"], place["partition"], began_ms)

    def _has_cause(self, one: Sighting, at_ms: int) -> bool:
        grouped = self._grouped.get(one.finding_id)
        return grouped is not None and grouped.at_ms <= at_ms

    def _joining(
        self, at_ms: int, seen: Sequence[Sighting], free: dict[str, Sighting]
    ) -> Iterator[tuple[Sighting, Cause]]:
        """The findings that have a cause which lasts already. They are taken from those that are free."""
        topics = {place.topic for one in free.values() for place in one.places}
        lasting = (cause for cause in self._members if cause.topic in topics and self._lasts(cause, at_ms))
        for cause in sorted(lasting, key=attrgetter("since_ms", "cause_id")):
            latest_ms = max((place.began_ms for place in self._of_members(cause, seen, at_ms)), default=cause.since_ms)
            for place, one in _by_begin(free.values(), cause.topic):
                if one.finding_id in free and cause.meets(place, latest_ms, self._past.together_ms):
                    latest_ms = max(latest_ms, place.began_ms)
                    del free[one.finding_id]
                    yield one, cause

    def _of_members(self, cause: Cause, seen: Iterable[Sighting], at_ms: int) -> Iterator[Place]:
        """The places of the findings that have a cause, as far as the problem began there at about the same time."""
        until_ms = cause.since_ms + LONGEST * self._past.together_ms
        for one in seen:
            if self._has_cause(one, at_ms) and self._grouped[one.finding_id].cause == cause:
                yield from (place for place in one.places if cause.meets(place, until_ms, self._past.together_ms))

    def _lasts(self, cause: Cause, at_ms: int) -> bool:
        """Whether one of the findings that are known to have it by then has not ended."""
        return any(
            self._grouped[name].at_ms <= at_ms and span.lasts(at_ms, self._past.judged_at(key), RESOLVED_AFTER)
            for name, (key, span) in self._members[cause].items()
        )

    def _beginning(self, at_ms: int, free: dict[str, Sighting]) -> Iterator[tuple[Sighting, Cause]]:
        """The findings whose cause begins with them, topic by topic: those with most groups first."""
        for topic, several in _by_topic(free.values()):
            chains = _chains([one for one in several if one.finding_id in free], topic, self._past.together_ms)
            for chain in chains:
                members = {one.finding_id: one for _, one in chain if one.finding_id in free}
                # In a snapshot that comes late, later ones may have shown the cause of some.
                known = (self._grouped[name].cause for name in members if name in self._grouped)
                cause = next(known, None) or self._begun(topic, chain[0], at_ms)
                for name, one in members.items():
                    del free[name]
                    yield one, cause

    def _begun(self, topic: str, first: tuple[Place, Sighting], at_ms: int) -> Cause:
        place, one = first
        name = cause_id(SHARED[self._kind], one.row["cluster"], topic, place.began_ms, at_ms)
        return Cause(name, topic, place.began_ms)

    def _with_cause(self, one: Sighting, at_ms: int) -> dict[str, Any]:
        row = {**one.row, "finding_id": one.finding_id}
        if not self._has_cause(one, at_ms):
            return {**row, "cause_id": None, "cause_since": None, "grouped_at": None}
        cause, grouped_ms = self._grouped[one.finding_id]
        values = {"cause_id": cause.cause_id, "cause_since": cause.since_ms, "grouped_at": grouped_ms}
        partitions = sorted({place.partition for place in one.places if place.topic == cause.topic})
        return {**row, **values, "topic": cause.topic, "partitions": partitions}


def with_causes(named: Iterable[Named], past: Past) -> Iterator[dict[str, Any]]:
    """The rows of problems of kinds that groups may share, with the columns of their causes and their `finding_id`."""
    by_kind: dict[str, dict[int, list[Named]]] = defaultdict(lambda: defaultdict(list))
    for problem in named:
        row = problem[0]
        by_kind[row["kind"]][row["snapshot_id"]].append(problem)
    for kind, by_snapshot in by_kind.items():
        causes = Causes(kind, past)
        for at_ms, problems in sorted(by_snapshot.items()):
            yield from causes.at(at_ms, sorted(problems, key=lambda problem: str(problem[0]["group_id"])))


def _by_topic(seen: Iterable[Sighting]) -> list[tuple[str, list[Sighting]]]:
    """The topics with the findings that have the problem there: those with most groups first."""
    found: dict[str, list[Sighting]] = defaultdict(list)
    for one in seen:
        for topic in {place.topic for place in one.places}:
            found[topic].append(one)
    several = ((topic, of_topic) for topic, of_topic in found.items() if len(of_topic) >= FEWEST)
    return sorted(several, key=lambda of: (-len(of[1]), of[0]))


def _by_begin(seen: Iterable[Sighting], topic: str) -> list[tuple[Place, Sighting]]:
    """The places of a topic, each with its finding, in the order in which the problem began."""
    pairs = ((place, one) for one in seen for place in one.places if place.topic == topic)
    return sorted(pairs, key=lambda pair: (pair[0].began_ms, pair[1].group_id, pair[0].partition))


def _chains(seen: Iterable[Sighting], topic: str, apart_ms: int) -> list[list[tuple[Place, Sighting]]]:
    """Problems at a topic which began one soon after the other, three or more of them at one partition."""
    found: list[list[tuple[Place, Sighting]]] = []
    for place, one in _by_begin(seen, topic):
        first_ms, latest_ms = (found[-1][at][0].began_ms for at in (0, -1)) if found else (0, 0)
        if not found or place.began_ms > min(latest_ms + apart_ms, first_ms + LONGEST * apart_ms):
            found.append([])
        found[-1].append((place, one))
    return [chain for chain in found if _is_crowded(chain)]


def _is_crowded(chain: Iterable[tuple[Place, Sighting]]) -> bool:
    """Whether FEWEST groups have a partition in common."""
    groups: Mapping[int, set[str]] = defaultdict(set)
    for place, one in chain:
        groups[place.partition].add(one.group_id)
    return any(len(names) >= FEWEST for names in groups.values())
