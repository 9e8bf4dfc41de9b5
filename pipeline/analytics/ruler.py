"""The ruler of one partition, from what successive snapshots saw of its log: offset → bytes, offset → timestamp.

Each snapshot tells one point of both lines exactly: where the log ended, how many bytes it had and how new its newest
record was. What happened between two snapshots is told only as far as it can be known: bytes are a chain of sizes that
only grew, and where a size may have shrunk meanwhile (retention, another replica, compaction, truncation) the chain
begins anew, with the two ends of the log. Nothing is guessed, so nothing needs to be taken back.

What cannot be seen: a log that an unclean election cuts back and that grows past its old end before the next look,
under the same leader, looks as if it had only grown.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from pipeline.analytics.polyline import Polyline, Reading

FUTURE_MS = 5 * 60_000
"""A timestamp so much later than the snapshot is a lying producer's."""
SETTLING_MS = 10 * 60_000
"""Files below log start, as DeleteRecords leaves them, go with the next log.retention.check.interval.ms (5 minutes)."""


class Observation(NamedTuple):
    """A row of `watermarks`: one look at a partition."""

    captured_ms: int
    topic_id: str | None
    leader: int
    log_start_offset: int
    local_log_start_offset: int | None
    log_end_offset: int
    max_timestamp_ms: int | None
    max_timestamp_offset: int | None
    log_bytes: int | None
    log_bytes_error: int | None
    is_compacted: bool

    @property
    def start(self) -> int:
        """Where the part of the log begins that `log_bytes` counts."""
        local = self.local_log_start_offset
        return self.log_start_offset if local is None else max(local, self.log_start_offset)


@dataclass(frozen=True)
class Ruler:
    """Bytes and the greatest timestamp before an offset, and what the lines stand on.

    `future_timestamps` counts those that were set aside, `restarts` how often the chain of sizes broke.
    """

    last: Observation
    position_bytes: Polyline
    timestamp_ms: Polyline
    settles_ms: int = 0
    future_timestamps: int = 0
    restarts: int = 0

    def position_at(self, offset: int) -> Reading | None:
        """Bytes before an offset, from an arbitrary zero. NULL where the log is not on the broker's disk."""
        return self.position_bytes.at(offset) if offset >= self.last.start else None

    def timestamp_at(self, offset: int) -> Reading | None:
        """The greatest timestamp of the records up to the one at an offset: its own, where they are in order."""
        return self.timestamp_ms.at(offset + 1) if offset >= self.last.log_start_offset else None

    def learnt(self, offset: int, timestamp_ms: int) -> Ruler:
        """With what ListOffsets answers to a timestamp: the first record that is not older, and its own timestamp.

        All records before it are older, so its timestamp is the greatest up to there. One from the future is set aside,
        and so is one that contradicts what is known: producers that do not write in order.
        """
        if timestamp_ms > self.last.captured_ms + FUTURE_MS:
            return replace(self, future_timestamps=self.future_timestamps + 1)
        try:
            return replace(self, timestamp_ms=self.timestamp_ms.refined(offset + 1, timestamp_ms))
        except ValueError:
            return self

    def thinned(self) -> Ruler:
        """With few vertices, none of them below log start."""
        return replace(
            self,
            position_bytes=self.position_bytes.since(self.last.start).thinned(),
            timestamp_ms=self.timestamp_ms.since(self.last.log_start_offset).thinned(),
        )


def begun(seen: Observation) -> Ruler:
    """The ruler of a partition that is seen for the first time."""
    return _with_timestamp(Ruler(seen, _two_ends(seen), Polyline(), _settles_ms(seen)), seen)


def continued(ruler: Ruler, seen: Observation) -> Ruler:
    """The ruler after the next look at the partition, which is later than all before."""
    before = ruler.last
    if seen.topic_id != before.topic_id or seen.log_end_offset < before.log_end_offset:
        # Recreated or truncated: how far back the records are others now cannot be told.
        return replace(begun(seen), future_timestamps=ruler.future_timestamps, restarts=ruler.restarts + 1)
    growth = _growth(before, seen)
    # A file that was emptied goes when the next one is begun, however late that is.
    was_empty = before.start == before.log_end_offset
    is_break = seen.start != before.start or seen.leader != before.leader or growth is None or was_empty
    settles_ms = _settles_ms(seen) if is_break else ruler.settles_ms
    is_chained = before.captured_ms >= settles_ms and not seen.is_compacted
    chained = _chained(ruler.position_bytes, growth, seen) if is_chained and growth is not None else None
    return _with_timestamp(
        replace(
            ruler,
            last=seen,
            position_bytes=chained or _two_ends(seen),
            settles_ms=settles_ms,
            restarts=ruler.restarts + (chained is None),
        ),
        seen,
    )


def _settles_ms(seen: Observation) -> int:
    """Until when files below log start may still be removed unseen: the log grows meanwhile, and seems to grow less."""
    return seen.captured_ms + SETTLING_MS if seen.start else 0


def _growth(before: Observation, seen: Observation) -> int | None:
    """How much the size grew; NULL where it shrank, or is unknown."""
    if before.log_bytes is None or seen.log_bytes is None or seen.log_bytes < before.log_bytes:
        return None
    return seen.log_bytes - before.log_bytes


def _chained(line: Polyline, growth: int, seen: Observation) -> Polyline | None:
    """The line, which ends where the log ended before, with the growth since; NULL where both do not go together."""
    newest = line.vertices[-1]
    if seen.log_end_offset == newest.offset:
        return line if growth == 0 else None  # the same records and another size: not what it seems
    return line.extended(seen.log_end_offset, newest.value + growth, seen.log_bytes_error or 0)


def _two_ends(seen: Observation) -> Polyline:
    """All that one size tells: no byte before the log's start, all of them before its end.

    The first file may hold records below log start, so what lies before that is only known to be 0 or more.
    """
    line = Polyline()
    if seen.log_bytes is None:
        return line
    if seen.log_end_offset > seen.start:
        line = line.extended(seen.start - 1 if seen.start else 0, 0)
    return line.extended(seen.log_end_offset, seen.log_bytes, seen.log_bytes_error or 0)


def _with_timestamp(ruler: Ruler, seen: Observation) -> Ruler:
    newest = seen.max_timestamp_ms
    if newest is None:
        return ruler
    if newest > seen.captured_ms + FUTURE_MS:
        return replace(ruler, future_timestamps=ruler.future_timestamps + 1)
    line = ruler.timestamp_ms
    # The newest timestamp is read after the log's end: its record may have come in between.
    offset = max(seen.log_end_offset, -1 if seen.max_timestamp_offset is None else seen.max_timestamp_offset + 1)
    if line.vertices:
        last = line.vertices[-1]
        if offset <= last.offset:
            return ruler
        newest = max(newest, last.value)
    return replace(ruler, timestamp_ms=line.extended(offset, newest))
