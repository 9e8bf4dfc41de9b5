"""Decides which findings are to be sent to which channels, from rows of `findings` and `notifications`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from pipeline.config import Config
from pipeline.config.owners import evidence_of
from pipeline.kinds import SHARED
from pipeline.kinds.causes import by_cause, merged
from pipeline.tables import SEVERITIES

OPENED, RESOLVED = "opened", "resolved"
_LONGEST_PAUSE = timedelta(minutes=15)
"""The longest time between two tries. A receiver may have shown a message to some people although it says that it
failed; they would get it again with each try."""
SENT, FAILED, HELD = "sent", "failed", "held"
_TIMES = ("first_seen", "last_seen", "resolved_at", "worst_at")
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Finding:
    """A row of `findings`, with its owner, and the channels that it is sent to.

    A finding about a whole cluster has no group, client, instance or topic.
    """

    finding_id: str
    cluster: str
    kind: str
    group_id: str | None = None
    client_id: str | None = None
    instance: str | None = None
    topic: str | None = None
    owner: str | None = None
    first_seen: datetime | None = None
    last_seen: datetime | None = None
    resolved_at: datetime | None = None
    worst_at: datetime | None = None
    partitions: tuple[int, ...] = ()
    severity: str | None = None
    magnitude: float | None = None
    summary: str | None = None
    evidence: str | None = None
    advice: str | None = None
    tier: str | None = None
    channels: tuple[str, ...] = ()

    @property
    def gravity(self) -> int:
        """The severity as a number: the graver, the greater. An unknown severity counts as the least."""
        return gravity(self.severity)


def gravity(severity: str | None) -> int:
    """A severity as a number."""
    return SEVERITIES.index(severity) if severity in SEVERITIES else 0


def finding_of(row: Row, config: Config) -> Finding:
    """The finding of a row, with what the configuration says of it."""
    # Not as the row has them: the configuration may have changed since the row was written.
    owners = config.responsible()
    of_owner = owners.values_of(row)
    found = _of_columns(row)
    owner, tier = of_owner.get("owner", found.owner), of_owner.get("tier", found.tier)
    return replace(found, owner=owner, tier=tier, channels=owners.channels_of(row))


def _of_columns(row: Row) -> Finding:
    names = Finding.__dataclass_fields__.keys() & row.keys()
    values = {name: row[name] for name in names}
    values |= {name: in_utc(row.get(name)) for name in _TIMES}
    values["partitions"] = tuple(row.get("partitions") or ())
    return Finding(**values)


def findings_of(rows: Iterable[Row], config: Config) -> list[Finding]:
    """The findings of some rows; those with the same cause are one."""
    found = []
    for several in by_cause(rows):
        findings = [(row, finding_of(row, config)) for row in several]
        found.append(findings[0][1] if several[0]["cause_id"] is None else _merged(findings, findings))
    return found


def in_utc(instant: datetime | None) -> datetime | None:
    """The same instant in UTC: Spark returns it without a zone, in that of the process, the driver with one."""
    return None if instant is None else instant.astimezone(UTC)


class Notification(NamedTuple):
    """A row of `notifications`."""

    cluster: str
    finding_id: str
    channel: str
    event: str
    status: str
    attempts: int
    first_tried_at: datetime | None
    last_tried_at: datetime | None
    error: str | None


Known = Mapping[tuple[str, str], Notification]
"""The rows of one finding, by channel and event."""


def notification_of(row: Row) -> Notification:
    """The same row, from its columns by name."""
    times = {name: in_utc(row[name]) for name in ("first_tried_at", "last_tried_at")}
    return Notification(**{name: row[name] for name in Notification._fields} | times)


class Due(NamedTuple):
    """A finding whose beginning or end is to be sent to a channel; `before` is its row of earlier runs."""

    finding: Finding
    channel: str
    event: str
    before: Notification | None = None

    @property
    def attempts(self) -> int:
        """How often it was tried in earlier runs."""
        return self.before.attempts if self.before else 0

    def must_wait(self, now: datetime) -> bool:
        """Whether the last try is too recent for another one: the pause is half a minute at first, then doubles."""
        if not self.before or self.before.status != FAILED or self.before.last_tried_at is None:
            return False
        pause = min(timedelta(seconds=30 * 2 ** min(self.attempts - 1, 10)), _LONGEST_PAUSE)
        return self.before.last_tried_at <= now < self.before.last_tried_at + pause

    def outcome(self, now: datetime, error: str | None) -> Notification:
        """The row after a try that succeeded, or failed with an error."""
        first = (self.before and self.before.first_tried_at) or now
        status = FAILED if error else SENT
        return self._row(status, self.attempts + 1, first, now, error)

    def untried(self, status: str, why: str) -> Notification:
        """The row of a finding that is not tried in this run.

        Without a row, a finding that waits for long would later count as one that the channel has never seen.
        """
        first, last = (self.before.first_tried_at, self.before.last_tried_at) if self.before else (None, None)
        return self._row(status, self.attempts, first, last, why)

    def _row(
        self, status: str, attempts: int, first: datetime | None, last: datetime | None, error: str | None
    ) -> Notification:
        key = (self.finding.cluster, self.finding.finding_id, self.channel, self.event)
        return Notification(*key, status, attempts, first, last, error)


@dataclass
class Plan:
    """What a run has to do: what it sends to each channel, and which open findings it repeats to Alertmanager."""

    due: dict[str, list[Due]] = field(default_factory=dict)
    standing: dict[str, list[Finding]] = field(default_factory=dict)
    held: list[Notification] = field(default_factory=list)
    """Rows of findings that are not sent now, but may be later."""


def plan(findings: Iterable[Row], notifications: Iterable[Row], config: Config, now: datetime) -> Plan:
    """What is to be sent: findings that have begun to their channel, and their end wherever the beginning was sent.

    Findings with the same cause are sent together, under its `cause_id`. A finding that ended before its beginning was
    sent is not sent at all. The end is sent even if the finding is silenced, because it closes what the beginning has
    opened.
    """
    known: dict[tuple[str, str], dict[tuple[str, str], Notification]] = {}
    for row in map(notification_of, notifications):
        known.setdefault((row.cluster, row.finding_id), {})[row.channel, row.event] = row
    result = Plan()
    for rows in by_cause(findings):
        several = [(row, finding_of(row, config)) for row in rows]
        if rows[0]["cause_id"] is None:
            finding = several[0][1]
            _plan_one(finding, known.get(_key(finding), {}), config, now, result)
        else:
            _plan_cause(several, known, config, now, result)
    for several_due in result.due.values():
        several_due.sort(key=_order)
    return result


def _key(finding: Finding) -> tuple[str, str]:
    return finding.cluster, finding.finding_id


def _plan_one(finding: Finding, rows: Known, config: Config, now: datetime, result: Plan) -> None:
    if finding.resolved_at is not None:
        _end(finding, rows, config, now, result)
        return
    why = _why_silenced(finding, config, now)
    for channel in finding.channels:
        _open(finding, channel, rows, config, now, result, why, finding.first_seen)


def _plan_cause(
    several: Sequence[tuple[Row, Finding]],
    known: Mapping[tuple[str, str], Known],
    config: Config,
    now: datetime,
    result: Plan,
) -> None:
    """Plans one message for all findings with a cause. It ends with the last of them.

    Findings that were sent before it was known that they have something in common also end one by one. Those that are
    silenced are left out, and do not keep the message open, as long as others are not. If one of them is heard later,
    the cause is sent again.
    """
    for _, finding in several:
        if own := known.get(_key(finding)):
            _plan_sent(finding, own, config, now, result)
    first, _ = several[0]
    of_cause = known.get((first["cluster"], first["cause_id"]), {})
    silenced = [_why_silenced(finding, config, now, SHARED[finding.kind]) for _, finding in several]
    heard = [pair for pair, why in zip(several, silenced, strict=True) if why is None]
    lasting = [(row, finding) for row, finding in heard or several if finding.resolved_at is None]
    if not lasting:
        _end(_merged(heard or several, several), of_cause, config, now, result)
        return
    whole = _merged(heard or several, several)
    newest: dict[str, datetime] = {}
    for row, finding in several:
        if finding.resolved_at is None:
            for channel in finding.channels:
                newest[channel] = max(newest.get(channel, row["grouped_at"]), row["grouped_at"])
    has_heard = {channel for _, finding in lasting for channel in finding.channels} if heard else set()
    lasts_there = {channel for channel, event in of_cause if event == OPENED and _is_sent(channel, of_cause)}
    for channel in dict.fromkeys((*newest, *sorted(lasts_there))):
        # Groups of another owner may follow when the cause is old. If a silence of all of an owner's groups ends, the
        # cause is sent then, however old it is.
        is_heard = bool(heard) and channel in has_heard | lasts_there
        why = None if is_heard else next(filter(None, silenced))
        _open(whole, channel, of_cause, config, now, result, why, in_utc(newest.get(channel)))


def _plan_sent(finding: Finding, own: Known, config: Config, now: datetime, result: Plan) -> None:
    """Plans what follows for a finding that was sent before it had a cause."""
    if finding.resolved_at is not None:
        _end(finding, own, config, now, result)
        return
    why = _why_silenced(finding, config, now)
    for (channel, event), row in own.items():
        if (event, row.status) == (OPENED, SENT):
            _open(finding, channel, own, config, now, result, why, finding.first_seen)


def _merged(some: Sequence[tuple[Row, Finding]], several: Sequence[tuple[Row, Finding]]) -> Finding:
    """Some of the findings with a cause as one, for the channels of all of their owners.

    It began with the first of `several`, and has their owner if they have the same one. So neither changes when others
    follow: Alertmanager takes an alert with another label for another one.
    """
    first = min(row["grouped_at"] for row, _ in several)
    owners = {(finding.owner, finding.tier) for row, finding in several if row["grouped_at"] == first}
    owner, tier = owners.pop() if len(owners) == 1 else (None, None)
    channels = (*dict.fromkeys(name for _, finding in some for name in finding.channels),)
    whole = _of_columns(merged([row for row, _ in some]))
    return replace(whole, first_seen=in_utc(first), owner=owner, tier=tier, channels=channels)


def _open(
    finding: Finding,
    channel: str,
    rows: Known,
    config: Config,
    now: datetime,
    result: Plan,
    why_silenced: str | None,
    since: datetime | None,
) -> None:
    """Plans that a finding which lasts is sent to a channel that has been able to know of it `since` an instant."""
    if channel not in config.channels:
        return
    before = rows.get((channel, OPENED))
    due = Due(finding, channel, OPENED, before)
    least = config.channels[channel].severity
    why = why_silenced or (f"less severe than {least}" if finding.gravity < gravity(least) else None)
    if _is_sent(channel, rows):
        if config.channels[channel].type == "alertmanager" and not why:
            result.standing.setdefault(channel, []).append(finding)
        return
    if before is None and _is_old(since, config, now):
        return
    if why:
        if not before or (before.status, before.error) != (HELD, why):
            result.held.append(due.untried(HELD, why))
        return
    if not due.must_wait(now):
        result.due.setdefault(channel, []).append(due)


def _is_sent(channel: str, rows: Known) -> bool:
    """Whether the beginning was sent to a channel, and the end was not sent since."""
    opened = rows.get((channel, OPENED))
    if opened is None or opened.status != SENT:
        return False
    return not _has_ended(opened, rows.get((channel, RESOLVED)))


def _has_ended(opened: Notification, end: Notification | None) -> bool:
    """Whether the end was sent after the beginning. What groups share may begin again: one may be late, or silenced."""
    if end is None or end.status != SENT or end.last_tried_at is None:
        return False
    return opened.last_tried_at is None or opened.last_tried_at <= end.last_tried_at


def _is_old(since: datetime | None, config: Config, now: datetime) -> bool:
    # A snapshot has the instant at which it was due, which may be a whole schedule before it is taken.
    kept_ms = max(config.notifications.max_age_ms, 2 * config.snapshot.schedule_ms)
    oldest = now - timedelta(milliseconds=kept_ms)
    return since is not None and since < oldest


def _why_silenced(finding: Finding, config: Config, now: datetime, of_cause: str | None = None) -> str | None:
    """Why a finding is silenced; None if it is not. It also is if the kind of its cause is."""
    if not config.silences:
        return None
    kinds = {finding.kind, of_cause or finding.kind}
    facts = evidence_of({"evidence": finding.evidence})
    for silence in config.silences:
        if any(silence.covers(finding.cluster, finding.group_id, finding.topic, kind, now, facts) for kind in kinds):
            return f"silenced: {silence.reason}"
    return None


def _end(finding: Finding, rows: Known, config: Config, now: datetime, result: Plan) -> None:
    for (channel, event), row in rows.items():
        end = rows.get((channel, RESOLVED))
        if channel not in config.channels or event != OPENED or _has_ended(row, end):
            continue
        # PagerDuty may have opened an alert without an answer in time. It ignores the end of an alert that it lacks.
        may_be_open = config.channels[channel].type == "pagerduty" and row.status == FAILED and row.attempts > 0
        due = Due(finding, channel, RESOLVED, end)
        if (row.status == SENT or may_be_open) and not due.must_wait(now):
            result.due.setdefault(channel, []).append(due)


def _order(due: Due) -> tuple[int, bool, int, str, str]:
    """What was tried least often comes first, so that a message that always fails does not hold up the others."""
    finding = due.finding
    return due.attempts, due.event == RESOLVED, -finding.gravity, f"{finding.first_seen}", finding.finding_id
