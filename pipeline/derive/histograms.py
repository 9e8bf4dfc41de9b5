"""Writes `lag_histograms` for the snapshots that were just computed, and for hours and days that have ended."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipeline.analytics.histograms.lag_histograms import MEASURES, histograms, rolled_up
from pipeline.common.epoch import DAY_MS, HOUR_MS, to_epoch_ms, utc_date
from pipeline.common.errors import LakeError
from pipeline.derive.backlog import Snapshot
from pipeline.lake import CONFLICT_TRIES, Lake, of_windows
from pipeline.tables import LAG, LAG_HISTOGRAMS


def keep_histograms(lake: Lake, cluster: str, batch: Sequence[Snapshot], before: Sequence[int], now: datetime) -> None:
    """Writes the histograms of a batch of snapshots, and of the hours and days that contain one of them and have ended.

    The snapshot just before the batch is included. So the histogram of an hour is written when the first snapshot after
    that hour is computed, and again whenever a late snapshot of that hour is computed. The same holds for days.
    """
    ids = [s.snapshot_id for s in batch]
    counted = histograms(lake.read_snapshots(LAG, cluster, ids))
    # For each measure: one row for the cluster, one for each group, and at most two for each partition (topic, broker).
    most = len(MEASURES) * sum(1 + s.groups + 2 * s.ends for s in batch)
    lake.replace(LAG_HISTOGRAMS, counted, of_windows(cluster, ids, window_ms=0), most)
    touched = [*before[:1], *ids]
    now_ms = to_epoch_ms(now)
    for window_ms, from_ms in ((HOUR_MS, 0), (DAY_MS, HOUR_MS)):
        starts = sorted({i - i % window_ms for i in touched if i - i % window_ms + window_ms <= now_ms})
        if starts:
            _roll_up(lake, cluster, window_ms, from_ms, starts)


def _roll_up(lake: Lake, cluster: str, window_ms: int, from_ms: int, starts: list[int]) -> None:
    """Writes the windows that begin at `starts` (epoch ms), merged from the shorter windows that they cover.

    Another job may write shorter windows, and then these windows, between our read and our write. Our windows would
    then lack its rows, and Delta would see no conflict. So the shorter windows are read again after each write, and if
    they have changed, it starts again.
    """
    for _ in range(CONFLICT_TRIES):
        covered = _covered(lake, cluster, window_ms, from_ms, starts)
        before = _fingerprint(covered)
        lake.replace(LAG_HISTOGRAMS, rolled_up(covered, window_ms, from_ms), of_windows(cluster, starts, window_ms))
        if _fingerprint(_covered(lake, cluster, window_ms, from_ms, starts)) == before:
            return
    raise LakeError(f"gave up after {CONFLICT_TRIES} tries: another job keeps writing lag_histograms of {cluster}")


def _covered(lake: Lake, cluster: str, window_ms: int, from_ms: int, starts: list[int]) -> DataFrame:
    """The current rows of those windows of `from_ms` that the windows of `window_ms` at `starts` consist of."""
    known = lake.read_dates(LAG_HISTOGRAMS, cluster, [utc_date(start) for start in starts])
    at_ms = F.unix_millis("window_start")
    return known.where((F.col("window_ms") == from_ms) & (at_ms - F.pmod(at_ms, F.lit(window_ms))).isin(starts))


def _fingerprint(rows: DataFrame) -> tuple[int, ...]:
    """Numbers that are equal for equal rows, in any order."""
    [found] = rows.agg(F.count("*"), F.bit_xor(F.xxhash64(*rows.columns))).collect()
    return tuple(found)
