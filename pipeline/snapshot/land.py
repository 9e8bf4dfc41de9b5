"""Lands a snapshot: reads a cluster once, stages the rows, and writes them to the bronze tables.

docs/snapshot-protocol.md says what a failure at each step leaves behind.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F

from pipeline.client_positions.nothing_found import POSITIONS_MISSING, without_understood
from pipeline.common.epoch import utc_date
from pipeline.common.errors import ClaimedError, LakeError, first_line
from pipeline.common.rows import Rows
from pipeline.config import ClusterConfig
from pipeline.derive.log_index import with_the_index
from pipeline.kafka.lookups import SAMPLES
from pipeline.kafka.snapshot import KIND, UNPROVEN, SnapshotSource
from pipeline.lake import FAILURES, Lake, of_snapshots
from pipeline.lake.few_rows import FEW_FOR_SPARK
from pipeline.lake.ledger import Claim
from pipeline.quality import is_suspect, quarantine_failing, with_marks
from pipeline.snapshot.client_positions import read_client_positions
from pipeline.snapshot.few_rows import few_rows_of
from pipeline.snapshot.missing_groups import groups_not_gone
from pipeline.snapshot.summary import Landed, counts, error_entries
from pipeline.snapshot.time_lookups import learnt_samples
from pipeline.tables import BRONZE, CLIENT_POSITIONS, LOG_SAMPLES, QUARANTINE, Table

log = logging.getLogger(__name__)

STAGES = 7
"""The number of staging areas that a cluster's snapshots use in turn, so that a late run does not meet the next one."""
STAGED_OVER = "another run has staged its rows where this one had: does another run take snapshots of this cluster?"


class Read(NamedTuple):
    """The rows that were read for a bronze table: how many, and whether some of them may fail the gate."""

    rows: int
    is_suspect: bool


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
    positions = _staged_positions(lake, claim, in_time(cluster, until_s), landed)
    staged, read = _staged_cluster(lake, claim, cluster, until_s, landed)
    lake.expect_rows(sum(read[table.name].rows for table in BRONZE))
    for table in BRONZE:
        _land_table(lake, claim, table, staged, landed, read[table.name].rows)
        if landed.counts[table.name]["rows"] != read[table.name].rows:
            raise LakeError(STAGED_OVER)
    if positions is not None:
        _land_positions(lake, claim, positions, landed)
    for table in BRONZE:
        if read[table.name].is_suspect:
            verdict = quarantine_failing(lake, table, claim.cluster, claim.snapshot_id)
            landed.quarantined[table.name] = verdict.quarantined


def _staged_cluster(
    lake: Lake, claim: Claim, cluster: ClusterConfig, until_s: float, landed: Landed
) -> tuple[DataFrame, dict[str, Read]]:
    """The staged rows of the cluster, and what was read for each bronze table.

    If Kafka did not prove that its list has all groups, those that the snapshot before had are asked for by name.
    """
    source = SnapshotSource(source_options(in_time(cluster, until_s)))
    few = few_rows_of(lake, claim, source, landed)
    if few is None:
        options = source_options(in_time(cluster, until_s))
        rows = lake.spark.read.format(source.name()).options(**options).load()
    else:
        rows = Rows(few).frame(lake.spark, source.schema())
    if few is None or len(few) >= FEW_FOR_SPARK:
        staged = _staged(lake, claim, "kafka", rows)
    else:
        staged = rows.withColumn("is_others", F.lit(False))  # nobody else can replace rows of this process
    read = _read(staged, landed)
    if not read[UNPROVEN].rows:
        return staged, read
    landed.warnings["groups_unproven"] = 1
    missing = groups_not_gone(lake, claim, staged, source_options(in_time(cluster, until_s)))
    if missing is None:
        return staged, read
    missing = _staged(lake, claim, "missing_groups", missing)
    more = _read(missing, landed)
    return staged.unionByName(missing), {name: _sum(one, more[name]) for name, one in read.items()}


def _sum(one: Read, other: Read) -> Read:
    return Read(one.rows + other.rows, one.is_suspect or other.is_suspect)


def _staged(lake: Lake, claim: Claim, name: str, rows: DataFrame) -> DataFrame:
    """Reads a source once and stages its rows; the DataFrame that is returned reads the staged rows.

    Another run that uses the same staging area replaces these rows. `is_others` is true for rows of another run:
    without this column, replaced rows could look like an empty cluster.
    """
    run = F.lit(claim.run_id)
    staged = lake.stage(staging_area(name, claim), rows.withColumn("run_id", run))
    return staged.withColumn("is_others", F.col("run_id") != run).drop("run_id")


def staging_area(name: str, claim: Claim) -> str:
    """Where a snapshot's rows are staged. Snapshots at STAGES successive instants of the schedule use different areas.

    The instants are counted, not the seconds: of a schedule of 7 s or 7 minutes, all snapshots would use the same area.
    """
    return f"{name}_{claim.cluster}_{claim.snapshot_id // claim.schedule_ms % STAGES}"


def _read(staged: DataFrame, landed: Landed) -> dict[str, Read]:
    """What was read for each bronze table, and of the kind UNPROVEN. The requests to each broker are added to `landed`.

    Raises LakeError if the staged rows are another run's.
    """
    counted = (
        with_marks(staged, KIND)
        .groupBy(KIND, "request_broker", "is_others")
        .agg(F.count(F.lit(1)).alias("rows"), F.sum("requests").alias("requests"), is_suspect().alias("is_suspect"))
    )
    read = {kind: Read(0, False) for kind in (*(table.name for table in BRONZE), UNPROVEN)}
    for row in counted.collect():
        if row["is_others"]:
            raise LakeError(STAGED_OVER)
        if row[KIND] in read:
            read[row[KIND]] = Read(row["rows"], row["is_suspect"])
        landed.add_requests(row["request_broker"], row["requests"])
    return read


def _staged_positions(lake: Lake, claim: Claim, cluster: ClusterConfig, landed: Landed) -> DataFrame | None:
    """The staged rows of what clients report now. If they cannot be read, the snapshot continues and is partial."""
    reported = read_client_positions(lake.spark, cluster, claim.snapshot_id)
    if reported is None:
        return None
    try:
        return _staged(lake, claim, "positions", reported)
    except FAILURES as exc:
        landed.errors.append((CLIENT_POSITIONS.name, None, reason_of(exc), 1))
        return None


def _land_positions(lake: Lake, claim: Claim, positions: DataFrame, landed: Landed) -> None:
    """Stores the clients' positions. If they cannot be stored, the snapshot is partial; no other table is affected.

    What was understood and holds no position is only a warning: it may be so for good, as of a producer.
    """
    is_own = ~F.col("is_others")
    wanted = {"rows": is_own, "errors": is_own & F.col("error").isNotNull(), "others": F.col("is_others")}

    def counted(seen: Observation) -> DataFrame:
        return positions.observe(seen, *(F.count_if(what).alias(name) for name, what in wanted.items())).where(is_own)

    try:
        found = _replace(lake, claim, CLIENT_POSITIONS, counted)
    except ClaimedError:
        raise
    except FAILURES as exc:
        landed.errors.append((CLIENT_POSITIONS.name, None, reason_of(exc), 1))
        return
    landed.positions, errors, others = (found[name] for name in wanted)
    if others:
        landed.errors.append((CLIENT_POSITIONS.name, None, STAGED_OVER, 1))
    if errors:
        rows = lake.frame(CLIENT_POSITIONS, of_snapshots(claim.cluster, [claim.snapshot_id]))
        failed, understood = without_understood(error_entries(rows, CLIENT_POSITIONS.name, F.col("endpoint")))
        landed.errors += failed
        if understood:
            landed.warnings[POSITIONS_MISSING] = understood
            errors -= understood
    log.info("%s: client_positions: %d rows, %d errors", claim, landed.positions, errors)


def _land_samples(lake: Lake, claim: Claim, cluster: ClusterConfig, landed: Landed) -> None:
    """Stores the results of look-ups by time. A snapshot is complete without them, so a failure is only a warning."""
    try:
        found = with_the_index(partial(_looked_up, lake, claim, cluster, landed))
    except ClaimedError:
        raise
    except Exception as exc:
        if not isinstance(exc, FAILURES):  # the traceback of an error of Spark may show the options, with passwords
            log.debug("%s: unexpected", claim, exc_info=True)
        log.warning("%s: times could not be looked up: %s", claim, reason_of(exc))
        landed.warnings["lookups_failed"] = 1
        return
    for row in json.loads(found["requests"]):
        landed.add_requests(row.get("request_broker"), row["requests"])
    landed.samples = found["rows"]
    if found["unanswered"]:
        landed.warnings["lookups_unanswered"] = found["unanswered"]
    log.info("%s: %s: %d rows", claim, LOG_SAMPLES.name, landed.samples)


def _looked_up(lake: Lake, claim: Claim, cluster: ClusterConfig, landed: Landed) -> dict[str, Any]:
    """Makes the look-ups and stores their results; returns the counts of rows, of requests and of missing answers."""
    samples = learnt_samples(
        lake,
        claim.cluster,
        claim.snapshot_id,
        cluster.source_options(),
        budget=cluster.index_lookups,
        with_tiered=cluster.index_lookups_tiered,
    )
    counts = (F.count("topic").alias("rows"), F.sum("unanswered").alias("unanswered"))
    # As text, because Spark 4.0 returns an observed list to Python as a Java object.
    requests = F.to_json(F.collect_list(_request_count())).alias("requests")
    # Each look-up gives at most two rows: the record that was found, and that the records before it are older.
    most = 2 * cluster.index_lookups * max(len(landed.brokers), 1)

    def counted(seen: Observation) -> DataFrame:
        return samples.frame(lake.spark, SAMPLES).observe(seen, *counts, requests).where(F.col("requests").isNull())

    return _replace(lake, claim, LOG_SAMPLES, counted, most)


def _land_table(lake: Lake, claim: Claim, table: Table, staged: DataFrame, landed: Landed, most: int) -> None:
    wanted = counts(table)
    rows = staged.where((F.col(KIND) == table.name) & ~F.col("is_others")).select(*table.observed.names)

    def counted(seen: Observation) -> DataFrame:
        return not_in_future(rows.observe(seen, *(c.alias(name) for name, c in wanted.items())))

    found = _replace(lake, claim, table, counted, most)
    landed.counts[table.name] = {name: found[name] for name in wanted}
    log.info("%s: %s: %d rows, %d errors", claim, table.name, found["rows"], found["errors"])


def _replace(
    lake: Lake, claim: Claim, table: Table, counted: Callable[[Observation], DataFrame], most: int | None = None
) -> dict[str, Any]:
    """Replaces the rows of the snapshot by those that `counted` returns; returns what their observation has counted."""
    of_snapshot = {
        "cluster": F.lit(claim.cluster),
        "snapshot_id": F.lit(claim.snapshot_id).cast("bigint"),
        "snapshot_date": F.lit(utc_date(claim.snapshot_id)),
    }
    where = of_snapshots(claim.cluster, [claim.snapshot_id])
    return lake.replace_observed(table, lambda seen: counted(seen).withColumns(of_snapshot), where, most)


def not_in_future(rows: DataFrame) -> DataFrame:
    """The rows, with times after now (by the driver's clock) set to now.

    If an executor's clock is ahead, its rows would otherwise look newer than those of the next snapshots.
    """
    now = F.current_timestamp()
    read_at = [name for name in ("captured_at", "ends_at") if name in rows.columns]
    return rows.withColumns({name: F.when(F.col(name) > now, now).otherwise(F.col(name)) for name in read_at})


def _request_count() -> Column:
    """The leader and the number of requests, in a row that counts them (one for each leader); NULL in other rows."""
    return F.when(F.col("requests").isNotNull(), F.struct("request_broker", "requests"))


def reason_of(error: Exception) -> str:
    """The error in one line. For an exception in a data source, this is the message that the source raised."""
    lines = (line.strip() for line in str(error).splitlines())
    ours = [line.split(":", 1)[1].strip() for line in lines if line.startswith("pipeline.common.errors.")]
    return ours[-1] if ours else first_line(error)
