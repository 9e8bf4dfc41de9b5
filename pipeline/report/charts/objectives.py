"""The objectives of a group as its charts show them: a line at the limit, and when it was missed."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from pipeline.common.expressions import matches
from pipeline.report.model.details import Objective
from pipeline.report.model.report import Group, Instant, Report
from pipeline.report.text.names import visible
from pipeline.report.text.outlook import objectives_of

_UNITS = {
    "consumer_lag": "records",
    "consumer_lag_bytes": "bytes",
    "consumer_lag_ms": "ms",
    "consumer_age_ms": "age",
}


def targets(report: Report, group: Group, instants: Sequence[Instant]) -> list[dict[str, Any]]:
    """The objectives of a group, as far as the page lists them.

    `unit` is that of the chart in which the limit is a line; None if no chart shows the column. `is_of_sum` says that
    this chart shows the sum of several partitions, each of which must meet the limit. `most` is the greatest value that
    meets it. `of_topics` are the topics with rows in the heat map that the objective concerns; None means all. `missed`
    and `unknown` are ranges of the positions of `instants`, from first to last.
    """
    found = {m.slo: m for m in report.missed if (m.cluster, m.group_id) == group.key}
    topics = sorted({s.topic for s in report.partition_series if (s.cluster, s.group_id) == group.key})
    listed = []
    for objective in objectives_of(report, group):
        of_topics = None
        if objective.topics is not None:
            of_topics = [visible(topic) for topic in topics if matches(objective.topics, topic)]
        listed.append(_target(objective, group, instants, found.get(objective.slo)) | {"of_topics": of_topics})
    return listed


def most_of(report: Report, group: Group, unit: str) -> list[int]:
    """The greatest values in a unit that meet an objective of the group."""
    parsed = (_parsed(o) for o in objectives_of(report, group))
    return [most for of_unit, _, most in parsed if of_unit == unit]


def _parsed(objective: Objective) -> tuple[str | None, int, int]:
    """The unit, the limit, and the greatest value that meets it."""
    column, sign, limit = objective.objective.split()
    return _UNITS.get(column), int(limit), int(limit) if sign == "<=" else int(limit) - 1


def _target(objective: Objective, group: Group, instants: Sequence[Instant], missed: Any) -> dict[str, Any]:
    unit, limit, most = _parsed(objective)
    return {
        "name": visible(objective.slo),
        "objective": visible(objective.objective),
        "topics": None if objective.topics is None else visible(objective.topics),
        "unit": unit,
        "limit": limit,
        "most": most,
        "is_of_sum": unit in ("records", "bytes") and group.partitions > 1,
        "missed": list(_ranges(instants, missed.missed_ids if missed else ())),
        "unknown": list(_ranges(instants, missed.unknown_ids if missed else ())),
    }


def _ranges(instants: Sequence[Instant], ids: Collection[int]) -> Iterator[tuple[int, int]]:
    """The positions of the snapshots with these ids, as ranges without a gap in between."""
    wanted = set(ids)
    first = None
    for nth, instant in enumerate(instants):
        is_in = instant.snapshot_id in wanted
        if first is not None and (not is_in or instant.segment != instants[nth - 1].segment):
            yield first, nth - 1
            first = None
        if is_in and first is None:
            first = nth
    if first is not None:
        yield first, len(instants) - 1
