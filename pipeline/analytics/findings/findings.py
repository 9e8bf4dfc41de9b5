"""The tables `finding_history` and `findings`: a problem that lasts is one finding, which is resolved when it ends.

`finding_history` keeps each finding as each snapshot saw it, and never changes; `findings` is computed from it. All of
it is plain Python, because problems are few: their rows are those of `problem`, and instants are epoch ms.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructField, StructType

from pipeline.analytics.findings.cohorts import TOGETHER, Lasting, begun, by_cohort, lasting
from pipeline.analytics.findings.identity import Key, finding_id
from pipeline.analytics.findings.spans import Span, absences, assigned
from pipeline.common.data_source import arrow_schema
from pipeline.common.epoch import to_epoch_ms, utc, utc_date
from pipeline.tables import FINDING_HISTORY, FINDINGS, SEVERITIES
from pipeline.tables.columns import LONG

OF_MEMBERS = ("rebalance_storm", "flapping_member")
"""The kinds of problems of groups that follow from their members, which may be unknown although their lag is known."""
OF_ASSIGNMENTS = ("idle_member", "uneven_assignment")
"""The kinds of problems of groups that are only judged if their members and assignments have not just changed."""
RESOLVED_AFTER = 3
SLOW_RESOLVED_AFTER = 5
"""A finding is resolved after this many snapshots without its problem. Slow poll loops need more, because they still
poll from time to time."""
_TIMES = ("first_seen", "last_seen", "worst_at")
_WORST = ("partitions", "severity", "magnitude", "summary", "evidence", "advice")
_KEPT = ("owner", "tier", "channel", "resolved_at", "resolution_confirmed_at")
"""What a finding keeps, although no snapshot says it."""
_WHOSE = ("cluster", "finding_id", "kind", "group_id", "client_id", "instance")
SO_FAR = StructType(
    [FINDING_HISTORY.schema[name] for name in (*_WHOSE, "topic", *_WORST)]
    + [StructField(name, LONG) for name in _TIMES]
)
"""A finding as some snapshots saw it: `_WORST` and `topic` at its worst, and the instants, epoch ms."""
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Past:
    """What is known when the problems of some snapshots become findings.

    `findings` are the rows of `findings` that are open, or were last seen after the first of these snapshots. `whole`
    are the snapshots, some before these included, in which each "group", each "topic", or the "cluster" could be
    judged. `others` has the subjects that could be judged in other snapshots (true), or not in these (false).
    `together_ms` is that of the settings of statuses.

    A subject is what a finding is about, such as "client a": a client, else the members or the assignments of a group,
    else a group, else a topic, else the replicas of the cluster, or the whole cluster.
    """

    findings: Sequence[Row] = ()
    whole: Mapping[str, Collection[int]] = field(default_factory=dict)
    others: Mapping[str, Mapping[int, bool]] = field(default_factory=dict)
    together_ms: int = 0

    def judged_at(self, key: Key) -> list[int]:
        """The snapshots, in order, in which the subject could be judged."""
        subject, of = _subject(key)
        found = {*self.whole.get(of, ())}
        for at_ms, is_judged in self.others.get(subject, {}).items():
            (found.add if is_judged else found.discard)(at_ms)
        return sorted(found)


def subjects(rows: Iterable[Row]) -> dict[str, dict[int, bool]]:
    """`Past.others` from rows with subject, snapshot_id and is_judged. Of two rows that differ, the one with false."""
    found: dict[str, dict[int, bool]] = defaultdict(dict)
    for row in rows:
        of = found[row["subject"]]
        of[row["snapshot_id"]] = row["is_judged"] and of.get(row["snapshot_id"], True)
    return found


def _subject(key: Key) -> tuple[str, str]:
    """The subject of a finding, and what must have been read of the cluster, so that it could be judged."""
    if key.client_id is not None:
        return f"client {key.client_id}", "client"
    if key.group_id is not None:
        of = "members" if key.kind in OF_MEMBERS else "assignments" if key.kind in OF_ASSIGNMENTS else "group"
        return f"{of} {key.group_id}", "group"
    if key.of_topic is not None:
        return f"topic {key.of_topic}", "topic"
    return f"replicas {key.cluster}" if key.kind == "under_replicated" else "cluster", "cluster"


def finding_history(problems: pa.Table, past: Past) -> pa.Table:
    """The rows of `finding_history` for the problems in some snapshots; all problems of a `Key` must be among them.

    A problem in a snapshot older than last_seen of a finding belongs to that finding if the finding had begun by then,
    and never begins a new one. A problem that comes back after its finding was resolved is a new finding. So is a
    problem of a client whose cause is another topic.
    """
    known = _by_key(past.findings)
    seen = _by_key(problems.to_pylist())
    rows: list[dict[str, Any]] = []
    together: list[Lasting] = []
    for key in sorted({*known, *seen}, key=lambda key: key.kind != TOGETHER):  # those of groups depend on them
        found = [*_named(key, seen[key], known[key], past, together)]
        rows += found
        if key.kind == TOGETHER:
            together += lasting([*known[key], *found], past.judged_at(key), _patience(key))
    return pa.Table.from_pylist(rows, arrow_schema(FINDING_HISTORY.schema))


def _by_key(rows: Iterable[Row]) -> dict[Key, list[Row]]:
    found: dict[Key, list[Row]] = defaultdict(list)
    for row in rows:
        found[Key.of(row)].append(row)
    return found


def _named(
    key: Key, problems: Sequence[Row], known: Sequence[Row], past: Past, together: Sequence[Lasting]
) -> Iterator[dict[str, Any]]:
    """The problems that belong to a finding, with its finding_id. Groups may be part of the findings `together`."""
    ordered = sorted(problems, key=lambda row: (row["snapshot_id"], row["topic"] is not None, row["topic"] or ""))
    if key.kind == TOGETHER:
        named = [*by_cohort(ordered, known, past.together_ms)]
    else:
        named = [(row, _cause(row)) for row in ordered]
    ordered, seen = [row for row, _ in named], [(row["snapshot_id"], cause) for row, cause in named]
    cause = begun if key.kind == TOGETHER else _cause
    spans = [Span(row["first_seen"], row["last_seen"], cause(row), row["resolved_at"]) for row in known]
    may_begin = [not (row["continues"] or _is_part(key, row, together, past)) for row in ordered]
    of = assigned(seen, spans, past.judged_at(key), _patience(key), may_begin)
    for row, span in zip(ordered, of, strict=True):
        if span is not None:
            date = utc_date(row["snapshot_id"])
            yield {**row, "snapshot_date": date, "finding_id": finding_id(key, span.first_ms)}


def _cause(row: Row) -> str | None:
    return row["topic"] if row["client_id"] is not None else None  # only of a client, another topic is another finding


def _is_part(key: Key, row: Row, together: Iterable[Lasting], past: Past) -> bool:
    """Whether a group still waits with others, although this snapshot does not show enough of them."""
    return key.kind == "no_progress" and any(one.has(row, past.together_ms) for one in together)


def _patience(key: Key) -> int:
    return SLOW_RESOLVED_AFTER if key.kind == "slow_consumer" else RESOLVED_AFTER


def findings_seen(history: pa.Table) -> pa.Table:
    """A row of SO_FAR for each finding in rows of `finding_history`; all rows of a finding must be among them."""
    by_id: dict[str, list[Row]] = defaultdict(list)
    for row in history.to_pylist():
        by_id[row["finding_id"]].append({**row, **dict.fromkeys(_TIMES, row["snapshot_id"])})
    return pa.Table.from_pylist([_so_far(rows) for rows in by_id.values()], arrow_schema(SO_FAR))


def _so_far(rows: Sequence[Row]) -> dict[str, Any]:
    """One row of SO_FAR from several of the same finding."""
    worst = max(rows, key=_badness)
    topic = worst["topic"]
    if worst["client_id"] is not None:  # its newest known cause; a group may have several topics, and then names none
        newest = max(rows, key=lambda row: (row["topic"] is not None, row["last_seen"]))
        topic = newest["topic"]
    first_ms, last_ms = min(row["first_seen"] for row in rows), max(row["last_seen"] for row in rows)
    return {**worst, "topic": topic, "first_seen": first_ms, "last_seen": last_ms}


def _badness(row: Row) -> tuple[int, bool, float, int]:
    """By severity, then (of a client) known partitions, then magnitude, then time: the earliest is the worst."""
    gravity = SEVERITIES.index(row["severity"]) if row["severity"] in SEVERITIES else -1
    names_partitions = row["client_id"] is not None and row["partitions"] is not None
    magnitude = float("-inf") if row["magnitude"] is None else row["magnitude"]
    return gravity, names_partitions, magnitude, -row["worst_at"]


def findings(seen: Iterable[Row], past: Past) -> list[dict[str, Any]]:
    """The rows of `findings` that some snapshots add or change, from the `findings_seen` in these snapshots.

    A finding is resolved after RESOLVED_AFTER snapshots in which its subject could be judged and did not have the
    problem; resolved_at is the first of them. While a client reports nothing, or a group cannot be read, it stays open.
    """
    new = {row["finding_id"]: row for row in seen}
    known = {row["finding_id"]: row for row in past.findings}
    found = []
    for of in {**known, **new}:
        rows = [some[of] for some in (new, known) if of in some]
        row = {**_so_far(rows), **{name: known.get(of, {}).get(name) for name in _KEPT}}
        key, absent = Key.of(row), []
        if row["resolved_at"] is None:
            absent = absences(row["last_seen"], past.judged_at(key), _patience(key))
        if absent:
            row |= {"resolved_at": absent[0], "resolution_confirmed_at": absent[-1]}
        if absent or of in new:
            found.append(_stored(row))
    return found


def _stored(row: Row) -> dict[str, Any]:
    instants = (*_TIMES, "resolved_at", "resolution_confirmed_at")
    times = {name: None if row[name] is None else utc(row[name]) for name in instants}
    values = {**row, **times}
    return {name: values[name] for name in FINDINGS.columns}


def as_known(findings: Iterable[Row]) -> list[Row]:
    """`Past.findings` from the rows of `findings`. Before schema version 5, they have no worst_at."""
    rows: list[Row] = []
    for row in findings:
        times = {name: to_epoch_ms(value) for name, value in row.items() if isinstance(value, datetime)}
        rows.append({**row, **times, "worst_at": times.get("worst_at", times["last_seen"])})
    return rows
