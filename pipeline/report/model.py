"""What the report shows, as plain values: no Spark, no HTML.

Lags are numbers of offsets, instants are epoch ms. None means unknown and never stands for 0.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from datetime import datetime

from pipeline.report.details_model import Danger, Distribution, Finding, Gauge, Loss, Partition
from pipeline.report.selection import Selection

DATA_LOSS = "deleted_unread"
OFFSET_STATUSES = (
    *(DATA_LOSS, "truncated", "beyond_end", "recreated", "no_watermark"),
    *("deleted_uncommitted", "no_commit", "ok"),
)
"""`lag.offset_status`, what needs attention first."""
NO_PROGRESS = ("stopped", "stalled", "not_progressing")
"""`group_status.status` of groups whose records are waiting."""
UNKNOWN = "unknown"
"""Stands for an offset_status of NULL."""
_BY_SEVERITY = (*OFFSET_STATUSES[:5], UNKNOWN, *OFFSET_STATUSES[5:])


@dataclass(frozen=True)
class Problem:
    """One entry of `snapshots.errors`: what could not be read, where, why, how often."""

    what: str | None
    where: str | None
    error: str | None
    count: int | None


@dataclass(frozen=True)
class Snapshot:
    """One row of the ledger. `errors` holds the first of `errors_total` entries."""

    cluster: str
    snapshot_id: int
    status: str
    started_ms: int | None
    finished_ms: int | None
    groups: int | None
    partitions: int | None
    expected: dict[str, int | None]
    warnings: dict[str, int | None]
    errors: tuple[Problem, ...]
    errors_total: int


@dataclass(frozen=True)
class Cluster:
    """One cluster's ledger in numbers.

    `snapshot_id`, `status`, `error` and what was read are the newest ended snapshot's (the newest running one's if none
    has ended). `last_snapshot_id` is the newest of all, `lag_snapshot_id` the newest with lag (None: none yet).
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


@dataclass(frozen=True)
class Group:
    """One consumer group at one snapshot.

    `consumer_lag` and its kin sum the partitions where it is known, None if it is known for none; the partitions where
    it should be known and is not are counted beside it (`partitions_unknown`). A partition without a commit
    has no lag and is not unknown: it is counted in `statuses`. Sums are signed, as lags are.
    `unread_offsets` is how many offsets were deleted before the group had read them. `not_committed_offsets` is how
    many the group may still read in its partitions without a commit, at most: all of them if it begins at the earliest
    offset; None if there is no such partition, or its log is not known. `client_id` is one of `clients`.
    `consumer_lag_bytes` and `bytes_error` are summed likewise, over all but `bytes_unknown` of the partitions with a
    lag. `consumer_lag_ms` is that of the partition which is furthest behind in time, `time_error_ms` its stated error;
    `ms_unknown` like `bytes_unknown`. `status` is that of `group_status`, which `status_partitions` of the partitions
    have; None if it was not judged. `consumer_age_ms` is the age of the oldest record that is not committed, with
    `age_error_ms` and `age_unknown`.
    """

    cluster: str
    snapshot_id: int
    group_id: str
    partitions: int
    partitions_unknown: int
    consumer_lag: int | None
    max_consumer_lag: int | None
    consumer_lag_stable: int | None
    stable_unknown: int
    transaction_lag: int | None
    min_headroom: int | None
    unread_offsets: int | None
    statuses: dict[str, int]
    group_state: str | None
    group_type: str | None
    members: int
    clients: int
    client_id: str | None
    rows_with_error: int
    error: str | None
    consumer_lag_bytes: int | None = None
    bytes_error: int | None = None
    bytes_unknown: int = 0
    consumer_lag_ms: int | None = None
    time_error_ms: int | None = None
    ms_unknown: int = 0
    consumer_age_ms: int | None = None
    age_error_ms: int | None = None
    age_unknown: int = 0
    not_committed_offsets: int | None = None
    status: str | None = None
    status_since_ms: int | None = None
    status_reason: str | None = None
    status_partitions: int | None = None

    @property
    def key(self) -> tuple[str, str]:
        """What identifies the group: names are only unique within a cluster."""
        return self.cluster, self.group_id

    @property
    def has_lost_data(self) -> bool:
        """Whether records were deleted before the group had read them."""
        return DATA_LOSS in self.statuses

    @property
    def statuses_by_severity(self) -> list[tuple[str, int]]:
        """How many partitions have each offset_status, the worst first."""
        return [(name, self.statuses[name]) for name in _BY_SEVERITY if name in self.statuses]

    @property
    def severity(self) -> int:
        """What the offsets are sorted by: higher is worse, 0 is all ok."""
        worst = self.statuses_by_severity[0][0] if self.statuses else OFFSET_STATUSES[-1]
        return len(_BY_SEVERITY) - 1 - _BY_SEVERITY.index(worst)

    @property
    def why_no_lag(self) -> str:
        """The word that stands where a lag of None would."""
        return "unknown" if self.partitions_unknown else "no commit"


@dataclass(frozen=True)
class Totals:
    """All groups of one cluster at the snapshot shown, also those that the page leaves out.

    `not_committed_offsets` sums those of the `groups_not_committed`, None if one of them is not known.
    """

    cluster: str
    groups: int
    groups_unknown: int
    groups_with_loss: int
    groups_truncated: int = 0
    groups_beyond_end: int = 0
    groups_recreated: int = 0
    groups_deleted_uncommitted: int = 0
    groups_not_committed: int = 0
    not_committed_offsets: int | None = None


@dataclass(frozen=True)
class Instant:
    """A snapshot that the chart shows. A line joins two neighbours only if their `segment` is the same.

    `total` is how many snapshots of the cluster have lag; fewer instants than that means they were thinned.
    `captured_ms` is when the snapshot was read, which may be long after the instant that it was scheduled for.
    """

    cluster: str
    snapshot_id: int
    segment: int
    total: int
    captured_ms: int | None = None

    @property
    def read_ms(self) -> int:
        """Where the chart draws it: when it was read, as far as that is known."""
        return self.snapshot_id if self.captured_ms is None else self.captured_ms


@dataclass(frozen=True)
class Point:
    """A group at one instant: sums of the known partitions, None if none is known; times are the greatest.

    `log_ends` and `commits` sum the high watermarks and the committed offsets, None unless all are known: how much both
    move is what is produced and consumed, as long as the `partitions` are the same. `deleted` counts those whose
    records were deleted unread. `captured_ms` and `committed_captured_ms` are when the ends of its logs and its commits
    were read, in the mean of its partitions: rates are divided by these, as a snapshot may be late.
    """

    cluster: str
    snapshot_id: int
    group_id: str
    consumer_lag: int | None
    partitions_unknown: int
    consumer_lag_bytes: int | None = None
    bytes_unknown: int = 0
    consumer_lag_ms: int | None = None
    ms_unknown: int = 0
    partitions: int = 1
    deleted: int = 0
    log_ends: int | None = None
    commits: int | None = None
    consumer_age_ms: int | None = None
    age_unknown: int = 0
    captured_ms: int | None = None
    committed_captured_ms: int | None = None

    @property
    def ends_ms(self) -> int:
        """When `log_ends` were read; the scheduled instant where that is not known."""
        return self.snapshot_id if self.captured_ms is None else self.captured_ms

    @property
    def commits_ms(self) -> int:
        """When `commits` were read; the scheduled instant where that is not known."""
        return self.snapshot_id if self.committed_captured_ms is None else self.committed_captured_ms


@dataclass(frozen=True)
class Report:
    """Everything on the page. `groups` are worst first, `charted` are the first of them."""

    title: str
    generated_at: datetime
    clusters: tuple[Cluster, ...] = ()
    snapshots: tuple[Snapshot, ...] = ()
    groups: tuple[Group, ...] = ()
    totals: dict[str, Totals] = field(default_factory=dict)
    instants: tuple[Instant, ...] = ()
    points: tuple[Point, ...] = ()
    charted: tuple[Group, ...] = ()
    partitions: tuple[Partition, ...] = ()
    dangers: tuple[Danger, ...] = ()
    losses: tuple[Loss, ...] = ()
    findings: tuple[Finding, ...] = ()
    findings_open: int = 0
    findings_total: int = 0
    gauges: tuple[Gauge, ...] = ()
    distributions: tuple[Distribution, ...] = ()
    refused: int = 0
    selection: Selection = field(default_factory=Selection)
    days: int | None = None
    """Only so many days up to each cluster's newest snapshot are shown; None where a beginning was asked for."""

    @property
    def snapshots_total(self) -> int:
        """How many snapshots the lake holds, listed or not."""
        return sum(c.snapshots for c in self.clusters)

    def bar(self, finding: Finding) -> tuple[float, float]:
        """Where a finding begins within the time of the snapshots, and how long it is, in per cent."""
        first = min(c.first_snapshot_id for c in self.clusters)
        span = max(max(c.last_snapshot_id for c in self.clusters) - first, 1)
        end_ms = finding.last_seen_ms if finding.resolved_ms is None else finding.resolved_ms
        start, end = (min(max(100 * (ms - first) / span, 0), 100) for ms in (finding.first_seen_ms, end_ms))
        return round(min(start, 99), 2), round(max(end - start, 1), 2)

    @property
    def groups_total(self) -> int:
        """How many groups there are at the snapshots shown, listed or not."""
        return sum(t.groups for t in self.totals.values())


def names_of(row: type) -> list[str]:
    """The columns that a class of this module is made of."""
    return [f.name for f in fields(row)]


def by_lag(groups: Iterable[Group]) -> list[Group]:
    """Most lag first; a group without a known lag comes after all others."""
    return sorted(groups, key=lambda g: (g.consumer_lag is None, -(g.consumer_lag or 0), g.key))
