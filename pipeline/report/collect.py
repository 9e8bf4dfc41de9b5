"""From frames to the values on the page: the one place that brings rows to the driver, each result bounded."""

from __future__ import annotations

from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any

from pyspark.sql import DataFrame, Row

from pipeline.report import data
from pipeline.report.model import Cluster, Group, Instant, Point, Problem, Report, Snapshot, Totals

SNAPSHOTS_LISTED = 100
GROUPS_LISTED = 1_000
GROUPS_CHARTED = 50
INSTANTS_CHARTED = 300


def collect(
    snapshots: DataFrame,
    lag: DataFrame,
    computed: DataFrame | None,
    generated_at: datetime,
    title: str,
) -> Report:
    """The report on everything that the frames hold."""
    ledger = _ledger(snapshots, lag, computed)
    clusters = _clusters(ledger)
    if not clusters:
        return Report(title, generated_at)
    groups = data.groups(data.at(lag, _newest_with_lag(clusters)))
    with ThreadPoolExecutor() as pool:  # each is short, but most of it is planning, which one core does
        instants = pool.submit(_instants, ledger)
        listed = pool.submit(_snapshots, snapshots)
        totals = pool.submit(_totals, groups)
        worst = _groups(groups)
        charted = worst[:GROUPS_CHARTED]
        return Report(
            title,
            generated_at,
            clusters,
            snapshots=listed.result(),
            groups=worst,
            totals=totals.result(),
            instants=instants.result(),
            points=_points(lag, instants.result(), charted),
            charted=charted,
        )


def collect_groups(snapshots: DataFrame, lag: DataFrame, computed: DataFrame | None) -> tuple[Group, ...]:
    """The groups at each cluster's newest snapshot with lag, worst first."""
    clusters = _clusters(_ledger(snapshots, lag, computed))
    return _groups(data.groups(data.at(lag, _newest_with_lag(clusters))))


def _ledger(snapshots: DataFrame, lag: DataFrame, computed: DataFrame | None) -> DataFrame:
    return data.ledger(snapshots, lag if computed is None else computed.where("job = 'lag'"))


def _newest_with_lag(clusters: tuple[Cluster, ...]) -> dict[str, list[int]]:
    return {c.cluster: [c.lag_snapshot_id] for c in clusters if c.lag_snapshot_id is not None}


def _rows(frame: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict() for row in frame.collect()]


def _clusters(ledger: DataFrame) -> tuple[Cluster, ...]:
    rows = _rows(data.clusters(ledger))
    return tuple(Cluster(**{**r, "expected": r["expected"] or {}}) for r in rows)


def _instants(ledger: DataFrame) -> tuple[Instant, ...]:
    return tuple(Instant(**r) for r in _rows(data.instants(ledger, INSTANTS_CHARTED)))


def _totals(groups: DataFrame) -> dict[str, Totals]:
    return {r["cluster"]: Totals(**r) for r in _rows(data.totals(groups))}


def _snapshots(snapshots: DataFrame) -> tuple[Snapshot, ...]:
    def snapshot(row: dict[str, Any]) -> Snapshot:
        problems: list[Row] = row["errors"] or []
        return Snapshot(
            **{
                **row,
                "expected": row["expected"] or {},
                "warnings": row["warnings"] or {},
                "errors": tuple(Problem(**p.asDict()) for p in problems),
            }
        )

    return tuple(map(snapshot, _rows(data.newest_snapshots(snapshots, SNAPSHOTS_LISTED))))


def _groups(groups: DataFrame) -> tuple[Group, ...]:
    return tuple(Group(**r) for r in _rows(data.worst_first(groups, GROUPS_LISTED)))


def _points(lag: DataFrame, instants: tuple[Instant, ...], charted: tuple[Group, ...]) -> tuple[Point, ...]:
    if not charted:
        return ()
    wanted: dict[str, list[int]] = defaultdict(list)
    for instant in instants:
        wanted[instant.cluster].append(instant.snapshot_id)
    rows = data.history(data.at(lag, wanted), {g.group_id for g in charted})
    return tuple(Point(**r) for r in _rows(rows))
