"""The report's section "Needs attention": rules that find problems in the report, the worst results first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from pipeline.common.words import counted
from pipeline.report.details_model import Finding, Loss
from pipeline.report.model import Cluster, Group, Report
from pipeline.report.progress import Level, judged, set_back
from pipeline.report.trends import Trend, trends
from pipeline.report.units import at, duration
from pipeline.tables import DATA_LOSS

GROUPS_NAMED = 10
FINDINGS_NAMED = 20


class AttentionItem(NamedTuple):
    """One sentence about a subject: a group or cluster, which the page puts in quotation marks, or nothing.

    `group` is the key of the group whose lag is drawn beside it, `since_ms` an instant that is marked there.
    """

    level: Level
    subject: str
    sentence: str
    section: str
    is_loss: bool = False
    group: tuple[str, str] | None = None
    since_ms: int | None = None
    advice: str | None = None


def needs_attention(report: Report) -> list[AttentionItem]:
    """All items: lost data first, then other problems, then notes."""
    items = [item for rule in _RULES for item in rule(report)]
    return sorted(items, key=lambda item: item.level)


def _lost_data(report: Report) -> Iterator[AttentionItem]:
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
        yield AttentionItem("bad", group.group_id, sentence, "groups", is_loss=True, group=group.key, since_ms=since_ms)
    if more := sum(t.groups_with_loss for t in report.totals.values()) - len(lost[:GROUPS_NAMED]):
        yield AttentionItem("bad", "", f"{counted(more, 'more group')} lost data.", "groups", is_loss=True)


def _loss(group: Group, since_ms: int | None) -> str:
    partitions = counted(group.statuses[DATA_LOSS], "partition")
    unread = "" if group.unread_offsets is None else f", {counted(group.unread_offsets, 'offset')} in all"
    left = "" if group.readable_offsets is None else f"; {counted(group.readable_offsets, 'offset')} can still be read"
    since = "" if since_ms is None else f"; log start has been past its commits since at least {at(since_ms)}"
    return f"records of {partitions} on cluster {group.cluster} were deleted unread{unread}{left}{since}."


def _lost_before(report: Report) -> Iterator[AttentionItem]:
    """Data lost within the time shown, in partitions where the group has continued reading since."""
    for loss in report.losses[:GROUPS_NAMED]:
        group = loss.cluster, loss.group_id
        yield AttentionItem(
            "bad", loss.group_id, _past(loss), "groups", is_loss=True, group=group, since_ms=loss.first_ms
        )
    if more := len(report.losses[GROUPS_NAMED:]):
        yield AttentionItem("bad", "", f"{counted(more, 'more group')} lost data before.", "groups", is_loss=True)


def _past(loss: Loss) -> str:
    seen = f"at {at(loss.first_ms)}"
    if loss.last_ms > loss.first_ms:
        seen = f"from {at(loss.first_ms)} to {at(loss.last_ms)}"
    unread = "" if loss.unread_offsets is None else f", {counted(loss.unread_offsets, 'offset')} in all"
    return (
        f"records of {counted(loss.partitions, 'partition')} on cluster {loss.cluster} were deleted "
        f"unread{unread}. Snapshots {seen} show this, the newest no longer does."
    )


def _findings(report: Report) -> Iterator[AttentionItem]:
    still_there = [f for f in report.findings if f.is_open]
    shown = {c.cluster: c.lag_snapshot_id for c in report.clusters}
    for finding in still_there[:FINDINGS_NAMED]:
        yield _of_finding(finding, shown.get(finding.cluster))
    if (more := report.findings_open - len(still_there[:FINDINGS_NAMED])) > 0:
        yield AttentionItem("warn", "", f"{counted(more, 'more finding')} {_is(more)} open.", "findings")


def _of_finding(finding: Finding, newest_ms: int | None) -> AttentionItem:
    # The times of a finding are snapshot ids, that is, the instants that snapshots were scheduled for.
    since = f" Since the snapshot of {at(finding.first_seen_ms)}"
    if finding.worst_ms is not None and finding.worst_ms < finding.last_seen_ms:
        since += f", at its worst in that of {at(finding.worst_ms)}"
    if newest_ms is not None and finding.last_seen_ms < newest_ms:  # its client may have ended
        since += f", last seen in that of {at(finding.last_seen_ms)}"
    return AttentionItem(
        "bad" if finding.severity == "critical" else "warn",
        finding.group_id or finding.client_id or finding.cluster,
        f"{finding.summary}{since}.",
        "findings",
        group=None if finding.group_id is None else (finding.cluster, finding.group_id),
        since_ms=finding.first_seen_ms,
        advice=finding.advice,
    )


def _progress(report: Report) -> Iterator[AttentionItem]:
    found = trends(report.instants, report.points)
    for rule in (judged, set_back):
        said = [(g, one) for g in report.groups if (one := rule(g, found.get(g.key, Trend())))]
        for group, (level, sentence, since_ms) in said[:GROUPS_NAMED]:
            yield AttentionItem(level, group.group_id, sentence, "groups", group=group.key, since_ms=since_ms)
        if more := len(said[GROUPS_NAMED:]):
            yield AttentionItem(said[0][1].level, "", f"the same is true of {counted(more, 'more group')}.", "groups")


def _deleted_soon(report: Report) -> Iterator[AttentionItem]:
    dangers = sorted(report.dangers, key=lambda d: d.deleted_in_ms)
    for danger in dangers[:GROUPS_NAMED]:
        sentence = (
            f"at the present rate, records of partition {danger.partition} of topic {danger.topic} will be deleted "
            f"unread in about {duration(danger.deleted_in_ms)}: the log's start is "
            f"{counted(danger.headroom, 'offset')} away from the first unread record, and moves faster than the group "
            "reads."
        )
        yield AttentionItem("bad", danger.group_id, sentence, "groups", group=(danger.cluster, danger.group_id))
    if (more := len(dangers) - GROUPS_NAMED) > 0:
        yield AttentionItem("bad", "", f"the same is true of {counted(more, 'more group')}.", "groups")


def _newest_snapshot(report: Report) -> Iterator[AttentionItem]:
    for cluster in report.clusters:
        if cluster.status == "failed":
            yield AttentionItem("bad", cluster.cluster, f"the newest snapshot failed{_why(cluster)}.", "snapshots")
        elif cluster.status == "partial":
            sentence = f"the newest snapshot is partial{_why(cluster)}."
            yield AttentionItem("warn", cluster.cluster, sentence, "snapshots")


def _why(cluster: Cluster) -> str:
    return f": {cluster.error}" if cluster.error else ""


def _old_lag(report: Report) -> Iterator[AttentionItem]:
    for cluster in report.clusters:
        shown = cluster.lag_snapshot_id
        if shown is None:
            yield AttentionItem("warn", cluster.cluster, "no lag was computed for it yet.", "clusters")
        elif shown != cluster.snapshot_id and cluster.status != "running":
            sentence = f"the lag shown is from the snapshot of {at(shown)}, not from the newest one."
            yield AttentionItem("warn", cluster.cluster, sentence, "clusters")


def _older_snapshots(report: Report) -> Iterator[AttentionItem]:
    for status in ("failed", "partial"):
        if count := sum(getattr(c, status) for c in report.clusters):
            how = "failed" if status == "failed" else f"{_is(count)} partial"
            yield AttentionItem(
                "warn", "", f"{count:,} of {counted(report.snapshots_total, 'snapshot')} {how}.", "snapshots"
            )


def _passed_over(report: Report) -> Iterator[AttentionItem]:
    """Snapshots that were read, but whose lag is missing for ever."""
    for cluster in report.clusters:
        if (passed := cluster.passed_over) is None:
            continue
        which = f"lag of the snapshot of {at(passed.first_id)} is"
        if passed.snapshots > 1:
            span = f"the first of {at(passed.first_id)}, the last of {at(passed.last_id)}"
            which = f"lag of {passed.snapshots:,} snapshots ({span}) is"
        why = "; the reason for the last:" if passed.has_other_reasons else ":"
        sentence = f"the {which} missing and can never be computed{why} {passed.reason}."
        yield AttentionItem("warn", cluster.cluster, sentence, "snapshots")


def _refused(report: Report) -> Iterator[AttentionItem]:
    if report.refused:
        rows = f"{counted(report.refused, 'row')} {_is(report.refused)} in quarantine"
        yield AttentionItem("warn", "", f"{rows}: they cannot be true, and are not counted anywhere.", "snapshots")


def _unknown_lag(report: Report) -> Iterator[AttentionItem]:
    if count := sum(t.groups_unknown for t in report.totals.values()):
        sentence = f"{counted(count, 'group')} {_has(count)} partitions whose lag is unknown."
        yield AttentionItem("warn", "", sentence, "groups")


def _not_committed(report: Report) -> Iterator[AttentionItem]:
    """Partitions without a commit: they have no lag, so no sum of lags includes them."""
    totals = [t for t in report.totals.values() if t.not_committed_offsets]
    if totals:
        groups = counted(sum(t.groups_not_committed for t in totals), "group")
        most = counted(sum(t.not_committed_offsets or 0 for t in totals), "offset")
        sentence = (
            f"not committed yet: up to {most}, in partitions of {groups} without a commit. No lag counts them; with "
            "auto.offset.reset=earliest all of them are still to be read."
        )
        yield AttentionItem("warn", "", sentence, "groups")


def _odd_offsets(report: Report) -> Iterator[AttentionItem]:
    for status, what in (
        ("truncated", "committed in a log that was truncated below the commit and has other records there now"),
        ("beyond_end", "committed beyond the log's end: the topic was truncated or recreated"),
        ("recreated", "not committed since the topic was recreated"),
        (
            "deleted_uncommitted",
            "read past log start, but committed before it: a restart could not use its commit",
        ),
    ):
        if count := sum(getattr(t, f"groups_{status}") for t in report.totals.values()):
            yield AttentionItem("warn", "", f"{counted(count, 'group')} {_has(count)} {what}.", "groups")


def _is(number: int) -> str:
    return "is" if number == 1 else "are"


def _has(number: int) -> str:
    return "has" if number == 1 else "have"


_RULES: tuple[Callable[[Report], Iterator[AttentionItem]], ...] = (
    _lost_data,
    _lost_before,
    _deleted_soon,
    _findings,
    _progress,
    _newest_snapshot,
    _old_lag,
    _older_snapshots,
    _passed_over,
    _refused,
    _unknown_lag,
    _not_committed,
    _odd_offsets,
)
