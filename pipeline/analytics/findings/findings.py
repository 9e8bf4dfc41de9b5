"""The tables `finding_history` and `findings`: a problem that lasts is one finding, which is resolved when it ends.

`finding_history` keeps each finding as each snapshot saw it, and never changes; `findings` is computed from it. All of
it is plain Python, because problems are few: their rows are those of `problem`, and instants are epoch ms.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructField, StructType

from pipeline.analytics.findings.identity import Key, finding_id, is_shared
from pipeline.analytics.findings.past import Past, Row, patience
from pipeline.analytics.findings.shared_findings import Named, SharedFindings
from pipeline.analytics.findings.shared_groups import groups_of, with_groups
from pipeline.analytics.findings.skew import FALLING_BEHIND, HOT, with_skewed_groups
from pipeline.analytics.findings.spans import Span, absences, assigned
from pipeline.common.data_source import arrow_schema
from pipeline.common.epoch import utc, utc_date
from pipeline.kinds import SHARED
from pipeline.tables import FINDING_HISTORY, FINDINGS, SEVERITIES
from pipeline.tables.columns import LONG

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


def finding_history(problems: pa.Table, past: Past) -> pa.Table:
    """The rows of `finding_history` for the problems in some snapshots.

    All problems of a `Key` must be among them, and all of a kind that groups may share. A problem in a snapshot older
    than last_seen of a finding belongs to that finding if the finding had begun by then, and never begins a new one. A
    problem that comes back after its finding was resolved is a new finding. So is a problem of a client whose cause is
    another topic.
    """
    known = _by_key(past.findings)
    seen = _by_key(with_skewed_groups(problems.to_pylist()))
    named = [*_of_groups(seen, known, past)]
    for key in seen:
        if key.kind not in SHARED:
            named += _named(key, seen[key], known[key], past)
    rows = [
        {**row, "snapshot_date": utc_date(row["snapshot_id"]), "finding_id": finding_id(key, span.first_ms)}
        for row, key, span in named
    ]
    return pa.Table.from_pylist(rows, arrow_schema(FINDING_HISTORY.schema))


def _by_key(rows: Iterable[Row]) -> dict[Key, list[Row]]:
    found: dict[Key, list[Row]] = defaultdict(list)
    for row in rows:
        found[Key.of(row)].append(row)
    return found


def _of_groups(seen: Mapping[Key, Sequence[Row]], known: Mapping[Key, Sequence[Row]], past: Past) -> Iterator[Named]:
    """The problems of kinds that groups may share. A group with a hot partition does not fall behind as well."""
    rows: dict[tuple[int, str], list[Row]] = defaultdict(list)
    for key, problems in seen.items():
        if key.kind in SHARED:
            for row in problems:
                rows[row["snapshot_id"], key.kind].append(row)
    ids = sorted({at_ms for at_ms, _ in rows})
    of_kinds = {}
    for kind, shared_kind in SHARED.items():
        of_kind = {key: several for key, several in known.items() if key.kind in (kind, shared_kind)}
        of_kinds[kind] = SharedFindings(kind, of_kind, past, frozenset(ids))
    of_kinds[HOT].instead, of_kinds[FALLING_BEHIND].instead = of_kinds[FALLING_BEHIND], of_kinds[HOT]
    for at_ms in ids:
        for kind, of in of_kinds.items():
            yield from of.at(at_ms, rows[at_ms, kind])


def _named(key: Key, problems: Sequence[Row], known: Sequence[Row], past: Past) -> Iterator[Named]:
    """The problems that belong to a finding."""
    ordered = sorted(problems, key=lambda row: (row["snapshot_id"], row["topic"] is not None, row["topic"] or ""))
    spans = [Span(row["first_seen"], row["last_seen"], _cause(row), row["resolved_at"]) for row in known]
    of = assigned([(row["snapshot_id"], _cause(row)) for row in ordered], spans, past.judged_at(key), patience(key))
    yield from ((row, key, span) for row, span in zip(ordered, of, strict=True) if span is not None)


def _cause(row: Row) -> str | None:
    return row["topic"] if row["client_id"] is not None else None  # only of a client, another topic is another finding


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
    evidence = worst["evidence"]
    if is_shared(worst):  # with all of its groups so far, not only those of the worst moment
        evidence = with_groups(evidence, (row["evidence"] for row in rows))
    first_ms, last_ms = min(row["first_seen"] for row in rows), max(row["last_seen"] for row in rows)
    return {**worst, "topic": topic, "evidence": evidence, "first_seen": first_ms, "last_seen": last_ms}


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
            if is_shared(row):
                absent = past.all_left(groups_of(row["evidence"]), row["last_seen"])
            else:
                absent = absences(row["last_seen"], past.judged_at(key), patience(key))
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
