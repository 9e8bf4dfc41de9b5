"""The data for the page's script, as JSON values: series by snapshot, ladders, gauges, distributions, charts."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from itertools import groupby, pairwise
from typing import Any

from pipeline.common.quantities import duration, size
from pipeline.report.charts.forecast_curve import Ahead, ahead
from pipeline.report.charts.heat import heat_of
from pipeline.report.charts.objectives import targets
from pipeline.report.charts.timeline import counts, events
from pipeline.report.charts.vega import charts, colour
from pipeline.report.model.details import Gauge, Partition
from pipeline.report.model.report import Group, Instant, Point, Report
from pipeline.report.text.names import owner_in_words, visible, visible_name
from pipeline.report.text.outlook import forecast_of, objectives_in_words, objectives_of, outlook, rates, why_no_bytes

_UNITS = {
    "records": "consumer_lag",
    "bytes": "consumer_lag_bytes",
    "ms": "consumer_lag_ms",
    "age": "consumer_age_ms",
}
_LACKING = {"bytes": "bytes_unknown", "ms": "ms_unknown", "age": "age_unknown"}
_SHOWN_ABOVE = ("cluster", "snapshot_id", "group_id")


def payload(report: Report, groups: Sequence[Group]) -> dict[str, Any] | None:
    """All data that is drawn; None if there is no snapshot with lag. `groups` are in the order of the page's table.

    A series has a value for each instant of its cluster; None if it is unknown, or if the group did not exist. An
    instant is (snapshot_id, segment, when it was read). `picked` is the number of the group that the page shows first.
    """
    if not report.instants:
        return None
    times: dict[str, list[Instant]] = defaultdict(list)
    for instant in sorted(report.instants, key=lambda i: i.snapshot_id):
        times[instant.cluster].append(instant)
    points: dict[tuple[str, str], dict[int, Point]] = defaultdict(dict)
    for point in report.points:
        points[point.cluster, point.group_id][point.snapshot_id] = point
    partitions: dict[tuple[str, str], list[Partition]] = defaultdict(list)
    for partition in report.partitions:
        partitions[partition.cluster, partition.group_id].append(partition)
    charted = {g.key: number for number, g in enumerate(report.charted)}
    return {
        "instants": {
            visible(c): [(i.snapshot_id, i.segment, i.read_ms) for i in of_cluster] for c, of_cluster in times.items()
        },
        "groups": [
            {
                "name": visible_name(g.group_id),
                "cluster": visible(g.cluster),
                "colour": colour(charted[g.key]) if g.key in charted else None,
                **_series(times[g.cluster], points[g.key], has_rates=g.key in charted),
                **(_history(report, g, times[g.cluster], points[g.key]) if g.key in charted else {}),
                "partitions": [_partition(p) for p in partitions[g.key]],
                "left_out": g.partitions - len(partitions[g.key]),
            }
            for g in groups
        ],
        "picked": 0 if len(groups) == 1 else None,
        "all_groups": [_all_groups(report, cluster, of_cluster) for cluster, of_cluster in times.items()],
        "clients": list(_clients(report.gauges)),
        "brokers": [
            {**asdict(d), "cluster": visible(d.cluster), "broker": str(d.broker)} for d in report.distributions
        ],
        "charts": charts(),
    }


def _history(report: Report, group: Group, instants: Sequence[Instant], points: dict[int, Point]) -> dict[str, Any]:
    """What happened to a group: `events` are (snapshot_id, level, sentence); `spans` its findings, with when they end.

    A span is (first_seen, end, severity, kind). A finding that is open ends with its newest snapshot. `rates` are
    (over which time, written, committed), as text; `ahead` are the points of the forecast. `changes` are those of
    `timeline.counts`, `targets` the objectives, `heat` the partitions over time.
    """
    found = report.findings_of(*group.key)
    forecast = forecast_of(report, group)
    return {
        "events": [(e.at_ms, e.level, visible(e.sentence)) for e in events(report, *group.key)],
        "spans": [
            (f.first_seen_ms, f.last_seen_ms if f.resolved_ms is None else f.resolved_ms, f.severity, f.kind)
            for f in found
        ],
        "owner": _visible(owner_in_words(group.owner, group.tier)),
        "channel": _visible(group.channel),
        "outlook": "; ".join(outlook(forecast)) or None,
        "rates": rates(forecast),
        "why_no_bytes": why_no_bytes(forecast),
        "ahead": [_short(point) for point in ahead(forecast, group, instants)],
        "changes": counts(c for c in report.changes if (c.cluster, c.group_id) == group.key),
        "targets": targets(report, group, instants),
        "heat": heat_of(report, group, points),
        "objectives": [visible(text) for text in objectives_in_words(objectives_of(report, group))],
    }


def _visible(text: str | None) -> str | None:
    return None if text is None else visible(text)


def _all_groups(report: Report, cluster: str, instants: Sequence[Instant]) -> dict[str, Any]:
    """All groups of a cluster together: their values by instant, and of how many groups a part is not known."""
    points = {p.snapshot_id: p for p in report.cluster_points if p.cluster == cluster}
    found = [points.get(i.snapshot_id) for i in instants]
    units = {"records": "groups_unknown", "bytes": "bytes_unknown", "age": "age_unknown"}
    return {
        "cluster": visible(cluster),
        "groups": [p and p.groups for p in found],
        **{unit: _values(found, _UNITS[unit]) for unit in units},
        "unknown": {unit: _values(found, name) for unit, name in units.items()},
    }


def _values(points: Sequence[Any], name: str) -> list[Any]:
    """The value of a field at each point; None for a point that is missing."""
    return [None if point is None else getattr(point, name) for point in points]


def _short(point: Ahead) -> tuple[float, ...]:
    """A point of a forecast with few digits."""
    return point.t_ms, *(float(f"{value:.6g}") for value in point[1:])


def _series(instants: Sequence[Instant], points: dict[int, Point], *, has_rates: bool) -> dict[str, Any]:
    found = [points.get(i.snapshot_id) for i in instants]
    series: dict[str, Any] = {unit: _values(found, name) for unit, name in _UNITS.items()}
    series["unknown"] = {unit: _all_unknown(found, unit) for unit in _UNITS}
    if has_rates:
        series["written"] = _rates(found, "ends_ms", "log_ends")
        series["committed"] = _rates(found, "commits_ms", "commits")
    return series


def _all_unknown(points: Sequence[Point | None], unit: str) -> dict[int, int]:
    """How many partitions are missing in the values in a unit, by the place of the point; only where some are."""
    return {n: lacking for n, point in enumerate(points) if point and (lacking := _unknown(point, unit))}


def _rates(points: Sequence[Point | None], at: str, name: str) -> list[float | None]:
    return [None, *(_per_s(before, after, at, name) for before, after in pairwise(points))]


def _unknown(point: Point, unit: str) -> int:
    """How many partitions are missing in a value in the given unit."""
    return point.partitions_unknown + (getattr(point, _LACKING[unit]) if unit in _LACKING else 0)


def _per_s(before: Point | None, after: Point | None, at: str, name: str) -> float | None:
    if before is None or after is None or before.partitions != after.partitions:
        return None
    first, last = ((getattr(point, at), getattr(point, name)) for point in (before, after))
    passed_ms = last[0] - first[0]
    if first[1] is None or last[1] is None or passed_ms <= 0:
        return None
    return float(f"{(last[1] - first[1]) * 1000 / passed_ms:.4g}")


def _partition(partition: Partition) -> dict[str, Any]:
    """The known values of a partition; unknown ones have no key. `in_units` is its lag in other units, as text."""
    known = {name: value for name, value in asdict(partition).items() if value is not None}
    for name in _SHOWN_ABOVE:
        del known[name]
    in_units = []
    if partition.consumer_lag_bytes is not None:
        in_units.append(size(partition.consumer_lag_bytes, partition.bytes_error))
    if partition.consumer_lag_ms is not None:
        in_units.append(duration(partition.consumer_lag_ms, partition.time_error_ms))
    if in_units:
        known["in_units"] = " · ".join(in_units)
    return {name: visible(value) if isinstance(value, str) else value for name, value in known.items()}


def _clients(gauges: Iterable[Gauge]) -> Iterable[dict[str, Any]]:
    """Clients with their series, sorted by how often, and then by how much, their gauge was misleading.

    Processes that share a client.id have a series each, and their instance beside the name.
    """

    def client(gauge: Gauge) -> tuple[str, str, str, str]:
        return gauge.cluster, gauge.group_id or "", gauge.client_id, gauge.instance or ""

    found = [list(of) for _, of in groupby(sorted(gauges, key=lambda g: (client(g), g.snapshot_id)), client)]
    found.sort(key=lambda of: (-sum(g.verdict in ("blind", "stale") for g in of), -_hidden(of)))
    named = Counter(client(of[0])[:3] for of in found)
    for of_client in found:
        first = of_client[0]
        is_shared = named[client(first)[:3]] > 1 and first.instance is not None
        yield {
            "cluster": visible(first.cluster),
            "group": None if first.group_id is None else visible_name(first.group_id),
            "client": visible(f"{first.client_id} at {first.instance}" if is_shared else first.client_id),
            "rows": [
                (g.snapshot_id, g.max_lag, g.max_fetcher_lag, g.max_consumer_lag, g.max_divergence, g.verdict)
                for g in of_client
            ],
        }


def _hidden(gauges: Iterable[Gauge]) -> int:
    return max((g.max_consumer_lag or 0) - (g.max_lag or 0) for g in gauges)
