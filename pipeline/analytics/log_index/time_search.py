"""Decides which timestamps to look up in a partition's log, so that the times of its rungs are known within tolerance.

A look-up by time (ListOffsets) returns the first record that is not older than the given timestamp. The search has up
to three steps. If a broker does not report its newest record, that record is searched first: at growing ages until a
record is found, then between its timestamp and the earliest one for which there was no record. The second step doubles
the age until it finds a record before the oldest rung; if log start is a rung, it looks up the very first record
instead. The third step narrows the interval in which a rung lies. It alternates between the expected time of the rung,
which is quick if rates are steady, and the middle of the interval, which also works if they are not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

from pipeline.analytics.log_index.polyline import TOLERANCE
from pipeline.analytics.log_index.ruler import Ruler, Sample

FIRST_AGE_MS = 60_000
NEWEST_AGE_MS = 1_000
NEWEST_AGE_FACTOR = 8
FINEST_MS = 100
"""A time whose error is at most this is not looked up, however small the lag is."""


class Ask(NamedTuple):
    """A timestamp to look up. `excess_ms`: by how much the time's error exceeds the tolerance, infinite if unknown."""

    timestamp_ms: int
    excess_ms: float
    is_for_newest: bool = False


@dataclass
class TimeSearch:
    """The search in one partition: its ruler as known so far, and the offsets whose times are wanted."""

    ruler: Ruler
    rungs: tuple[int, ...]
    samples: list[Sample] = field(default_factory=list)
    age_ms: int = 0
    newest_age_ms: int = NEWEST_AGE_MS
    until_ms: int | None = None
    """No record has this timestamp or a later one. None while no such timestamp is known."""
    has_no_newest: bool = False
    """The newest record cannot be found: an answer contradicted the ruler, or was in the future."""
    is_over: bool = False

    def ask(self) -> Ask | None:
        """What to look up next; None if all times are known within tolerance, or look-ups cannot improve them."""
        if self.is_over or self._is_blind():
            return None
        if self._wants_newest() and not self._newest_is_near():
            bracket_ms = math.inf if self.until_ms is None else self.until_ms - self._known_ms() - FINEST_MS
            return Ask(self._nearer_newest(), bracket_ms, is_for_newest=True)
        line = self.ruler.timestamp_ms.vertices
        if not line:
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
        """Takes in an answer. If it brings nothing new, the search ends: timestamps in this log are not in order."""
        is_for_newest = self._wants_newest()
        if self._has_learnt(Sample(asked_ms, offset, timestamp_ms)):
            return
        if is_for_newest:
            self.has_no_newest = True
        else:
            # While the oldest rung is not reached, a look-up further back may still bring something new.
            self.is_over = asked_ms == 0 or all(self._excess_ms(rung) < math.inf for rung in self.rungs)

    def unanswered(self, asked_ms: int) -> None:
        """Takes in the answer that no record has this timestamp or a later one."""
        self.is_over = not self._wants_newest() or asked_ms == 0
        self.until_ms = asked_ms
        self.newest_age_ms *= NEWEST_AGE_FACTOR

    def _has_learnt(self, sample: Sample) -> bool:
        learnt = self.ruler.learnt(sample)
        is_new = learnt.timestamp_ms != self.ruler.timestamp_ms
        if is_new:
            self.ruler = learnt
            self.samples.append(sample)
        return is_new

    def _wants_newest(self) -> bool:
        """Whether the newest rung is beyond the end of the ruler's times, and its time may still be found."""
        line = self.ruler.timestamp_ms.vertices
        return not self.has_no_newest and (not line or line[-1].offset < self._end())

    def _end(self) -> int:
        """The offset after the newest rung, at most the log end."""
        return min(max(self.rungs) + 1, self.ruler.last.log_end_offset)

    def _newest_is_near(self) -> bool:
        """Whether the time of the newest record is known within tolerance, because no record is much newer."""
        if self.until_ms is None or not self.ruler.timestamp_ms.vertices:
            return False
        if self.until_ms - self._known_ms() > FINEST_MS:
            return False
        self.has_no_newest = not self._has_learnt(Sample(self.until_ms, self._end(), None))
        return True

    def _known_ms(self) -> int:
        """The greatest timestamp known so far; -1 if there is none, as for a record without a timestamp."""
        line = self.ruler.timestamp_ms.vertices
        return line[-1].value + line[-1].error if line else -1

    def _nearer_newest(self) -> int:
        known_ms, captured_ms = self._known_ms(), self.ruler.last.captured_ms
        if not self.samples:
            aged_ms = captured_ms - self.newest_age_ms
            if aged_ms > known_ms:
                return aged_ms
            if known_ms < 0:
                return 0
        if self.until_ms is None:
            return max(captured_ms, known_ms) + 1
        # Alternately just after the newest known record, and in the middle.
        middle_ms = (known_ms + self.until_ms) // 2
        return known_ms + 1 if len(self.samples) % 2 else max(known_ms + 1, middle_ms)

    def _is_blind(self) -> bool:
        """Whether no look-up can bring a time.

        No record has one, or the newest record has a timestamp in the future and is the answer to every look-up.
        """
        newest_ms = self.ruler.last.max_timestamp_ms
        if newest_ms is None:
            return self.ruler.last.has_no_times
        return not self.ruler.last.is_time(newest_ms)

    def _excess_ms(self, rung: int) -> float:
        line = self.ruler.timestamp_ms
        found = line.at(rung + 1)
        if found is None:
            return math.inf if line.vertices and rung + 1 < line.vertices[0].offset else 0
        return found.error - max(FINEST_MS, TOLERANCE * (line.vertices[-1].value - found.value))

    def _within_bracket(self, rung: int) -> int:
        line = self.ruler.timestamp_ms
        high = next(v for v in line.vertices if v.offset > rung)
        low = next(v for v in reversed(line.vertices) if v.offset <= rung)
        least, greatest = low.value - low.error + 1, high.value + high.error
        expected = line.at(rung + 1)
        guess = expected.value if expected and len(self.samples) % 2 else (least + greatest) // 2
        return max(0, min(max(guess, least), greatest))
