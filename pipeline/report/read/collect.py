"""Makes the values on the page from the rows of an excerpt. Each result is bounded, whatever the size of the lake."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime
from functools import partial
from itertools import chain, groupby
from operator import attrgetter
from typing import Any, TypeVar

import pyarrow as pa

from pipeline.analytics.keys import GROUP, MEMBER, SNAPSHOT
from pipeline.common.rows import Rows
from pipeline.report.charts import heat
from pipeline.report.charts.timeline import CHANGES_LISTED
from pipeline.report.model.details import (
    VICTIMS_NAMED,
    Change,
    Finding,
    Forecast,
    Gauge,
    Names,
    Objective,
    Partition,
    Verdict,
)
from pipeline.report.model.heat import Missed, OtherPartitions, PartitionSeries
from pipeline.report.model.ledger import Cluster
from pipeline.report.model.report import ClusterPoint, Group, Instant, Point, Report, Totals, names_of
from pipeline.report.read import aggregates, details, objects
from pipeline.report.read import heat as heat_rows
from pipeline.report.read.excerpt import Excerpt, Wanted, by_cluster
from pipeline.tables import (
    CLIENT_DIVERGENCE,
    FORECASTS,
    LAG,
    SLO,
)

T = TypeVar("T", PartitionSeries, OtherPartitions)

SNAPSHOTS_LISTED = 100
GROUPS_LISTED = 1_000
GROUPS_CHARTED = 50
PARTITIONS_LISTED = 8
CLIENTS_CHARTED = 20
FINDINGS_LISTED = 200
OBJECTIVES_LISTED = 200
NAMES_SEARCHED = 50
"""The topics, clients and hosts of a group by which it is found."""
INSTANTS_CHARTED = 300
RECENT = 10
"""The newest snapshots of a cluster, which are always shown."""
CELLS = 35_000
"""How many groups times instants fit onto a page: if there are many groups, fewer instants are shown."""


def collect(excerpt: Excerpt, generated_at: datetime, title: str) -> Report:
    """The report on everything that is selected."""
    ledger, all_findings = excerpt.ledger(), excerpt.findings()
    of_clusters = aggregates.clusters(ledger)
    _announce(excerpt, of_clusters)
    clusters = objects.clusters(of_clusters)
    listed = details.findings(all_findings, FINDINGS_LISTED, excerpt.selection.finding_id)
    findings = objects.findings(listed)
    incident = _incident(findings, excerpt)
    report = Report(title, generated_at, clusters, selection=excerpt.selection, incident=incident)
    if not clusters:
        return report
    # The groups of an incident are shown as they were then; by now they may be deleted.
    newest = {incident.cluster: [incident.last_seen_ms]} if incident else _newest_with_lag(clusters)
    groups = excerpt.groups_at(newest).collected_table()
    found = {group_id for f in findings if f.is_open for group_id in f.groups()[:VICTIMS_NAMED]}
    worst = objects.made(Group, aggregates.worst_first(groups, GROUPS_LISTED, found))
    instants = _instants(ledger, _most_instants(len(worst)))
    findings = _with_now(excerpt, newest, findings)
    findings = objects.with_silences(findings, excerpt.silences, excerpt.until(generated_at))
    with_causes = objects.findings(details.findings(excerpt.with_causes({g.group_id for g in worst}), GROUPS_LISTED))
    parts = (
        partial(_at_newest, excerpt, newest, worst),
        partial(_over_time, excerpt, newest, worst, instants),
        partial(_maps, excerpt, worst, instants, _most_rows(of_clusters)),
    )
    return replace(
        report,
        snapshots=objects.snapshots(aggregates.newest_snapshots(ledger, SNAPSHOTS_LISTED)),
        groups=worst,
        totals={of.cluster: of for of in objects.made(Totals, aggregates.totals(groups))},
        charted=worst[:GROUPS_CHARTED],
        findings=findings,
        with_causes=with_causes,
        findings_open=all_findings["resolved_at"].null_count,
        findings_total=len(all_findings),
        refused=excerpt.refused(),
        days=excerpt.days,
        incident=_incident(findings, excerpt),
        **_collected(excerpt, parts),
    )


def _collected(excerpt: Excerpt, parts: Sequence[Callable[[], dict[str, Any]]]) -> dict[str, Any]:
    """The values of some parts of the report. Where Spark reads, each part waits for several queries in turn."""
    if excerpt.lake.reads_without_spark:
        return dict(chain(*(part().items() for part in parts)))
    with ThreadPoolExecutor(len(parts)) as threads:
        return dict(chain(*(found.items() for found in threads.map(lambda part: part(), parts))))


def _incident(findings: Iterable[Finding], excerpt: Excerpt) -> Finding | None:
    """The finding that the report is about, if it is about one."""
    return next((f for f in findings if f.finding_id == excerpt.selection.finding_id), None)


def _with_now(excerpt: Excerpt, newest: Wanted, findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """The findings; open ones with what the newest snapshots say of them."""
    return objects.with_now(findings, excerpt.findings_at(newest) if any(f.is_open for f in findings) else [])


def _instants(ledger: pa.Table, most: int) -> tuple[Instant, ...]:
    """The snapshots with lag, at most `most` of each cluster."""
    return _thinned(objects.made(Instant, aggregates.instants(ledger, INSTANTS_CHARTED - RECENT, newest=RECENT)), most)


def _at_newest(excerpt: Excerpt, newest: Wanted, worst: Sequence[Group]) -> dict[str, Any]:
    """What is shown of the newest snapshots: of the worst groups, and of all brokers and objectives."""
    groups = {group.group_id for group in worst}
    charted = {group.group_id for group in worst[:GROUPS_CHARTED]}
    lag = excerpt.at(LAG, newest, names_of(Partition), groups)
    partitions = lag.where_in("group_id", sorted(charted))
    forecasts = excerpt.at(FORECASTS, newest, details.FORECAST_READ, groups).collected_table()
    divergence = excerpt.at(CLIENT_DIVERGENCE, newest, details.VERDICT_READ, groups)
    slo = excerpt.at(SLO, newest).collected_table()
    return {
        "partitions": objects.made(
            Partition, partitions.collected_groups(GROUP, partial(details.partitions, limit=PARTITIONS_LISTED))
        ),
        "names": objects.made(Names, lag.collected_groups(GROUP, partial(details.names, limit=NAMES_SEARCHED))),
        "forecasts": objects.made(Forecast, details.forecasts(forecasts)),
        "verdicts": objects.made(Verdict, divergence.collected_groups(GROUP, details.verdicts)),
        "objectives": objects.made(Objective, details.objectives(slo, OBJECTIVES_LISTED)),
        "distributions": objects.distributions(details.distributions(excerpt.histograms(newest))),
    }


def _over_time(excerpt: Excerpt, newest: Wanted, worst: Sequence[Group], instants: Sequence[Instant]) -> dict[str, Any]:
    """What is shown of the instants: all groups together, the worst groups, and the clients that report their lag."""
    drawn = by_cluster((i.cluster, i.snapshot_id) for i in instants)
    judged = {cluster: {*ids, *drawn.get(cluster, ())} for cluster, ids in newest.items()}
    charted = {g.group_id for g in worst[:GROUPS_CHARTED]}
    groups = excerpt.groups_at(drawn, aggregates.POINT_READ)
    of_worst = groups.where_in("group_id", sorted({g.group_id for g in worst}))
    points = objects.made(Point, aggregates.points(of_worst.collected_table()))
    slo = excerpt.at(SLO, judged, heat_rows.MISSED_READ, charted)
    changes = excerpt.changes(charted)
    newest_changes = partial(details.changes, limit=CHANGES_LISTED)
    worst_gauges = partial(details.gauges, clients=CLIENTS_CHARTED)
    gauges = excerpt.at(CLIENT_DIVERGENCE, drawn, details.GAUGE_READ).collected_groups(MEMBER, worst_gauges)
    return {
        "instants": _when_read(instants, points),
        "points": points,
        "cluster_points": objects.made(ClusterPoint, groups.collected_groups(SNAPSHOT, aggregates.all_groups)),
        "changes": objects.made(Change, changes.collected_groups(GROUP, newest_changes)),
        "missed": objects.made(Missed, slo.collected_groups(GROUP, heat_rows.missed)),
        "gauges": objects.made(Gauge, worst_gauges(gauges)),
    }


def _maps(
    excerpt: Excerpt, worst: Sequence[Group], instants: Sequence[Instant], most_rows: Mapping[str, int]
) -> dict[str, Any]:
    """The lag of single partitions of the worst groups over time."""
    plan = heat.plan(worst[:GROUPS_CHARTED], instants, most_rows, excerpt.selection)
    names = {name for names in plan.groups.values() for name in names}
    lag = excerpt.at(LAG, plan.columns, heat_rows.LAG_READ, names)

    def of_groups(row: type[T], function: Callable[..., pa.Table]) -> tuple[T, ...]:
        found = objects.made(row, lag.collected_groups(GROUP, partial(function, limit=heat.PARTITIONS)))
        return tuple(s for s in found if s.group_id in plan.groups[s.cluster])

    return {
        "partition_series": of_groups(PartitionSeries, heat_rows.partitions) if plan.groups else (),
        "other_partitions": of_groups(OtherPartitions, heat_rows.others) if plan.has_others else (),
    }


def collect_groups(excerpt: Excerpt) -> tuple[Group, ...]:
    """The groups at each cluster's newest snapshot with lag, worst first."""
    groups = excerpt.groups_at(_newest_lags(excerpt)).collected_table()
    return objects.made(Group, aggregates.worst_first(groups, GROUPS_LISTED))


def collect_partitions(excerpt: Excerpt, limit: int) -> tuple[list[Partition], int]:
    """The worst partitions at each cluster's newest snapshot with lag, and how many there are in all."""
    rows = _newest_partitions(excerpt)
    return [Partition(**row) for row in rows.in_order(details.WORST_FIRST, limit)], rows.count()


def all_partitions(excerpt: Excerpt) -> Iterator[Partition]:
    """All partitions at each cluster's newest snapshot with lag, worst first. They are fetched part by part."""
    return (Partition(**row) for row in _newest_partitions(excerpt).in_order(details.WORST_FIRST))


def _newest_partitions(excerpt: Excerpt) -> Rows:
    return excerpt.at(LAG, _newest_lags(excerpt), names_of(Partition)).where_known("topic")


def _newest_lags(excerpt: Excerpt) -> dict[str, list[int]]:
    of_clusters = aggregates.clusters(excerpt.ledger())
    _announce(excerpt, of_clusters)
    return _newest_with_lag(objects.clusters(of_clusters))


def _newest_with_lag(clusters: Iterable[Cluster]) -> dict[str, list[int]]:
    return {c.cluster: [c.lag_snapshot_id] for c in clusters if c.lag_snapshot_id is not None}


def _announce(excerpt: Excerpt, of_clusters: pa.Table) -> None:
    """Says how many rows are read next."""
    rows = of_clusters.select(["snapshots", "groups", "most_rows"]).to_pylist()
    excerpt.lake.expect_rows(sum(r["most_rows"] * min(r["snapshots"], _most_instants(r["groups"] or 0)) for r in rows))


def _most_rows(of_clusters: pa.Table) -> dict[str, int]:
    """How many bronze rows the largest snapshot of each cluster has."""
    return {row["cluster"]: row["most_rows"] for row in of_clusters.select(["cluster", "most_rows"]).to_pylist()}


def _most_instants(groups: int) -> int:
    """How many snapshots fit onto the page if there are this many groups."""
    return min(INSTANTS_CHARTED, max(CELLS // max(groups, 1), 1))


def _thinned(instants: Sequence[Instant], most: int) -> tuple[Instant, ...]:
    """At most `most` instants of each cluster, always with the RECENT ones; thinned as in `aggregates.instants`."""
    limit = max(most - RECENT, 1)
    kept: list[Instant] = []
    for _, of_cluster in groupby(instants, attrgetter("cluster")):
        times = list(of_cluster)
        total = len(times)
        kept += [
            time
            for nth, time in enumerate(times, 1)
            if total <= most or nth * limit % total < limit or nth > total - RECENT
        ]
    return tuple(kept)


def _when_read(instants: Iterable[Instant], points: Iterable[Point]) -> tuple[Instant, ...]:
    """The instants with the time at which the last of their groups was read."""
    read: dict[tuple[str, int], int] = {}
    for point in points:
        of = point.cluster, point.snapshot_id
        if point.captured_ms is not None:
            read[of] = max(point.captured_ms, read.get(of, point.captured_ms))
    return tuple(replace(i, captured_ms=read.get((i.cluster, i.snapshot_id))) for i in instants)
