"""Derived tables: what bronze has and `computed` lacks is computed, in any order, late snapshots and empty ones too.

The cost follows the new snapshots: a batch reads its own bronze rows and, for what persists, the rows of `lag` just
before it, the log index, and the watermarks since that was written.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import takewhile
from types import MappingProxyType
from typing import NamedTuple

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pipeline.analytics import lag as lag_analytics
from pipeline.analytics.clients import reader_positions
from pipeline.analytics.instances import observed
from pipeline.client_tables import keep_clients
from pipeline.config import Config
from pipeline.consumer_config import ConsumerSettings
from pipeline.errors import LakeError, first_line
from pipeline.index import Index
from pipeline.kafka.log_segments import locate
from pipeline.lake import FAILURES, Clock, Lake, of_snapshots, utc_date
from pipeline.ledger import COMPLETE
from pipeline.rollup import keep_histograms
from pipeline.tables import (
    COMMITTED_OFFSETS,
    COMPUTED,
    FETCH_POSITIONS,
    GROUP_MEMBERS,
    LAG,
    READABLE,
    SNAPSHOTS,
    WATERMARKS,
)

log = logging.getLogger(__name__)

JOB = "lag"
BATCH = 60
"""Snapshots that are computed and committed together, after an outage say."""
CLUSTERS_AT_ONCE = 4
"""Small queries leave most of a cluster's cores idle. More would only compete for the driver."""
MEMORY = 10
"""Snapshots to look back at most for a complete one: a partial one may lack a group whose state persists."""


class Pending(NamedTuple):
    """A snapshot to compute; has clients told their positions?"""

    snapshot_id: int
    run_id: str
    has_positions: bool


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
    placing = partial(locate, log_dirs=log_dirs) if log_dirs else None
    while more:
        batch, more = next_batch(lake, cluster, most or BATCH)
        if not batch:
            break
        ids = [p.snapshot_id for p in batch]
        index = Index.up_to(lake, cluster, ids[-1])
        before = computed_before(lake, cluster, ids[0])
        earlier = up_to_complete(before)
        has_positions = any(p.has_positions for p in batch)
        commits, watermarks, members = (
            lake.read_snapshots(t, cluster, ids) for t in (COMMITTED_OFFSETS, WATERMARKS, GROUP_MEMBERS)
        )
        told = None
        if has_positions:
            positions = lake.read_snapshots(FETCH_POSITIONS, cluster, [*earlier[:1], *ids])
            just_before = lake.read_snapshots(LAG, cluster, earlier[:1])
            reported = lake.computed(observed(positions))
            readers = reader_positions(reported, watermarks, commits, members, just_before, clients)
            told = lake.computed(readers)
        rows = lag_analytics.compute_lag(
            commits, watermarks, members, lake.read_snapshots(LAG, cluster, earlier), index.rulers(ids), placing, told
        )
        lake.replace(LAG, rows, of_snapshots(cluster, ids))
        now = clock()
        keep_histograms(lake, cluster, ids, earlier, now)
        if has_positions:
            keep_clients(lake, cluster, ids, [b.snapshot_id for b in before], clients)
        marks = [(cluster, JOB, p.snapshot_id, utc_date(p.snapshot_id), p.run_id, now) for p in batch]
        lake.merge(COMPUTED, marks, cluster)
        index.keep()
        done += len(batch)
        log.info("%s: lag of %d snapshots, %d to %d", cluster, len(batch), ids[0], ids[-1])
    return done


def next_batch(lake: Lake, cluster: str, most: int) -> tuple[list[Pending], bool]:
    """The oldest snapshots to compute, so many at most, up to the first that is computed; and are there more?"""
    ledger = lake.read(SNAPSHOTS).where((F.col("cluster") == cluster) & F.col("status").isin(*READABLE))
    marks = lake.read(COMPUTED).where((F.col("cluster") == cluster) & (F.col("job") == JOB))
    positions = F.coalesce(F.element_at("rows", FETCH_POSITIONS.name), F.lit(0))
    pending = ledger.join(marks, "snapshot_id", how="left_anti").select(
        "snapshot_id", "run_id", positions.alias("positions")
    )
    rows = pending.orderBy("snapshot_id").limit(most).collect()
    due = len(rows)
    if due > 1:
        between = F.col("snapshot_id").between(rows[0]["snapshot_id"], rows[-1]["snapshot_id"])
        wall = marks.where(between).agg(F.min("snapshot_id")).collect()[0][0]
        rows = [r for r in rows if wall is None or r["snapshot_id"] < wall]
    return [Pending(r["snapshot_id"], r["run_id"], r["positions"] > 0) for r in rows], due == most or len(rows) < due


class Before(NamedTuple):
    """A snapshot that is computed, and how it had ended."""

    snapshot_id: int
    status: str


def computed_before(lake: Lake, cluster: str, snapshot_id: int) -> list[Before]:
    """The computed snapshots just before one, the newest first, at most MEMORY."""
    earlier = (F.col("cluster") == cluster) & (F.col("snapshot_id") < snapshot_id)
    marks = lake.read(COMPUTED).where(earlier & (F.col("job") == JOB))
    ledger = lake.read(SNAPSHOTS).where(earlier).select("snapshot_id", "status")
    rows = marks.join(ledger, "snapshot_id", how="inner").orderBy(F.col("snapshot_id").desc()).limit(MEMORY).collect()
    return [Before(r["snapshot_id"], r["status"]) for r in rows]


def up_to_complete(before: Sequence[Before]) -> list[int]:
    """Those back to the newest complete one, which has every group."""
    incomplete = list(takewhile(lambda b: b.status != COMPLETE, before))
    return [b.snapshot_id for b in before[: len(incomplete) + 1]]
