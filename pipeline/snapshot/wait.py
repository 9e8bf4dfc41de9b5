"""Waits for other runs that have claimed snapshots, because the exit status says whether there is a snapshot."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime, timedelta
from time import monotonic, sleep

from pyspark.sql import SparkSession

from pipeline.common.epoch import utc, utc_text
from pipeline.common.errors import first_line
from pipeline.config import Config, SnapshotConfig
from pipeline.lake import FAILURES, Clock, Lake
from pipeline.lake.ledger import Ledger
from pipeline.snapshot.take import UNFINISHED, SnapshotOutcome, first_of

log = logging.getLogger(__name__)

LOOK_EVERY_S = 5.0
"""How often the ledger is read. A snapshot takes seconds, or minutes."""


def wait_for_others(
    spark: SparkSession | None, config: Config, outcomes: Sequence[SnapshotOutcome], at: datetime, clock: Clock
) -> list[SnapshotOutcome]:
    """The outcomes once no other run is taking a snapshot any more, or when a new snapshot may be due.

    A killed run leaves a claim that looks like that of a run at work, so only waiting tells the two apart. Nothing is
    taken over here. The wait ends when the next snapshot is due, because a scheduler may not start the next run before,
    or when `at`, the instant of this run, is `max_delay` old.
    """
    current = {outcome.cluster: outcome for outcome in outcomes}
    waiting = [outcome.cluster for outcome in outcomes if outcome.status == UNFINISHED]
    if not waiting:
        return list(outcomes)
    snapshot_id = current[waiting[0]].snapshot_id
    next_due = utc(snapshot_id + config.snapshot.schedule_ms)
    until = min(next_due, at + timedelta(milliseconds=config.snapshot.max_delay_ms))
    # A clock that is set back must not extend the wait, so a second clock limits it.
    until_s = monotonic() + (until - clock()).total_seconds()
    log.info("%s: this run waits for other runs until %s UTC at most", ", ".join(waiting), f"{until:%Y-%m-%d %H:%M:%S}")
    ledger = Ledger(Lake(spark, config.lake), config.snapshot, clock)
    while True:
        try:
            for cluster, claimed in ledger.claims_of(waiting, snapshot_id).items():
                current[cluster] = SnapshotOutcome.of_another_run(cluster, snapshot_id, claimed)
        except FAILURES as exc:  # such as a passing fault of the store
            log.warning("the ledger cannot be read: %s", first_line(exc))
        waiting = [cluster for cluster in waiting if may_be_finished(current[cluster], config.snapshot, clock())]
        left_s = min((until - clock()).total_seconds(), until_s - monotonic())
        if not waiting or left_s <= 0:
            return list(current.values())
        sleep(min(LOOK_EVERY_S, left_s))


def may_be_finished(outcome: SnapshotOutcome, config: SnapshotConfig, now: datetime) -> bool:
    """Whether another run has claimed the snapshot, and its claim holds."""
    return outcome.claimed_at is not None and now <= expires_at(outcome.claimed_at, config)


def expires_at(claimed_at: datetime, config: SnapshotConfig) -> datetime:
    """When another run may take a claim over."""
    return claimed_at + timedelta(milliseconds=config.max_duration_ms)


def not_finished(outcomes: Sequence[SnapshotOutcome], config: SnapshotConfig) -> str | None:
    """What a job says at last if other runs have claimed snapshots and have not finished them; None if there is none.

    A retry can take such a snapshot only after the claim has expired, and before the snapshot is `max_delay` old.
    """
    claims = {f"{o.cluster}: {o.message}": o for o in outcomes if o.claimed_at is not None}
    if not claims:
        return None
    said = f"no snapshot yet: {first_of(list(claims))}: if that run was killed, "
    snapshot_id = outcomes[0].snapshot_id
    free_at = max(expires_at(o.claimed_at, config) for o in claims.values() if o.claimed_at is not None)
    if free_at < utc(snapshot_id) + timedelta(milliseconds=config.max_delay_ms):
        return f"{said}a retry with --at {utc_text(snapshot_id)} can take it after {free_at:%Y-%m-%d %H:%M:%S} UTC"
    return f"{said}the next run takes the next one"
