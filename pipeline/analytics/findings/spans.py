"""Decides which finding a problem belongs to, among the problems of one kind of one client. Plain Python."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import repeat


@dataclass
class Span:
    """A finding, from its first to its newest snapshot (epoch ms). `topic` is the cause, None while it is not known."""

    first_ms: int
    last_ms: int
    topic: str | None
    resolved_ms: int | None = None


def absences(last_ms: int, judged_at: Sequence[int], patience: int) -> list[int]:
    """The snapshots without the problem that resolve a finding which was last seen at an instant; none if too few.

    `judged_at` are the snapshots, in order, in which its subject could be judged; `patience` is how many it takes.
    """
    absent = [at_ms for at_ms in judged_at if at_ms > last_ms][:patience]
    return absent if len(absent) == patience else []


def assigned(
    seen: Sequence[tuple[int, str | None]],
    known: Sequence[Span],
    reported_at: Sequence[int],
    patience: int,
    may_begin: Sequence[bool] | None = None,
) -> list[Span | None]:
    """For each snapshot with the problem, the finding that it belongs to.

    `seen` are these snapshots in order, each with the topic that is the cause. `known` are the findings so far.
    `reported_at` are all snapshots, in order, in which the client reported anything. A finding ends after `patience` of
    these without the problem. A problem with another topic is another finding; a problem whose cause is not known
    belongs to the finding that began last.

    A snapshot that is late, or is computed again, belongs to the finding that lasted at that time. If there was none,
    it belongs to none (None), because no findings are added to the past. So a batch that is computed again gives the
    same findings. A problem that `may_begin` no finding belongs to none, if none lasts.
    """
    spans = [replace(span) for span in known]
    newest_ms = max((span.resolved_ms or span.last_ms for span in known), default=0)
    found = []
    for (at_ms, topic), begins in zip(seen, may_begin or repeat(True, len(seen)), strict=True):
        span = _span_at(spans, at_ms, topic, reported_at, patience)
        if span is None and begins and at_ms > newest_ms:
            span = Span(at_ms, at_ms, topic)
            spans.append(span)
        if span is not None:
            span.last_ms = max(span.last_ms, at_ms)
            span.topic = span.topic or topic
        found.append(span)
    return found


def _span_at(
    spans: Sequence[Span], at_ms: int, topic: str | None, reported_at: Sequence[int], patience: int
) -> Span | None:
    """The finding that lasted at an instant and may have this cause: one that has it, else the one that began last."""
    lasting = [
        span
        for span in spans
        if (span.topic is None or topic is None or span.topic == topic) and _lasts(span, at_ms, reported_at, patience)
    ]
    return max(lasting, key=lambda span: (topic is not None and span.topic == topic, span.first_ms), default=None)


def _lasts(span: Span, at_ms: int, reported_at: Sequence[int], patience: int) -> bool:
    if at_ms <= span.last_ms:
        return span.first_ms <= at_ms
    absent = bisect_left(reported_at, at_ms) - bisect_right(reported_at, span.last_ms)
    return span.resolved_ms is None and absent < patience
