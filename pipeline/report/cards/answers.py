"""What a card says about a group: by how much it is behind, data loss, when it will have caught up, gauges, members.

Each answer is a text that repeats what the tables say. What they do not say is "not known", with the reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pipeline.common.quantities import duration, size
from pipeline.common.words import counted
from pipeline.kinds import kind_named
from pipeline.kinds.kind import Clock
from pipeline.kinds.text import figure
from pipeline.report.model.details import Finding, Forecast, Partition, Verdict
from pipeline.report.model.report import Group
from pipeline.report.text.outlook import BY_WEEKS, band

MEMBERS_NAMED = 3
_NO_FORECAST = {
    "not_known": "not known: the lag of a partition is not known, or nothing was committed",
    "paused": "not known: the group has paused, as it has before",
    "too_little_history": "not known: too few snapshots show how fast the group reads",
    "too_uncertain": "not known: the rate of the group varies too much",
    "never_at_this_rate": "never at this rate",
}
"""`forecasts.reason` in words."""
_NO_DELETION = {
    "caught_up": "none is forecast, because the group has caught up",
    "never_at_this_rate": "not known for later: the oldest unread record gets no older now, but traffic may change",
    "no_deletion_seen": "not known for later: retention has deleted nothing yet since laglake knows the group",
    "paused": "not known for later: the group has paused",
    "too_little_history": "not known for later: too few snapshots show how fast the group reads",
    "too_uncertain": "not known for later: the rate of the group varies too much",
}
"""`forecasts.deleted_reason` in words."""


def behind(group: Group | None, findings: Sequence[Finding]) -> str:
    """The lag of a group in records, bytes and time; if the group is not listed, the sums of a finding."""
    if group is None:
        return next((known for f in findings if (known := of_evidence(f.newest_evidence))), "not known")
    if group.consumer_lag is None:
        return "not known" if group.partitions_unknown else "not known: nothing was committed"
    if group.has_only_markers:
        return "no record is unread: only transaction markers are left"
    gone = f", of which {figure(group.unread_offsets)} were deleted unread" if group.unread_offsets else ""
    in_bytes = oldest = None
    if group.consumer_lag_bytes is not None:
        in_bytes = size(group.consumer_lag_bytes, group.bytes_error)
    if group.consumer_age_ms is not None:
        oldest = f"the oldest {duration(group.consumer_age_ms, group.age_error_ms)} old"
    parts = (counted(group.consumer_lag, "record") + gone, in_bytes or "bytes not known", oldest or "age not known")
    unknown = f"; {counted(group.partitions_unknown, 'partition')} not known" if group.partitions_unknown else ""
    return ", ".join(parts) + unknown


def of_evidence(facts: Mapping[str, Any]) -> str | None:
    """The lag that a finding is about; None if its evidence has none."""
    records, in_bytes, age_ms = (facts.get(f"consumer_{name}") for name in ("lag", "lag_bytes", "age_ms"))
    if records is None:
        waiting = facts.get("records_waiting")
        return None if waiting is None else f"{figure(waiting)} records wait"
    gone = facts.get("deleted_offsets")
    parts = [counted(records, "record") + (f", of which {figure(gone)} were deleted unread" if gone else "")]
    parts += [] if in_bytes is None else [size(in_bytes, facts.get("bytes_error"))]
    parts += [] if age_ms is None else [f"the oldest {duration(age_ms)} old"]
    return ", ".join(parts)


def loss(group: Group | None, findings: Sequence[Finding], forecast: Forecast | None, clock: Clock) -> str:
    """Whether records were deleted unread, or will be, and when: at the earliest (findings) and probably (forecast)."""
    if said := losses(findings, clock) + _deleted_at(forecast, clock):
        return "; ".join(said)
    if group is None:
        return "not known"
    if group.has_lost_data:
        return "yes: records were deleted unread"
    if group.partitions_unknown:
        return f"not known for {counted(group.partitions_unknown, 'partition')}"
    left = "" if group.min_headroom is None else f"; headroom {counted(group.min_headroom, 'record')}"
    return f"none so far; {_later(group, forecast, clock)}{left}"


def losses(findings: Sequence[Finding], clock: Clock) -> list[str]:
    """What findings say about records that were deleted unread, or will be."""
    said = [(f, text) for f in findings if (text := kind_named(f.kind).loss(f, clock)) is not None]
    return [text for _, text in sorted(said, key=lambda pair: not pair[0].is_loss)]


def _later(group: Group, forecast: Forecast | None, clock: Clock) -> str:
    """Whether records will be deleted unread, if neither a finding nor the forecast has a time for it."""
    if group.consumer_lag == 0 or group.has_only_markers:
        return "nothing is unread"
    if group.min_headroom is not None and group.min_headroom <= 0:
        return "what retention deletes next is unread"
    if forecast is None or forecast.ends_ms is None:
        return "not known for later: there is no forecast"
    low = forecast.deleted_in_low_ms
    least = f", but probably not before {clock(forecast.ends_ms + low)}" if low else ""
    return _NO_DELETION.get(forecast.deleted_reason or "", "not known for later") + least


def _deleted_at(forecast: Forecast | None, clock: Clock) -> list[str]:
    """When retention will delete unread records, with the band of the forecast; nothing if it has none."""
    if forecast is None or forecast.ends_ms is None or forecast.deleted_in_ms is None:
        return []
    at = _after(forecast.ends_ms, clock)
    times = band(forecast.deleted_in_low_ms, forecast.deleted_in_high_ms, at)
    return [f"forecast: retention deletes unread records at {at(forecast.deleted_in_ms)} ({times})"]


def caught_up_at(forecast: Forecast | None, clock: Clock) -> str:
    """When a group will have caught up, as a time of day with its band; or why that is not known."""
    if forecast is None or forecast.ends_ms is None:
        return "not known: there is no forecast"
    at = _after(forecast.ends_ms, clock)
    by_weeks = BY_WEEKS if forecast.basis == "same_hour" else ""
    in_ms, low = forecast.caught_up_in_ms, forecast.caught_up_in_low_ms
    if in_ms is None:
        least = f", but not before {at(low)}" if low else ""
        return _NO_FORECAST.get(forecast.reason or "", "not known") + least + by_weeks
    if in_ms == 0:
        return "it has caught up"
    return f"at {at(in_ms)} ({band(low, forecast.caught_up_in_high_ms, at)}){by_weeks}"


def _after(ends_ms: int, clock: Clock) -> Clock:
    """Writes a time that is counted in ms from `ends_ms` as a time of day."""
    return lambda in_ms: clock(ends_ms + in_ms)


def gauge(verdict: Verdict | None, findings: Iterable[Finding], clock: Clock) -> str:
    """Whether the lag gauges of a group's clients are right, with the one that hides the most."""
    if verdict is None:
        was = next((f for f in findings if kind_named(f.kind).doubts_gauge and f.is_open), None)
        if was is not None:
            return f"wrong when it was last reported, at {clock(was.last_seen_ms)}"
        return "not known: no client of the group reports it"
    reported = "no lag" if verdict.max_lag is None else f"a lag of {figure(verdict.max_lag)}"
    lag = "not known" if verdict.max_consumer_lag is None else figure(verdict.max_consumer_lag)
    which = f"{verdict.client_id} reports {reported}, its lag is {lag}"
    if verdict.misleading:
        all_of = f"; {verdict.misleading:,} of {verdict.clients:,} gauges are wrong" if verdict.clients > 1 else ""
        return f"wrong: {which} ({verdict.verdict}){all_of}"
    return f"{'cannot be judged' if verdict.verdict is None else 'right'}: {which}"


def members(group: Group | None, findings: Iterable[Finding], partitions: Iterable[Partition], clock: Clock) -> str:
    """The members with the partitions that are behind, with their hosts; and what a finding names as the place."""
    owned: dict[tuple[str, str], list[str]] = {}
    for p in partitions:
        if p.client_id is not None and (p.consumer_lag is None or p.consumer_lag > 0):
            owned.setdefault((p.client_id, (p.host or "").removeprefix("/")), []).append(f"{p.topic} {p.partition}")
    clients = {client for client, _ in owned}
    unnamed = (f for f in findings if f.is_open and f.client_id not in clients)
    found = [place for f in unnamed for place in kind_named(f.kind).places(f)]
    for (client, host), of in [*owned.items()][:MEMBERS_NAMED]:
        more = ", …" * (len(of) > MEMBERS_NAMED)
        found.append(f"{client}{f' at {host}' if host else ''} ({', '.join(of[:MEMBERS_NAMED])}{more})")
    if (others := len(owned) - MEMBERS_NAMED) > 0:
        found.append(f"{others} more")
    if found:
        return "; ".join(dict.fromkeys(found))
    return _without_partitions(group, clock)


def _without_partitions(group: Group | None, clock: Clock) -> str:
    """Whether a group of which no member is known to have partitions has members at all."""
    if group is None or group.members or group.group_state is None:
        return "not known"
    if not group.is_without_members:
        return f"not known: no member has partitions while the state of the group is {group.group_state}"
    if group.members_seen_ms is None:
        return "none, and none was ever seen: the group may commit without being a member"
    return f"none: the group has no members; it last had some at {clock(group.members_seen_ms)}"
