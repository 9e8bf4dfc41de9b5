"""Writes `lag_histograms` for the snapshots that were just computed, and for hours and days that have ended."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from pyspark.sql import functions as F

from pipeline.analytics.histograms.lag_histograms import MEASURES, histograms, rolled_up
from pipeline.derive.backlog import Snapshot
from pipeline.epoch import DAY_MS, HOUR_MS, to_epoch_ms, utc_date
from pipeline.lake import Lake, of_windows
from pipeline.tables import LAG, LAG_HISTOGRAMS


def keep_histograms(lake: Lake, cluster: str, batch: Sequence[Snapshot], before: Sequence[int], now: datetime) -> None:
    """Count the lag of a batch of snapshots; roll up the windows that are over, of those that it touches.

    The snapshot before it counts as touched: an hour is made when the first one after it is computed, and again
    whenever a late one of it is. So is a day.
    """
    ids = [s.snapshot_id for s in batch]
    counted = histograms(lake.read_snapshots(LAG, cluster, ids))
    # A row for each measure of the cluster, each group, and at most each partition's topic and broker.
    most = len(MEASURES) * sum(1 + s.groups + 2 * s.ends for s in batch)
    lake.replace(LAG_HISTOGRAMS, counted, of_windows(cluster, ids, window_ms=0), most)
    touched = [*before[:1], *ids]
    now_ms = to_epoch_ms(now)
    for window_ms, from_ms in ((HOUR_MS, 0), (DAY_MS, HOUR_MS)):
        starts = sorted({i - i % window_ms for i in touched if i - i % window_ms + window_ms <= now_ms})
        if starts:
            dates = [utc_date(start) for start in starts]
            known = lake.read_dates(LAG_HISTOGRAMS, cluster, dates).where(F.col("window_ms") == from_ms)
            is_covered = F.unix_millis("window_start") - F.pmod(F.unix_millis("window_start"), F.lit(window_ms))
            rows = rolled_up(known.where(is_covered.isin(starts)), window_ms, from_ms)
            lake.replace(LAG_HISTOGRAMS, rows, of_windows(cluster, starts, window_ms))
