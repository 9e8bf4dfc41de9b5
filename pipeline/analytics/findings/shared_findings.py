"""Which problems of groups belong to findings of their own, and which to findings that groups share. Plain Python.

A shared finding lasts as long as one of its groups has the problem. A group that takes part has no finding of its own,
unless that began earlier, or the group has the problem elsewhere, too.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import itemgetter

from pipeline.analytics.findings.identity import Key, finding_id
from pipeline.analytics.findings.past import Past, Row
from pipeline.analytics.findings.shared import FEWEST, Look, Place, Shared, chains
from pipeline.analytics.findings.shared_problem import shared_problem
from pipeline.analytics.findings.skew import HOT
from pipeline.analytics.findings.spans import Findings, Span
from pipeline.kinds import kind_named
from pipeline.kinds.kind import RESOLVED_AFTER

Named = tuple[Row, Key, Span]
"""A problem, and the finding that it belongs to: the key, and since when it lasts."""


class SharedFindings:
    """The findings of one kind in a cluster, those of groups and those that they share, snapshot by snapshot.

    `known` are the findings so far, and `ids` the snapshots that are added now. A group that has one of the findings
    `instead` has none of these as well.
    """

    instead: SharedFindings | None = None

    def __init__(self, kind: str, known: Mapping[Key, Sequence[Row]], past: Past, ids: frozenset[int]) -> None:
        self._kind, self._known, self._past, self._ids = kind, known, past, ids
        self._of_groups: dict[Key, Findings] = {}
        self._judged: dict[Key, Sequence[int]] = {}
        shared = [Shared.known(key, row, _span(row)) for key, rows in known.items() if not key.group_id for row in rows]
        by_id = {finding_id(one.key, one.span.first_ms): one for one in shared if one.key.group_id is None}
        for row in past.history:
            if row["finding_id"] in by_id:
                by_id[row["finding_id"]].remember(row)
        # What has begun in these snapshots is known if they are computed again. It begins again.
        self._again = {
            (one.key, one.span.first_ms) for one in by_id.values() if not one.seen_ms and one.span.first_ms in ids
        }
        kept = (one for one in by_id.values() if (one.key, one.span.first_ms) not in self._again)
        self._shared = sorted(kept, key=lambda one: (one.span.first_ms, one.key.of_topic or ""))

    def at(self, at_ms: int, problems: Iterable[Row]) -> Iterator[Named]:
        """The problems in a snapshot that belong to a finding, and those that groups share."""
        looks = {row["group_id"]: self._look(row) for row in sorted(problems, key=itemgetter("group_id"))}
        for look in looks.values():
            if look.finding is not None:
                yield look.row, Key.of(look.row), look.finding
        free = {**looks}
        yield from self._continued(at_ms, free)
        is_left = {name for name, look in free.items() if look.places or not looks[name].places}
        new = {name for name in is_left if self._may_begin(looks[name], at_ms)}
        yield from self._begun_together(at_ms, free, new)
        for name in sorted(new):
            row = looks[name].row
            yield row, Key.of(row), self._findings(Key.of(row)).begun(at_ms, _cause(row))

    def has(self, key: Key, at_ms: int) -> bool:
        """Whether a group has such a finding in a snapshot, of its own or shared, or one that may still last."""
        key = key._replace(kind=self._kind)
        if self._findings(key).explain(at_ms):
            return True
        judged_at = self._judged_at(key)
        return any(one.has(key.group_id, at_ms + 1, judged_at) for one in self._shared if one.span.first_ms <= at_ms)

    def _look(self, row: Row) -> Look:
        finding = self._findings(Key.of(row)).continued(row["snapshot_id"], _cause(row))
        since_ms = row["snapshot_id"] if finding is None else finding.first_ms
        return Look(row, tuple(self._places(row, since_ms)), finding)

    def _places(self, row: Row, since_ms: int) -> Iterator[Place]:
        for place in json.loads(row["places"] or "[]"):
            cause_ms = place.get("since_ms", since_ms) if kind_named(self._kind).is_dated else since_ms
            # In seconds, as the evidence has it.
            yield Place(place["topic"], place["partition"], cause_ms - cause_ms % 1_000)

    def _continued(self, at_ms: int, free: dict[str, Look]) -> Iterator[Named]:
        """The problems of shared findings that last. Takes their places from those that are free."""
        lasting = [one for one in self._shared if self._lasts(one, at_ms)]
        parts: dict[int, dict[str, Look]] = {number: {} for number in range(len(lasting))}
        names_of = _by_topic(free.values())
        for by_member in (True, False):  # first those that take part already
            for number, one in enumerate(lasting):
                for name in names_of[one.key.of_topic or ""]:
                    if taken := self._taken(one, free[name], at_ms, by_member=by_member):
                        before = parts[number][name].places if name in parts[number] else ()
                        parts[number][name] = replace(free[name], places=(*before, *taken))
                        free[name] = free[name].without(parts[number][name])
        for number, one in enumerate(lasting):
            is_over = one.span.resolved_ms is not None and at_ms >= one.span.resolved_ms
            if parts[number] and not is_over:
                yield self._together(one, [*parts[number].values()], at_ms)

    def _taken(self, one: Shared, look: Look, at_ms: int, *, by_member: bool) -> list[Place]:
        """The places of a group that belong to a shared finding."""
        if by_member:
            is_member = not kind_named(self._kind).is_dated and one.has(
                look.group_id, at_ms, self._judged_at(Key.of(look.row))
            )
            its = (place for place in look.places if place.topic == one.key.of_topic)
            # Of a hot partition, another partition is another cause.
            return (
                [place for place in its if self._kind != HOT or place.partition in one.partitions] if is_member else []
            )
        found: list[Place] = []
        if look.row.get("is_weak") or (look.finding is None and self._has_other(look, at_ms)):
            return found
        for place in sorted(look.places, key=lambda place: place.cause_ms):
            if one.meets(place, self._past.together_ms):
                one.extend(place)
                found.append(place)
        return found

    def _begun_together(self, at_ms: int, free: dict[str, Look], new: set[str]) -> Iterator[Named]:
        """The problems of shared findings that begin. At least one of the groups must be `new`, or wait since later."""
        names_of = _by_topic(look for name, look in free.items() if name in new or look.finding is not None)
        several = {topic: names for topic, names in names_of.items() if len(names) >= FEWEST}
        for topic, names in sorted(several.items(), key=lambda of: (-len(of[1]), of[0])):
            found = chains([free[name] for name in names], topic, self._past.together_ms)
            found = [chain for chain in found if any(look.group_id in new or look.is_later for look in chain)]
            if found and (one := self._begun(at_ms, topic, found[-1])) is not None:
                yield self._together(one, found[-1], at_ms)
            # Two findings that begin at once would have the same id: the other groups follow in the next snapshot.
            for look in (look for chain in found for look in chain):
                free[look.group_id] = free[look.group_id].without(look)
                if not free[look.group_id].places:
                    new.discard(look.group_id)

    def _begun(self, at_ms: int, topic: str, chain: Sequence[Look]) -> Shared | None:
        """A new finding; None if the topic already has one that begins in this snapshot or later."""
        key = Key.shared(chain[0].row, topic)
        is_known = (key, at_ms) in self._again
        others = [one.span.first_ms for one in self._shared if one.key == key]
        if at_ms in others or (not is_known and any(first_ms > at_ms for first_ms in others)):
            return None
        causes = [place.cause_ms for look in chain for place in look.places]
        self._shared.append(Shared(key, Span(at_ms, at_ms), min(causes), max(causes)))
        return self._shared[-1]

    def _may_begin(self, look: Look, at_ms: int) -> bool:
        """Whether a group may have a new finding: it has none, and will not take part in one that is known already."""
        key = Key.of(look.row)
        if look.finding is not None or look.row.get("is_weak"):
            return False
        if self._has_other(look, at_ms):
            return False
        later = [one for one in self._shared if one.span.first_ms > at_ms]
        is_late = any(one.meets(place, self._past.together_ms) for one in later for place in look.places)
        return not is_late and self._findings(key).may_begin(at_ms)

    def _has_other(self, look: Look, at_ms: int) -> bool:
        return self.instead is not None and self.instead.has(Key.of(look.row), at_ms)

    def _findings(self, key: Key) -> Findings:
        if key not in self._of_groups:
            spans = [_span(row) for row in self._known.get(key, ())]
            self._of_groups[key] = Findings(spans, self._judged_at(key), RESOLVED_AFTER, self._ids)
        return self._of_groups[key]

    def _judged_at(self, key: Key) -> Sequence[int]:
        if key not in self._judged:
            self._judged[key] = self._past.judged_at(key)
        return self._judged[key]

    def _lasts(self, one: Shared, at_ms: int) -> bool:
        if one.span.ends_ms is not None:
            return one.span.first_ms <= at_ms < one.span.ends_ms
        if at_ms <= one.span.last_ms:
            return one.span.first_ms <= at_ms
        return not self._past.all_left(one.groups, one.span.last_ms, at_ms)

    def _together(self, one: Shared, parts: Sequence[Look], at_ms: int) -> Named:
        """The problem of a topic that some groups share in one snapshot."""
        one.add(parts, at_ms)
        one.span.last_ms = max(one.span.last_ms, at_ms)
        rows = [look.row for look in sorted(parts, key=lambda look: look.group_id)]
        partitions = sorted({place.partition for look in parts for place in look.places})
        absent = [] if kind_named(self._kind).is_dated else one.absent(at_ms, partial(self._judged_of, rows[0]))
        return shared_problem(one.key, rows, partitions, (one.first_ms, one.latest_ms), absent), one.key, one.span

    def _judged_of(self, row: Row, group_id: str | None) -> Sequence[int]:
        return self._judged_at(Key.of({**row, "group_id": group_id or ""}))


def _by_topic(looks: Iterable[Look]) -> defaultdict[str, list[str]]:
    """The groups with a problem in each topic."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for look in looks:
        for topic in {place.topic for place in look.places}:
            found[topic].append(look.group_id)
    return found


def _span(row: Row) -> Span:
    resolved_ms = row["resolved_at"]
    ends_ms = None if resolved_ms is None else row["resolution_confirmed_at"] or resolved_ms
    return Span(row["first_seen"], row["last_seen"], _cause(row), resolved_ms, ends_ms)


def _cause(row: Row) -> str | None:
    """What makes two problems of a group different findings: of a hot partition, another partition."""
    if row["kind"] != HOT or row["topic"] is None or not row["partitions"]:
        return None
    return f"{row['topic']}-{row['partitions'][0]}"
