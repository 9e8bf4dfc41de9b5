"""Takes snapshots of clusters: claims each in the ledger, lands it (`land.py`), and writes the result to the ledger.

docs/snapshot-protocol.md says what a failure at each step leaves behind.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from pyspark.sql import SparkSession

from pipeline.common.epoch import rounded_down
from pipeline.common.errors import (
    ClaimedError,
    ClusterError,
    ConfigError,
    WrongClusterError,
    first_line,
    unexpected,
)
from pipeline.common.words import counted
from pipeline.config import ClusterConfig, Config
from pipeline.kafka.brokers import BrokersSource
from pipeline.lake import FAILURES, Clock, Lake
from pipeline.lake.ledger import RUNNING, Claim, Ledger, Summary
from pipeline.snapshot.land import land, reason_of, source_options
from pipeline.snapshot.read_sources import read_source
from pipeline.snapshot.summary import cluster_id_of, summarize

log = logging.getLogger(__name__)

MAX_CLUSTERS_AT_ONCE = 8
REASONS_SHOWN = 3
"""For how many clusters it is said why they were not read, if none was."""
UNFINISHED = "unfinished"


@dataclass(frozen=True)
class SnapshotOutcome:
    """How a snapshot ended.

    `complete`, `partial` and `failed` are the status in the ledger, whichever run has written it. `unfinished`: another
    run has claimed the snapshot at `claimed_at` (UTC), and has not finished it. Otherwise `claimed_at` is None.
    """

    cluster: str
    snapshot_id: int
    status: str
    message: str
    claimed_at: datetime | None = None

    @classmethod
    def of_another_run(cls, cluster: str, snapshot_id: int, claimed: ClaimedError) -> SnapshotOutcome:
        """How a snapshot ended that another run has claimed."""
        if claimed.status == RUNNING:
            return cls(cluster, snapshot_id, UNFINISHED, str(claimed), claimed.since)
        return cls(cluster, snapshot_id, claimed.status, str(claimed))


def snapshot_instant(at: datetime | None, now: datetime, config: Config) -> int:
    """The snapshot's id: the instant in epoch ms, rounded down to the schedule.

    Raises ConfigError if the instant is in the future, or older than `max_delay`, because the past cannot be observed.
    """
    at = at or now
    if at > now:
        raise ConfigError(f"--at {at.isoformat()}: lies in the future: it is now {now.isoformat()}")
    if now - at > timedelta(milliseconds=config.snapshot.max_delay_ms):
        raise ConfigError(
            f"--at {at.isoformat()}: is older than snapshot.max_delay ({config.snapshot.max_delay_ms} ms); "
            "a snapshot cannot be taken of the past"
        )
    return rounded_down(at, config.snapshot.schedule_ms)


def take_snapshots(
    spark: SparkSession | None,
    config: Config,
    clusters: Sequence[str],
    at: datetime | None,
    clock: Clock,
    *,
    missed: int = 0,
) -> list[SnapshotOutcome]:
    """Takes a snapshot of each cluster, in parallel. A failure of one does not affect the others.

    `missed` is the number of instants just before this one that had no snapshot; the ledger gets a warning.
    Raises ClusterError if there is no lake yet and no cluster answers: a mistyped address must not leave a lake behind.
    """
    snapshot_id = snapshot_instant(at, clock(), config)
    lake = Lake(spark, config.lake)
    lake.prepare(lambda _: require_an_answer(lake, config, clusters))

    def take(cluster: str) -> SnapshotOutcome:
        return take_snapshot(lake, config, cluster, snapshot_id, clock, missed)

    with ThreadPoolExecutor(max_workers=min(len(clusters), MAX_CLUSTERS_AT_ONCE)) as pool:
        return list(pool.map(take, clusters))


def require_an_answer(lake: Lake, config: Config, clusters: Sequence[str]) -> None:
    """Raises ClusterError with the reasons if the brokers of none of these clusters answer."""

    def reason(cluster: str) -> str | None:
        try:
            read_brokers(lake, source_options(config.clusters[cluster]))
        except FAILURES as exc:
            return f"cluster {cluster}: {reason_of(exc)}"
        except Exception as exc:
            log.debug("%s: unexpected", cluster, exc_info=True)
            return f"cluster {cluster}: {unexpected(exc)}"
        return None

    with ThreadPoolExecutor(max_workers=min(len(clusters), MAX_CLUSTERS_AT_ONCE)) as pool:
        reasons = list(filter(None, pool.map(reason, clusters)))
    if len(reasons) == len(clusters):
        raise ClusterError(f"no lake is made at {lake.place}, because {nothing_read(reasons)}")


def nothing_read(reasons: Sequence[str]) -> str:
    """What a job says at last if no cluster could be read: why, and what to do."""
    return f"nothing was read: {first_of(reasons)}: call doctor, which says what to correct"


def first_of(reasons: Sequence[str]) -> str:
    """The first reasons in one line, and how many others there are."""
    shown = "; ".join(reasons[:REASONS_SHOWN])
    others = len(reasons) - REASONS_SHOWN
    return f"{shown}; and {counted(others, 'other')}" if others > 0 else shown


def take_snapshot(
    lake: Lake, config: Config, cluster: str, snapshot_id: int, clock: Clock, missed: int = 0
) -> SnapshotOutcome:
    """Claims a snapshot, lands it and finishes it. After a failure, the ledger row and the outcome have the error."""
    ledger = Ledger(lake, config.snapshot, clock)
    claim = Claim(cluster, snapshot_id, uuid.uuid4().hex, started_at=clock(), schedule_ms=config.snapshot.schedule_ms)
    try:
        with ThreadPoolExecutor(1) as pool:
            # The claim is made meanwhile, because brokers may answer late or not at all.
            brokers = pool.submit(find_brokers, ledger, lake, cluster, config.clusters[cluster])
            claim = ledger.claim(claim)
            log.info("%s: claimed by run %s", claim, claim.run_id)
            summary = land_and_summarize(
                lake.guarded(lambda: ledger.check(claim)), claim, config.clusters[cluster], brokers
            )
        if missed:
            summary = replace(summary, warnings={**summary.warnings, "missed_instants": missed})
        ledger.finish(claim, summary)
    except ClaimedError as exc:
        return SnapshotOutcome.of_another_run(cluster, snapshot_id, exc)
    except FAILURES as exc:
        return SnapshotOutcome(cluster, snapshot_id, "failed", f"the ledger cannot be written: {first_line(exc)}")
    except Exception as exc:
        log.debug("%s: unexpected", claim, exc_info=True)
        return SnapshotOutcome(cluster, snapshot_id, "failed", unexpected(exc))
    return SnapshotOutcome(cluster, snapshot_id, summary.status, summary.message)


def find_brokers(ledger: Ledger, lake: Lake, name: str, cluster: ClusterConfig) -> list[Any]:
    """The rows of `kafka_brokers`. Raises ClusterError if no broker answers, or it is another cluster than before."""
    brokers = read_brokers(lake, source_options(cluster))
    found = cluster_id_of(brokers)
    if cluster.cluster_id is None and found is not None:
        known = ledger.known_cluster_id(name)
        if known not in (None, found):
            raise WrongClusterError(
                f"the brokers belong to cluster {found}, and {name} was cluster {known} until now: if that is right, "
                f'set cluster_id = "{found}"'
            )
    return brokers


def land_and_summarize(lake: Lake, claim: Claim, cluster: ClusterConfig, brokers: Future[list[Any]]) -> Summary:
    """Lands the snapshot and summarises it. After an error, returns the summary of a failed snapshot."""
    until_s = time.monotonic() + cluster.limits.read_timeout_ms / 1000
    try:
        found = brokers.result()
        same = cluster.model_copy(update={"cluster_id": cluster_id_of(found) or cluster.cluster_id})  # no other is read
        return summarize(lake, claim, land(lake, claim, same, found, until_s))
    except FAILURES as exc:
        return Summary.of_failure(claim.cluster, reason_of(exc))
    except Exception as exc:
        log.debug("%s: unexpected", claim, exc_info=True)
        return Summary.of_failure(claim.cluster, unexpected(exc))


def read_brokers(lake: Lake, options: Mapping[str, str]) -> list[Any]:
    """The rows of `kafka_brokers`, one for each broker. Raises ClusterError with the reason if no broker answers."""
    rows = read_source(lake, BrokersSource(dict(options))).collected_table()
    brokers: list[Any] = rows.to_pylist(maps_as_pydicts="strict")
    unreachable = [b["error"] for b in brokers if b["broker"] is None and b["error"]]
    if unreachable:
        raise ClusterError(unreachable[0])
    return brokers
