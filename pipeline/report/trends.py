"""The trend of a group: how fast its last snapshots moved, and how often its commits went back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

from pipeline.report.model import Instant, Point

RECENT = 10
"""The number of snapshots that a trend is computed from. They have the same partitions, and no gap between them."""
FEWEST = 4


@dataclass(frozen=True)
class Trend:
    """What a group's recent snapshots show; None if they do not show it, or are too few.

    set_back_ms, set_back_by: when commits last went back within the time shown, and by how many offsets. set_backs: how
    often they did. produced_per_s, consumed_per_s: how fast log ends and commits move.
    """

    set_back_ms: int | None = None
    set_back_by: int | None = None
    set_backs: int = 0
    produced_per_s: float | None = None
    consumed_per_s: float | None = None


def trends(instants: Iterable[Instant], points: Iterable[Point]) -> dict[tuple[str, str], Trend]:
    """The trend of each group, by cluster and group."""
    segments = {(i.cluster, i.snapshot_id): i.segment for i in instants}
    series: dict[tuple[str, str], list[Point]] = {}
    for point in sorted(points, key=lambda p: p.snapshot_id):
        series.setdefault((point.cluster, point.group_id), []).append(point)
    return {group: _trend(of_group, segments) for group, of_group in series.items()}


def _trend(points: Sequence[Point], segments: Mapping[tuple[str, int], int]) -> Trend:
    newest = points[-1]
    segment = segments[newest.cluster, newest.snapshot_id]
    alike = takewhile(
        lambda p: segments[p.cluster, p.snapshot_id] == segment and p.partitions == newest.partitions, reversed(points)
    )
    recent = list(alike)[:RECENT][::-1]
    set_backs = _set_backs(points)
    last_ms, last_by = set_backs[-1] if set_backs else (None, None)
    produced = _per_s([(p.ends_ms, p.log_ends) for p in recent if p.log_ends is not None])
    consumed = _per_s([(p.commits_ms, p.commits) for p in recent if p.commits is not None])
    return Trend(
        set_back_ms=last_ms,
        set_back_by=last_by,
        set_backs=len(set_backs),
        produced_per_s=produced,
        consumed_per_s=consumed,
    )


def _set_backs(points: Sequence[Point]) -> list[tuple[int, int]]:
    """When and by how much commits went back, in the same partitions, if they were still back at the next snapshot.

    Truncated logs are left out, and so are pairs of snapshots that were read in the opposite order.
    """
    found = []
    for before, after, then in zip(points, points[1:], [*points[2:], None], strict=False):
        if after.commits_ms <= before.commits_ms:
            continue
        if then is not None and before.commits is not None and (then.commits or 0) >= before.commits:
            continue
        if before.partitions != after.partitions or None in (
            before.commits,
            after.commits,
            before.log_ends,
            after.log_ends,
        ):
            continue
        by = (before.commits or 0) - (after.commits or 0)
        if by > 0 and (after.log_ends or 0) >= (before.log_ends or 0):
            found.append((after.commits_ms, by))
    return found


def _per_s(known: Sequence[tuple[int, int]]) -> float | None:
    return per_s(known[0], known[-1]) if known else None


def per_s(before: tuple[int, int], after: tuple[int, int]) -> float | None:
    """How far an offset moved per second between two reads (epoch ms, offset); None unless the second is later."""
    passed_ms = after[0] - before[0]
    return (after[1] - before[1]) * 1000 / passed_ms if passed_ms > 0 else None
