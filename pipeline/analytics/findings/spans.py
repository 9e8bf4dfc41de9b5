"""Decides which finding a problem belongs to, among the problems of one subject. Plain Python."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any


@dataclass
class Span:
    """A finding, from its first to its newest snapshot (epoch ms). `topic` is the cause, None while it is not known.

    `resolved_ms` is the first snapshot without it if it has ended, and `ends_ms` the one that confirms this.
    """

    first_ms: int
    last_ms: int
    topic: str | None = None
    resolved_ms: int | None = None
    ends_ms: int | None = None

    @classmethod
    def of_row(cls, row: Mapping[str, Any], topic: str | None = None) -> Span:
        """That of a row of `findings`, whose instants are epoch ms."""
        resolved_ms = row["resolved_at"]
        ends_ms = row["resolution_confirmed_at"] or resolved_ms
        return cls(row["first_seen"], row["last_seen"], topic, resolved_ms, ends_ms)

    def lasts(self, at_ms: int, judged_at: Sequence[int], snapshots_to_resolve: int) -> bool:
        """Whether it had begun at an instant, and had not ended before. For the arguments, see `absences`."""
        if at_ms <= self.last_ms:
            return self.first_ms <= at_ms
        return self.resolved_ms is None and judged_between(self.last_ms, at_ms, judged_at) < snapshots_to_resolve

    def explains(self, at_ms: int, judged_at: Sequence[int], snapshots_to_resolve: int) -> bool:
        """Whether it has begun at an instant, and has not ended with it, if this snapshot does not have its problem."""
        if at_ms <= self.last_ms:
            return self.first_ms <= at_ms
        if self.ends_ms is not None:
            return at_ms < self.ends_ms
        return judged_between(self.last_ms, at_ms + 1, judged_at) < snapshots_to_resolve


def judged_between(after_ms: int, before_ms: int, judged_at: Sequence[int]) -> int:
    """How many of the snapshots are between the two instants."""
    return bisect_left(judged_at, before_ms) - bisect_right(judged_at, after_ms)


def absences(last_ms: int, judged_at: Sequence[int], snapshots_to_resolve: int) -> list[int]:
    """The snapshots without the problem that resolve a finding which was last seen at an instant; none if too few.

    `judged_at` are the snapshots, in order, in which its subject could be judged; it takes `snapshots_to_resolve`.
    """
    absent = [at_ms for at_ms in judged_at if at_ms > last_ms][:snapshots_to_resolve]
    return absent if len(absent) == snapshots_to_resolve else []


class Findings:
    """The findings of one subject, which grow as the snapshots with its problem are added in their order.

    `known` are the findings so far; for the other arguments, see `absences`. A finding ends after
    `snapshots_to_resolve` snapshots without the problem. A problem with another topic is another finding; a problem
    whose cause is not known belongs to the finding that began last.

    A snapshot that is late, or is computed again, belongs to the finding that lasted at that time. If there was none,
    it belongs to none, because no findings are added to the past. So a batch that is computed again gives the same
    findings.
    """

    def __init__(self, known: Sequence[Span], judged_at: Sequence[int], snapshots_to_resolve: int) -> None:
        self._spans = [replace(span) for span in known]
        self._newest_ms = max((span.resolved_ms or span.last_ms for span in known), default=0)
        self._judged_at, self._patience = judged_at, snapshots_to_resolve

    def continued(self, at_ms: int, topic: str | None = None) -> Span | None:
        """The finding that a problem continues; None if it continues none."""
        lasting = [
            span
            for span in self._spans
            if (span.topic is None or topic is None or span.topic == topic)
            and span.lasts(at_ms, self._judged_at, self._patience)
        ]
        span = max(lasting, key=lambda span: (topic is not None and span.topic == topic, span.first_ms), default=None)
        if span is not None:
            span.last_ms = max(span.last_ms, at_ms)
            span.topic = span.topic or topic
        return span

    def may_begin(self, at_ms: int) -> bool:
        """Whether a finding may begin at an instant: not before another one."""
        return at_ms > self._newest_ms

    def begun(self, at_ms: int, topic: str | None = None) -> Span:
        """A new finding."""
        span = Span(at_ms, at_ms, topic)
        self._spans.append(span)
        return span

    def last(self, at_ms: int) -> bool:
        """Whether one of them lasts at a snapshot, if this has its problem."""
        return any(span.lasts(at_ms, self._judged_at, self._patience) for span in self._spans)

    def explain(self, at_ms: int) -> bool:
        """Whether one of them `explains` a snapshot."""
        return any(span.explains(at_ms, self._judged_at, self._patience) for span in self._spans)


def assigned(
    seen: Sequence[tuple[int, str | None]], known: Sequence[Span], judged_at: Sequence[int], snapshots_to_resolve: int
) -> list[Span | None]:
    """For each snapshot with the problem, the finding that it belongs to; None if it belongs to none.

    `seen` are these snapshots in order, each with the topic that is the cause; for the others, see `Findings`.
    """
    of = Findings(known, judged_at, snapshots_to_resolve)
    return [
        of.continued(at_ms, topic) or (of.begun(at_ms, topic) if of.may_begin(at_ms) else None) for at_ms, topic in seen
    ]
