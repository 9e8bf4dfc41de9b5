"""What happened to a group, in the order of time: its findings, and what has changed in it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Literal, NamedTuple

from pipeline.common.words import counted, spaced, visible
from pipeline.report.model.details import Change, Finding
from pipeline.report.model.report import Report

CHANGES_LISTED = 60
"""The snapshots of a group for which the page says what has changed in it."""
CLIENTS_NAMED = 3
"""How many client ids a sentence names."""
Level = Literal["bad", "warn", "good", "plain"]


class Event(NamedTuple):
    """Something that a snapshot shows. `at_ms` is the instant of the snapshot; it happened then or just before."""

    at_ms: int
    level: Level
    sentence: str


def events(report: Report, cluster: str, group_id: str) -> list[Event]:
    """The events of a group that the report knows, the oldest first."""
    found = [event for f in report.findings_of(cluster, group_id) for event in finding_events(f, of=group_id)]
    changes = [c for c in report.changes if (c.cluster, c.group_id) == (cluster, group_id)]
    return sorted([*found, *_changes(changes)], key=lambda event: event.at_ms)


def finding_events(finding: Finding, of: str | None = None) -> Iterator[Event]:
    """The beginning, the worst moment and the end of a finding. It is named by its cause if this is not the group."""
    kind = spaced(finding.kind)
    if of is not None and finding.group_id is None:
        kind += f" (topic {finding.topic})" if finding.topic is not None else " (cluster)"
    level: Level = "bad" if finding.severity == "critical" else "warn"
    yield Event(finding.first_seen_ms, level, f"{kind} begins")
    worst_ms = finding.first_seen_ms if finding.worst_ms is None else finding.worst_ms
    yield Event(worst_ms, level, f"{kind} at its worst: {finding.summary}")
    if finding.resolved_ms is not None:
        yield Event(finding.resolved_ms, "good", f"{kind} is resolved")


def _changes(changes: Iterable[Change]) -> Iterator[Event]:
    """One event for each snapshot, with everything that has changed in the group."""
    by_time = sorted(changes, key=attrgetter("snapshot_id"))
    for at_ms, of_snapshot in groupby(by_time, attrgetter("snapshot_id")):
        words = change_words(list(of_snapshot))
        if words:
            yield Event(at_ms, "plain", words)


def change_words(changes: Sequence[Change]) -> str:
    """The changes of one group at one snapshot, as a sentence without a full stop."""
    of = {change.change: change for change in changes}
    said = [_WORDS[name](of[name]) for name in _WORDS if name in of]
    return "; ".join(said)


_COUNTED = (("joined",), ("left",), ("restarted",), ("moved", "assigned", "unassigned"))


def counts(changes: Iterable[Change]) -> list[tuple[int, int, int, int, int]]:
    """How many members joined, left and restarted, and how many partitions were moved, assigned or unassigned.

    A row for each snapshot of one group that has such changes, the oldest first: its id, then these four numbers.
    """
    found: dict[int, list[int]] = {}
    for change in changes:
        for nth, names in enumerate(_COUNTED):
            if change.change in names:
                of_snapshot = found.setdefault(change.snapshot_id, [0, 0, 0, 0])
                of_snapshot[nth] += change.partitions if "moved" in names else change.rows
    return [(id_, of[0], of[1], of[2], of[3]) for id_, of in sorted(found.items())]


def _members(verb: str, change: Change) -> str:
    named = [*map(visible, change.clients[:CLIENTS_NAMED]), *["…"] * (len(change.clients) > CLIENTS_NAMED)]
    names = f" ({', '.join(named)})" if named else ""
    return f"{counted(change.rows, 'member')} {verb}{names}"


def _partitions(verb: str, change: Change) -> str:
    return f"{counted(change.partitions, 'partition')} {verb}"


def _values(what: str, change: Change) -> str:
    if change.before is None or change.after is None:
        known = change.after if change.before is None else change.before
        return f"{what}: {'now' if change.before is None else 'no longer'} {visible(known or 'unknown')}"
    return f"{what}: {visible(change.before)} → {visible(change.after)}"


_WORDS: Mapping[str, Callable[[Change], str]] = {
    "appeared": lambda _: "the group appeared",
    "vanished": lambda _: "the group was deleted or has expired",
    "state": lambda change: _values("state", change),
    "type": lambda change: _values("type", change),
    "assignor": lambda change: _values("assignor", change),
    "epoch": lambda change: _values("epoch", change),
    "joined": lambda change: _members("joined", change),
    "left": lambda change: _members("left", change),
    "restarted": lambda change: _members("restarted", change),
    "moved": lambda change: _partitions("moved to another member", change),
    "assigned": lambda change: _partitions("assigned", change),
    "unassigned": lambda change: _partitions("not assigned any more", change),
    "commits_removed": lambda change: f"the commits of {counted(change.partitions, 'partition')} were removed",
}
"""The kinds of changes in the order in which a sentence names them, each with its words."""
