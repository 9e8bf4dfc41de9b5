"""One snapshot of one cluster: claim it in the ledger, land each bronze table once, judge it, finish.

docs/snapshot-protocol.md says what holds after a failure at each step.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from pipeline.config import ClusterConfig, Config
from pipeline.errors import ClaimedError, ClusterError, ConfigError, first_line
from pipeline.lake import FAILURES, Clock, Lake, of_snapshots, utc_date
from pipeline.ledger import Claim, Ledger, Problem, Summary
from pipeline.lookups import learnt_samples
from pipeline.quality import quarantine_failing
from pipeline.summary import counts, problems, summarize
from pipeline.tables import (
    COMMITTED_OFFSETS,
    FETCH_POSITIONS,
    GROUP_MEMBERS,
    LOG_SAMPLES,
    QUARANTINE,
    WATERMARKS,
    Table,
)
from pipeline.told import told_positions

log = logging.getLogger(__name__)

SOURCES: Mapping[str, str] = {
    COMMITTED_OFFSETS.name: "kafka_committed_offsets",
    GROUP_MEMBERS.name: "kafka_group_members",
    WATERMARKS.name: "kafka_watermarks",
}
ORDER_OF_READING = (COMMITTED_OFFSETS, GROUP_MEMBERS, WATERMARKS)
"""Committed offsets before watermarks: a log that moves meanwhile can make lag too large, never negative."""

MAX_CLUSTERS_AT_ONCE = 8

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class SnapshotOutcome:
    """How a snapshot ended: complete, partial, failed, or skipped because it is another's or done."""

    cluster: str
    snapshot_id: int
    status: str
    message: str


@dataclass
class Landed:
    """What the reads of one snapshot have cost and met, before its rows are summed up."""

    requests: dict[str, int] = field(default_factory=dict)
    brokers: list[Any] = field(default_factory=list)
    counts: dict[str, dict[str, int]] = field(default_factory=dict)
    quarantined: dict[str, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    positions: int = 0
    samples: int = 0
    warnings: dict[str, int] = field(default_factory=dict)


def snapshot_instant(at: datetime | None, now: datetime, config: Config) -> int:
    """The snapshot's id: the scheduled instant in epoch ms, floored to the schedule.

    Raises ConfigError for an instant in the future or older than `max_delay`: the past cannot be observed.
    """
    at = at or now
    if at > now:
        raise ConfigError(f"--at {at.isoformat()}: lies in the future, it is {now.isoformat()}")
    if now - at > timedelta(milliseconds=config.snapshot.max_delay_ms):
        raise ConfigError(
            f"--at {at.isoformat()}: is older than snapshot.max_delay ({config.snapshot.max_delay_ms} ms); "
            "a snapshot cannot be taken of the past"
        )
    instant_ms = (at - EPOCH) // timedelta(milliseconds=1)
    return instant_ms - instant_ms % config.snapshot.schedule_ms


def take_snapshots(
    spark: SparkSession, config: Config, clusters: Sequence[str], at: datetime | None, clock: Clock
) -> list[SnapshotOutcome]:
    """A snapshot of each cluster, side by side; what one meets does not touch the others."""
    snapshot_id = snapshot_instant(at, clock(), config)
    lake = Lake(spark, config.lake)
    lake.prepare()

    def take(cluster: str) -> SnapshotOutcome:
        return take_snapshot(lake, config, cluster, snapshot_id, clock)

    with ThreadPoolExecutor(max_workers=min(len(clusters), MAX_CLUSTERS_AT_ONCE)) as pool:
        return list(pool.map(take, clusters))


def take_snapshot(lake: Lake, config: Config, cluster: str, snapshot_id: int, clock: Clock) -> SnapshotOutcome:
    """Claim, land, judge, finish. A failure becomes the ledger row's status and error, and the outcome's message."""
    ledger = Ledger(lake, config.snapshot, clock)
    claim = Claim(cluster, snapshot_id, run_id=uuid.uuid4().hex, started_at=clock())
    try:
        with ThreadPoolExecutor(1) as pool:
            # Brokers may answer late, or not at all; meanwhile the claim is made.
            brokers = pool.submit(read_brokers, lake.spark, source_options(config.clusters[cluster]))
            claim = ledger.claim(claim)
            log.info("%s %d: claimed by run %s", cluster, snapshot_id, claim.run_id)
            summary = observe(lake.guarded(lambda: ledger.check(claim)), claim, config.clusters[cluster], brokers)
        if not ledger.finish(claim, summary):
            return SnapshotOutcome(cluster, snapshot_id, "skipped", "another run took the claim over meanwhile")
    except ClaimedError as exc:
        return SnapshotOutcome(cluster, snapshot_id, "skipped", str(exc))
    except FAILURES as exc:
        return SnapshotOutcome(cluster, snapshot_id, "failed", f"the ledger cannot be written: {first_line(exc)}")
    return SnapshotOutcome(cluster, snapshot_id, summary.status, summary.message)


def source_options(cluster: ClusterConfig) -> dict[str, str]:
    """The options of one cluster's data sources, which count their requests. Secrets are revealed: never log them."""
    return cluster.source_options() | {"count_requests": "true"}


def observe(lake: Lake, claim: Claim, cluster: ClusterConfig, brokers: Future[list[Any]]) -> Summary:
    """Land the snapshot and sum it up. What goes wrong is a summary too."""
    try:
        return summarize(lake, claim, land(lake, claim, cluster, brokers.result()))
    except FAILURES as exc:
        return Summary.of_failure(claim.cluster, reason_of(exc))


def land(lake: Lake, claim: Claim, cluster: ClusterConfig, brokers: Sequence[Any]) -> Landed:
    """Read the cluster, of which `brokers` are the rows of `kafka_brokers`, into the bronze tables and judge them."""
    landed = Landed(brokers=[b for b in brokers if b["broker"] is not None])
    for broker in brokers:
        _add(landed.requests, {str(broker["request_broker"]): broker["requests"]})
    if claim.is_takeover:  # the one before may have got as far as the gate
        for table in (QUARANTINE, FETCH_POSITIONS):
            lake.delete(table, of_snapshots(claim.cluster, [claim.snapshot_id]))
    for table in ORDER_OF_READING:
        if table is WATERMARKS:
            _land_positions(lake, claim, cluster, landed)
        _land_table(lake, claim, table, source_options(cluster), landed)
    for table in ORDER_OF_READING:
        landed.quarantined[table.name] = quarantine_failing(lake, table, claim.cluster, claim.snapshot_id).quarantined
    if cluster.index_lookups:
        _land_samples(lake, claim, cluster, landed)
    return landed


def _land_positions(lake: Lake, claim: Claim, cluster: ClusterConfig, landed: Landed) -> None:
    """What clients tell. What of it cannot be had makes the snapshot partial, and costs nothing else."""
    told = told_positions(lake.spark, cluster, claim.snapshot_id)
    if told is None:
        return
    seen = Observation()
    try:
        counted = told.observe(seen, F.count("source").alias("rows"), F.count("error").alias("errors"))
        _replace(lake, claim, FETCH_POSITIONS, counted)
    except ClaimedError:
        raise
    except FAILURES as exc:
        landed.problems.append((FETCH_POSITIONS.name, None, reason_of(exc), 1))
        return
    landed.positions, errors = (seen.get[name] for name in ("rows", "errors"))
    if errors:
        rows = lake.read_snapshots(FETCH_POSITIONS, claim.cluster, [claim.snapshot_id])
        landed.problems += problems(rows, FETCH_POSITIONS.name, F.col("endpoint"))
    log.info("%s %d: fetch_positions: %d rows, %d errors", claim.cluster, claim.snapshot_id, landed.positions, errors)


def _land_samples(lake: Lake, claim: Claim, cluster: ClusterConfig, landed: Landed) -> None:
    """What look-ups by time tell. A snapshot is whole without them: where they fail, that is a warning."""
    seen = Observation()
    brokers = [b["broker"] for b in landed.brokers]
    try:
        samples = learnt_samples(
            lake,
            claim.cluster,
            claim.snapshot_id,
            cluster.source_options(),
            budget=cluster.index_lookups,
            with_tiered=cluster.index_lookups_tiered,
        )
        counts = (F.count("topic").alias("rows"), F.sum("unanswered").alias("unanswered"))
        counted = samples.observe(seen, *counts, *_requests(brokers))
        _replace(lake, claim, LOG_SAMPLES, counted.where(F.col("requests").isNull()))
    except ClaimedError:
        raise
    except FAILURES as exc:
        log.warning("%s %d: times could not be looked up: %s", claim.cluster, claim.snapshot_id, reason_of(exc))
        landed.warnings["lookups_failed"] = 1
        return
    found = seen.get
    _add(landed.requests, {str(b): found[f"broker_{b}"] for b in brokers})
    landed.samples = found["rows"]
    if found["unanswered"]:
        landed.warnings["lookups_unanswered"] = found["unanswered"]
    log.info("%s %d: %s: %d rows", claim.cluster, claim.snapshot_id, LOG_SAMPLES.name, landed.samples)


def read_brokers(spark: SparkSession, options: Mapping[str, str]) -> list[Any]:
    """The rows of `kafka_brokers`, one for each broker. Raises ClusterError with the reason if none can be asked."""
    brokers = spark.read.format("kafka_brokers").options(**options).load().collect()
    unreachable = [b["error"] for b in brokers if b["broker"] is None and b["error"]]
    if unreachable:
        raise ClusterError(unreachable[0])
    return brokers


def _land_table(lake: Lake, claim: Claim, table: Table, options: Mapping[str, str], landed: Landed) -> None:
    brokers = [b["broker"] for b in landed.brokers]
    wanted = counts(table)
    seen = Observation()
    observed = lake.spark.read.format(SOURCES[table.name]).options(**options).load()
    counted = observed.observe(seen, *(c.alias(name) for name, c in wanted.items()), *_requests(brokers))
    _replace(lake, claim, table, counted.where(F.col("requests").isNull()))
    found = seen.get
    _add(landed.requests, {str(b): found[f"broker_{b}"] for b in brokers})
    landed.counts[table.name] = {name: found[name] for name in wanted}
    log.info(
        "%s %d: %s: %d rows, %d errors", claim.cluster, claim.snapshot_id, table.name, found["rows"], found["errors"]
    )


def _replace(lake: Lake, claim: Claim, table: Table, observed: DataFrame) -> None:
    rows = observed.withColumns(
        {
            "cluster": F.lit(claim.cluster),
            "snapshot_id": F.lit(claim.snapshot_id).cast("bigint"),
            "snapshot_date": F.lit(utc_date(claim.snapshot_id)),
        }
    )
    lake.replace(table, rows, of_snapshots(claim.cluster, [claim.snapshot_id]))


def _requests(brokers: Sequence[int]) -> list[Column]:
    return [F.sum(F.when(F.col("request_broker") == b, F.col("requests"))).alias(f"broker_{b}") for b in brokers]


def _add(total: dict[str, int], more: Mapping[str, int | None]) -> None:
    for broker, count in more.items():
        if count and broker != "None":
            total[broker] = total.get(broker, 0) + count


def reason_of(error: Exception) -> str:
    """What went wrong in one line: of an exception in a data source, the message that the source raised."""
    lines = (line.strip() for line in str(error).splitlines())
    ours = [line.split(":", 1)[1].strip() for line in lines if line.startswith("pipeline.errors.")]
    return ours[-1] if ours else first_line(error)
