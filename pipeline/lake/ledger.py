"""The ledger (the table `snapshots`): which run takes which snapshot, and how it ended."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from pipeline.common.epoch import to_epoch_ms, utc_date, utc_text
from pipeline.common.errors import ClaimedError, LakeError, first_line
from pipeline.config import SnapshotConfig
from pipeline.lake import CONFLICT_TRIES, FAILURES, Clock, Lake, further_back, of_cluster
from pipeline.lake.predicates import of_each, of_snapshots
from pipeline.tables import COMPUTED, SNAPSHOTS

log = logging.getLogger(__name__)

WRITES_UNTIL = 0.9
"""The part of `max_duration` in which a run may begin to write."""
RUNNING, COMPLETE, PARTIAL, FAILED = "running", "complete", "partial", "failed"

ErrorEntry = tuple[str, str | None, str, int]
"""An entry of `snapshots.errors`: what could not be read, where, Kafka's error name or a reason in words, how often."""


@dataclass(frozen=True)
class Claim:
    """One run's request to take one snapshot. Once it is in the ledger, the run has the right to take the snapshot."""

    cluster: str
    snapshot_id: int
    run_id: str
    started_at: datetime
    is_takeover: bool = False
    schedule_ms: int = 1000

    def __str__(self) -> str:
        """The snapshot, as the log names it."""
        return f"{self.cluster} {utc_text(self.snapshot_id)}"


@dataclass(frozen=True)
class Summary:
    """The result of a snapshot."""

    status: str
    groups: int | None = None
    partitions: int | None = None
    rows: Mapping[str, int] = field(default_factory=dict)
    expected: Mapping[str, int] = field(default_factory=dict)
    errors: Sequence[ErrorEntry] = ()
    warnings: Mapping[str, int] = field(default_factory=dict)
    requests: Mapping[str, int] = field(default_factory=dict)
    capabilities: Mapping[str, str | None] = field(default_factory=dict)
    cluster_id: str | None = None

    @classmethod
    def of_failure(cls, cluster: str, reason: str) -> Summary:
        """The result of a snapshot that could not be taken at all.

        `cluster_id` is NULL even if one is configured: which cluster was asked, if any, is not known.
        """
        return cls(FAILED, errors=[("cluster", cluster, reason, 1)])

    @property
    def message(self) -> str:
        """The result in one line, for people."""
        errors = [
            f"{what}{f' {where}' if where else ''}: {error}{f', {count} times' if count > 1 else ''}"
            for what, where, error, count in self.errors[:3]
        ]
        more = [f"and {len(self.errors) - 3} more"] if len(self.errors) > 3 else []
        if self.status == FAILED:
            return "; ".join(errors + more)
        read = f"{self.groups} groups, {self.partitions} partitions, {self.rows.get('committed_offsets', 0)} commits"
        return "; ".join([read, *errors, *more])


def add_error(lake: Lake, cluster: str, snapshot_ids: Sequence[int], error: ErrorEntry) -> None:
    """Adds an entry to the `errors` of finished snapshots, unless it is already there."""
    # If another job has added an entry meanwhile, nothing is updated, and the row is read again.
    counts = (f"CASE WHEN {row}.errors IS NULL THEN 0 ELSE cardinality({row}.errors) END" for row in "ts")
    is_same = f"t.run_id = s.run_id AND t.status = s.status AND {' + 1 = '.join(counts)}"
    for _ in range(CONFLICT_TRIES):
        changed = []
        for row in lake.rows(SNAPSHOTS, of_snapshots(cluster, snapshot_ids)).collected():
            before = [tuple(entry.values()) for entry in row["errors"] or []]
            if error not in before:
                changed.append(tuple({**row, "errors": [*before, error]}.values()))
        if not changed or lake.merge(SNAPSHOTS, changed, cluster, is_same).updated == len(changed):
            return
    raise LakeError(f"gave up after {CONFLICT_TRIES} conflicts with other writers, the last: errors of {cluster}")


MOST_FILES = 50
"""Files of newer snapshots in the ledger and in `computed`, to which each snapshot adds one."""


def compact_newer(lake: Lake, cluster: str, newest: int) -> None:
    """Compacts the files of a cluster's newer snapshots in both tables, if they are many and Spark writes them.

    Otherwise a lake to which `maintain` is not applied would have as many files as snapshots. Where the driver writes,
    it does the same with each commit.
    """
    for table in (SNAPSHOTS, COMPUTED):
        try:
            any(lake.compact_if_many(table, f"{of_cluster(cluster)} AND {i}", MOST_FILES) for i in further_back(newest))
        except FAILURES as exc:  # other writers were faster; the rows are where they were
            log.warning("%s: its small files could not be compacted: %s", table.name, first_line(exc))


class Ledger:
    """Claims snapshots and writes their results. A claim is a MERGE of one row, so only one of two runs gets it."""

    def __init__(self, lake: Lake, config: SnapshotConfig, clock: Clock) -> None:
        self._lake = lake
        self._config = config
        self._clock = clock
        self._max_duration = timedelta(milliseconds=config.max_duration_ms)

    def claim(self, claim: Claim) -> Claim:
        """Claims the snapshot for this run. A failed one, or one with a claim older than `max_duration`, is taken over.

        Raises ClaimedError if another run is taking it, or has taken it.
        """
        stale = claim.started_at - self._max_duration
        may_take_over = (
            f"t.status = '{FAILED}' OR (t.status = '{RUNNING}' AND "
            f"t.started_at < TIMESTAMP'{stale.strftime('%Y-%m-%d %H:%M:%S.%f')}+00:00')"
        )
        merged = self._lake.merge(SNAPSHOTS, [self._row(claim, Summary(RUNNING), None)], claim.cluster, may_take_over)
        if merged.inserted:
            return claim
        row = self._read(claim)
        if row["run_id"] == claim.run_id:
            return replace(claim, is_takeover=True)
        raise ClaimedError(**row)

    def claims_of(self, clusters: Collection[str], snapshot_id: int) -> dict[str, ClaimedError]:
        """Which run has claimed the snapshot of each cluster, and how it ended; nothing for a cluster without a row."""
        return {cluster: ClaimedError(**row) for cluster, row in self._rows(clusters, snapshot_id).items()}

    def check(self, claim: Claim) -> None:
        """Raises LakeError if another run may soon take the claim over: then this run must not begin to write.

        The last tenth of `max_duration` is for the write itself, because Spark may take seconds before it reads which
        version of the table it replaces.
        """
        if self._clock() - claim.started_at >= self._max_duration * WRITES_UNTIL:
            raise LakeError("took longer than nine tenths of snapshot.max_duration")

    def finish(self, claim: Claim, summary: Summary) -> None:
        """Writes the result. Raises ClaimedError if another run has taken the claim over."""
        is_ours = f"t.run_id = '{claim.run_id}' AND t.status = '{RUNNING}'"
        merged = self._lake.merge(SNAPSHOTS, [self._row(claim, summary, self._clock())], claim.cluster, is_ours)
        if merged.updated:
            return
        # No row is updated either if this is a retry, and the first try was committed after all.
        row = self._read(claim)
        if (row["run_id"], row["status"]) != (claim.run_id, summary.status):
            raise ClaimedError(**row)

    def known_cluster_id(self, cluster: str) -> str | None:
        """The id of the Kafka cluster that was last read under this name; None if there is none yet."""
        for where in (*further_back(to_epoch_ms(self._clock())), "true"):
            newest = self._lake.query(
                f"SELECT cluster_id FROM {{snapshots}} WHERE {of_cluster(cluster)} AND cluster_id IS NOT NULL "
                f"AND {where} ORDER BY snapshot_id DESC LIMIT 1",
                SNAPSHOTS,
            )
            if newest:
                return str(newest[0]["cluster_id"])
        return None

    def record(self, cluster: str, done: Sequence[tuple[Claim, Summary]]) -> None:
        """Writes the rows of finished snapshots that need no claim, because they are those of a recording."""
        rows = [self._row(claim, summary, self._clock()) for claim, summary in done]
        self._lake.merge(SNAPSHOTS, rows, cluster)

    def _read(self, claim: Claim) -> dict[str, Any]:
        return self._rows([claim.cluster], claim.snapshot_id)[claim.cluster]

    def _rows(self, clusters: Collection[str], snapshot_id: int) -> dict[str, dict[str, Any]]:
        where = of_each({cluster: [snapshot_id] for cluster in clusters})
        rows = self._lake.rows(SNAPSHOTS, where, "cluster", "run_id", "status", "started_at").collected()
        return {
            row["cluster"]: {"run_id": row["run_id"], "status": row["status"], "since": row["started_at"]}
            for row in rows
        }

    def _row(self, claim: Claim, summary: Summary, finished_at: datetime | None) -> tuple[Any, ...]:
        return (
            claim.cluster,
            claim.snapshot_id,
            utc_date(claim.snapshot_id),
            claim.run_id,
            summary.status,
            claim.started_at,
            finished_at,
            self._config.schedule_ms,
            summary.groups,
            summary.partitions,
            dict(summary.rows),
            dict(summary.expected),
            list(summary.errors),
            dict(summary.warnings),
            dict(summary.requests),
            dict(summary.capabilities),
            summary.cluster_id,
        )
