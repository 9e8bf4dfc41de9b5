"""Computes the derived tables for all snapshots without a mark in `computed`, including late and empty ones.

The cost depends only on the new snapshots: a batch reads its own bronze rows and, for values that carry over, the rows
of `lag` just before it, the log index, and the watermarks since the index was written.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from datetime import datetime
from functools import partial
from threading import Lock

from pyspark.sql import SparkSession

from pipeline.common.epoch import utc_date, utc_text
from pipeline.common.errors import BadValueError, LagError, data_exception, first_line, is_data_exception, unexpected
from pipeline.config import Config
from pipeline.derive.backlog import JOB, PASSED_OVER, Snapshot, read_backlog
from pipeline.derive.batch import Batch
from pipeline.derive.lag import check_bronze
from pipeline.derive.log_index import with_the_index
from pipeline.derive.settings import Settings
from pipeline.derive.steps import run_steps
from pipeline.lake import FAILURES, SPARK_ERRORS, Clock, Lake, of_snapshots, refuse_new
from pipeline.lake.ledger import add_error, compact_newer
from pipeline.tables import COMPUTED, LAG

log = logging.getLogger(__name__)

BATCH = 60
"""The most snapshots that are computed and committed together, for example after an outage."""
CLUSTERS_AT_ONCE = 4
"""Clusters are computed in parallel, because small queries leave most cores idle. More would compete for the driver."""
ROWS_ALONE = 500_000
"""A batch that counts for this many rows is computed while no other of this size is: it keeps all cores busy, and
needs a gigabyte or more."""
_alone = Lock()


def compute_lag(spark: SparkSession | None, config: Config, clusters: Sequence[str], clock: Clock) -> int:
    """Brings `lag` up to date for some clusters, and returns the number of snapshots computed.

    If one cluster fails, the others are still computed; then it raises LagError. If there is no lake,
    it raises NoLakeError.
    """
    lake = Lake(spark, config.lake)
    lake.prepare(refuse_new)
    done, failures = 0, []
    with ThreadPoolExecutor(CLUSTERS_AT_ONCE) as pool:
        computed = {
            cluster: pool.submit(compute_cluster, lake, cluster, clock, Settings.of(config, cluster))
            for cluster in clusters
        }
    for cluster, future in computed.items():
        try:
            done += future.result()
        except FAILURES as exc:
            failures.append(f"{cluster}: {first_line(exc)}")
        except Exception as exc:
            log.debug("%s: unexpected", cluster, exc_info=True)
            failures.append(f"{cluster}: {unexpected(exc)}")
    if failures:
        raise LagError(f"lag cannot be computed: {'; '.join(failures)}")
    return done


def compute_cluster(
    lake: Lake,
    cluster: str,
    clock: Clock,
    settings: Settings | None = None,
    most: int | None = None,
) -> int:
    """Brings `lag` up to date for one cluster, batch by batch, and returns the number of snapshots computed.

    `most` is how many snapshots are computed together; if not given, BATCH.
    """
    lake = lake.for_one_cluster()
    settings = settings or Settings()
    size = most or BATCH
    done, more, singly = 0, True, 0
    while more:
        next_batch = partial(_compute_batch, lake, cluster, clock, settings, 1 if singly else size)
        try:
            computed, more = with_the_index(next_batch)
            done, singly = done + computed, max(0, singly - 1)
        except _ImpossibleError:  # they are computed one by one, to find the one that cannot be computed
            singly = size
    return done


_ERRORS: tuple[type[Exception], ...] = (BadValueError, *SPARK_ERRORS)


class _ImpossibleError(Exception):
    """A batch of several snapshots cannot be computed, because of at least one of them."""


def _pass_over(lake: Lake, cluster: str, snapshots: Sequence[Snapshot], reason: str, clock: Clock) -> None:
    """Marks snapshots whose lag can never be computed, so that later ones can be; the ledger gets the reason.

    If rows were derived from them earlier, these rows stay, and the snapshots count as having lag.
    """
    ids = [s.snapshot_id for s in snapshots]
    log.warning("%s %s: no lag can be computed: %s", cluster, ", ".join(map(utc_text, ids)), reason)
    add_error(lake, cluster, ids, (LAG.name, None, reason, 1))
    kept = lake.rows(LAG, of_snapshots(cluster, ids), "snapshot_id").distinct("snapshot_id")
    for job, some in (
        (JOB, [s for s in snapshots if s.snapshot_id in kept]),
        (PASSED_OVER, [s for s in snapshots if s.snapshot_id not in kept]),
    ):
        if some:
            _mark(lake, cluster, some, clock(), job)


def _mark(lake: Lake, cluster: str, batch: Sequence[Snapshot], now: datetime, job: str = JOB) -> None:
    marks = [(cluster, job, s.snapshot_id, utc_date(s.snapshot_id), s.run_id, now) for s in batch]
    where = of_snapshots(cluster, [s.snapshot_id for s in batch])
    lake.replace_rows(COMPUTED, marks, f"{where} AND job = '{job}'")


def _compute_batch(
    lake: Lake,
    cluster: str,
    clock: Clock,
    settings: Settings,
    most: int,
) -> tuple[int, bool]:
    """Computes, writes and marks the next batch; returns the number of its snapshots, and whether there are more.

    A snapshot that cannot be computed is passed over if it is the only one in the batch; otherwise this raises
    _ImpossibleError.
    """
    backlog = read_backlog(lake, cluster, most)
    if not backlog.batch:
        return 0, False
    lake.expect_rows(backlog.size)
    with _alone if backlog.size >= ROWS_ALONE else nullcontext():
        return _compute(Batch(lake, cluster, backlog, settings, clock))


def _compute(batch: Batch) -> tuple[int, bool]:
    lake, cluster, snapshots, clock = batch.lake, batch.cluster, batch.backlog.batch, batch.clock
    ids = batch.snapshot_ids
    try:
        bronze = check_bronze(batch)
        for table, some in bronze.gone.items():
            _pass_over(lake, cluster, some, f"some of the rows in {table} are gone", clock)
        if bronze.gone:
            return 0, True
        run_steps(batch, has_moved=bronze.has_moved)
    except _ERRORS as exc:
        if not is_data_exception(exc):
            raise
        if len(snapshots) > 1:
            raise _ImpossibleError from exc
        _pass_over(lake, cluster, snapshots, data_exception(exc), clock)
        return 0, True
    _mark(lake, cluster, snapshots, clock())
    _keep_index(batch)
    log.info("%s: lag of %d snapshots, %s to %s", cluster, len(ids), utc_text(ids[0]), utc_text(ids[-1]))
    return len(ids), batch.backlog.has_more


def _keep_index(batch: Batch) -> None:
    """Writes the log index if it is due. This is also the time to compact small files, so that not every run does."""
    if batch.backlog.index.keep(batch.seen, batch.backlog.buckets):
        compact_newer(batch.lake, batch.cluster, batch.snapshot_ids[-1])
