"""Turns the collected rows of the report's queries into the values on the page."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from typing import Any

from pyspark.sql import Row

from pipeline.analytics.histograms.buckets import UPPER_BOUNDS
from pipeline.config.notify import Silence
from pipeline.report.details_model import Change, Distribution, Finding, Names
from pipeline.report.heat_model import Missed, OtherPartitions, PartitionSeries
from pipeline.report.ledger_model import Cluster, PassedOver, Snapshot, SnapshotError


def cluster(row: dict[str, Any]) -> Cluster:
    """A row of `data.clusters`."""
    passed: Row | None = row["passed_over"]
    return Cluster(
        **{
            **row,
            "expected": row["expected"] or {},
            "passed_over": None if passed is None else PassedOver(**passed.asDict()),
        }
    )


def snapshot(row: dict[str, Any]) -> Snapshot:
    """A row of `data.newest_snapshots`."""
    errors: list[Row] = row["errors"] or []
    return Snapshot(
        **{
            **row,
            "expected": row["expected"] or {},
            "warnings": row["warnings"] or {},
            "errors": tuple(SnapshotError(**p.asDict()) for p in errors),
        }
    )


def finding(row: dict[str, Any]) -> Finding:
    """A row of `details.findings`."""
    evidence = json.loads(row["evidence"] or "{}")
    return Finding(**{**row, "partitions": tuple(row["partitions"] or ()), "evidence": evidence})


def with_now(findings: Iterable[Finding], rows: Iterable[dict[str, Any]]) -> tuple[Finding, ...]:
    """The findings with what `details.findings_now` has of them."""
    now = {
        (row["cluster"], row["finding_id"]): {
            "now": json.loads(row["evidence"] or "{}"),
            "now_topic": row["topic"],
            "now_partitions": tuple(row["partitions"] or ()),
        }
        for row in rows
    }
    return tuple(replace(f, **now.get((f.cluster, f.finding_id), {})) for f in findings)


def with_silences(findings: Iterable[Finding], silences: Iterable[Silence], at: datetime) -> tuple[Finding, ...]:
    """The findings; those that are open and silenced at an instant have the reason of the first such silence."""

    def why(f: Finding) -> str | None:
        covering = (s.reason for s in silences if s.covers(f.cluster, f.group_id, f.topic, f.kind, at, f.evidence))
        return next(covering, None) if f.is_open else None

    return tuple(replace(f, silenced=why(f)) for f in findings)


def change(row: dict[str, Any]) -> Change:
    """A row of `details.changes`."""
    return Change(**{**row, "clients": tuple(row["clients"] or ())})


def partition_series(row: dict[str, Any]) -> PartitionSeries:
    """A row of `heat_rows.partitions`."""
    return PartitionSeries(**_as_tuples(row))


def other_partitions(row: dict[str, Any]) -> OtherPartitions:
    """A row of `heat_rows.others`."""
    return OtherPartitions(**_as_tuples(row))


def missed(row: dict[str, Any]) -> Missed:
    """A row of `heat_rows.missed`."""
    return Missed(**_as_tuples(row))


def _as_tuples(row: dict[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in row.items()}


def names(row: dict[str, Any]) -> Names:
    """A row of `details.names`."""
    return Names(**{**row, **{name: tuple(row[name]) for name in ("topics", "clients", "hosts")}})


def distribution(row: dict[str, Any]) -> Distribution:
    """A row of `details.distributions`: each bucket at its upper bound, the last at its greatest value."""
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
