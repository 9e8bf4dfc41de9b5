"""The report's section "Needs attention": rules that find problems in the report, the worst results first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

from pipeline.common.quantities import at
from pipeline.common.subject import subject_of
from pipeline.common.words import counted, named
from pipeline.report.cards.cards import findings_without_card
from pipeline.report.model.details import Finding
from pipeline.report.model.ledger import Cluster
from pipeline.report.model.report import Report

Level = Literal["bad", "warn"]
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
    return sorted(items, key=lambda item: (item.level, not item.is_loss))


def notes(report: Report) -> list[AttentionItem]:
    """The same without findings, which the page shows as cards; and how many findings have none."""
    more = findings_without_card(report)
    found = [_more_findings(more)] if more > 0 else []
    found += [item for rule in _RULES if rule is not _findings for item in rule(report)]
    return sorted(found, key=lambda item: (item.level, not item.is_loss))


def _findings(report: Report) -> Iterator[AttentionItem]:
    # What is only information needs nobody; it is in the list of findings.
    still_there = [f for f in report.findings if f.is_open and f.severity != "info"]
    lost_before = [f for f in report.findings if not f.is_open and f.is_loss]
    shown = {c.cluster: c.lag_snapshot_id for c in report.clusters}
    for finding in (*still_there[:FINDINGS_NAMED], *lost_before[:FINDINGS_NAMED]):
        yield _of_finding(finding, shown.get(finding.cluster))
    information = sum(f.is_open and f.severity == "info" for f in report.findings)
    if (more := report.findings_open - information - len(still_there[:FINDINGS_NAMED])) > 0:
        yield _more_findings(more)


def _more_findings(number: int) -> AttentionItem:
    return AttentionItem("warn", "", f"{counted(number, 'more finding')} {_is(number)} open.", "findings")


def _of_finding(finding: Finding, newest_ms: int | None) -> AttentionItem:
    # The times of a finding are snapshot ids, that is, the instants that snapshots were scheduled for.
    times = f" Found in the snapshot of {at(finding.first_seen_ms)}"
    if finding.worst_ms is not None and finding.first_seen_ms < finding.worst_ms < finding.last_seen_ms:
        times += f", at its worst in that of {at(finding.worst_ms)}"
    if finding.resolved_ms is not None:
        times += f", resolved in that of {at(finding.resolved_ms)}"
    elif newest_ms is not None and finding.last_seen_ms < newest_ms:  # its client may have ended
        times += f", last seen in that of {at(finding.last_seen_ms)}"
    return AttentionItem(
        "bad" if finding.severity == "critical" else "warn",
        named(subject_of(finding).name),
        f"{finding.summary}{times}.",
        "findings",
        is_loss=finding.is_loss,
        group=None if finding.group_id is None else (finding.cluster, finding.group_id),
        since_ms=finding.first_seen_ms,
        advice=finding.advice if finding.is_open else None,
    )


def _lost_data(report: Report) -> Iterator[AttentionItem]:
    """Groups that lost data before there were findings, or whose findings are not listed."""
    losses = [f for f in report.findings if f.is_open and f.is_loss]
    shown = {group.key for group in report.groups}
    has_all = len(shown) >= sum(t.groups for t in report.totals.values())
    named = {(f.cluster, name) for f in losses for name in f.groups()}
    # Groups may be selected: what others have lost is not counted in the totals either.
    counted_there = {key for key in named if not has_all or key in shown}
    if (others := sum(t.groups_with_loss for t in report.totals.values()) - len(counted_there)) > 0:
        what = counted(others, "more group" if counted_there else "group")
        yield AttentionItem("bad", "", f"{what} lost data: records were deleted unread.", "groups", is_loss=True)


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


def _not_restartable(report: Report) -> Iterator[AttentionItem]:
    if count := sum(t.groups_deleted_uncommitted for t in report.totals.values()):
        what = "read past log start, but committed before it: a restart could not use its commit"
        yield AttentionItem("warn", "", f"{counted(count, 'group')} {_has(count)} {what}.", "groups")


def _is(number: int) -> str:
    return "is" if number == 1 else "are"


def _has(number: int) -> str:
    return "has" if number == 1 else "have"


_RULES: tuple[Callable[[Report], Iterator[AttentionItem]], ...] = (
    _findings,
    _lost_data,
    _newest_snapshot,
    _old_lag,
    _older_snapshots,
    _passed_over,
    _refused,
    _unknown_lag,
    _not_committed,
    _not_restartable,
)
