"""The true state of a busy cluster at any instant, from the journals of its applications.

Nothing here was read by laglake. An application writes a line just before it requests something, and another one when
that is acknowledged. So the truth at any instant is between two bounds, a `Span`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from benchmarks.busy_applications import CLOSING, COMMITTED, COMMITTING, OPENED, PRODUCED, READ, WRITTEN


class Span(NamedTuple):
    """The truth is not below `low` and not above `high`."""

    low: float
    high: float

    def off(self, value: float) -> float:
        """How far a value is outside of the span."""
        return max(self.low - value, value - self.high, 0)

    def meets(self, low: float, high: float) -> bool:
        """Whether any value from `low` to `high` can be true."""
        return low <= self.high and self.low <= high


class Steps:
    """The lines of one kind about one partition: instants in seconds, ascending, and their offsets."""

    def __init__(self) -> None:
        self.instants: list[float] = []
        self.offsets: list[int] = []

    def at(self, instant: float) -> int | None:
        """The newest offset at that instant; None before the first line."""
        number = bisect_right(self.instants, instant)
        return self.offsets[number - 1] if number else None

    def instant_of(self, offset: int) -> float:
        """When the record with this offset was sent; for lines about produced records."""
        return self.instants[bisect_right(self.offsets, offset)]


Journal = Mapping[tuple[str, int], Steps]
"""(kind, partition) → its lines."""


def read_journal(path: Path) -> Journal:
    """The journal of one application that has ended."""
    found: dict[tuple[str, int], Steps] = defaultdict(Steps)
    with path.open() as lines:
        for line in lines:
            kind, partition, instant, offset = line.split(",")
            steps = found[kind, int(partition)]
            steps.instants.append(float(instant))
            steps.offsets.append(int(offset))
    return found


class Truth:
    """The truth about one topic and one of its readers, from their journals. Instants are seconds since 1970.

    `replicated` gives a lower bound of the high watermark: a kind of lines, and the journal that has them.
    """

    def __init__(self, writer: Journal, reader: Journal, replicated: tuple[str, Journal]) -> None:
        self._writer = writer
        self._reader = reader
        self._replicated = replicated

    @classmethod
    def of_orders(cls, folder: Path, reader: str) -> Truth:
        """A record that a reader receives is replicated; an acknowledgement with acks=1 says nothing about replicas."""
        journals = {role: read_journal(folder / f"{role}.csv") for role in {"producer", "prompt", reader}}
        return cls(journals["producer"], journals[reader], (READ, journals["prompt"]))

    @classmethod
    def of_ledger(cls, folder: Path) -> Truth:
        """A record of a transactional producer is replicated before it is acknowledged."""
        writer, reader = (read_journal(folder / f"{role}.csv") for role in ("transactions", "read-committed"))
        return cls(writer, reader, (WRITTEN, writer))

    def committed(self, partition: int, instant: float) -> Span:
        """From the commit that is acknowledged to the one that may have been made."""
        return self._span(self._reader[COMMITTED, partition], self._reader[COMMITTING, partition], instant)

    def log_end(self, partition: int, instant: float) -> Span:
        """From the records that the leader has acknowledged to those that it may have."""
        return self._span(self._writer[WRITTEN, partition], self._writer[PRODUCED, partition], instant)

    def high_watermark(self, partition: int, instant: float) -> Span:
        """From the records that are certainly replicated to those that the leader may have."""
        kind, journal = self._replicated
        return self._span(journal[kind, partition], self._writer[PRODUCED, partition], instant)

    def consumer_lag(self, partition: int, instant: float) -> Span:
        """Records."""
        return _between(self.committed(partition, instant), self.high_watermark(partition, instant))

    def replication_lag(self, partition: int, instant: float) -> Span:
        """Records."""
        return _between(self.high_watermark(partition, instant), self.log_end(partition, instant))

    def consumer_lag_ms(self, partition: int, instant: float) -> Span:
        """How much newer the newest record is than the first one that is not committed."""
        committed, end = self.committed(partition, instant), self.high_watermark(partition, instant)
        first, last = (self._timestamp_ms(partition, offset) for offset in (committed.low, end.high - 1))
        if committed.high >= end.low:
            return Span(0, last - first)
        least = self._timestamp_ms(partition, end.low - 1) - self._timestamp_ms(partition, committed.high)
        return Span(least, last - first)

    def consumer_age_ms(self, partition: int, instant: float) -> Span:
        """The age of the first record that is not committed. There must be such a record."""
        committed = self.committed(partition, instant)
        oldest, newest = (self._timestamp_ms(partition, offset) for offset in committed)
        return Span(int(instant * 1000) - newest, instant * 1000 - oldest)

    def open_since(self, partition: int, instant: float, seconds: float) -> int | None:
        """The first offset of the transaction that had certainly been open for `seconds`; None if there was none."""
        opened, closing = (self._writer[kind, partition] for kind in (OPENED, CLOSING))
        first = opened.at(instant - seconds)
        return None if first is None or first == closing.at(instant) else first

    def _timestamp_ms(self, partition: int, offset: float) -> int:
        return int(self._writer[PRODUCED, partition].instant_of(int(offset)) * 1000)

    @staticmethod
    def _span(low: Steps, high: Steps, instant: float) -> Span:
        return Span(low.at(instant) or 0, high.at(instant) or 0)


def _between(lower: Span, upper: Span) -> Span:
    """The distance between two rungs, which are in this order."""
    return Span(max(0, upper.low - lower.high), max(0, upper.high - lower.low))
