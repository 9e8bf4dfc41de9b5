"""Generated days of logs whose retention catches up with groups that have stopped or read too slowly, each minute.

Segments are rolled by time or size, and deleted as Kafka deletes them: whole, the oldest first, by a check every five
minutes. Traffic has a daily cycle and noise. A group that loses records goes on at log start, as one does with
`auto.offset.reset=earliest`. All of it follows from one seed.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

PARTITIONS, GROUPS_OF_A_KIND = 4, 12
CHECK_MINUTES = 5
DAY = 1_440


@dataclass(frozen=True)
class Kind:
    """How logs are kept, and how a group reads.

    retention_h, size_h: how many hours `retention.ms` keeps, and `retention.bytes` at mean traffic; None is no limit.
    segment_min: when a segment is rolled at the latest, in minutes; by size it is rolled in half of this at mean
    traffic. speed: how fast the group reads, as a part of the mean traffic. stops: whether it stops now and then for
    hours. slows_down: whether it reads three times as fast until some day. commits_min: how often it commits. weights:
    how traffic is spread over partitions.
    """

    retention_h: tuple[float, float] | None = (6, 24)
    size_h: tuple[float, float] | None = None
    segment_min: tuple[float, float] = (20, 120)
    speed: tuple[float, float] = (0.6, 0.97)
    stops: bool = False
    slows_down: bool = False
    commits_min: int = 1
    weights: tuple[float, ...] = (0.25, 0.25, 0.25, 0.25)


KINDS: dict[str, Kind] = {
    "stops, retention by time": Kind(speed=(1.7, 3.0), stops=True),
    "stops, retention by size": Kind(retention_h=None, size_h=(6, 24), speed=(1.7, 3.0), stops=True),
    "stops, long segments": Kind(segment_min=(240, 480), speed=(1.7, 3.0), stops=True),
    "too slow, retention by time": Kind(),
    "too slow, retention by size": Kind(retention_h=None, size_h=(6, 24)),
    "slows down": Kind(slows_down=True),
    "too slow, commits every ten minutes": Kind(commits_min=10),
    "too slow, uneven partitions": Kind(weights=(0.4, 0.3, 0.2, 0.1)),
}


@dataclass(frozen=True)
class Losses:
    """For each minute and partition (those of a group follow each other): offsets, and two instants in minutes.

    unread_at, started_at: when the first record that is not committed, and the first record of the log, were written.
    has_lost: for each minute and group, whether records were deleted unread. events: whether it stops or starts.
    """

    ends: Ints
    commits: Ints
    log_starts: Ints
    unread_at: Floats
    started_at: Floats
    has_lost: npt.NDArray[np.bool_]
    events: npt.NDArray[np.bool_]
    kind: list[str]


def generated(days: int, seed: int = 20260131) -> Losses:
    """Some days of GROUPS_OF_A_KIND groups of each kind."""
    return _Simulation(days * DAY, np.random.default_rng(seed)).run()


class _Simulation:
    def __init__(self, minutes: int, chance: np.random.Generator) -> None:
        self.minutes, self.chance = minutes, chance
        self.kind = [name for name in KINDS for _ in range(GROUPS_OF_A_KIND)]
        of = [KINDS[name] for name in self.kind]
        self.groups = len(of)
        self.mean = 60 * 10 ** chance.uniform(0.5, 2.0, self.groups)
        self.weights = np.array([k.weights for k in of])
        self.speed = self.mean * np.array([chance.uniform(*k.speed) for k in of])
        self.retention = [chance.uniform(*k.retention_h) * 60 if k.retention_h else np.inf for k in of]
        self.size = [chance.uniform(*k.size_h) * 60 if k.size_h else np.inf for k in of]
        self.segment = [chance.uniform(*k.segment_min) for k in of]
        slows = np.array([k.slows_down for k in of])
        self.slow_from = np.where(slows, chance.integers(minutes // 3, minutes, self.groups), 0)
        self.every = np.array([k.commits_min for k in of])
        self.runs = np.ones((minutes, self.groups), bool)
        for group in np.flatnonzero([k.stops for k in of]):
            at = int(chance.integers(0, DAY))
            while at < minutes:
                length = int(60 * 10 ** chance.uniform(0.5, 1.6))
                self.runs[at : at + length, group] = False
                at += length + int(chance.uniform(1, 2) * DAY)

    def run(self) -> Losses:
        shape = (self.minutes, self.groups, PARTITIONS)
        ends = self._ends(shape)
        starts = self._log_starts(ends)
        commits, has_lost = self._commits(ends, starts)
        flat_ends = ends.reshape(self.minutes, -1)
        offsets = [np.floor(some).astype(np.int64).reshape(self.minutes, -1) for some in (commits, starts)]
        unread_at, started_at = (self._written_at(flat_ends, some) for some in offsets)
        events = np.diff(self.runs, axis=0, prepend=True)
        events |= np.arange(self.minutes)[:, None] == np.where(self.slow_from > 0, self.slow_from, -1)
        whole = flat_ends.astype(np.int64)
        return Losses(whole, offsets[0], offsets[1], unread_at, started_at, has_lost, events, self.kind)

    def _ends(self, shape: tuple[int, int, int]) -> Floats:
        """Log ends after each minute: a daily cycle of ± 50 %, and noise that forgets within half an hour."""
        phase, state = self.chance.uniform(0, 1, self.groups), np.zeros(self.groups)
        rates = np.zeros(shape[:2])
        for minute in range(self.minutes):
            state = state * (1 - 1 / 30) + self.chance.normal(0, np.sqrt(2 / 30), self.groups)
            daily = 1 + 0.5 * np.sin(2 * np.pi * (minute / DAY + phase))
            rates[minute] = self.mean * daily * np.exp(0.2 * state - 0.02)
        return np.asarray(np.cumsum(self.chance.poisson(rates[:, :, None] * self.weights), axis=0).astype(float))

    def _log_starts(self, ends: Floats) -> Floats:
        starts = np.zeros(ends.shape)
        for group in range(self.groups):
            for partition in range(PARTITIONS):
                starts[:, group, partition] = self._of_log(group, ends[:, group, partition])
        return starts

    def _of_log(self, group: int, ends: Floats) -> Floats:
        """Where one log begins, each minute. Of each segment the base offset is known, and when it was rolled."""
        mean = ends[-1] / self.minutes
        roll_size, most = mean * self.segment[group] / 2, mean * self.size[group]
        closed: deque[tuple[float, int]] = deque()
        base, since, found = 0.0, 0, np.zeros(len(ends))
        due = int(self.chance.integers(0, CHECK_MINUTES))
        for minute, end in enumerate(ends):
            if minute - since >= self.segment[group] or end - base >= roll_size:
                closed.append((base, minute))
                base, since = float(end), minute
            if minute % CHECK_MINUTES == due:
                while closed:
                    following = closed[1][0] if len(closed) > 1 else base
                    is_old = minute - closed[0][1] > self.retention[group]
                    if not is_old and end - following < most:
                        break
                    closed.popleft()
            found[minute] = closed[0][0] if closed else base
        return found

    def _commits(self, ends: Floats, starts: Floats) -> tuple[Floats, npt.NDArray[np.bool_]]:
        read, committed = np.zeros(ends.shape[1:]), np.zeros(ends.shape[1:])
        commits, has_lost = np.zeros(ends.shape), np.zeros(ends.shape[:2], bool)
        for minute in range(self.minutes):
            has_lost[minute] = (np.floor(committed) < starts[minute]).any(axis=1)
            lost = committed < starts[minute]
            read = np.where(lost, np.maximum(read, starts[minute]), read)
            unread = ends[minute] - read
            speed = np.where(minute < self.slow_from, 3 * self.speed, self.speed)
            pace = np.where(self.runs[minute], speed, 0)[:, None] * self.weights
            read = read + np.minimum(unread, pace)
            is_due = (minute % self.every == 0) & self.runs[minute]
            # A group that has lost records is reset at once, so that each loss is a new one.
            committed = np.where(is_due[:, None], read, np.where(lost, starts[minute], committed))
            commits[minute] = committed
        return commits, has_lost

    @staticmethod
    def _written_at(ends: Floats, offsets: Ints) -> Floats:
        """When the record at each offset was written, in minutes; between two minutes by a straight line."""
        minutes = np.arange(len(ends), dtype=float)
        columns = [np.interp(offsets[:, n], ends[:, n], minutes) for n in range(ends.shape[1])]
        return np.stack(columns, axis=1)
