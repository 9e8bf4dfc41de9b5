"""From frames to the values on the page: the one place that brings rows to the driver, each result bounded."""

from __future__ import annotations

import json
import operator
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from pipeline.analytics.tally import UPPER_BOUNDS
from pipeline.few_rows import expect_rows
from pipeline.report import data, details
from pipeline.report.frames import Frames
from pipeline.report.model import (
    Cluster,
    Danger,
    Distribution,
    Finding,
    Gauge,
    Group,
    Instant,
    Loss,
    Partition,
    Point,
    Problem,
    Report,
    Snapshot,
    Totals,
)
from pipeline.report.trends import FEWEST, RECENT

SNAPSHOTS_LISTED = 100
GROUPS_LISTED = 1_000
GROUPS_CHARTED = 50
PARTITIONS_LISTED = 8
CLIENTS_CHARTED = 20
FINDINGS_LISTED = 200
INSTANTS_CHARTED = 300
DELETED_WITHIN_MS = 7 * 24 * 3_600_000
"""A later loss is no danger yet."""
CELLS = 35_000
"""Groups times instants that fit onto a page; of many groups fewer instants are shown."""


def collect(frames: Frames, generated_at: datetime, title: str) -> Report:
    """The report on everything that the frames hold."""
    ledger = _ledger(frames)
    clusters = _clusters(ledger)
    if not clusters:
        return Report(title, generated_at, selection=frames.selection)
    newest = _newest_with_lag(clusters)
    shown = data.at(frames.lag, newest)
    groups = data.groups(shown)
    with ThreadPoolExecutor() as pool:  # each is short, but most of it is planning, which one core does
        listed = pool.submit(_snapshots, frames.snapshots)
        totals = pool.submit(_totals, groups)
        distributions = pool.submit(_distributions, frames, newest)
        refused = pool.submit(_refused, frames)
        counted = pool.submit(_findings_counted, frames)
        findings = _findings(frames)
        worst = _groups(groups, {f.group_id for f in findings if f.is_open and f.group_id is not None})
        charted = worst[:GROUPS_CHARTED]
        partitions = pool.submit(_partitions, shown, charted)
        instants = _instants(ledger, _most_instants(len(worst)))
        dangers = pool.submit(_dangers, frames, instants)
        wanted: dict[str, list[int]] = defaultdict(list)
        for instant in instants:
            wanted[instant.cluster].append(instant.snapshot_id)
        gauges = pool.submit(_gauges, frames, wanted)
        drawn = data.at(frames.lag, wanted)
        losses = pool.submit(_losses, drawn, newest)
        points = _points(drawn, worst)
        return Report(
            title,
            generated_at,
            clusters,
            snapshots=listed.result(),
            groups=worst,
            totals=totals.result(),
            instants=_when_read(instants, points),
            points=points,
            charted=charted,
            partitions=partitions.result(),
            dangers=dangers.result(),
            losses=losses.result(),
            findings=findings,
            findings_open=counted.result()[0],
            findings_total=counted.result()[1],
            gauges=gauges.result(),
            distributions=distributions.result(),
            refused=refused.result(),
            selection=frames.selection,
        )


def collect_groups(frames: Frames) -> tuple[Group, ...]:
    """The groups at each cluster's newest snapshot with lag, worst first."""
    return _groups(data.groups(_newest_lag(frames)))


def collect_partitions(frames: Frames, limit: int) -> tuple[list[Partition], int]:
    """The worst partitions at each cluster's newest snapshot with lag, and how many there are in all."""
    rows = details.worst_partitions(_newest_lag(frames))
    return [Partition(**r) for r in _rows(rows.limit(limit))], rows.count()


def all_partitions(frames: Frames) -> Iterator[Partition]:
    """All of them, worst first, a part of them at a time."""
    return (Partition(**row.asDict()) for row in details.worst_partitions(_newest_lag(frames)).toLocalIterator())


def _newest_lag(frames: Frames) -> DataFrame:
    return data.at(frames.lag, _newest_with_lag(_clusters(_ledger(frames))))


def _ledger(frames: Frames) -> DataFrame:
    return data.ledger(
        frames.snapshots, frames.lag if frames.computed is None else frames.computed.where("job = 'lag'")
    )


def _newest_with_lag(clusters: tuple[Cluster, ...]) -> dict[str, list[int]]:
    return {c.cluster: [c.lag_snapshot_id] for c in clusters if c.lag_snapshot_id is not None}


def _rows(frame: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict() for row in frame.collect()]


def _clusters(ledger: DataFrame) -> tuple[Cluster, ...]:
    rows = _rows(data.clusters(ledger))
    most_rows = [row.pop("most_rows") for row in rows]
    charted = [min(row["snapshots"], _most_instants(row["groups"] or 0)) for row in rows]
    expect_rows(ledger.sparkSession, sum(map(operator.mul, most_rows, charted)))
    return tuple(Cluster(**{**r, "expected": r["expected"] or {}}) for r in rows)


def _most_instants(groups: int) -> int:
    """How many snapshots of so many groups fit onto the page."""
    return min(INSTANTS_CHARTED, max(CELLS // max(groups, 1), 1))


def _instants(ledger: DataFrame, most: int) -> tuple[Instant, ...]:
    limit = max(most - RECENT, 1)
    return tuple(Instant(**r) for r in _rows(data.instants(ledger, limit, newest=RECENT)))


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


def _groups(groups: DataFrame, found: Collection[str] = ()) -> tuple[Group, ...]:
    return tuple(Group(**r) for r in _rows(data.worst_first(groups, GROUPS_LISTED, found)))


def _points(lag: DataFrame, groups: tuple[Group, ...]) -> tuple[Point, ...]:
    if not groups:
        return ()
    return tuple(Point(**r) for r in _rows(data.history(lag, {g.group_id for g in groups})))


def _when_read(instants: Iterable[Instant], points: Iterable[Point]) -> tuple[Instant, ...]:
    """The instants with the time at which the last of their groups was read."""
    read: dict[tuple[str, int], int] = {}
    for point in points:
        of = point.cluster, point.snapshot_id
        if point.captured_ms is not None:
            read[of] = max(point.captured_ms, read.get(of, point.captured_ms))
    return tuple(replace(i, captured_ms=read.get((i.cluster, i.snapshot_id))) for i in instants)


def _losses(lag: DataFrame, newest: Mapping[str, Collection[int]]) -> tuple[Loss, ...]:
    shown = {cluster: max(ids) for cluster, ids in newest.items()}
    return tuple(Loss(**r) for r in _rows(data.losses(lag, shown, GROUPS_LISTED)))


def _partitions(lag: DataFrame, groups: tuple[Group, ...]) -> tuple[Partition, ...]:
    rows = _rows(details.partitions(lag, {g.group_id for g in groups}, PARTITIONS_LISTED))
    return tuple(Partition(**r) for r in rows)


def _findings(frames: Frames) -> tuple[Finding, ...]:
    if frames.findings is None:
        return ()
    rows = _rows(details.findings(frames.findings, FINDINGS_LISTED))
    return tuple(
        Finding(**{**r, "partitions": tuple(r["partitions"] or ()), "evidence": json.loads(r["evidence"] or "{}")})
        for r in rows
    )


def _findings_counted(frames: Frames) -> tuple[int, int]:
    """How many findings are open, and how many there are."""
    if frames.findings is None:
        return 0, 0
    is_open = F.count_if(F.col("resolved_at").isNull())
    row = frames.findings.agg(is_open.alias("open"), F.count("*").alias("total")).collect()[0]
    return row["open"], row["total"]


def _dangers(frames: Frames, instants: tuple[Instant, ...]) -> tuple[Danger, ...]:
    """Of each cluster's newest snapshot, and the first of the recent ones without a gap in between."""
    ends: dict[str, list[int]] = {}
    for cluster in {i.cluster for i in instants}:
        times = [i for i in instants if i.cluster == cluster][-RECENT:]
        alike = [i.snapshot_id for i in times if i.segment == times[-1].segment]
        if len(alike) >= FEWEST:
            ends[cluster] = [alike[0], alike[-1]]
    rows = details.dangers(data.at(frames.lag, ends), DELETED_WITHIN_MS)
    return tuple(Danger(**r) for r in _rows(rows))


def _gauges(frames: Frames, wanted: Mapping[str, Collection[int]]) -> tuple[Gauge, ...]:
    if frames.divergence is None:
        return ()
    return tuple(Gauge(**r) for r in _rows(details.gauges(data.at(frames.divergence, wanted), CLIENTS_CHARTED)))


def _distributions(frames: Frames, newest: Mapping[str, Collection[int]]) -> tuple[Distribution, ...]:
    if frames.histograms is None:
        return ()
    windows = frames.histograms.withColumn("snapshot_id", F.unix_millis("window_start"))
    return tuple(map(_distribution, _rows(details.distributions(data.at(windows, newest)))))


def _distribution(row: dict[str, Any]) -> Distribution:
    """Each bucket at its upper bound, but for the last, whose greatest value is known."""
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


def _refused(frames: Frames) -> int:
    """Rows in quarantine."""
    return 0 if frames.quarantine is None else frames.quarantine.count()
