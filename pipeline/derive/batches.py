"""Computes the derived tables for all snapshots without a mark in `computed`, including late and empty ones.

The cost depends only on the new snapshots: a batch reads its own bronze rows and, for values that carry over, the rows
of `lag` just before it, the log index, and the watermarks since the index was written.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from functools import partial

from pyspark.sql import SparkSession

from pipeline.common.epoch import utc_date, utc_text
from pipeline.common.errors import BadValueError, LagError, data_exception, first_line, is_data_exception, unexpected
from pipeline.common.rows import Rows
from pipeline.config import Config
from pipeline.derive.backlog import JOB, PASSED_OVER, Backlog, Snapshot, read_backlog
from pipeline.derive.clients import keep_clients
from pipeline.derive.findings import keep_findings, problems_of_groups
from pipeline.derive.forecasts import keep_forecasts
from pipeline.derive.group_changes import keep_group_changes
from pipeline.derive.histograms import keep_histograms
from pipeline.derive.lag import Bronze, Readers, find_gone, keep_lag
from pipeline.derive.log_index import with_the_index
from pipeline.derive.settings import Settings
from pipeline.derive.slo import keep_slo
from pipeline.derive.status import keep_status
from pipeline.lake import FAILURES, SPARK_ERRORS, Clock, Lake, of_snapshots, refuse_new
from pipeline.lake.few_rows import MANY_ROWS
from pipeline.lake.ledger import add_error, compact_newer
from pipeline.tables import COMPUTED, LAG, WATERMARKS

log = logging.getLogger(__name__)

BATCH = 60
"""The most snapshots that are computed and committed together, for example after an outage."""
CLUSTERS_AT_ONCE = 4
"""Clusters are computed in parallel, because small queries leave most cores idle. More would compete for the driver."""


def compute_lag(spark: SparkSession, config: Config, clusters: Sequence[str], clock: Clock) -> int:
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
    rows = lake.read_snapshots(LAG, cluster, ids).select("snapshot_id").distinct().collect()
    kept = {row["snapshot_id"] for row in rows}
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
    batch = backlog.batch
    if not batch:
        return 0, False
    rows_due = sum(s.rows for s in batch)
    lake.expect_rows(rows_due)
    ids = [s.snapshot_id for s in batch]
    # Few rows are kept for the five steps that read them; many rows are read again each time.
    seen = backlog.index.watermarks(ids, once=rows_due < MANY_ROWS)
    try:
        if gone := _derive(lake, cluster, backlog, seen, clock, settings):
            for table, snapshots in gone.items():
                _pass_over(lake, cluster, snapshots, f"some of the rows in {table} are gone", clock)
            return 0, True
    except _ERRORS as exc:
        if not is_data_exception(exc):
            raise
        if len(batch) > 1:
            raise _ImpossibleError from exc
        _pass_over(lake, cluster, batch, data_exception(exc), clock)
        return 0, True
    _mark(lake, cluster, batch, clock())
    _keep_index(lake, backlog, seen)
    log.info("%s: lag of %d snapshots, %s to %s", cluster, len(batch), utc_text(ids[0]), utc_text(ids[-1]))
    return len(batch), backlog.has_more


def _keep_index(lake: Lake, backlog: Backlog, seen: Rows) -> None:
    """Writes the log index if it is due. This is also the time to compact small files, so that not every run does."""
    if backlog.index.keep(seen, backlog.buckets):
        compact_newer(lake, backlog.index.cluster, backlog.batch[-1].snapshot_id)


def _derive(
    lake: Lake, cluster: str, backlog: Backlog, seen: Rows, clock: Clock, settings: Settings
) -> dict[str, list[Snapshot]]:
    """Writes all derived tables for a batch.

    If bronze rows of some snapshots are gone, it writes nothing and returns these snapshots by table.
    """
    bronze = Bronze.of_batch(lake, cluster, backlog, seen)
    gone, has_moved = find_gone(bronze)
    if gone:
        return gone
    readers = keep_lag(bronze, settings, has_moved=has_moved)
    keep_status(lake, cluster, backlog, readers, settings.owners)
    keep_forecasts(lake, cluster, backlog, readers, settings.status)
    keep_group_changes(lake, cluster, backlog)
    keep_histograms(lake, cluster, backlog, readers.lag, clock())
    _keep_problems(bronze, readers, settings)
    return {}


def _keep_problems(bronze: Bronze, readers: Readers, settings: Settings) -> None:
    """Writes what is wrong with groups, topics and clients in a batch whose `lag` and statuses are written."""
    lake, cluster, backlog = bronze.lake, bronze.cluster, bronze.backlog
    watermarks = bronze.frame(WATERMARKS)
    problems = problems_of_groups(lake, cluster, backlog, watermarks, readers.suspects, settings.status)
    if settings.slo:
        problems = problems.unionByName(keep_slo(lake, cluster, backlog, settings.slo, settings.status.markers))
    if backlog.has_positions:
        problems = problems.unionByName(keep_clients(lake, cluster, backlog, settings.clients))
    keep_findings(lake, cluster, backlog, problems, backlog.has_positions, settings.status, settings.owners)
