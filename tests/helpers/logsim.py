"""A small simulation of a partition's log as Kafka keeps it: what a snapshot sees of it, and the truth.

Bytes are those of whole batches on the leader's replica, times are those of records. It needs neither Kafka nor Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from pipeline.analytics.log_index.ruler import Observation

CHECK_INTERVAL_MS = 5 * 60_000


class Batch(NamedTuple):
    """A record batch; its records have the offsets from `base` to `last`, all with one timestamp."""

    base: int
    last: int
    size: int
    timestamp_ms: int


@dataclass
class Segment:
    """A file of the log: its batches in order, and where it begins."""

    base: int
    batches: list[Batch] = field(default_factory=list)

    @property
    def size(self) -> int:
        """The length of the file."""
        return sum(b.size for b in self.batches)


@dataclass
class Replica:
    """One broker's copy: the same batches, divided into files in its own way."""

    segments: list[Segment]

    def append(self, batch: Batch, segment_bytes: int) -> None:
        """Writes a batch, into a new segment if the newest one is full."""
        newest = self.segments[-1]
        if newest.batches and newest.size + batch.size > segment_bytes:
            newest = Segment(batch.base)
            self.segments.append(newest)
        newest.batches.append(batch)

    def batches(self) -> list[Batch]:
        """All batches in this copy."""
        return [b for s in self.segments for b in s.batches]


class Log:
    """One partition. `now_ms` is the brokers' clock, and the default timestamp of records."""

    def __init__(self, segment_bytes: int = 1_000, now_ms: int = 1_700_000_000_000) -> None:
        self.segment_bytes = segment_bytes
        self.now_ms = now_ms
        self.incarnation = 0
        self.leader = 1
        self.is_compacted = False
        self._begin()

    def _begin(self) -> None:
        self.log_start = 0
        self.log_end = 0
        self.replica = Replica([Segment(0)])
        self.remote: list[Batch] = []
        self.timestamps_ms: list[int] = []
        self.is_in_order = True

    def append(self, records: int, size: int, timestamp_ms: int | None = None) -> None:
        """Appends a producer's batch with this number of records and bytes."""
        stamp = self.now_ms if timestamp_ms is None else timestamp_ms
        batch = Batch(self.log_end, self.log_end + records - 1, size, stamp)
        self.replica.append(batch, self.segment_bytes)
        self.log_end += records
        self.is_in_order &= not self.timestamps_ms or stamp >= self.timestamps_ms[-1]
        self.timestamps_ms += [stamp] * records

    def wait(self, ms: int) -> None:
        """Time passes; every five minutes the retention thread removes segments that lie below log start as a whole."""
        last_check = self.now_ms // CHECK_INTERVAL_MS
        self.now_ms += ms
        if self.now_ms // CHECK_INTERVAL_MS > last_check:
            segments = self.replica.segments
            while len(segments) > 1 and segments[1].base <= self.log_start:
                segments.pop(0)

    def retain(self, segments: int) -> None:
        """Retention: the oldest segments are deleted until `segments` are left; log start is then where one begins."""
        while len(self.replica.segments) > max(segments, 1):
            self.replica.segments.pop(0)
            self.log_start = max(self.log_start, self.replica.segments[0].base)
            self.remote.clear()

    def delete_records(self, before: int) -> None:
        """DeleteRecords: log start moves at once, the files below it stay until the next check."""
        self.log_start = min(max(self.log_start, before), self.log_end)

    def tier(self, segments: int) -> None:
        """Older segments are only kept in remote storage: they leave the broker's disk, and log start stays."""
        while len(self.replica.segments) > max(segments, 1):
            self.remote += self.replica.segments.pop(0).batches

    def move(self) -> None:
        """Another broker becomes leader: its copy begins at (local) log start, and is divided into other files."""
        copied = [b for b in self.replica.batches() if b.last >= self.log_start]
        copy = Replica([Segment(copied[0].base if copied else self.log_end)])
        for batch in copied:
            copy.append(batch, self.segment_bytes)
        self.replica = copy
        self.leader += 1

    def truncate(self, to: int) -> None:
        """The newest batches are lost, down to the batch boundary at or below an offset."""
        kept = [b for b in self.replica.batches() if b.last < to]
        end = kept[-1].last + 1 if kept else self.replica.segments[0].base
        for segment in self.replica.segments:
            segment.batches = [b for b in segment.batches if b.last < to]
        self.replica.segments = [s for s in self.replica.segments if s.batches] or [Segment(end)]
        self.log_end = max(end, self.log_start)
        del self.timestamps_ms[self.log_end :]

    def compact(self, keep_every: int) -> None:
        """The cleaner rewrites the closed segments with one of every `keep_every` batches; offsets keep their gaps."""
        self.is_compacted = True
        for segment in self.replica.segments[:-1]:
            segment.batches = [b for n, b in enumerate(segment.batches) if n % keep_every == 0]

    def recreate(self) -> None:
        """The topic is deleted and created again."""
        self.incarnation += 1
        self._begin()

    def after(self, steps: Iterable[Callable[[Log], object]]) -> Observation:
        """What a snapshot sees a moment after all these steps."""
        for step in steps:
            step(self)
        self.wait(1)
        return self.observe()

    def observe(self) -> Observation:
        """What a snapshot sees."""
        batches = self.replica.batches()
        local_start = max(self.log_start, self.replica.segments[0].base)
        readable = [b for b in self.remote + batches if b.last >= self.log_start]
        newest = max(readable, key=lambda b: b.timestamp_ms, default=None)
        return Observation(
            captured_ms=self.now_ms,
            topic_id=f"id-{self.incarnation}",
            leader=self.leader,
            log_start_offset=self.log_start,
            local_log_start_offset=local_start,
            log_end_offset=self.log_end,
            max_timestamp_ms=newest.timestamp_ms if newest else None,
            max_timestamp_offset=newest.last if newest else None,
            log_bytes=sum(b.size for b in batches),
            log_bytes_error=0,
            is_compacted=self.is_compacted,
        )

    def first_from(self, timestamp_ms: int) -> tuple[int, int] | None:
        """ListOffsets by time: the first record that is not older, and its timestamp; None if all are older."""
        readable = (b for b in self.remote + self.replica.batches() if b.last >= self.log_start)
        found = next((b for b in readable if b.timestamp_ms >= timestamp_ms), None)
        return (max(found.base, self.log_start), found.timestamp_ms) if found else None

    def bytes_to_end(self, offset: int) -> int:
        """KIP-532's byte lag: from the start of the batch with the offset to the end of the log."""
        return sum(b.size for b in self.remote + self.replica.batches() if b.last >= offset)

    def timestamp_of(self, offset: int) -> int:
        """The timestamp of the record that was written at an offset, whether or not it still exists."""
        return self.timestamps_ms[offset]

    def has(self, offset: int) -> bool:
        """Whether the record at an offset still exists."""
        return any(b.base <= offset <= b.last for b in self.remote + self.replica.batches())
