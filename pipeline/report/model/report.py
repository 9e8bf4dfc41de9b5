"""What the report shows, as plain values: no Spark, no HTML.

Lags are numbers of offsets, instants are epoch ms. None means unknown and never stands for 0.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from datetime import datetime

from pipeline.report.model.details import (
    Change,
    Distribution,
    Finding,
    Forecast,
    Gauge,
    Names,
    Objective,
    Partition,
    Verdict,
)
from pipeline.report.model.heat import Missed, OtherPartitions, PartitionSeries
from pipeline.report.model.ledger import Cluster, Snapshot
from pipeline.report.model.selection import Selection
from pipeline.tables import DATA_LOSS, OFFSET_STATUSES, UNKNOWN_OFFSET

NO_PROGRESS = ("stopped", "stalled", "not_progressing")
"""The values of `group_status.status` for groups that make no progress although records are waiting."""
_BY_SEVERITY = (*OFFSET_STATUSES[:5], UNKNOWN_OFFSET, *OFFSET_STATUSES[5:])


@dataclass(frozen=True)
class Group:
    """One consumer group at one snapshot.

    `consumer_lag` and similar values are sums over the partitions where the lag is known; None if it is known for none.
    `partitions_unknown` is the number of partitions whose lag is not known. A partition without a commit has no lag,
    but does not count as unknown: it is counted in `statuses`. So is a partition that is committed beyond the end; its
    negative lag counts as 0.
    `unread_offsets` is how many offsets were deleted before the group had read them.
    `not_committed_offsets` is how many the group may still read in its partitions without a commit, at most: all of
    them if it begins at the earliest offset; None if there is no such partition, or its log is not known. `client_id`
    is one of `clients`.
    `consumer_lag_bytes` and `bytes_error` are sums, too, over all partitions with a lag except `bytes_unknown` of them.
    `consumer_lag_ms` is that of the partition which is furthest behind in time, with its error `time_error_ms`;
    `ms_unknown` is like `bytes_unknown`. `status` is that of `group_status`, None if it was not judged;
    `status_partitions` is the number of partitions with this status. `consumer_age_ms` is the age of the oldest record
    that is not committed, with `age_error_ms` and `age_unknown`. `members_seen_ms` is when the group last had members.
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
    owner: str | None = None
    tier: str | None = None
    channel: str | None = None
    members_seen_ms: int | None = None

    @property
    def key(self) -> tuple[str, str]:
        """The key that identifies the group, because names are only unique within a cluster."""
        return self.cluster, self.group_id

    @property
    def is_without_members(self) -> bool:
        """Whether the group is known to have no members; `members` is also 0 while it assigns partitions."""
        return not self.members and self.group_state in ("Empty", "Dead")

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
        """The sort key for groups by their offsets: higher is worse, 0 means that all are ok."""
        worst = self.statuses_by_severity[0][0] if self.statuses else OFFSET_STATUSES[-1]
        return len(_BY_SEVERITY) - 1 - _BY_SEVERITY.index(worst)

    @property
    def why_no_lag(self) -> str:
        """The word that is shown if the lag is None."""
        return "unknown" if self.partitions_unknown else "no commit"

    @property
    def has_only_markers(self) -> bool:
        """Whether it is known that only transaction markers are unread: the oldest unread record then has the age 0."""
        is_known = not (self.partitions_unknown or self.age_unknown or (self.min_headroom or 0) < 0)
        return is_known and self.status_reason == "transaction_marker" and self.consumer_age_ms == 0

    @property
    def why_status(self) -> str | None:
        """The reason of the status in words; None if it has none."""
        if self.status_reason != "transaction_marker":
            return self.status_reason and self.status_reason.replace("_", " ")
        if self.has_only_markers:
            return "no record is unread: only transaction markers are left"
        if self.consumer_lag == 1:
            return "at most 1 record is unread; it may be a transaction marker"
        return f"at most {self.consumer_lag or 0:,} records are unread; some may be transaction markers"


@dataclass(frozen=True)
class Totals:
    """All groups of one cluster at the snapshot shown, including those that the page leaves out.

    `not_committed_offsets` is the sum over the `groups_not_committed`; None if one of them is not known.
    """

    cluster: str
    groups: int
    groups_unknown: int
    groups_with_loss: int
    groups_deleted_uncommitted: int = 0
    groups_not_committed: int = 0
    not_committed_offsets: int | None = None


@dataclass(frozen=True)
class Instant:
    """A snapshot in the chart. A line joins two neighbours only if their `segment` is the same.

    `total` is how many snapshots of the cluster have lag; if there are fewer instants, they were thinned. `captured_ms`
    is when the snapshot was read, which may be long after the instant that it was scheduled for.
    """

    cluster: str
    snapshot_id: int
    segment: int
    total: int
    captured_ms: int | None = None

    @property
    def read_ms(self) -> int:
        """Where the chart draws it: when it was read, or if not known, the scheduled instant."""
        return self.snapshot_id if self.captured_ms is None else self.captured_ms


@dataclass(frozen=True)
class Point:
    """A group at one instant: sums over the known partitions, None if none is known; times are maxima.

    `log_ends` and `commits` are the sums of the high watermarks and of the committed offsets, None unless all are
    known: their changes are what is written and committed, as long as the `partitions` are the same. `deleted` is the
    number of partitions whose records were deleted unread. `captured_ms` and `committed_captured_ms` are the mean times
    at which the log ends and the commits of its partitions were read; rates are computed from these, because a snapshot
    may be late.
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
        """When `log_ends` were read; if not known, the scheduled instant."""
        return self.snapshot_id if self.captured_ms is None else self.captured_ms

    @property
    def commits_ms(self) -> int:
        """When `commits` were read; if not known, the scheduled instant."""
        return self.snapshot_id if self.committed_captured_ms is None else self.committed_captured_ms


@dataclass(frozen=True)
class ClusterPoint:
    """All groups of a cluster at one instant: the sums of their lags, and the age of the oldest uncommitted record.

    Each value leaves out what is not known. `groups_unknown`, `bytes_unknown` and `age_unknown` count the groups of
    which a part is left out.
    """

    cluster: str
    snapshot_id: int
    groups: int
    groups_unknown: int
    consumer_lag: int | None
    consumer_lag_bytes: int | None
    bytes_unknown: int
    consumer_age_ms: int | None
    age_unknown: int


@dataclass(frozen=True)
class Report:
    """Everything on the page. `groups` are in order, the worst first; `charted` are the first of them.

    Of `findings`, those with the same cause are one; `with_causes` are those of the groups that have one.
    """

    title: str
    generated_at: datetime
    clusters: tuple[Cluster, ...] = ()
    snapshots: tuple[Snapshot, ...] = ()
    groups: tuple[Group, ...] = ()
    totals: dict[str, Totals] = field(default_factory=dict)
    instants: tuple[Instant, ...] = ()
    points: tuple[Point, ...] = ()
    charted: tuple[Group, ...] = ()
    cluster_points: tuple[ClusterPoint, ...] = ()
    partitions: tuple[Partition, ...] = ()
    findings: tuple[Finding, ...] = ()
    with_causes: tuple[Finding, ...] = ()
    findings_open: int = 0
    findings_total: int = 0
    changes: tuple[Change, ...] = ()
    forecasts: tuple[Forecast, ...] = ()
    objectives: tuple[Objective, ...] = ()
    missed: tuple[Missed, ...] = ()
    partition_series: tuple[PartitionSeries, ...] = ()
    other_partitions: tuple[OtherPartitions, ...] = ()
    gauges: tuple[Gauge, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    names: tuple[Names, ...] = ()
    distributions: tuple[Distribution, ...] = ()
    refused: int = 0
    selection: Selection = field(default_factory=Selection)
    days: int | None = None
    """How many days, up to each cluster's newest snapshot, are shown; None if a beginning was given."""
    incident: Finding | None = None
    """The finding that the page is about; None if it is about everything that is selected."""
    is_recorded: bool = False
    """Whether the values were saved long before the page is made, so that it does not say how old it is."""

    def findings_of(self, cluster: str, group_id: str) -> list[Finding]:
        """The findings of a group, also of topics that it reads. Of a cause, its own finding, if this is known."""
        own = [f for f in self.with_causes if (f.cluster, f.group_id) == (cluster, group_id)]
        causes = {f.cause_id for f in own}
        others = (f for f in self.findings if not f.is_cause or f.cause_id not in causes)
        return [*own, *(f for f in others if f.concerns(cluster, group_id))]

    @property
    def snapshots_total(self) -> int:
        """How many snapshots the lake has, listed or not."""
        return sum(c.snapshots for c in self.clusters)

    def bar(self, finding: Finding) -> tuple[float, float]:
        """Where a finding begins in the time of the snapshots, and how long it lasts, in per cent of that time."""
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
    """The names of the fields of a class in this module or in `model.details`, which are also column names."""
    return [f.name for f in fields(row)]


def by_lag(groups: Iterable[Group]) -> list[Group]:
    """The groups with the most lag first; groups without a known lag come last."""
    return sorted(groups, key=lambda g: (g.consumer_lag is None, -(g.consumer_lag or 0), g.key))
