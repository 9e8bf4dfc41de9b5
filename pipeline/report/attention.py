"""What the report says first: small rules over the report, the worst first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

from pipeline.epoch import utc
from pipeline.report.details_model import Finding, Loss
from pipeline.report.model import DATA_LOSS, Cluster, Group, Report
from pipeline.report.trends import Trend, trends
from pipeline.report.units import duration, size

GROUPS_NAMED = 10
FINDINGS_NAMED = 20


class Item(NamedTuple):
    """One sentence about a subject (a group or cluster, in quotation marks of the page's own, or nothing).

    `group` is the key of the group whose lag is its picture, `since_ms` a mark in it.
    """

    level: Literal["bad", "warn"]
    subject: str
    sentence: str
    section: str
    is_loss: bool = False
    group: tuple[str, str] | None = None
    since_ms: int | None = None
    advice: str | None = None


def needs_attention(report: Report) -> list[Item]:
    """All that is amiss, what is bad before what is only to be known, and lost data before all else."""
    items = [item for rule in _RULES for item in rule(report)]
    return sorted(items, key=lambda item: item.level)


def _lost_data(report: Report) -> Iterator[Item]:
    lost = [g for g in report.groups if g.has_lost_data]
    first: dict[tuple[str, str], int] = {}
    for point in sorted(report.points, key=lambda p: p.snapshot_id):
        if point.deleted:
            first.setdefault((point.cluster, point.group_id), point.ends_ms)
        else:
            first.pop((point.cluster, point.group_id), None)
    for group in lost[:GROUPS_NAMED]:
        since_ms = first.get(group.key)
        sentence = _loss(group, since_ms)
        yield Item("bad", group.group_id, sentence, "groups", is_loss=True, group=group.key, since_ms=since_ms)
    if more := sum(t.groups_with_loss for t in report.totals.values()) - len(lost[:GROUPS_NAMED]):
        yield Item("bad", "", f"{_count(more, 'more group')} lost data.", "groups", is_loss=True)


def _loss(group: Group, since_ms: int | None) -> str:
    partitions = _count(group.statuses[DATA_LOSS], "partition")
    unread = "" if group.unread_offsets is None else f", {group.unread_offsets:,} offsets in all"
    since = "" if since_ms is None else f"; the log's start is past its commits since {_at(since_ms)} at least"
    return f"records of {partitions} on cluster {group.cluster} were deleted unread{unread}{since}."


def _lost_before(report: Report) -> Iterator[Item]:
    """What was lost within the time shown, in partitions where the group has gone on since."""
    for loss in report.losses[:GROUPS_NAMED]:
        group = loss.cluster, loss.group_id
        yield Item("bad", loss.group_id, _past(loss), "groups", is_loss=True, group=group, since_ms=loss.first_ms)
    if more := len(report.losses[GROUPS_NAMED:]):
        yield Item("bad", "", f"{_count(more, 'more group')} lost data before.", "groups", is_loss=True)


def _past(loss: Loss) -> str:
    seen = f"at {_at(loss.first_ms)}"
    if loss.last_ms > loss.first_ms:
        seen = f"from {_at(loss.first_ms)} to {_at(loss.last_ms)}"
    unread = "" if loss.unread_offsets is None else f" {_count(loss.unread_offsets, 'offset')} in all,"
    return (
        f"records of {_count(loss.partitions, 'partition')} on cluster {loss.cluster} were deleted unread,{unread} as "
        f"was seen {seen}. The newest snapshot no longer shows it."
    )


def _at(epoch_ms: int) -> str:
    return f"{utc(epoch_ms):%Y-%m-%d %H:%M:%S} UTC"


def _findings(report: Report) -> Iterator[Item]:
    still_there = [f for f in report.findings if f.is_open]
    shown = {c.cluster: c.lag_snapshot_id for c in report.clusters}
    for finding in still_there[:FINDINGS_NAMED]:
        yield _of_finding(finding, shown.get(finding.cluster))
    if (more := report.findings_open - len(still_there[:FINDINGS_NAMED])) > 0:
        yield Item("warn", "", f"{_count(more, 'more finding')} {_is(more)} open.", "findings")


def _of_finding(finding: Finding, newest_ms: int | None) -> Item:
    # A finding is dated by snapshots, whose instants are those that they were scheduled for.
    since = f" Since the snapshot of {_at(finding.first_seen_ms)}"
    if finding.worst_ms is not None and finding.worst_ms < finding.last_seen_ms:
        since += f", at its worst in that of {_at(finding.worst_ms)}"
    if newest_ms is not None and finding.last_seen_ms < newest_ms:  # its client may have gone
        since += f", last seen in that of {_at(finding.last_seen_ms)}"
    return Item(
        "bad" if finding.severity == "critical" else "warn",
        finding.group_id or finding.client_id or finding.cluster,
        f"{finding.summary}{since}.",
        "findings",
        group=None if finding.group_id is None else (finding.cluster, finding.group_id),
        since_ms=finding.first_seen_ms,
        advice=finding.advice,
    )


def _trends(report: Report) -> Iterator[Item]:
    found = trends(report.instants, report.points)
    of_groups = [(g, found.get(g.key, Trend())) for g in report.groups]
    for rule in (_judged, _set_back):
        items = [item for g, trend in of_groups if (item := rule(g, trend))]
        yield from items[:GROUPS_NAMED]
        if (more := len(items) - GROUPS_NAMED) > 0:
            sentence = f"the same is true of {_count(more, 'more group')}."
            yield Item(items[0].level, "", sentence, "groups")


def _deleted_soon(report: Report) -> Iterator[Item]:
    dangers = sorted(report.dangers, key=lambda d: d.deleted_in_ms)
    for danger in dangers[:GROUPS_NAMED]:
        sentence = (
            f"at the present rate records of {danger.topic} {danger.partition} are deleted unread in about "
            f"{duration(danger.deleted_in_ms)}: the log's start is {_count(danger.headroom, 'offset')} away from the "
            "first unread record, and moves faster than the group reads."
        )
        yield Item("bad", danger.group_id, sentence, "groups", group=(danger.cluster, danger.group_id))
    if (more := len(dangers) - GROUPS_NAMED) > 0:
        yield Item("bad", "", f"the same is true of {_count(more, 'more group')}.", "groups")


def _stopped(group: Group) -> str:
    members = ", and the group has no members" if group.status_reason == "no_members" else ""
    return f"nothing was committed since {_status_since(group)}, while records were written{members}; {_behind(group)}."


def _stalled(group: Group) -> str:
    return f"it commits, but has made no progress since {_status_since(group)}; {_behind(group)}."


def _not_progressing(group: Group) -> str:
    return f"its commits have not moved since {_status_since(group)}; {_behind(group)}."


def _hidden(group: Group) -> str:
    return (
        f"an open transaction hides what is unread from it: a read_committed reader has read all that it can. Its "
        f"commits have not moved since {_status_since(group)}; {_behind(group)}."
    )


def _falls_behind(group: Group, trend: Trend) -> str:
    rates = ""
    if trend.produced_per_s is not None and trend.consumed_per_s is not None:
        rates = f": {_rate(trend.produced_per_s)} offsets a second are written, {_rate(trend.consumed_per_s)} committed"
    return f"its lag keeps growing{rates}; {_behind(group)}."


_WAITS: dict[str, Callable[[Group], str]] = {
    "stopped": _stopped,
    "stalled": _stalled,
    "not_progressing": _not_progressing,
}


def _judged(group: Group, trend: Trend) -> Item | None:
    """What `group_status` says of a group, if it is to be acted on."""
    since_ms, level = group.status_since_ms, "bad" if group.status in _WAITS else "warn"
    if group.status == "warning":
        sentence = _falls_behind(group, trend)
    elif group.status in _WAITS:
        sentence = (_hidden if group.status_reason == "open_transaction" else _WAITS[group.status])(group)
    elif group.status == "rewound" and trend.set_back_ms is None:  # else the sum of its commits shows it as well
        sentence = f"its commits went back at {_status_since(group)}, and are not there again; {_behind(group)}."
    else:
        return None
    some = group.status_partitions
    if some is not None and some < group.partitions:
        sentence = f"in {some:,} of its {group.partitions:,} partitions {sentence}"
    return Item(level, group.group_id, sentence, "groups", group=group.key, since_ms=since_ms)  # type: ignore[arg-type]


def _status_since(group: Group) -> str:
    return "a time that is not known" if group.status_since_ms is None else _at(group.status_since_ms)


def _set_back(group: Group, trend: Trend) -> Item | None:
    if trend.set_back_ms is None or trend.set_back_by is None:
        return None
    times = f" {trend.set_backs} times, the last time" if trend.set_backs > 1 else ""
    sentence = (
        f"its commits went back{times} by {_count(trend.set_back_by, 'offset')} before "
        f"{_at(trend.set_back_ms)}: a reset, or a consumer that began anew."
    )
    return Item("warn", group.group_id, sentence, "groups", group=group.key, since_ms=trend.set_back_ms)


def _rate(per_s: float) -> str:
    return f"{per_s:,.0f}" if abs(per_s) >= 100 else f"{per_s:.3g}"


def _behind(group: Group) -> str:
    """How far, in all units that are known, and how late: by the age, as of one unread record the time lag is 0."""
    if group.consumer_lag is None:
        return "its lag is not known"
    parts = [_count(group.consumer_lag, "offset")]
    if group.consumer_lag_bytes is not None and not group.bytes_unknown:
        parts.append(size(group.consumer_lag_bytes, group.bytes_error))
    behind = f"it is behind by {', '.join(parts)}"
    if group.consumer_age_ms is None or group.age_unknown:
        return behind
    return f"{behind}, and its oldest record that is not committed is {_age(group)} old"


def _age(group: Group) -> str:
    return duration(group.consumer_age_ms or 0, group.age_error_ms)


def _newest_snapshot(report: Report) -> Iterator[Item]:
    for cluster in report.clusters:
        if cluster.status == "failed":
            yield Item("bad", cluster.cluster, f"the newest snapshot failed{_why(cluster)}.", "snapshots")
        elif cluster.status == "partial":
            sentence = f"the newest snapshot is partial{_why(cluster)}."
            yield Item("warn", cluster.cluster, sentence, "snapshots")


def _why(cluster: Cluster) -> str:
    return f": {cluster.error}" if cluster.error else ""


def _old_lag(report: Report) -> Iterator[Item]:
    for cluster in report.clusters:
        shown = cluster.lag_snapshot_id
        if shown is None:
            yield Item("warn", cluster.cluster, "no lag was computed for it yet.", "clusters")
        elif shown != cluster.snapshot_id and cluster.status != "running":
            sentence = f"the lag shown is that of {_at(shown)}, not the newest."
            yield Item("warn", cluster.cluster, sentence, "clusters")


def _older_snapshots(report: Report) -> Iterator[Item]:
    for status in ("failed", "partial"):
        if count := sum(getattr(c, status) for c in report.clusters):
            how = "failed" if status == "failed" else f"{_is(count)} partial"
            yield Item("warn", "", f"{count:,} of {_count(report.snapshots_total, 'snapshot')} {how}.", "snapshots")


def _refused(report: Report) -> Iterator[Item]:
    if report.refused:
        rows = f"{_count(report.refused, 'row')} {_is(report.refused)} in quarantine"
        yield Item("warn", "", f"{rows}: they cannot be true, and count nowhere.", "snapshots")


def _unknown_lag(report: Report) -> Iterator[Item]:
    if count := sum(t.groups_unknown for t in report.totals.values()):
        sentence = f"{_count(count, 'group')} {_has(count)} partitions whose lag is unknown."
        yield Item("warn", "", sentence, "groups")


def _not_committed(report: Report) -> Iterator[Item]:
    """What no sum of lag has: a partition without a commit has no lag."""
    totals = [t for t in report.totals.values() if t.not_committed_offsets]
    if totals:
        groups = _count(sum(t.groups_not_committed for t in totals), "group")
        most = _count(sum(t.not_committed_offsets or 0 for t in totals), "offset")
        sentence = (
            f"not committed yet: up to {most}, in partitions of {groups} without a commit. They are in no lag; with "
            "auto.offset.reset=earliest all of them are still to be read."
        )
        yield Item("warn", "", sentence, "groups")


def _odd_offsets(report: Report) -> Iterator[Item]:
    for status, what in (
        ("truncated", "committed in a log that was cut off below the commit, and holds other records there now"),
        ("beyond_end", "committed beyond the log's end: the topic was truncated or recreated"),
        ("recreated", "not committed since the topic was recreated"),
        ("deleted_uncommitted", "read further than the log's start, and committed less: a restart finds those deleted"),
    ):
        if count := sum(getattr(t, f"groups_{status}") for t in report.totals.values()):
            yield Item("warn", "", f"{_count(count, 'group')} {_has(count)} {what}.", "groups")


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def _is(number: int) -> str:
    return "is" if number == 1 else "are"


def _has(number: int) -> str:
    return "has" if number == 1 else "have"


_RULES: tuple[Callable[[Report], Iterator[Item]], ...] = (
    _lost_data,
    _lost_before,
    _deleted_soon,
    _findings,
    _trends,
    _newest_snapshot,
    _old_lag,
    _older_snapshots,
    _refused,
    _unknown_lag,
    _not_committed,
    _odd_offsets,
)
