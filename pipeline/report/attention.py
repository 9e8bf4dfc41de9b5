"""What the report says first: small rules over the report, the worst first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

from pipeline.report.model import Cluster, Group, Report, utc

GROUPS_NAMED = 10


class Item(NamedTuple):
    """One sentence about a subject (a group or cluster, in quotation marks of the page's own, or nothing)."""

    level: Literal["bad", "warn"]
    subject: str
    sentence: str
    section: str
    is_loss: bool = False


def needs_attention(report: Report) -> list[Item]:
    """All that is amiss, what is bad before what is only to be known, and lost data before all else."""
    items = [item for rule in _RULES for item in rule(report)]
    return sorted(items, key=lambda item: item.level)


def _lost_data(report: Report) -> Iterator[Item]:
    lost = [g for g in report.groups if g.has_lost_data]
    for group in lost[:GROUPS_NAMED]:
        yield Item("bad", group.group_id, _loss(group), "groups", is_loss=True)
    if more := sum(t.groups_with_loss for t in report.totals.values()) - len(lost[:GROUPS_NAMED]):
        yield Item("bad", "", f"{_count(more, 'more group')} lost data.", "groups", is_loss=True)


def _loss(group: Group) -> str:
    partitions = _count(group.statuses["deleted_unread"], "partition")
    unread = "" if group.unread_offsets is None else f", {group.unread_offsets:,} offsets in all"
    return f"records of {partitions} on cluster {group.cluster} were deleted unread{unread}."


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
            sentence = f"the lag shown is that of {utc(shown):%Y-%m-%d %H:%M:%S} UTC, not the newest."
            yield Item("warn", cluster.cluster, sentence, "clusters")


def _older_snapshots(report: Report) -> Iterator[Item]:
    for status in ("failed", "partial"):
        if count := sum(getattr(c, status) for c in report.clusters):
            of = f"of {_count(report.snapshots_total, 'snapshot')}"
            yield Item("warn", "", f"{count:,} {of} {_is(count)} {status}.", "snapshots")


def _unknown_lag(report: Report) -> Iterator[Item]:
    if count := sum(t.groups_unknown for t in report.totals.values()):
        sentence = f"{_count(count, 'group')} {_has(count)} partitions whose lag is unknown."
        yield Item("warn", "", sentence, "groups")


def _odd_offsets(report: Report) -> Iterator[Item]:
    for status, what in (
        ("beyond_end", "committed beyond the log's end: the topic was truncated or recreated"),
        ("recreated", "not committed since the topic was recreated"),
    ):
        if count := sum(status in g.statuses for g in report.groups):
            yield Item("warn", "", f"{_count(count, 'group')} {_has(count)} {what}.", "groups")


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def _is(number: int) -> str:
    return "is" if number == 1 else "are"


def _has(number: int) -> str:
    return "has" if number == 1 else "have"


_RULES: tuple[Callable[[Report], Iterator[Item]], ...] = (
    _lost_data,
    _newest_snapshot,
    _old_lag,
    _older_snapshots,
    _unknown_lag,
    _odd_offsets,
)
