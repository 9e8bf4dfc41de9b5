"""Lands a snapshot: reads a cluster once, judges the rows, and writes them to the bronze tables.

docs/snapshot-protocol.md says what a failure at each step leaves behind.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from pipeline.client_positions.nothing_found import POSITIONS_MISSING, without_understood
from pipeline.common.epoch import utc_date, utc_now
from pipeline.common.errors import ClaimedError, LakeError, first_line, unexpected
from pipeline.common.rows import Rows
from pipeline.config import ClusterConfig
from pipeline.derive.log_index import with_the_index
from pipeline.kafka.snapshot import UNPROVEN, SnapshotSource
from pipeline.lake import FAILURES, STAGED_OVER, STAGES, Lake, of_snapshots
from pipeline.lake.ledger import Claim
from pipeline.quality import judge_rows, quarantine_rows
from pipeline.quality.counts import may_fail, sums_by_kind
from pipeline.snapshot.client_positions import read_client_positions
from pipeline.snapshot.missing_groups import groups_not_gone
from pipeline.snapshot.read_sources import ClusterRows, read_cluster
from pipeline.snapshot.summary import Landed, error_entries
from pipeline.snapshot.time_lookups import learnt_samples
from pipeline.tables import BRONZE, CLIENT_POSITIONS, LOG_SAMPLES, QUARANTINE, Table

log = logging.getLogger(__name__)


def source_options(cluster: ClusterConfig) -> dict[str, str]:
    """The options of a cluster's data sources, which count their requests. They contain secrets: never log them."""
    return cluster.source_options() | {"count_requests": "true"}


def in_time(cluster: ClusterConfig, until_s: float) -> ClusterConfig:
    """The cluster with the rest of its `read_timeout`, which ends at `until_s` of the monotonic clock."""
    left_ms = max(1, round((until_s - time.monotonic()) * 1000))
    return cluster.model_copy(update={"limits": cluster.limits.model_copy(update={"read_timeout_ms": left_ms})})


def land(lake: Lake, claim: Claim, cluster: ClusterConfig, brokers: Sequence[Any], until_s: float) -> Landed:
    """Reads the cluster into the bronze tables, and judges them. `brokers` are its rows of `kafka_brokers`."""
    landed = Landed(brokers=[b for b in brokers if b["broker"] is not None])
    for broker in brokers:
        landed.add_requests(broker["request_broker"], broker["requests"])
    if claim.is_takeover:  # the previous run may already have quarantined rows
        for table in (QUARANTINE, CLIENT_POSITIONS):
            lake.delete(table, of_snapshots(claim.cluster, [claim.snapshot_id]))
    _land_bronze(lake, claim, cluster, landed, until_s)
    if cluster.index_lookups:
        _land_samples(lake, claim, in_time(cluster, until_s), landed)
    return landed


def _land_bronze(lake: Lake, claim: Claim, cluster: ClusterConfig, landed: Landed, until_s: float) -> None:
    # Everything is read before anything is landed, because time that passes between two reads looks like lag. The
    # positions of clients come first, so that none is beyond the end of its log.
    positions = _read_positions(lake, claim, in_time(cluster, until_s), landed)
    source = SnapshotSource(source_options(in_time(cluster, until_s)))
    read = read_cluster(lake, source, staging_area("kafka", claim))
    now = utc_now()
    counted = read.counted(now)
    missing = ClusterRows({})
    if sums_by_kind(counted)[UNPROVEN]["rows"]:  # Kafka did not prove that its list has all groups
        landed.warnings["groups_unproven"] = 1
        missing = groups_not_gone(lake, claim, read, source_options(in_time(cluster, until_s)))
        now = utc_now()
        counted = pa.concat_tables([counted, missing.counted(now)])
    for broker, requests in zip(*(counted[name].to_pylist() for name in ("request_broker", "requests")), strict=True):
        landed.add_requests(broker, requests)
    counts = sums_by_kind(counted)
    lake.expect_rows(sum(counts[table.name]["rows"] for table in BRONZE))
    for table in BRONZE:
        rows = Rows.all_of([read.of_table(table), missing.of_table(table)], table.observed)
        landed.counts[table.name] = counts[table.name]
        _land_table(lake, claim, table, rows.at_most(_read_at(table), now), landed)
    if positions is not None:
        _land_positions(lake, claim, positions, landed)


def staging_area(name: str, claim: Claim) -> str:
    """Where a snapshot's rows are staged. Snapshots at STAGES successive instants of the schedule use different areas.

    The instants are counted, not the seconds: of a schedule of 7 s or 7 minutes, all snapshots would use the same area.
    """
    return f"{name}_{claim.cluster}_{claim.snapshot_id // claim.schedule_ms % STAGES}"


def _read_at(table: Table) -> list[str]:
    """When a row was read. If an executor's clock is ahead, its rows would look newer than those of later snapshots."""
    return [name for name in ("captured_at", "ends_at") if name in table.observed.names]


def _land_table(lake: Lake, claim: Claim, table: Table, rows: Rows, landed: Landed) -> None:
    counts = landed.counts[table.name]
    if may_fail(counts):
        verdict = judge_rows(rows, table)
        rows, landed.quarantined[table.name] = verdict.kept, len(verdict.refused)
        if verdict.failed:
            refused = quarantine_rows(verdict, table, _of_snapshot(claim))
            where = f"{of_snapshots(claim.cluster, [claim.snapshot_id])} AND `table` = '{table.name}'"
            lake.replace(QUARANTINE, Rows(refused), where)
            log.warning("%s: %d rows of %s quarantined", claim, len(verdict.refused), table.name)
    if _replace(lake, claim, table, rows) != counts["rows"] - landed.quarantined[table.name]:
        raise LakeError(STAGED_OVER)
    log.info("%s: %s: %d rows, %d errors", claim, table.name, counts["rows"], counts["errors"])


def _of_snapshot(claim: Claim) -> dict[str, Any]:
    """The values of the columns that name the snapshot."""
    return {
        "cluster": claim.cluster,
        "snapshot_id": claim.snapshot_id,
        "snapshot_date": utc_date(claim.snapshot_id),
    }


def _replace(lake: Lake, claim: Claim, table: Table, rows: Rows) -> int:
    """Replaces the rows of the snapshot by rows with the observed columns; returns how many were written."""
    where = of_snapshots(claim.cluster, [claim.snapshot_id])
    return lake.replace_counted(table, rows.with_constants(_of_snapshot(claim), table.schema), where)


def _read_positions(lake: Lake, claim: Claim, cluster: ClusterConfig, landed: Landed) -> Rows | None:
    """What clients report now; None if no positions are configured. If they cannot be read, the snapshot is partial."""
    if not cluster.positions:
        return None
    try:
        return read_client_positions(lake, cluster, claim.snapshot_id, staging_area("positions", claim))
    except Exception as exc:
        if not isinstance(exc, FAILURES):  # their tracebacks may show the options, with passwords
            log.debug("%s: unexpected", claim, exc_info=True)
        reason = reason_of(exc) if isinstance(exc, FAILURES) else unexpected(exc)
        landed.errors.append((CLIENT_POSITIONS.name, None, reason, 1))
        return None


def _land_positions(lake: Lake, claim: Claim, positions: Rows, landed: Landed) -> None:
    """Stores the clients' positions. If they cannot be stored, the snapshot is partial; no other table is affected.

    What was understood and holds no position is only a warning: it may be so for good, as of a producer.
    """
    try:
        landed.positions = _replace(lake, claim, CLIENT_POSITIONS, positions)
        has_errors = isinstance(positions.rows, DataFrame) or positions.rows["error"].null_count < landed.positions
        errors = error_entries(lake, CLIENT_POSITIONS, claim) if has_errors else []
    except ClaimedError:
        raise
    except FAILURES as exc:
        landed.errors.append((CLIENT_POSITIONS.name, None, reason_of(exc), 1))
        return
    failed, understood = without_understood(errors)
    landed.errors += failed
    if understood:
        landed.warnings[POSITIONS_MISSING] = understood
    log.info("%s: client_positions: %d rows, %d errors", claim, landed.positions, sum(entry[3] for entry in failed))


def _land_samples(lake: Lake, claim: Claim, cluster: ClusterConfig, landed: Landed) -> None:
    """Stores the results of look-ups by time. A snapshot is complete without them, so a failure is only a warning."""
    try:
        found = with_the_index(partial(_looked_up, lake, claim, cluster))
        is_count = found["requests"].is_valid()
        samples = found.filter(pc.invert(is_count)).select(LOG_SAMPLES.observed.names)
        landed.samples = _replace(lake, claim, LOG_SAMPLES, Rows(samples))
    except ClaimedError:
        raise
    except Exception as exc:
        if not isinstance(exc, FAILURES):  # the traceback of an error of Spark may show the options, with passwords
            log.debug("%s: unexpected", claim, exc_info=True)
        log.warning("%s: times could not be looked up: %s", claim, reason_of(exc))
        landed.warnings["lookups_failed"] = 1
        return
    unanswered = 0
    for row in found.filter(is_count).to_pylist():
        landed.add_requests(row["request_broker"], row["requests"])
        unanswered += row["unanswered"] or 0
    if unanswered:
        landed.warnings["lookups_unanswered"] = unanswered
    log.info("%s: %s: %d rows", claim, LOG_SAMPLES.name, landed.samples)


def _looked_up(lake: Lake, claim: Claim, cluster: ClusterConfig) -> pa.Table:
    """The results of the look-ups and the rows that count them: a few for each broker, because it has a budget."""
    samples = learnt_samples(
        lake,
        claim.cluster,
        claim.snapshot_id,
        cluster.source_options(),
        budget=cluster.index_lookups,
        with_tiered=cluster.index_lookups_tiered,
    )
    return samples.collected_table()


def reason_of(error: Exception) -> str:
    """The error in one line. For an exception in a data source, this is the message that the source raised."""
    if STAGED_OVER in str(error):  # which Spark wraps
        return STAGED_OVER
    lines = (line.strip() for line in str(error).splitlines())
    ours = [line.split(":", 1)[1].strip() for line in lines if line.startswith("pipeline.common.errors.")]
    return ours[-1] if ours else first_line(error)
