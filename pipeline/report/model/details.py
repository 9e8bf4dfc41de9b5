"""What the report shows beside the lag of groups, as plain values, with the units of `model.report`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pipeline.kinds import kind_named


@dataclass(frozen=True)
class Partition:
    """One partition of a group at the snapshot shown: the columns of `lag` of the same names."""

    cluster: str
    snapshot_id: int
    group_id: str
    topic: str
    partition: int
    client_id: str | None
    host: str | None
    offset_status: str | None
    log_start_offset: int | None
    committed_offset: int | None
    consumed_offset: int | None
    fetched_offset: int | None
    last_stable_offset: int | None
    high_watermark: int | None
    log_end_offset: int | None
    consumer_lag: int | None
    consumer_lag_bytes: int | None
    bytes_error: int | None
    consumer_lag_ms: int | None
    time_error_ms: int | None
    consumer_age_ms: int | None
    fetcher_lag: int | None
    divergence: int | None
    buffered: int | None
    uncommitted: int | None
    transaction_lag: int | None
    stale_lag: int | None
    headroom: int | None
    headroom_bytes: int | None
    headroom_ms: int | None


VICTIMS_NAMED = 10
"""How many of the groups that share a finding are shown with their lag."""
EVIDENCE_LISTED = 20
"""How many values of a list in the evidence a page shows."""


def _cut(value: Any) -> Any:
    if not isinstance(value, list) or len(value) <= EVIDENCE_LISTED:
        return value
    return [*value[:EVIDENCE_LISTED], f"and {len(value) - EVIDENCE_LISTED:,} more"]


@dataclass(frozen=True)
class Finding:
    """A row of `findings`, with parsed `evidence`.

    `partitions`, `severity`, `summary`, `evidence` and `advice` are as of `worst_ms`, its worst moment, which is None
    if not known. `severity` and `advice` are None if nothing was kept from the time asked for. `now`, `now_topic` and
    `now_partitions` are the evidence, topic and partitions at the snapshot shown, from `finding_history`; `now` is None
    if that snapshot is not known to show the problem. `silenced` is why no message is sent about an open finding
    (`[[silences]]`), None if it is not silenced.
    """

    kind: str
    cluster: str
    group_id: str | None
    client_id: str | None
    topic: str | None
    partitions: tuple[int, ...]
    severity: str | None
    first_seen_ms: int
    last_seen_ms: int
    resolved_ms: int | None
    summary: str
    evidence: dict[str, Any]
    advice: str | None
    worst_ms: int | None = None
    owner: str | None = None
    tier: str | None = None
    channel: str | None = None
    finding_id: str = ""
    instance: str | None = None
    now: dict[str, Any] | None = None
    now_topic: str | None = None
    now_partitions: tuple[int, ...] = ()
    silenced: str | None = None
    cause_id: str | None = None

    @property
    def place(self) -> tuple[str | None, tuple[int, ...]]:
        """The topic and the partitions that `newest_evidence` is about; without a topic if there are several."""
        return (self.topic, self.partitions) if self.now is None else (self.now_topic, self.now_partitions)

    @property
    def newest_evidence(self) -> dict[str, Any]:
        """The newest evidence that is known: at the snapshot shown, else at its worst."""
        return self.evidence if self.now is None else self.now

    @property
    def shown_evidence(self) -> dict[str, Any]:
        """The evidence as a page shows it: long lists are cut."""
        return {name: _cut(value) for name, value in self.evidence.items()}

    @property
    def is_open(self) -> bool:
        """Whether the problem still lasts."""
        return self.resolved_ms is None

    @property
    def is_cause(self) -> bool:
        """Whether it is a cause, that is, all findings of groups that have the same one."""
        return self.group_id is None and self.cause_id is not None

    @property
    def is_loss(self) -> bool:
        """Whether records were deleted unread."""
        return kind_named(self.kind).is_loss

    def groups(self) -> list[str]:
        """The groups that have the problem, as far as the newest evidence names them."""
        return [self.group_id] if self.group_id is not None else [*map(str, self.newest_evidence.get("groups") or ())]

    def concerns(self, cluster: str, group_id: str) -> bool:
        """Whether the problem is one of the group, or of a topic that the group reads."""
        named = {*(self.evidence.get("groups") or ()), *((self.now or {}).get("groups") or ())}
        return self.cluster == cluster and (self.group_id == group_id or (self.group_id is None and group_id in named))


@dataclass(frozen=True)
class Change:
    """What has changed in a group at one snapshot: the rows of `group_changes` with the same `change`, summed up.

    `rows` is their number, `partitions` how many partitions they name. `before` and `after` are those of one of them;
    `clients` are the first of their client ids.
    """

    cluster: str
    snapshot_id: int
    group_id: str
    change: str
    rows: int
    partitions: int
    before: str | None
    after: str | None
    clients: tuple[str, ...]


@dataclass(frozen=True)
class Forecast:
    """How fast a group reads, and when it will have caught up: a row of `forecasts` about all of its topics.

    `ends_ms` is the instant that it is seen from. Rates are per second; None if they are not known.
    """

    cluster: str
    group_id: str
    ends_ms: int | None
    caught_up_in_ms: int | None
    caught_up_in_low_ms: int | None
    caught_up_in_high_ms: int | None
    reason: str | None
    written_per_s_5m: float | None = None
    written_per_s_1h: float | None = None
    written_per_s_1d: float | None = None
    committed_per_s_5m: float | None = None
    committed_per_s_1h: float | None = None
    committed_per_s_1d: float | None = None
    written_bytes_per_s_5m: float | None = None
    written_bytes_per_s_1h: float | None = None
    written_bytes_per_s_1d: float | None = None
    committed_bytes_per_s_5m: float | None = None
    committed_bytes_per_s_1h: float | None = None
    committed_bytes_per_s_1d: float | None = None
    bytes_reason: str | None = None
    deleted_in_ms: int | None = None
    deleted_in_low_ms: int | None = None
    deleted_in_high_ms: int | None = None
    net_per_s: float | None = None
    net_error_per_s: float | None = None
    deleted_reason: str | None = None
    basis: str | None = None


@dataclass(frozen=True)
class Objective:
    """A service-level objective of a group at the snapshot shown: a row of `slo`.

    `is_missed` says whether its attainment is below its target. `topics` is the expression for the topics that count;
    None means all.
    """

    cluster: str
    slo: str
    group_id: str
    objective: str
    target: float
    window_ms: int
    is_met: bool | None
    attainment: float | None
    window_unknown_ms: int | None
    budget_left: float | None
    burn_rate_1h: float | None
    burn_rate_6h: float | None
    topics: str | None = None

    @property
    def is_missed(self) -> bool:
        """Whether the target was not reached in the window; False if nothing is known of it."""
        return self.attainment is not None and self.attainment < self.target


@dataclass(frozen=True)
class Gauge:
    """A client's own lag gauge at one instant, beside the true values: a row of `client_divergence`."""

    cluster: str
    snapshot_id: int
    group_id: str | None
    client_id: str
    max_lag: int | None
    max_fetcher_lag: int | None
    max_consumer_lag: int | None
    max_divergence: int | None
    verdict: str | None
    instance: str | None = None


@dataclass(frozen=True)
class Verdict:
    """The gauges of a group's clients at the snapshot shown: rows of `client_divergence`, summed up.

    `clients` is the number of client processes that report, `misleading` of them are blind or stale. The other values
    are those of the client whose gauge hides the most.
    """

    cluster: str
    group_id: str
    clients: int
    misleading: int
    client_id: str
    max_lag: int | None
    max_consumer_lag: int | None
    verdict: str | None


@dataclass(frozen=True)
class Names:
    """The topics, clients and hosts of a group at the snapshot shown; `is_cut` says that some are left out."""

    cluster: str
    group_id: str
    topics: tuple[str, ...]
    clients: tuple[str, ...]
    hosts: tuple[str, ...]
    is_cut: bool


@dataclass(frozen=True)
class Distribution:
    """The distribution of a measure among the readers of a broker's partitions, at the snapshot shown.

    `steps` are (value, number of readers with at most this value), by value. Readers whose value is not known are only
    counted in `unknown`.
    """

    cluster: str
    broker: int
    measure: str
    count: int
    unknown: int
    steps: tuple[tuple[int, int], ...]
