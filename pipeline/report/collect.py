"""Turns DataFrames into the values on the page. Only this module collects rows, and each result is bounded."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial, reduce
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipeline.lake import of_each
from pipeline.report import data, details, heat, heat_rows, values
from pipeline.report.details_model import VICTIMS_NAMED, Finding, Forecast, Gauge, Objective, Partition, Verdict
from pipeline.report.frames import Frames
from pipeline.report.ledger_model import Cluster
from pipeline.report.model import ClusterPoint, Group, Instant, Point, Report, Totals
from pipeline.report.timeline import CHANGES_LISTED

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

_OVER_TIME: dict[str, type[Any]] = {
    "cluster_points": ClusterPoint,
    "partitions": Partition,
    "forecasts": Forecast,
    "objectives": Objective,
    "gauges": Gauge,
    "verdicts": Verdict,
}
"""Parts of the report whose rows, in the third query, have the columns of a class."""
_MADE: dict[str, Callable[[dict[str, Any]], Any]] = {
    "changes": values.change,
    "names": values.names,
    "partition_series": values.partition_series,
    "other_partitions": values.other_partitions,
    "missed": values.missed,
}
"""Other parts of it, with the function that makes them from a row."""


def collect(frames: Frames, generated_at: datetime, title: str) -> Report:
    """The report on everything in the frames, by three queries, each of which needs the results of the one before.

    A fourth query reads `lag` for snapshots without rows in `group_status`, which an older laglake has computed.
    """
    ledger = _ledger(frames)
    first = _of_ledger(frames, ledger)
    clusters = _clusters(first["clusters"], frames)
    findings = values.with_silences(map(values.finding, first["findings"]), frames.silences, frames.until(generated_at))
    incident = _incident(findings, frames)
    if not clusters:
        return Report(title, generated_at, selection=frames.selection, incident=incident)
    # The groups of an incident are shown as they were then; by now they may be deleted.
    newest = {incident.cluster: [incident.last_seen_ms]} if incident else _newest_with_lag(clusters)
    second = _at_newest(frames, ledger, newest, findings)
    findings = values.with_now(findings, second["now"])
    worst = tuple(Group(**r) for r in second["groups"])
    instants = _thinned([Instant(**r) for r in second["instants"]], _most_instants(len(worst)))
    maps = heat.plan(worst[:GROUPS_CHARTED], instants, _most_rows(first), frames.selection)
    third = _with_older(frames, worst, instants, _over_time(frames, newest, worst, instants, maps))
    points = tuple(Point(**r) for r in third["points"])
    counted = (first["counted"] or [{"open": 0, "total": 0}])[0]
    return Report(
        title,
        generated_at,
        clusters,
        snapshots=tuple(map(values.snapshot, first["snapshots"])),
        groups=worst,
        totals={r["cluster"]: Totals(**r) for r in second["totals"]},
        instants=_when_read(instants, points),
        points=points,
        charted=worst[:GROUPS_CHARTED],
        findings=findings,
        findings_open=counted["open"],
        findings_total=counted["total"],
        distributions=tuple(map(values.distribution, second["distributions"])),
        refused=sum(r["rows"] for r in first["refused"]),
        selection=frames.selection,
        days=frames.days,
        incident=_incident(findings, frames),
        is_recorded=False,
        **{name: tuple(row(**r) for r in third[name]) for name, row in _OVER_TIME.items()},
        **{name: tuple(map(made, third[name])) for name, made in _MADE.items()},
    )


def _incident(findings: Iterable[Finding], frames: Frames) -> Finding | None:
    """The finding that the report is about, if it is about one."""
    return next((f for f in findings if f.finding_id == frames.selection.finding_id), None)


def _of_ledger(frames: Frames, ledger: DataFrame) -> dict[str, list[dict[str, Any]]]:
    """The first query: clusters and their snapshots, findings, and the number of rows in quarantine."""
    return _asked(
        clusters=data.clusters(ledger),
        snapshots=data.newest_snapshots(frames.snapshots, SNAPSHOTS_LISTED),
        findings=frames.findings and details.findings(frames.findings, FINDINGS_LISTED, frames.selection.finding_id),
        counted=frames.findings and details.findings_counted(frames.findings),
        refused=frames.quarantine and frames.quarantine.agg(F.count("*").alias("rows")),
    )


def _at_newest(
    frames: Frames, ledger: DataFrame, newest: dict[str, list[int]], findings: Sequence[Finding]
) -> dict[str, list[dict[str, Any]]]:
    """The second query: groups, findings and distributions at the newest snapshots, and the instants of the charts."""
    found = {group_id for f in findings if f.is_open for group_id in f.groups()[:VICTIMS_NAMED]}
    lasting = {f.finding_id for f in findings if f.is_open}
    history = frames.at("finding_history", newest) if frames.finding_history and lasting else None

    def asked(groups: DataFrame) -> dict[str, list[dict[str, Any]]]:
        return _asked(
            groups=data.worst_first(groups, GROUPS_LISTED, found),
            totals=data.totals(groups),
            now=history and details.findings_now(history, lasting),
            distributions=frames.histograms and details.distributions(frames.at("histograms", newest)),
            instants=data.instants(ledger, INSTANTS_CHARTED - RECENT, newest=RECENT),
        )

    answer = asked(data.as_groups(frames.groups_at(newest)))
    have = {row["cluster"] for row in answer["totals"]}
    return answer if have >= newest.keys() or not frames.has_groups else asked(_groups(frames, newest, have))


def _groups(frames: Frames, newest: dict[str, list[int]], have: Collection[str]) -> DataFrame:
    """The groups at the newest snapshots: from `group_status` of the clusters that it has, from `lag` of the others."""
    kept = {cluster: ids for cluster, ids in newest.items() if cluster in have}
    others = {cluster: ids for cluster, ids in newest.items() if cluster not in have}
    return data.as_groups(frames.groups_at(kept).unionByName(frames.groups_from_lag(others)))


def _over_time(
    frames: Frames, newest: dict[str, list[int]], worst: Sequence[Group], instants: Sequence[Instant], maps: heat.Plan
) -> dict[str, list[dict[str, Any]]]:
    """The third query: the worst groups at the instants that are shown, and all else that depends on both."""
    drawn = _by_cluster((i.cluster, i.snapshot_id) for i in instants)
    groups = frames.groups_at(drawn)
    charted = {g.group_id for g in worst[:GROUPS_CHARTED]}
    lag = frames.at("lag", newest)
    over_time = frames.at("lag", maps.columns, heat_rows.LAG_READ) if maps.groups else None
    slo = frames.slo and frames.at("slo", {c: {*ids, *drawn.get(c, ())} for c, ids in newest.items()})
    return _asked(
        points=data.as_points(groups, {g.group_id for g in worst}) if worst else None,
        cluster_points=data.all_groups(groups),
        partitions=details.partitions(lag, charted, PARTITIONS_LISTED),
        changes=frames.changes and details.changes(frames.changes, charted, CHANGES_LISTED),
        forecasts=frames.forecasts and details.forecasts(frames.at("forecasts", newest), {g.group_id for g in worst}),
        objectives=slo and details.objectives(slo.where(of_each(newest)), OBJECTIVES_LISTED),
        missed=slo and heat_rows.missed(slo, charted),
        partition_series=over_time and heat_rows.partitions(over_time, maps.groups, heat.PARTITIONS),
        other_partitions=over_time and heat_rows.others(over_time, maps.groups, heat.PARTITIONS)
        if maps.has_others
        else None,
        names=details.names(lag, {g.group_id for g in worst}, NAMES_SEARCHED),
        gauges=frames.divergence and details.gauges(frames.at("divergence", drawn), CLIENTS_CHARTED),
        verdicts=frames.divergence and details.verdicts(frames.at("divergence", newest), {g.group_id for g in worst}),
    )


def _with_older(
    frames: Frames, worst: Sequence[Group], instants: Sequence[Instant], found: dict[str, list[dict[str, Any]]]
) -> dict[str, list[dict[str, Any]]]:
    """The fourth query, if it is needed: adds the groups at instants that `found` does not have from `group_status`."""
    have = {(row["cluster"], row["snapshot_id"]) for row in found["cluster_points"]}
    missing = {(i.cluster, i.snapshot_id) for i in instants} - have if frames.has_groups else set()
    if missing:
        groups = frames.groups_from_lag(_by_cluster(missing))
        points = data.as_points(groups, {g.group_id for g in worst})
        for name, rows in _asked(points=points, cluster_points=data.all_groups(groups)).items():
            found[name] += rows
    found["cluster_points"].sort(key=itemgetter("cluster", "snapshot_id"))
    return found


def _by_cluster(snapshots: Iterable[tuple[str, int]]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = defaultdict(list)
    for cluster, snapshot_id in sorted(snapshots):
        found[cluster].append(snapshot_id)
    return found


def _asked(**frames: DataFrame | None) -> dict[str, list[dict[str, Any]]]:
    """The rows of several frames, in their order, by one query that has a column for each. None gives no rows."""
    nth = F.monotonically_increasing_id().alias("nth")  # because a union keeps no order
    parts = [frame.select(nth, F.struct("*").alias(name)) for name, frame in frames.items() if frame is not None]
    rows = reduce(partial(DataFrame.unionByName, allowMissingColumns=True), parts).collect()
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in frames}
    for row in sorted(rows, key=itemgetter("nth")):
        for name in frames:
            if name in row and row[name] is not None:
                found[name].append(row[name].asDict())
    return found


def collect_groups(frames: Frames) -> tuple[Group, ...]:
    """The groups at each cluster's newest snapshot with lag, worst first."""
    newest = _newest_lags(frames)
    found = _rows(data.worst_first(data.as_groups(frames.groups_at(newest)), GROUPS_LISTED))
    have = {row["cluster"] for row in found}
    if frames.has_groups and len(found) < GROUPS_LISTED and not have >= newest.keys():
        found = _rows(data.worst_first(_groups(frames, newest, have), GROUPS_LISTED))
    return tuple(Group(**r) for r in found)


def collect_partitions(frames: Frames, limit: int) -> tuple[list[Partition], int]:
    """The worst partitions at each cluster's newest snapshot with lag, and how many there are in all."""
    rows = details.worst_partitions(_newest_lag(frames))
    return [Partition(**r) for r in _rows(rows.limit(limit))], rows.count()


def all_partitions(frames: Frames) -> Iterator[Partition]:
    """All partitions at each cluster's newest snapshot with lag, worst first. They are fetched part by part."""
    return (Partition(**row.asDict()) for row in details.worst_partitions(_newest_lag(frames)).toLocalIterator())


def _newest_lag(frames: Frames) -> DataFrame:
    return frames.at("lag", _newest_lags(frames))


def _newest_lags(frames: Frames) -> dict[str, list[int]]:
    ledger = _ledger(frames)
    return _newest_with_lag(_clusters(_rows(data.clusters(ledger)), frames))


def _ledger(frames: Frames) -> DataFrame:
    return data.ledger(
        frames.snapshots, frames.lag if frames.computed is None else frames.computed.where("job = 'lag'")
    )


def _newest_with_lag(clusters: tuple[Cluster, ...]) -> dict[str, list[int]]:
    return {c.cluster: [c.lag_snapshot_id] for c in clusters if c.lag_snapshot_id is not None}


def _rows(frame: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict() for row in frame.collect()]


def _clusters(rows: Sequence[dict[str, Any]], frames: Frames) -> tuple[Cluster, ...]:
    charted = [min(row["snapshots"], _most_instants(row["groups"] or 0)) for row in rows]
    if frames.lake:
        frames.lake.expect_rows(sum(row["most_rows"] * of_row for row, of_row in zip(rows, charted, strict=True)))
    return tuple(values.cluster({name: row[name] for name in row if name != "most_rows"}) for row in rows)


def _most_rows(first: dict[str, list[dict[str, Any]]]) -> dict[str, int]:
    """How many bronze rows the largest snapshot of each cluster has."""
    return {row["cluster"]: row["most_rows"] for row in first["clusters"]}


def _most_instants(groups: int) -> int:
    """How many snapshots fit onto the page if there are this many groups."""
    return min(INSTANTS_CHARTED, max(CELLS // max(groups, 1), 1))


def _thinned(instants: Sequence[Instant], most: int) -> tuple[Instant, ...]:
    """At most `most` instants of each cluster, always with the RECENT ones; thinned as in `data.instants`."""
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
