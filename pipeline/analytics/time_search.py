"""Which timestamps to look up in a partition's log, so that its rungs' times are known within tolerance.

A look-up by time (ListOffsets) tells the first record that is not older. First at doubling ages, until one is found
that is older than the oldest rung, or at once the first record of all, where that is a rung. Then within the bracket
that a rung lies in, where its time is expected and in the middle by turns: the one is quick where rates are steady, the
other sure where they are not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

from pipeline.analytics.polyline import TOLERANCE
from pipeline.analytics.ruler import Ruler, Sample

FIRST_AGE_MS = 60_000
FINEST_MS = 100
"""Times that are known so well are not looked up, however small the lag is."""


class Ask(NamedTuple):
    """A timestamp to look up, and how much too wide its bracket is (infinite if it has no lower end)."""

    timestamp_ms: int
    excess_ms: float


@dataclass
class TimeSearch:
    """The search in one partition: its ruler as known so far, and the offsets whose times are wanted."""

    ruler: Ruler
    rungs: tuple[int, ...]
    samples: list[Sample] = field(default_factory=list)
    age_ms: int = 0
    is_over: bool = False

    def ask(self) -> Ask | None:
        """What to look up next; None when all is known well enough, or nothing more can be learnt."""
        line = self.ruler.timestamp_ms.vertices
        if self.is_over or not line or self._is_blind():
            return None
        excess_ms, rung = max((self._excess_ms(rung), rung) for rung in self.rungs)
        if excess_ms <= 0:
            return None
        end_ms = line[-1].value
        if excess_ms == math.inf:
            self.age_ms = max(FIRST_AGE_MS, 2 * self.age_ms)
            is_first = min(self.rungs) == self.ruler.last.log_start_offset
            return Ask(0 if is_first else max(0, end_ms - self.age_ms), excess_ms)
        return Ask(self._within_bracket(rung), excess_ms)

    def answered(self, asked_ms: int, offset: int, timestamp_ms: int) -> None:
        """Take the answer in. One that tells nothing new ends the search: the records are not in the order of time."""
        sample = Sample(asked_ms, offset, timestamp_ms)
        learnt = self.ruler.learnt(sample)
        if learnt.timestamp_ms != self.ruler.timestamp_ms:
            self.ruler = learnt
            self.samples.append(sample)
        else:  # as long as the oldest rung is not reached, an older record may be
            self.is_over = asked_ms == 0 or all(self._excess_ms(rung) < math.inf for rung in self.rungs)

    def _is_blind(self) -> bool:
        """A record from the future is the answer to every look-up."""
        newest_ms = self.ruler.last.max_timestamp_ms
        return newest_ms is not None and self.ruler.last.is_future(newest_ms)

    def _excess_ms(self, rung: int) -> float:
        line = self.ruler.timestamp_ms
        found = line.at(rung + 1)
        if found is None:
            return math.inf if rung + 1 < line.vertices[0].offset else 0
        return found.error - max(FINEST_MS, TOLERANCE * (line.vertices[-1].value - found.value))

    def _within_bracket(self, rung: int) -> int:
        line = self.ruler.timestamp_ms
        high = next(v for v in line.vertices if v.offset > rung)
        low = next(v for v in reversed(line.vertices) if v.offset <= rung)
        least, greatest = low.value - low.error + 1, high.value + high.error
        expected = line.at(rung + 1)
        guess = expected.value if expected and len(self.samples) % 2 else (least + greatest) // 2
        return max(0, min(max(guess, least), greatest))
