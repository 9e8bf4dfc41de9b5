"""The ruler of one partition, built from successive snapshots of its log: offset → bytes, offset → timestamp.

Each snapshot gives one exact point of both lines: where the log ended, how many bytes it had, and the timestamp of its
newest record. The line of bytes adds up the growth between snapshots. If bytes may have been removed in between
(retention, another replica as leader, files that DeleteRecords leaves for later), the growth is estimated from the
bytes per record, and the line keeps the error of this estimate (`drift`). A compacted log may shrink anywhere, so its
line has only the two ends of the log, from its current size.

One case cannot be detected: if an unclean election truncates a log, and the log grows past its old end before the next
observation, under the same leader, it looks as if it had only grown.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from pipeline.analytics.log_index.polyline import Polyline, Reading
from pipeline.common.epoch import record_time

FUTURE_MS = 5 * 60_000
"""A timestamp that is later than the snapshot by more than this is wrong: a producer has set it."""
SETTLING_MS = 10 * 60_000
"""Time after which files below log start, left by DeleteRecords, are certainly deleted: Kafka checks for them every
log.retention.check.interval.ms (5 minutes)."""
THINNED_EVERY = 20
"""Observations between two thinnings."""
NOTHING = Polyline()


class Observation(NamedTuple):
    """A row of `watermarks`: a partition as one snapshot saw it."""

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
        """The offset where the part of the log that `log_bytes` counts begins."""
        local = self.local_log_start_offset
        return self.log_start_offset if local is None else max(local, self.log_start_offset)

    def is_future(self, timestamp_ms: int) -> bool:
        """Whether a timestamp is more than FUTURE_MS after the observation, so that it must be wrong."""
        return timestamp_ms > self.captured_ms + FUTURE_MS

    def is_time(self, timestamp_ms: int) -> bool:
        """Whether a timestamp may be the time of a record: 0 or less is no time, and one in the future is wrong."""
        return record_time(timestamp_ms) is not None and not self.is_future(timestamp_ms)

    @property
    def has_no_times(self) -> bool:
        """Whether no record has a time: the broker has found the newest record, and its timestamp is no time."""
        return self.max_timestamp_ms is None and self.max_timestamp_offset is not None


class Sample(NamedTuple):
    """A row of `log_samples`: the answer of ListOffsets for the timestamp `asked_ms`: the first record not older.

    If there is no such record, `timestamp_ms` is None, and all records before `offset` are older than `asked_ms`.
    """

    asked_ms: int
    offset: int
    timestamp_ms: int | None


@dataclass(frozen=True)
class Ruler:
    """The bytes and the greatest timestamp before an offset, and the state that is needed to extend both lines.

    `arrival_ms` has the times at which snapshots saw the log's end. It is used in place of `timestamp_ms` after a
    timestamp in the future, and if the newest timestamp is no time or not reported. `future_timestamps` counts the
    timestamps that were in the future, `restarts` how often a line had to begin again.
    """

    last: Observation
    position_bytes: Polyline
    timestamp_ms: Polyline = NOTHING
    arrival_ms: Polyline = NOTHING
    settles_ms: int = 0
    observations: int = 0
    future_timestamps: int = 0
    restarts: int = 0

    def bytes_before(self, offset: int) -> Reading | None:
        """The bytes before an offset, counted from an arbitrary zero; None if this part is not on the broker's disk."""
        return self.position_bytes.at(offset) if offset >= self.last.start else None

    def timestamp_at(self, offset: int) -> Reading | None:
        """The greatest timestamp up to the record at an offset: its own, if timestamps are in order."""
        return self.timestamp_ms.at(offset + 1) if offset >= self.last.log_start_offset else None

    def learnt(self, sample: Sample) -> Ruler:
        """The ruler with the result of a look-up, unless its timestamp is no time or contradicts the ruler.

        All records before the one found, from log start on, are older than the timestamp asked for. So the timestamp of
        the record found is the greatest up to there.
        """
        if sample.timestamp_ms is not None and not self.last.is_time(sample.timestamp_ms):
            return self
        try:
            line = _with_sample(self.timestamp_ms, sample, self.last.log_start_offset)
        except ValueError:
            return self
        is_to_the_end = bool(line.vertices) and line.vertices[-1].offset >= self.last.log_end_offset
        return replace(self, timestamp_ms=line, arrival_ms=NOTHING if is_to_the_end else self.arrival_ms)

    def thinned(self) -> Ruler:
        """The ruler with few vertices, and without the pieces below log start."""
        timestamp_ms = self.timestamp_ms.since(self.last.log_start_offset).thinned()
        kept = {v.offset for v in timestamp_ms.vertices}
        return replace(
            self,
            observations=0,
            position_bytes=self.position_bytes.since(self.last.start).thinned(prefer=kept),
            timestamp_ms=timestamp_ms,
            arrival_ms=self.arrival_ms.since(self.last.log_start_offset).thinned(prefer=kept),
        )


def begun(seen: Observation) -> Ruler:
    """The ruler of a partition that is seen for the first time."""
    # Different partitions start with different counts, so that not all are thinned at the same snapshot.
    observations = seen.log_end_offset % THINNED_EVERY
    return _with_timestamp(Ruler(seen, _two_ends(seen), settles_ms=_settles_ms(seen), observations=observations), seen)


def continued(ruler: Ruler, seen: Observation) -> Ruler:
    """The ruler after the next observation. An observation that is older than the last one changes nothing."""
    before = ruler.last
    if seen.captured_ms < before.captured_ms:
        return ruler
    if seen.topic_id != before.topic_id or seen.log_end_offset < before.log_end_offset:
        # Recreated or truncated: it is not known from which offset on the records are different ones.
        return replace(begun(seen), future_timestamps=ruler.future_timestamps, restarts=ruler.restarts + 1)
    is_settled = before.captured_ms >= ruler.settles_ms
    has_grown = _has_only_grown(before, seen)
    line = None if seen.is_compacted else _grown(ruler.position_bytes, before, seen, has_grown and is_settled)
    next_ruler = replace(
        ruler,
        position_bytes=_two_ends(seen) if line is None else line,
        settles_ms=ruler.settles_ms if has_grown else _settles_ms(seen),
        observations=ruler.observations + 1,
        restarts=ruler.restarts + (line is None),
    )
    next_ruler = replace(_with_timestamp(next_ruler, seen), last=seen)
    return next_ruler.thinned() if next_ruler.observations >= THINNED_EVERY else next_ruler


def only_extends(ruler: Ruler, seen: Observation) -> bool:
    """Whether `continued` needs only the ruler's newest vertices, and changes no older ones."""
    before = ruler.last
    return (
        seen.captured_ms >= before.captured_ms
        and ruler.observations + 1 < THINNED_EVERY
        and seen.topic_id == before.topic_id
        and before.captured_ms >= ruler.settles_ms
        and not seen.is_compacted
        and seen.log_bytes is not None
        and before.log_bytes is not None
        and _has_only_grown(before, seen)
        and (seen.log_end_offset > before.log_end_offset or seen.log_bytes == before.log_bytes)
        and ruler.position_bytes.vertices[-1].offset == before.log_end_offset
    )


def _settles_ms(seen: Observation) -> int:
    """Until when files below log start may still be deleted. Meanwhile the log may seem to grow less than it does."""
    return seen.captured_ms + SETTLING_MS if seen.start else 0


def _has_only_grown(before: Observation, seen: Observation) -> bool:
    """Whether nothing suggests that bytes were removed between two observations.

    If all records were deleted, the remaining file is removed only when the next one is created, however late that is.
    """
    was_empty = before.start == before.log_end_offset and before.log_bytes != 0
    is_same = seen.start == before.start and seen.leader == before.leader and not was_empty
    return is_same and (_difference(before, seen) or 0) >= 0


def _difference(before: Observation, seen: Observation) -> int | None:
    """By how much the size of the log on the same leader has changed; None if that is not known."""
    if before.log_bytes is None or seen.log_bytes is None or seen.leader != before.leader:
        return None
    return seen.log_bytes - before.log_bytes


def _grown(line: Polyline, before: Observation, seen: Observation, is_sure: bool) -> Polyline | None:
    """The line extended to the current log end; None if nothing shows how many bytes were written since."""
    if seen.log_bytes is None or not line.vertices:
        return line if line.vertices else None
    newest = line.vertices[-1]
    records = seen.log_end_offset - newest.offset
    growth = _difference(before, seen) if newest.offset == before.log_end_offset else None
    error = seen.log_bytes_error or 0
    if not records:
        # Growth without records: the size is read after the log end, and includes one more batch.
        return line.raised(growth) if is_sure and growth else line
    if is_sure and growth is not None:
        return line.extended(seen.log_end_offset, newest.value + growth, error)
    estimate = _lately(line, records)
    if estimate is None:
        return None
    drift = max(1, estimate) + newest.error + error
    if growth is not None and growth >= estimate / 2:
        # The log grew by at least this much, and this is close to the estimate.
        drift = max(1, abs(growth - estimate))
        estimate = growth
    return line.extended(seen.log_end_offset, newest.value + estimate, error, drift)


def _lately(line: Polyline, records: int) -> int | None:
    """The bytes of `records` records, estimated from four times as many records before them; None if there are none.

    The estimate is rather too high than too low: the true value lies between the growth of the size and the estimate.
    """
    newest, oldest = line.vertices[-1], line.vertices[0]
    since = max(oldest.offset, newest.offset - 4 * records)
    start = line.at(since)
    if start is None or since == newest.offset:
        return None
    # The first vertex that _two_ends makes is one record before the log's start.
    is_before_start = since == oldest.offset > 0 == oldest.value
    return round((newest.value - start.value) * records / max(1, newest.offset - since - is_before_start))


def _two_ends(seen: Observation) -> Polyline:
    """The line that follows from one size alone: 0 bytes before the start of the log, all of them before its end.

    The first file may also have records below log start, so the bytes before log start are only known to be 0 or more.
    """
    line = Polyline()
    if seen.log_bytes is None:
        return line
    if seen.log_end_offset > seen.start:
        line = line.extended(seen.start - 1 if seen.start else 0, 0)
    return line.extended(seen.log_end_offset, seen.log_bytes, seen.log_bytes_error or 0)


def _with_timestamp(ruler: Ruler, seen: Observation) -> Ruler:
    newest = seen.max_timestamp_ms
    is_future = newest is not None and seen.is_future(newest)
    if newest is None or not seen.is_time(newest):
        known_to = ruler.timestamp_ms.vertices[-1].offset if ruler.timestamp_ms.vertices else -1
        if not is_future and known_to >= seen.log_end_offset:  # known from look-ups, and nothing was written since
            return ruler
        blind = replace(ruler, future_timestamps=ruler.future_timestamps + is_future)
        return replace(blind, arrival_ms=_with_arrival(ruler.arrival_ms, ruler.last, seen))
    line = ruler.timestamp_ms
    # The newest timestamp is read after the log's end, so its record may have been written in between.
    offset = max(seen.log_end_offset, -1 if seen.max_timestamp_offset is None else seen.max_timestamp_offset + 1)
    if line.vertices:
        last = line.vertices[-1]
        if offset <= last.offset:
            return ruler
        newest = max(newest, last.value)
    return replace(ruler, timestamp_ms=line.extended(offset, newest), arrival_ms=NOTHING)


def _with_sample(line: Polyline, sample: Sample, log_start_offset: int) -> Polyline:
    """The line with the record that was found, and with the bounds that it gives for the records before it.

    Raises ValueError if that contradicts the line.
    """
    offset = sample.offset
    older = next((v for v in reversed(line.vertices) if v.offset < offset), None)
    before = None
    if older and offset > log_start_offset:
        least = older.value - older.error
        half = (sample.asked_ms - least) // 2
        before = (offset, least + half, half)
    newest = line.vertices[-1].offset if line.vertices else -1
    found = None if sample.timestamp_ms is None else (offset + 1, sample.timestamp_ms)
    if offset < newest:
        line = line.refined(*found) if found else line
        return line.refined(*before) if before else line
    if before and offset > newest:
        line = line.extended(*before)
    return line.extended(*found) if found else line


def _with_arrival(line: Polyline, before: Observation, seen: Observation) -> Polyline:
    """The line with the time at which the log's end was observed: all records up to there had been written by then."""
    for observation in (before, seen):
        newest = line.vertices[-1] if line.vertices else None
        if newest is None or (observation.log_end_offset > newest.offset and observation.captured_ms >= newest.value):
            line = line.extended(observation.log_end_offset, observation.captured_ms)
    return line
