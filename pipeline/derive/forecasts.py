"""Writes `forecasts` for the snapshots that were just computed."""

from __future__ import annotations

from pipeline.analytics.forecasts.follow import SERIES
from pipeline.analytics.forecasts.forecasts import forecasts
from pipeline.config.status import StatusConfig
from pipeline.derive.backlog import Backlog
from pipeline.derive.status import newest_rows
from pipeline.lake import Lake, of_snapshots
from pipeline.tables import FORECASTS, LAG


def keep_forecasts(lake: Lake, cluster: str, backlog: Backlog, settings: StatusConfig) -> None:
    """Forecasts the groups of a batch whose `lag` is written, continuing from the snapshots before it."""
    ids, earlier = [s.snapshot_id for s in backlog.batch], backlog.up_to_complete
    known = lake.read_snapshots(FORECASTS, cluster, earlier)
    if len(earlier) > 1:
        known = newest_rows(known, SERIES)
    lag = lake.read_snapshots(LAG, cluster, ids)
    most = sum(s.rows for s in (*backlog.before[:1], *backlog.batch))  # usually far fewer, as topics have partitions
    rows = forecasts(lag, known, settings, most, backlog.reach)
    lake.replace(FORECASTS, rows, of_snapshots(cluster, ids))
