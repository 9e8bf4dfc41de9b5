"""The tables `finding_history` and `findings`: a problem that lasts is one finding, which is resolved when it ends.

`finding_history` keeps each finding as each snapshot saw it, and never changes; `findings` is computed from it. All of
it is plain Python, because problems are few: their rows are those of `problem`, and instants are epoch ms.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructField, StructType

from pipeline.analytics.findings.causes import CAUSE_COLUMNS, Named, with_causes
from pipeline.analytics.findings.identity import Key, finding_id
from pipeline.analytics.findings.known_findings import KnownFindings, Row, snapshots_to_resolve
from pipeline.analytics.findings.skew import (
    FALLING_BEHIND,
    HOT,
    assigned_if_skewed,
    skewed_partition,
    with_skewed_groups,
)
from pipeline.analytics.findings.spans import Findings, Span, absences, assigned
from pipeline.common.data_source import arrow_schema
from pipeline.common.epoch import to_epoch_ms, utc, utc_date
from pipeline.kinds import SHARED
from pipeline.tables import FINDING_HISTORY, FINDINGS, SEVERITIES
from pipeline.tables.columns import LONG

_TIMES = ("first_seen", "last_seen", "worst_at")
_INSTANTS_OF_CAUSE = ("cause_since", "grouped_at")
_WORST = ("partitions", "severity", "magnitude", "summary", "evidence", "advice")
_KEPT = ("owner", "tier", "channel", "resolved_at", "resolution_confirmed_at")
"""What a finding keeps, although no snapshot says it."""
_WHOSE = ("cluster", "finding_id", "kind", "group_id", "client_id", "instance")
SO_FAR = StructType(
    [FINDING_HISTORY.schema[name] for name in (*_WHOSE, "topic", *_WORST, "cause_id", "cause_topic")]
    + [StructField(name, LONG) for name in (*_TIMES, *_INSTANTS_OF_CAUSE)]
)
"""A finding as some snapshots saw it: `_WORST` and `topic` at its worst, its cause, and the instants, epoch ms."""


def finding_history(problems: pa.Table, past: KnownFindings) -> pa.Table:
    """The rows of `finding_history` for the problems in some snapshots.

    All problems of a `Key` must be among them, and all of a kind whose causes groups may share. A problem in a snapshot
    older than last_seen of a finding belongs to that finding if the finding had begun by then, and never begins a new
    one. A problem that comes back after its finding was resolved is a new finding. So is a problem of a client whose
    cause is another topic.
    """
    known, seen = _by_key(past.findings), _by_key(with_skewed_groups(problems.to_pylist()))
    named = [problem for key in seen for problem in _named(key, seen, known, past)]
    of_groups = with_causes((problem for problem in named if problem[0]["kind"] in SHARED), past)
    rows = [*of_groups, *(_with_id(*problem) for problem in named if problem[0]["kind"] not in SHARED)]
    dated = [{**_with_instants(row, _INSTANTS_OF_CAUSE), "snapshot_date": utc_date(row["snapshot_id"])} for row in rows]
    return pa.Table.from_pylist(dated, arrow_schema(FINDING_HISTORY.schema))


def _with_id(row: Row, key: Key, span: Span) -> dict[str, Any]:
    return {**row, "finding_id": finding_id(key, span.first_ms)}


def _by_key(rows: Iterable[Row]) -> dict[Key, list[Row]]:
    found: dict[Key, list[Row]] = defaultdict(list)
    for row in rows:
        found[Key.of(row)].append(row)
    return found


def _named(
    key: Key, seen: Mapping[Key, Sequence[Row]], known: Mapping[Key, Sequence[Row]], past: KnownFindings
) -> Iterator[Named]:
    """The problems of a key that belong to a finding."""
    if key.kind == HOT:
        return  # with those of FALLING_BEHIND, which the same group has, too
    if key.kind == FALLING_BEHIND:
        both = [key._replace(kind=kind) for kind in (HOT, FALLING_BEHIND)]
        of_kinds = {}
        for one in both:
            spans = _spans(known.get(one, ()))
            of_kinds[one.kind] = Findings(spans, past.judged_at(one), snapshots_to_resolve(one))
        yield from assigned_if_skewed([row for one in both for row in seen.get(one, ())], of_kinds)
        return
    ordered = sorted(seen[key], key=lambda row: (row["snapshot_id"], row["topic"] is not None, row["topic"] or ""))
    at = [(row["snapshot_id"], _cause(row)) for row in ordered]
    of = assigned(at, _spans(known.get(key, ())), past.judged_at(key), snapshots_to_resolve(key))
    yield from ((row, key, span) for row, span in zip(ordered, of, strict=True) if span is not None)


def _spans(rows: Iterable[Row]) -> list[Span]:
    return [Span.of_row(row, _cause(row)) for row in rows]


def _cause(row: Row) -> str | None:
    """What makes problems of one key different findings: of a client the topic, of a hot partition the partition."""
    return row["topic"] if row["client_id"] is not None else skewed_partition(row)


def findings_seen(history: pa.Table) -> pa.Table:
    """A row of SO_FAR for each finding in rows of `finding_history`; all rows of a finding must be among them."""
    by_id: dict[str, list[Row]] = defaultdict(list)
    for row in history.to_pylist():
        of_cause = {name: row[name] and to_epoch_ms(row[name]) for name in _INSTANTS_OF_CAUSE}
        by_id[row["finding_id"]].append({**row, **of_cause, **dict.fromkeys(_TIMES, row["snapshot_id"])})
    return pa.Table.from_pylist([_so_far(rows) for rows in by_id.values()], arrow_schema(SO_FAR))


def _so_far(rows: Sequence[Row]) -> dict[str, Any]:
    """One row of SO_FAR from several of the same finding."""
    worst = max(rows, key=_badness)
    topic = worst["topic"]
    if worst["client_id"] is not None:  # its newest known cause; a group may have several topics, and then names none
        newest = max(rows, key=lambda row: (row["topic"] is not None, row["last_seen"]))
        topic = newest["topic"]
    first_ms, last_ms = min(row["first_seen"] for row in rows), max(row["last_seen"] for row in rows)
    found = {**worst, "topic": topic, "first_seen": first_ms, "last_seen": last_ms}
    grouped = [row for row in rows if row["cause_id"] is not None]
    if grouped:  # for ever with the cause under which it was first grouped
        found |= {name: min(grouped, key=itemgetter("grouped_at"))[name] for name in CAUSE_COLUMNS}
    return found


def _badness(row: Row) -> tuple[int, bool, float, int]:
    """By severity, then (of a client) known partitions, then magnitude, then time: the earliest is the worst."""
    gravity = SEVERITIES.index(row["severity"]) if row["severity"] in SEVERITIES else -1
    names_partitions = row["client_id"] is not None and row["partitions"] is not None
    magnitude = float("-inf") if row["magnitude"] is None else row["magnitude"]
    return gravity, names_partitions, magnitude, -row["worst_at"]


def findings(seen: Iterable[Row], past: KnownFindings) -> list[dict[str, Any]]:
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
            absent = absences(row["last_seen"], past.judged_at(key), snapshots_to_resolve(key))
        if absent:
            row |= {"resolved_at": absent[0], "resolution_confirmed_at": absent[-1]}
        if absent or of in new:
            found.append(_stored(row))
    return found


def _stored(row: Row) -> dict[str, Any]:
    values = _with_instants(row, (*_TIMES, *_INSTANTS_OF_CAUSE, "resolved_at", "resolution_confirmed_at"))
    return {name: values[name] for name in FINDINGS.columns}


def _with_instants(row: Row, names: Sequence[str]) -> dict[str, Any]:
    """The row with some of its columns as instants; they are epoch ms."""
    return {**row, **{name: utc(row[name]) for name in names if row.get(name) is not None}}
