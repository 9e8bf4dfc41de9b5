"""Sentences about a time: what was found in it, and how much of it laglake has seen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

from pipeline.common.quantities import at
from pipeline.common.subject import subject_of
from pipeline.common.words import counted, spaced
from pipeline.report.model.details import Finding
from pipeline.report.model.report import Report


def finding_in_words(finding: Finding) -> str:
    """A finding on one line: what it is about, its time and its summary."""
    about = f"{spaced(finding.kind)} of {subject_of(finding)}"
    until = "still open" if finding.resolved_ms is None else f"until {at(finding.resolved_ms)}"
    return f"{about}, since {at(finding.first_seen_ms)}, {until}: {finding.summary}"


def what_was_seen(report: Report) -> list[str]:
    """How much of the time was seen: a gap in what was read may hide what happened."""
    lines = []
    for cluster in report.clusters:
        bad = [(cluster.failed, "failed"), (cluster.partial, "partial"), (cluster.running, "not finished")]
        said = ", ".join(f"{number:,} {word}" for number, word in bad if number) or "all complete"
        span = f"{at(cluster.first_snapshot_id)} to {at(cluster.last_snapshot_id)}"
        lines.append(f"{cluster.cluster}: {counted(cluster.snapshots, 'snapshot')}, {span}; {said}")
        lines += _gaps(report, cluster.cluster)
    errors = Counter((s.cluster, error.error or "no reason") for s in report.snapshots for error in s.errors)
    lines += [f"{cluster}: {error}, {counted(number, 'time')}" for (cluster, error), number in sorted(errors.items())]
    return lines


def _gaps(report: Report, cluster: str) -> Iterator[str]:
    """The times without lag between two snapshots: instants that were missed, and snapshots that failed."""
    times = sorted((i for i in report.instants if i.cluster == cluster), key=lambda i: i.snapshot_id)
    for before, after in pairwise(times):
        if before.segment != after.segment:
            yield f"{cluster}: there is a gap between {at(before.snapshot_id)} and {at(after.snapshot_id)}"
