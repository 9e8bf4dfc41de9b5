"""What the report shows of the ledger, as plain values, with the units of `model.report`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PassedOver:
    """The snapshots of a cluster that were read, but whose lag can never be computed: how many, the first and the last.

    `reason` is that of the last; `has_other_reasons` says whether there are others. The ids are epoch ms.
    """

    snapshots: int
    first_id: int
    last_id: int
    reason: str
    has_other_reasons: bool


@dataclass(frozen=True)
class SnapshotError:
    """An entry of `snapshots.errors`: what could not be read, where, why, and how often."""

    what: str | None
    where: str | None
    error: str | None
    count: int | None


@dataclass(frozen=True)
class Snapshot:
    """A row of the ledger. `errors` has only the first of `errors_total` entries."""

    cluster: str
    snapshot_id: int
    status: str
    started_ms: int | None
    finished_ms: int | None
    groups: int | None
    partitions: int | None
    expected: dict[str, int | None]
    warnings: dict[str, int | None]
    errors: tuple[SnapshotError, ...]
    errors_total: int


@dataclass(frozen=True)
class Cluster:
    """The ledger of one cluster in numbers.

    `snapshot_id`, `status`, `error` and the numbers of what was read are those of the newest ended snapshot, or of the
    newest running one if none has ended. `last_snapshot_id` is the newest of all, `lag_snapshot_id` the newest with lag
    (None if there is none yet). `passed_over` is None if there is no such snapshot.
    """

    cluster: str
    snapshot_id: int
    status: str
    error: str | None
    groups: int | None
    partitions: int | None
    expected: dict[str, int | None]
    first_snapshot_id: int
    last_snapshot_id: int
    lag_snapshot_id: int | None
    snapshots: int
    complete: int
    partial: int
    failed: int
    running: int
    passed_over: PassedOver | None = None
