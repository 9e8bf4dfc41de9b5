"""Writes `slo` for the snapshots that were just computed."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import timedelta
from functools import partial

from pipeline.analytics.findings.budget_burn import BUDGETS, budget_burn
from pipeline.analytics.findings.problem import PROBLEMS
from pipeline.analytics.keys import GROUP, GROUP_AT
from pipeline.analytics.slo.budgets import SHORT_MS, SLO_PARTS, Timeline, slo_of_groups
from pipeline.common.epoch import utc_date
from pipeline.common.rows import bucketed
from pipeline.config.slo import SloConfig
from pipeline.derive.backlog import Backlog
from pipeline.derive.batch import Batch
from pipeline.derive.lag import Readers
from pipeline.lake import Lake, of_cluster, of_dates, one_of
from pipeline.tables import SLO

SPEAKS_FOR = 3
"""A snapshot speaks for this many intervals of the schedule at most. The rest of a longer gap is unknown."""


def keep_slo(batch: Batch, readers: Readers) -> None:
    """Writes `slo` if there are objectives, and finds the error budgets that are used too fast."""
    lake, cluster, backlog, slos = batch.lake, batch.cluster, batch.backlog, batch.settings.slo
    if not slos:
        return
    known = lake.rows(SLO, continued_rows(cluster, backlog, slos), *SLO_PARTS["known"].names)
    compute = partial(
        slo_of_groups,
        slos=slos,
        markers=batch.settings.status.markers,
        timeline=timeline_of(backlog, _late(lake, cluster, backlog)),
    )
    parts = {"lag": readers.lag, "known": known}
    rows = bucketed(parts, SLO_PARTS, GROUP, compute, SLO.schema, backlog.buckets)
    most = len(slos) * sum(s.groups for s in backlog.batch)
    lake.replace(SLO, rows, batch.where, most)
    # Read again, because Spark would compute many rows a second time.
    written = batch.rows(SLO, batch.snapshot_ids, *BUDGETS.names)
    batch.problems.append(written.grouped(GROUP_AT, budget_burn, PROBLEMS))


def continued_rows(cluster: str, backlog: Backlog, slos: Mapping[str, SloConfig]) -> str:
    """The predicate for the rows of SLO that a batch continues, and for those at which its windows may begin.

    Each row says where its own windows begin. So only rows are read at which a window has begun since the snapshots
    before the batch: for each window as many snapshots as the batch has, however long the window is.
    """
    before, ids = backlog.up_to_complete, [s.snapshot_id for s in backlog.batch]
    if not before:
        return "false"
    windows = {*SHORT_MS.values(), *(slo.window_ms for slo in slos.values())}
    spans = [(min(before) - ms, min(ids[-1] - ms, ids[0] - 1)) for ms in sorted(windows)]
    dates = {utc_date(i) for i in before}
    for after, until in spans:
        days = (utc_date(until) - utc_date(after)).days
        dates |= {utc_date(after) + timedelta(days=number) for number in range(days + 1)}
    ranges = (f"(snapshot_id > {after} AND snapshot_id <= {until})" for after, until in spans)
    return f"{of_dates(cluster, dates)} AND ({' OR '.join([one_of('snapshot_id', before), *ranges])})"


def timeline_of(backlog: Backlog, late: Collection[int] = ()) -> Timeline:
    """The snapshots of a batch. `late` are those whose successor already speaks for their time."""
    earlier = backlog.previous
    counted_ms = {
        s.snapshot_id: min(s.snapshot_id - earlier[s.snapshot_id], SPEAKS_FOR * (s.schedule_ms or 0))
        if s.snapshot_id in earlier and s.snapshot_id not in late
        else 0
        for s in backlog.batch
    }
    return Timeline(earlier, counted_ms, backlog.reach)


def _late(lake: Lake, cluster: str, backlog: Backlog) -> set[int]:
    """The snapshots whose successor was computed without them. It already speaks for their time, so they add nothing.

    The successor of a snapshot that is only computed again was computed from it.
    """
    ids = [s.snapshot_id for s in backlog.batch]
    if backlog.newest is None or backlog.newest < ids[-1]:
        return set()
    successor = (
        f"SELECT earlier_snapshot_id AS earlier FROM {{slo}} WHERE {of_cluster(cluster)} "
        f"AND snapshot_id > {ids[-1]} ORDER BY snapshot_id LIMIT 1"
    )
    found = lake.query(successor, SLO)
    return {i for i in ids if i > (found[0]["earlier"] or 0)} if found else set()
