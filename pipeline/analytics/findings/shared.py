"""Findings that groups share, because one cause is one finding. Plain Python.

If the same problem of three or more groups begins at one partition at about the same time, it is one finding of the
topic. It lasts as long as three of these groups have the problem. A group that takes part has no finding of its own,
unless that began earlier. A topic may have several such findings at once, which differ in when the problem began:
groups that stop today do not belong to those that stopped last month.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import Any

from pipeline.analytics.findings.identity import Key, finding_id
from pipeline.analytics.findings.past import RESOLVED_AFTER, Past, Row
from pipeline.analytics.findings.spans import Findings, Span, judged_between
from pipeline.analytics.findings.words.shared import shared_problem
from pipeline.common.epoch import to_epoch_ms

FEWEST = 3
"""How many groups must have a problem at about the same time, so that it is one of their topic."""
Named = tuple[Row, Key, Span]
"""A problem, and the finding that it belongs to: the key, and since when it lasts."""


@dataclass(frozen=True)
class Look:
    """The problem of one group in one snapshot. `cause_ms` is when it began, None if that is not known."""

    row: Row
    evidence: Mapping[str, Any]
    finding: Span | None
    cause_ms: int | None

    @property
    def group_id(self) -> str:
        """The group that has the problem."""
        return str(self.row["group_id"])

    def topics(self) -> Collection[str | None]:
        """The topics in which the group has the problem."""
        return self.evidence.get("topics") or [self.row["topic"]]

    def is_in(self, partitions: Collection[int] | None) -> bool:
        """Whether the problem may be in one of these partitions. They are not known if there are several topics."""
        own = self.row["partitions"]
        return partitions is None or own is None or not {*own}.isdisjoint(partitions)


@dataclass
class Shared:
    """A finding of a topic that groups share, as it is after some snapshots.

    The problem began in one group after the other, from `first_ms` to `latest_ms`, in `partitions` of the topic, None
    if they are not known. `seen_ms` is when each group had it last. `has_all`: whether all groups are known by name; if
    not, any other group may be one of them.
    """

    key: Key
    span: Span
    first_ms: int
    latest_ms: int
    partitions: Collection[int] | None
    seen_ms: dict[str, int] = field(default_factory=dict)
    has_all: bool = True

    def meets(self, look: Look, apart_ms: int) -> bool:
        """Whether a problem began there within this time, or at most so long before or after it."""
        if look.cause_ms is None or self.key.of_topic not in look.topics() or not look.is_in(self.partitions):
            return False
        return self.first_ms - apart_ms <= look.cause_ms <= self.latest_ms + apart_ms

    def add(self, look: Look, at_ms: int) -> None:
        """Adds a group that has the problem in a snapshot."""
        self.seen_ms[look.group_id] = at_ms
        if look.cause_ms is not None:
            self.first_ms, self.latest_ms = min(self.first_ms, look.cause_ms), max(self.latest_ms, look.cause_ms)

    def remember(self, row: Row) -> None:
        """Continues from an earlier row of `finding_history`."""
        facts = json.loads(row["evidence"] or "{}")
        names = facts.get("groups") or ()
        self.seen_ms |= dict.fromkeys(names, row["snapshot_id"])
        self.has_all = len(names) >= (facts.get("groups_affected") or 0)
        self.first_ms, self.latest_ms = began(facts, self.first_ms)
        self.partitions = row["partitions"]


def began(evidence: Mapping[str, Any], at_ms: int | None) -> tuple[Any, Any]:
    """When a problem began first and last, from its evidence; an instant in place of what is not known."""
    since, latest = (evidence.get(name) for name in ("since", "latest_since"))
    first_ms = at_ms if since is None else to_epoch_ms(datetime.fromisoformat(since))
    return first_ms, first_ms if latest is None else to_epoch_ms(datetime.fromisoformat(latest))


class SharedFindings:
    """The findings of one kind in a cluster, those of groups and those that they share, snapshot by snapshot.

    `known` are the findings so far. A group that has one of the findings `instead` has none of these as well, unless
    it began before.
    """

    def __init__(
        self, kind: str, known: Mapping[Key, Sequence[Row]], past: Past, instead: SharedFindings | None = None
    ) -> None:
        self._kind, self._known, self._past, self._instead = kind, known, past, instead
        self._ids: Collection[int] = ()
        self._of_groups: dict[Key, Findings] = {}
        self._judged: dict[Key, Sequence[int]] = {}
        self._shared = [_known_one(key, row) for key, rows in known.items() if key.group_id is None for row in rows]
        by_id = {finding_id(one.key, one.span.first_ms): one for one in self._shared}
        for row in past.history:
            if row["finding_id"] in by_id:
                by_id[row["finding_id"]].remember(row)

    def named(self, problems: Iterable[Row]) -> Iterator[Named]:
        """The problems that belong to a finding, and those that groups share. They must all have the same kind."""
        ordered = sorted(problems, key=lambda row: (row["snapshot_id"], row["group_id"]))
        self._ids = {row["snapshot_id"] for row in ordered}
        # What has begun in these snapshots is known if they are computed again. It begins again.
        self._shared = [one for one in self._shared if one.seen_ms or one.span.first_ms not in self._ids]
        for at_ms, rows in groupby(ordered, key=itemgetter("snapshot_id")):
            yield from self._at(at_ms, [self._look(row) for row in rows])

    def has(self, key: Key, at_ms: int) -> bool:
        """Whether a group has such a finding at an instant, of its own or shared."""
        if self._findings(key._replace(kind=self._kind)).explain(at_ms):
            return True
        return any(key.group_id in one.seen_ms and self._explains(one, at_ms) for one in self._shared)

    def _at(self, at_ms: int, looks: Sequence[Look]) -> Iterator[Named]:
        yield from ((look.row, Key.of(look.row), look.finding) for look in looks if look.finding is not None)
        free = {look.group_id: look for look in looks}
        yield from self._continued(at_ms, free)
        new = {name: look for name, look in free.items() if self._may_begin(look, at_ms)}
        yield from self._begun_together(at_ms, free, new)
        for look in new.values():
            key = Key.of(look.row)
            yield look.row, key, self._findings(key).begun(at_ms)

    def _continued(self, at_ms: int, free: dict[str, Look]) -> Iterator[Named]:
        """The problems of shared findings that last. Takes their groups from those that are free."""
        for one in [one for one in self._shared if self._lasts(one, at_ms)]:
            parts = self._parts(one, at_ms, free.values())
            if len(parts) >= FEWEST:
                one.span.last_ms = max(one.span.last_ms, at_ms)
                yield _together(one, parts)
            elif not self._explains(one, at_ms):
                continue  # It has ended: those that are left may have findings of their own.
            for look in parts:
                del free[look.group_id]

    def _begun_together(self, at_ms: int, free: dict[str, Look], new: dict[str, Look]) -> Iterator[Named]:
        """The problems of shared findings that begin. At least one of the groups must be `new`: without a finding."""
        by_topic = _by_topic(free.values())
        for topic in sorted(
            by_topic, key=lambda topic: (-sum(look.group_id in new for look in by_topic[topic]), topic)
        ):
            looks = [look for look in by_topic[topic] if look.group_id in free]
            chains = [chain for chain in self._chains(looks) if any(look.group_id in new for look in chain)]
            if chains and (one := self._begun(at_ms, topic, chains[-1])) is not None:
                yield _together(one, chains[-1])
                # Two findings that begin at once would have the same id: the other groups follow in the next snapshot.
                for look in (look for chain in chains for look in chain):
                    del free[look.group_id]
                    new.pop(look.group_id, None)

    def _look(self, row: Row) -> Look:
        evidence = json.loads(row["evidence"] or "{}")
        finding = self._findings(Key.of(row)).continued(row["snapshot_id"])
        if row["kind"] == "no_progress":
            return Look(row, evidence, finding, began(evidence, None)[0])
        return Look(row, evidence, finding, row["snapshot_id"] if finding is None else finding.first_ms)

    def _parts(self, one: Shared, at_ms: int, looks: Iterable[Look]) -> list[Look]:
        """Those groups whose problem belongs to a shared finding."""
        judged_at, found = self._judged_at(one.key), []
        for look in sorted(looks, key=_order):
            if one.key.of_topic not in look.topics():
                continue
            seen_ms = one.seen_ms.get(look.group_id, None if one.has_all else at_ms)
            if seen_ms is not None and judged_between(seen_ms, at_ms, judged_at) < RESOLVED_AFTER:
                one.seen_ms[look.group_id] = at_ms
                found.append(look)
            elif one.meets(look, self._past.together_ms):
                one.add(look, at_ms)
                found.append(look)
        return found

    def _begun(self, at_ms: int, topic: str, chain: Sequence[Look]) -> Shared | None:
        """A new finding; None if the topic already has one that begins in this snapshot or later."""
        key = Key.shared(chain[0].row, topic)
        if any(one.key == key and one.span.first_ms >= at_ms for one in self._shared):
            return None
        first_ms, latest_ms = (chain[place].cause_ms or at_ms for place in (0, -1))
        one = Shared(key, Span(at_ms, at_ms), first_ms, latest_ms, _crowded(chain))
        for look in chain:
            one.add(look, at_ms)
        self._shared.append(one)
        return one

    def _chains(self, looks: Iterable[Look]) -> list[list[Look]]:
        """Three or more groups whose problems began one after the other, each soon after the one before.

        `looks` are those of one topic. In a chain, three or more have a partition in common.
        """
        chains: list[list[Look]] = []
        known = [look for look in looks if look.cause_ms is not None]
        for look in sorted(known, key=_order):
            if not chains or (look.cause_ms or 0) - (chains[-1][-1].cause_ms or 0) > self._past.together_ms:
                chains.append([])
            chains[-1].append(look)
        crowded = ((chain, _crowded(chain)) for chain in chains if len(chain) >= FEWEST)
        at_same = ([look for look in chain if look.is_in(partitions)] for chain, partitions in crowded)
        return [chain for chain in at_same if len(chain) >= FEWEST]

    def _may_begin(self, look: Look, at_ms: int) -> bool:
        """Whether a group may have a new finding: it has none, and will not take part in one that is known already."""
        if look.finding is not None or (self._instead is not None and self._instead.has(Key.of(look.row), at_ms)):
            return False
        later = (one for one in self._shared if one.span.first_ms > at_ms)
        is_late = any(one.meets(look, self._past.together_ms) for one in later)
        return not is_late and self._findings(Key.of(look.row)).may_begin(at_ms)

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
        return one.span.lasts(at_ms, self._judged_at(one.key), RESOLVED_AFTER)

    def _explains(self, one: Shared, at_ms: int) -> bool:
        return one.span.explains(at_ms, self._judged_at(one.key), RESOLVED_AFTER)


def _span(row: Row) -> Span:
    resolved_ms = row["resolved_at"]
    ends_ms = None if resolved_ms is None else row["resolution_confirmed_at"] or resolved_ms
    return Span(row["first_seen"], row["last_seen"], None, resolved_ms, ends_ms)


def _known_one(key: Key, row: Row) -> Shared:
    times = began(json.loads(row["evidence"] or "{}"), row["first_seen"])
    return Shared(key, _span(row), *times, row["partitions"])


def _order(look: Look) -> tuple[int, str]:
    return look.cause_ms or 0, look.group_id


def _crowded(looks: Sequence[Look]) -> Collection[int] | None:
    """The partitions that FEWEST of the groups have in common; None if they have the problem in several topics."""
    known = [look.row["partitions"] for look in looks if look.row["partitions"] is not None]
    unknown = len(looks) - len(known)
    if unknown >= FEWEST:
        return None
    counts = Counter(number for partitions in known for number in partitions)
    return {number for number, count in counts.items() if count + unknown >= FEWEST}


def _by_topic(looks: Iterable[Look]) -> dict[str, list[Look]]:
    """The problems by topic, without topics of fewer than FEWEST groups."""
    found: dict[str, list[Look]] = defaultdict(list)
    for look in looks:
        for topic in look.topics():
            if topic is not None:
                found[topic].append(look)
    return {topic: of for topic, of in found.items() if len(of) >= FEWEST}


def _together(one: Shared, parts: Sequence[Look]) -> Named:
    """The problem of a topic that some groups share in one snapshot."""
    rows = [look.row for look in sorted(parts, key=attrgetter("group_id"))]
    return shared_problem(one.key, rows, one.first_ms, one.latest_ms), one.key, one.span
