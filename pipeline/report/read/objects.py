"""Turns the rows of the report's queries into the values on the page."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeVar

import pyarrow as pa

from pipeline.analytics.histograms.buckets import UPPER_BOUNDS
from pipeline.config.notify import Silence
from pipeline.report.model.details import Distribution, Finding
from pipeline.report.model.ledger import Cluster, PassedOver, Snapshot, SnapshotError
from pipeline.report.model.report import names_of

T = TypeVar("T")


def _values(of: type, rows: pa.Table) -> Iterator[dict[str, Any]]:
    """The fields of a class, as far as they are among the columns; lists become tuples."""
    known = rows.select([name for name in names_of(of) if name in rows.column_names])
    for row in known.to_pylist(maps_as_pydicts="strict"):
        yield {name: tuple(value) if isinstance(value, list) else value for name, value in row.items()}


def made(of: type[T], rows: pa.Table) -> tuple[T, ...]:
    """The rows as values of a class, whose fields are columns."""
    return tuple(of(**row) for row in _values(of, rows))


def clusters(rows: pa.Table) -> tuple[Cluster, ...]:
    """The rows of `aggregates.clusters`."""
    found = []
    for row in _values(Cluster, rows):
        passed_over = row["passed_over"] and PassedOver(**row["passed_over"])
        found.append(Cluster(**{**row, "expected": row["expected"] or {}, "passed_over": passed_over}))
    return tuple(found)


def snapshots(rows: pa.Table) -> tuple[Snapshot, ...]:
    """The rows of `aggregates.newest_snapshots`."""
    found = []
    for row in _values(Snapshot, rows):
        counts = {name: row[name] or {} for name in ("expected", "warnings")}
        found.append(Snapshot(**{**row, **counts, "errors": tuple(SnapshotError(**e) for e in row["errors"] or ())}))
    return tuple(found)


def findings(rows: pa.Table) -> tuple[Finding, ...]:
    """The rows of `details.findings`."""
    return tuple(
        Finding(**{**row, "partitions": row["partitions"] or (), "evidence": json.loads(row["evidence"] or "{}")})
        for row in _values(Finding, rows)
    )


def with_now(findings: Iterable[Finding], rows: Iterable[Mapping[str, Any]]) -> tuple[Finding, ...]:
    """The findings with what `Excerpt.at` has of them."""
    now = {
        (row["cluster"], row["finding_id"]): {
            "now": json.loads(row["evidence"] or "{}"),
            "now_topic": row["topic"],
            "now_partitions": tuple(row["partitions"] or ()),
        }
        for row in rows
    }
    return tuple(replace(f, **now.get((f.cluster, f.finding_id), {})) if f.is_open else f for f in findings)


def with_silences(findings: Iterable[Finding], silences: Iterable[Silence], at: datetime) -> tuple[Finding, ...]:
    """The findings; those that are open and silenced at an instant have the reason of the first such silence.

    Those of a cause have it already, because each of its groups has to be silenced.
    """

    def why(f: Finding) -> str | None:
        covering = (s.reason for s in silences if s.covers(f.cluster, f.group_id, f.topic, f.kind, at, f.evidence))
        return next(covering, None) if f.is_open else None

    return tuple(f if f.is_cause else replace(f, silenced=why(f)) for f in findings)


def distributions(rows: pa.Table) -> tuple[Distribution, ...]:
    """The rows of `details.distributions`."""
    return tuple(map(_distribution, rows.to_pylist()))


def _distribution(row: dict[str, Any]) -> Distribution:
    """Each bucket at its upper bound, the last at its greatest value."""
    below = row["negative_count"] + row["zero_count"]
    steps = [(0, below)] if below else []
    counts = row["bucket_counts"] or ()
    for number, count in enumerate(counts):
        below += count
        is_last = number == len(counts) - 1
        if count:
            steps.append((row["max"] if is_last else int(UPPER_BOUNDS[row["bucket_offset"] + number + 1]), below))
    names = {name: row[name] for name in ("cluster", "broker", "measure")}
    return Distribution(**names, count=below, unknown=row["null_count"], steps=tuple(steps))
