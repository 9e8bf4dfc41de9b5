"""Writes `lag_histograms` for the snapshots that were just computed, and for hours and days that have ended."""

from __future__ import annotations

from pyspark.sql import DataFrame

from pipeline.analytics.histograms.lag_histograms import (
    TALLIES,
    histograms_of_snapshots,
    histograms_of_windows,
)
from pipeline.common.epoch import DAY_MS, HOUR_MS, to_epoch_ms
from pipeline.common.errors import LakeError
from pipeline.common.rows import Rows
from pipeline.derive.batch import Batch
from pipeline.derive.lag import Readers
from pipeline.lake import CONFLICT_TRIES, Lake, of_windows, of_windows_within
from pipeline.lake.few_rows import MANY_ROWS
from pipeline.tables import LAG_HISTOGRAMS


def keep_histograms(batch: Batch, readers: Readers) -> None:
    """Writes the histograms of a batch, and of hours and days that have one of its snapshots.

    Only hours and days that have ended are written. The snapshot just before the batch counts as one of it. So the
    histogram of an hour is written when the first snapshot after that hour is computed, and again whenever a late
    snapshot of that hour is computed. The same holds for days.
    """
    lake, cluster, backlog, ids = batch.lake, batch.cluster, batch.backlog, batch.snapshot_ids
    rows = lake.collected_if_few(histograms_of_snapshots(readers.lag, backlog.buckets, lake.in_file))
    lake.replace(LAG_HISTOGRAMS, rows, of_windows(cluster, ids, window_ms=0))
    touched = [*backlog.up_to_complete[:1], *ids]
    now_ms = to_epoch_ms(batch.clock())
    for window_ms, from_ms in ((HOUR_MS, 0), (DAY_MS, HOUR_MS)):
        starts = sorted({i - i % window_ms for i in touched if i - i % window_ms + window_ms <= now_ms})
        if starts:
            _roll_up(batch, window_ms, from_ms, starts)


def _roll_up(batch: Batch, window_ms: int, from_ms: int, starts: list[int]) -> None:
    """Writes the windows that begin at `starts` (epoch ms), merged from the shorter windows that they cover.

    Another job may write shorter windows, and then these windows, between our read and our write. Our windows would
    then lack its rows. If Spark writes, it reads the shorter windows after its transaction has begun. So either it sees
    the rows of the other job, or Delta sees a conflict over these windows. The driver has read few rows before its
    transaction begins. So they are read again after each write, and if they have changed, it starts again.
    """
    lake, cluster = batch.lake, batch.cluster
    where = of_windows_within(cluster, starts, window_ms, from_ms)
    for _ in range(CONFLICT_TRIES):
        covered = _covered(lake, where)
        merged = histograms_of_windows(covered, window_ms, from_ms, lake.in_file)
        # With fewer rows than that, the driver would compute Spark's rows before it begins to write them.
        lake.replace(LAG_HISTOGRAMS, merged, of_windows(cluster, starts, window_ms), most=MANY_ROWS)
        if isinstance(covered.rows, DataFrame) or _are_same(covered, _covered(lake, where)):
            return
    raise LakeError(f"gave up after {CONFLICT_TRIES} tries: another job keeps writing lag_histograms of {cluster}")


def _covered(lake: Lake, where: str) -> Rows:
    return lake.rows(LAG_HISTOGRAMS, where, *TALLIES.names, "window_ms")


def _are_same(few: Rows, others: Rows) -> bool:
    """Whether the others are the same rows, in any order."""
    if isinstance(others.rows, DataFrame):  # they are many now
        return False
    key = [(name, "ascending") for name in ("window_start", "measure", "scope", "scope_value")]
    return bool(few.collected_table().sort_by(key).equals(others.rows.sort_by(key)))
