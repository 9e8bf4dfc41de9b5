"""Derived tables: what bronze has and `computed` lacks is computed, in any order, late snapshots and empty ones too.

The cost follows the new snapshots: a batch reads its own bronze rows and, for what persists, the rows of `lag` just
before it, the log index, and the watermarks since that was written.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import MappingProxyType

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pipeline.analytics import lag as lag_analytics
from pipeline.analytics.clients import reader_positions
from pipeline.analytics.incarnation import moved_topics
from pipeline.analytics.instances import observed
from pipeline.backlog import JOB, read_backlog
from pipeline.client_tables import keep_clients
from pipeline.config import Config
from pipeline.consumer_config import ConsumerSettings
from pipeline.errors import LakeError, first_line, unexpected
from pipeline.few_rows import MANY_ROWS, expect_rows
from pipeline.index import with_the_index
from pipeline.kafka.log_segments import locate
from pipeline.lake import FAILURES, Clock, Lake, of_snapshots, utc_date
from pipeline.rollup import keep_histograms
from pipeline.tables import (
    COMMITTED_OFFSETS,
    COMPUTED,
    FETCH_POSITIONS,
    GROUP_MEMBERS,
    LAG,
)

log = logging.getLogger(__name__)

BATCH = 60
"""Snapshots that are computed and committed together, after an outage say."""
CLUSTERS_AT_ONCE = 4
"""Small queries leave most of a cluster's cores idle. More would only compete for the driver."""


def compute_lag(spark: SparkSession, config: Config, clusters: Sequence[str], clock: Clock) -> int:
    """Bring `lag` up to date for some clusters; the number of snapshots computed.

    Raises LakeError, once all have been tried, if one could not be.
    """
    lake = Lake(spark, config.lake)
    lake.prepare()
    done, failures = 0, []
    with ThreadPoolExecutor(CLUSTERS_AT_ONCE) as pool:
        computed = {
            cluster: pool.submit(
                compute_cluster, lake, cluster, clock, config.clusters[cluster].log_dirs, config.clients
            )
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
        raise LakeError(f"lag cannot be computed: {'; '.join(failures)}")
    return done


def compute_cluster(
    lake: Lake,
    cluster: str,
    clock: Clock,
    log_dirs: Sequence[str] = (),
    clients: Mapping[str, ConsumerSettings] = MappingProxyType({}),
    most: int | None = None,
) -> int:
    """Bring `lag` up to date for one cluster, batch by batch; the number of snapshots computed.

    Bytes and times are exact where executors can read the brokers' `log_dirs`. `clients` are the settings of consumers,
    `most` how many snapshots are computed together.
    """
    done, more = 0, True
    next_batch = partial(_compute_batch, lake, cluster, clock, log_dirs, clients, most or BATCH)
    while more:
        computed, more = with_the_index(next_batch)
        done += computed
    return done


def _compute_batch(
    lake: Lake,
    cluster: str,
    clock: Clock,
    log_dirs: Sequence[str],
    clients: Mapping[str, ConsumerSettings],
    most: int,
) -> tuple[int, bool]:
    """Compute, write and mark what is derived of the next snapshots: how many they are, and whether there are more."""
    backlog = read_backlog(lake, cluster, most)
    if not backlog.batch:
        return 0, False
    batch, earlier = backlog.batch, backlog.up_to_complete
    rows_due = sum(s.rows for s in batch)
    expect_rows(lake.spark, rows_due)
    ids = [s.snapshot_id for s in batch]
    has_positions = any(s.has_positions for s in batch)
    commits, members = (lake.read_snapshots(t, cluster, ids) for t in (COMMITTED_OFFSETS, GROUP_MEMBERS))
    seen = backlog.index.watermarks(ids)
    if rows_due < MANY_ROWS:  # five steps of the plan read them; many are read again rather than kept
        seen = lake.computed(seen)
    watermarks = seen.where(F.col("snapshot_id").isin(ids))
    previous = lake.read_snapshots(LAG, cluster, earlier)
    has_moved = bool(moved_topics(commits, watermarks, previous).limit(1).collect())
    told = None
    if has_positions:
        positions = lake.read_snapshots(FETCH_POSITIONS, cluster, [*earlier[:1], *ids])
        just_before = lake.read_snapshots(LAG, cluster, earlier[:1])
        reported = lake.computed(observed(positions))
        readers = reader_positions(reported, watermarks, commits, members, just_before, clients)
        told = lake.computed(readers)
    rows = lag_analytics.compute_lag(
        commits,
        watermarks,
        members,
        previous if has_moved else None,
        backlog.index.rulers(ids, seen),
        partial(locate, log_dirs=log_dirs) if log_dirs else None,
        told,
    )
    lake.replace(LAG, rows, of_snapshots(cluster, ids))
    now = clock()
    keep_histograms(lake, cluster, ids, earlier, now)
    if has_positions:
        keep_clients(lake, cluster, ids, [s.snapshot_id for s in backlog.before], clients)
    marks = [(cluster, JOB, s.snapshot_id, utc_date(s.snapshot_id), s.run_id, now) for s in batch]
    lake.replace(COMPUTED, lake.rows(COMPUTED, marks), f"{of_snapshots(cluster, ids)} AND job = '{JOB}'")
    backlog.index.keep(seen)
    log.info("%s: lag of %d snapshots, %d to %d", cluster, len(batch), ids[0], ids[-1])
    return len(batch), backlog.has_more
