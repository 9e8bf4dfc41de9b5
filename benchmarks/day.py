"""A generated day of 50 groups: what they read and commit, and the faults that are scripted into it.

The clock ticks every 5 seconds. A snapshot is taken each minute. All of it follows from one seed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

TICK_S = 5
WARM_UP = 180
"""Minutes before the day, in which laglake learns how long each group usually waits."""
MINUTES = WARM_UP + 1_440
PER_MINUTE = 60 // TICK_S
PARTITIONS = 4
MIDNIGHT_MS = 1_769_817_600_000
KEPT_S = 3 * 3_600
"""How long the topic of the group that loses data keeps records."""
SEGMENT_S = 1_800


@dataclass(frozen=True)
class Fault:
    """Something that goes wrong with a group between two minutes, and the kinds of findings that should say so.

    `others` are groups with which it shares the fault, and the findings.
    """

    group: int
    begins: int
    ends: int
    kinds: tuple[str, ...]
    others: tuple[int, ...] = ()

    @property
    def groups(self) -> tuple[int, ...]:
        """All groups that have the fault."""
        return (self.group, *self.others)


def topic_of(group: int) -> int:
    """The number of the topic that a group reads."""
    return READ_BY.get(group, group)


def _faults(minutes: int, kinds: tuple[str, ...], *groups: tuple[int, int]) -> tuple[Fault, ...]:
    """Faults of this length; `groups` are a group and the minute of the day when its fault begins."""
    return tuple(Fault(group, WARM_UP + at, WARM_UP + at + minutes, kinds) for group, at in groups)


STOPS = _faults(120, ("no_progress",), (0, 120), (20, 300), (42, 900)) + _faults(45, ("no_progress",), (1, 600))
LOSSES = _faults(260, ("no_progress", "data_loss_ahead", "deleted_unread"), (10, 400))
HANGS = _faults(90, ("no_progress",), (2, 200), (3, 820), (21, 1_000))
SLOW = _faults(180, ("falling_behind",), (4, 150), (5, 700), (6, 1_100))
HOT = _faults(45, ("hot_partition",), (12, 520))
"""Most of the group's records are written to one of its partitions, more than it can read there."""
REWINDS = _faults(30, ("rewound",), (7, 250), (8, 500), (9, 1_200))
RESETS = _faults(3, ("skipped",), (16, 320), (17, 780), (26, 1_050))
"""The group is stopped for three minutes, and its offsets are reset to the end of the log after the first of them."""
STORMS = _faults(70, ("rebalance_storm",), (11, 350), (13, 950))
FLAPPING = _faults(90, ("flapping_member",), (14, 450), (22, 1_150))
READ_BY = {18: 15, 19: 15}
"""Groups that read the topic of another group."""
TOGETHER = (Fault(15, WARM_UP + 660, WARM_UP + 720, ("stopped_together",), (18, 19)),)
(OUTAGE,) = _faults(12, ("unreadable",), (-1, 700))
"""A broker that leads every fourth partition does not answer."""
FAULTS = (*STOPS, *LOSSES, *HANGS, *SLOW, *HOT, *TOGETHER, *REWINDS, *RESETS, *STORMS, *FLAPPING, OUTAGE)
GROUPS = 50
KINDS = {
    "steady": range(20),
    "commits every five minutes": range(20, 28),
    "runs once an hour": range(28, 32),
    "of an idle topic": range(32, 38),
    "of a topic with rare transactions": range(38, 42),
    "with bursts": range(42, 46),
    "with a record every ten minutes": range(46, 50),
}
"""The groups by how they behave."""


@dataclass
class Day:
    """For each minute and reader (group × partition): committed offset, end, log start, and the age of the oldest
    record that is not committed (ms, 0 if there is none), and whether a leader epoch is stored with the commit. For
    each minute and group: whether it has members.
    """

    committed: Ints
    end: Ints
    start: Ints
    age_ms: Ints
    has_epoch: npt.NDArray[np.bool_]
    has_members: npt.NDArray[np.bool_]
    commits: list[list[tuple[float, int]]] = field(default_factory=list)
    """The commits of each reader: second of the day, offset."""
    ends: Ints = field(default_factory=lambda: np.zeros((0, 0), np.int64))
    """The end of each reader's log at each tick."""
    deployed_at: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    """The minute of each hour in which a group is deployed."""

    @property
    def lag(self) -> Ints:
        """The consumer lag."""
        return self.end - self.committed


def generated() -> Day:
    """The day."""
    return _Simulation().run()


class _Simulation:
    def __init__(self) -> None:
        self.chance = np.random.default_rng(20260131)
        readers = GROUPS * PARTITIONS
        self.group = np.repeat(np.arange(GROUPS), PARTITIONS)
        self.is_ = {kind: np.isin(self.group, members) for kind, members in KINDS.items()}
        topics = np.array([topic_of(int(group)) for group in self.group])
        self.log = topics * PARTITIONS + np.arange(readers) % PARTITIONS
        self.base = _rates(self.is_, self.chance, readers)[self.log]
        times = np.where(self.is_["with bursts"], 4.0, np.where(self.is_["runs once an hour"], 20.0, 3.0))
        self.speed = times * np.maximum(self.base, 1)
        self.every_s = np.where(self.is_["commits every five minutes"], 300, TICK_S)
        self.burst_at = self.chance.integers(0, 7_200, GROUPS)[self.group]
        self.deployed_at = self.chance.integers(0, 60, GROUPS)
        self.end = np.full(readers, 1_000_000, np.int64)
        self.read = self.end.astype(np.float64)
        self.committed = self.end.copy()
        # Of five groups, one builds its offsets by itself, and one does so when it is closed.
        self.stores_epochs, self.closes_with_map = self.group % 5 != 4, self.group % 5 == 3
        self.has_epoch, self.ran = self.stores_epochs.copy(), np.ones(readers, bool)
        self.start = np.full(readers, 900_000, np.int64)
        ticks = MINUTES * PER_MINUTE
        self.ends = np.zeros((ticks, readers), np.int64)
        self.commits: list[list[tuple[float, int]]] = [[(-600.0, 1_000_000)] for _ in range(readers)]

    def run(self) -> Day:
        names = ("committed", "end", "start", "age_ms", "has_epoch", "members")
        seen: dict[str, list[npt.NDArray[Any]]] = {name: [] for name in names}
        for tick in range(MINUTES * PER_MINUTE):
            at_s = tick * TICK_S
            self._write(at_s)
            self.ends[tick] = self.end
            members = self._consume(at_s)
            if tick % PER_MINUTE == PER_MINUTE - 1:
                self._delete(tick)
                shown = (self.committed, self.end, self.start, self._ages(tick), self.has_epoch, members)
                for name, values in zip(names, shown, strict=True):
                    seen[name].append(values.copy())
        found = {name: np.array(values) for name, values in seen.items()}
        members_ = found.pop("members").astype(bool)
        return Day(**found, has_members=members_, commits=self.commits, ends=self.ends, deployed_at=self.deployed_at)

    def _write(self, at_s: int) -> None:
        daily = 1 + 0.5 * np.sin(2 * np.pi * (at_s / 86_400 - 0.3))
        burst = np.where(self.is_["with bursts"] & ((at_s + self.burst_at) % 7_200 < 180), 20, 1)
        for fault in (f for f in HOT if f.begins <= at_s // 60 < f.ends):
            its = slice(fault.group * PARTITIONS, (fault.group + 1) * PARTITIONS)
            burst[its.start + int(self.base[its].argmax())] = 6
        self.end += self.chance.poisson(self.base * daily * burst * TICK_S)[self.log]
        # A transaction of one record: the record and its marker.
        transacts = self.is_["of a topic with rare transactions"] & (at_s % 7_200 == 60 * (self.group % 60))
        self.end += 2 * transacts

    def _consume(self, at_s: int) -> npt.NDArray[np.bool_]:
        """Reads and commits for one tick; returns which groups have members."""
        minute = at_s // 60
        hourly = self.is_["runs once an hour"]
        is_deployed = np.asarray(self.deployed_at == minute % 60) & (at_s % 60 < 45)
        runs = ~is_deployed[self.group] & (~hourly | (minute % 60 < 10))
        runs, pace = self._with_faults(at_s, runs)
        readable = self.end - self.is_["of a topic with rare transactions"]
        self.read = np.where(runs, np.minimum(np.maximum(self.read, self.start) + pace * TICK_S, readable), self.read)
        due = runs & (at_s % self.every_s == 0)
        for reader in np.flatnonzero(due):
            self.commits[reader].append((at_s, int(self.read[reader])))
        self.committed = np.where(due, self.read.astype(np.int64), self.committed)
        self.has_epoch = np.where(due, self.stores_epochs, self.has_epoch) & ~(self.ran & ~runs & self.closes_with_map)
        self.ran = runs
        stopped = {
            group for f in (*STOPS, *TOGETHER, *LOSSES, *RESETS) if f.begins <= minute < f.ends for group in f.groups
        }
        is_away = hourly[::PARTITIONS] & np.array(minute % 60 >= 10)
        return np.asarray(~is_away & ~np.isin(np.arange(GROUPS), list(stopped)))

    def _with_faults(self, at_s: int, runs: npt.NDArray[np.bool_]) -> tuple[npt.NDArray[np.bool_], Floats]:
        """Which readers run, and how fast, with the faults of this time."""
        minute, pace = at_s // 60, self.speed.copy()
        for fault in (f for f in FAULTS if f.begins <= minute < f.ends):
            its = np.isin(self.group, fault.groups)
            if fault in (*STOPS, *TOGETHER, *LOSSES, *RESETS):
                runs &= ~its
            elif fault in HANGS:
                runs &= ~(its & (np.arange(len(its)) % PARTITIONS == 0))
            elif fault in SLOW:
                pace = np.where(its, 0.7 * self._daily(at_s) * self.base, pace)
            elif fault in REWINDS and at_s == 60 * fault.begins:
                self._rewind(its, at_s, hours=2)
            if fault in RESETS and at_s == 60 * (fault.begins + 1):
                self._commit(its, self.end, at_s)
                self.has_epoch &= ~its
        return runs, pace

    def _daily(self, at_s: int) -> float:
        return float(1 + 0.5 * np.sin(2 * np.pi * (at_s / 86_400 - 0.3)))

    def _rewind(self, its: npt.NDArray[np.bool_], at_s: int, hours: int) -> None:
        self._commit(its, self.ends[max(at_s // TICK_S - hours * 3_600 // TICK_S, 0)], at_s)

    def _commit(self, its: npt.NDArray[np.bool_], offsets: Ints, at_s: int) -> None:
        """Sets some readers to other offsets, from which they go on."""
        self.read = np.where(its, offsets, self.read)
        self.committed = np.where(its, offsets, self.committed)
        for reader in np.flatnonzero(its):
            self.commits[reader].append((at_s, int(offsets[reader])))

    def _delete(self, tick: int) -> None:
        """Retention deletes whole segments of half an hour from the topic of the group that loses data."""
        kept_tick = (tick - KEPT_S // TICK_S) // (SEGMENT_S // TICK_S) * (SEGMENT_S // TICK_S)
        if kept_tick > 0:
            its = self.group == LOSSES[0].group
            self.start = np.where(its, np.maximum(self.start, self.ends[kept_tick]), self.start)

    def _ages(self, tick: int) -> Ints:
        """The age of the first record that is not committed, by the tick in which it was written."""
        first = np.maximum(self.committed, self.start)
        ages = np.zeros(len(first), np.int64)
        for reader in np.flatnonzero(first < self.end):
            written = np.searchsorted(self.ends[: tick + 1, reader], first[reader], side="right")
            ages[reader] = (tick - written) * TICK_S * 1_000 + 1
        return ages


def _rates(is_: dict[str, npt.NDArray[np.bool_]], chance: np.random.Generator, readers: int) -> Floats:
    """Records per second of each partition: from a few to some hundreds, as real topics have."""
    rates = 10 ** chance.uniform(0.7, 2.3, readers)
    rates[is_["of an idle topic"] | is_["of a topic with rare transactions"]] = 0
    rates[is_["with a record every ten minutes"]] = 1 / 600
    rates[is_["with bursts"]] = 20
    return np.asarray(rates)


def expected() -> Iterator[tuple[str, int, Fault]]:
    """Each finding that should be there: its kind, its group (-1 if it is not one of a group), and the fault."""
    for fault in FAULTS:
        for kind in fault.kinds:
            yield kind, -1 if fault.others else fault.group, fault
