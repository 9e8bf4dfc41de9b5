"""How fast series have caught up lately, how much that varied, and how often they commit. All in numpy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pipeline.analytics.arrow_series import NONE, Bools, Floats, Ints
from pipeline.analytics.forecasts.memory import SAMPLES, Memory

NEVER = 1e12
"""The age of a sample that is not there, in seconds: so large that it counts as long ago."""
LOOKED_BACK_S = (70 * 60, 20 * 60)
"""How far back samples show how a group reads now. A short time says more if traffic changes, a long one if it varies
by chance."""
BLOCKS, FEWEST_FOR_BLOCKS = 4, 6
"""The time that was observed is also divided into so many blocks, if it has at least so many intervals."""
FEWEST_SINCE_TURN = 2
"""The fewest intervals after the greatest lag that show that a group works off a backlog."""
_NUMBERS = np.arange(SAMPLES)


@dataclass(frozen=True)
class Samples:
    """The samples of each series, as columns from the oldest to the newest. Ages count from the newest, in seconds.

    `shows`: whether a sample shows how far the group is: its commits have moved since the sample before, or it has
    caught up. Between two commits, the lag only grows, whatever the group reads.
    """

    age_s: Floats
    is_there: Bools
    lag: Floats
    worst_lag: Floats
    shows: Bools

    @classmethod
    def of(cls, memory: Memory, caught_up_at: Floats) -> Samples:
        """The samples of a memory. A series has caught up if at most `caught_up_at` records are unread."""
        is_there = memory.ends_ms != NONE
        age_s = np.where(is_there, (memory.ends_ms[:, -1:] - memory.ends_ms) / 1000, NEVER)
        lag = np.where(is_there, np.maximum(memory.log_ends - memory.commits, 0), 0).astype(float)
        before = np.column_stack([np.full(len(lag), NONE), memory.commits[:, :-1]])
        shows = is_there & ((memory.commits > before) | (lag <= caught_up_at[:, None]))
        return cls(age_s, is_there, lag, np.where(is_there, memory.worst_lag, 0).astype(float), shows)

    @property
    def last(self) -> Ints:
        """The newest sample that shows something. There is always one: the first."""
        return np.asarray(SAMPLES - 1 - np.argmax(self.shows[:, ::-1], axis=1))

    def is_recent(self, looked_back_s: float = LOOKED_BACK_S[0]) -> Bools:
        """Which samples show something, and are not much older than the newest of these."""
        return np.asarray(self.shows & (self.age_s <= _at(self.age_s, self.last)[:, None] + looked_back_s))

    def has_paused(self, least_s: float) -> Bools:
        """Whether the last commit is longer ago than twice the second longest time between two recent ones."""
        is_recent = self.is_recent()
        before = _before(is_recent)
        age_before = np.column_stack([np.full(len(self.age_s), NEVER), self.age_s[:, :-1]])
        # A commit was made after the sample before the one that shows it, so this much is certain.
        gaps = np.where(before >= 0, _taken(self.age_s, before) - age_before, 0)
        second = np.sort(np.where(is_recent & (before >= 0), gaps, 0), axis=1)[:, -2]
        return np.asarray(_at(self.age_s, self.last) > np.maximum(2 * second, least_s))


@dataclass(frozen=True)
class Pace:
    """How series have moved, by samples of their lag (or of the lag of the partition that is furthest behind).

    unread: the lag at the last sample that shows something, age_s: how long ago that was. net_per_s: how fast the lag
    fell before that. variance: how much this varied, in records² per second. observed_s: over which time, and
    intervals: in how many steps. gap_s, longest_gap_s: the time between two commits, on average and at most. start: the
    number of the first sample that counts.
    """

    unread: Floats
    age_s: Floats
    net_per_s: Floats
    variance: Floats
    observed_s: Floats
    intervals: Ints
    gap_s: Floats
    longest_gap_s: Floats
    start: Ints


def pace_of(samples: Samples, lag: Floats, looked_back_s: float = LOOKED_BACK_S[0]) -> Pace:
    """The pace since the greatest recent lag, if the group has worked off a backlog since then; else of all samples.

    A group that was down for an hour and then reads again does not catch up by the mean of both.
    """
    is_used, last = samples.is_recent(looked_back_s), samples.last
    highest = SAMPLES - 1 - np.argmax(np.where(is_used, lag, -1.0)[:, ::-1], axis=1)
    since_turn = (is_used & (highest[:, None] <= _NUMBERS)).sum(axis=1) - 1
    start = np.where(since_turn >= FEWEST_SINCE_TURN, highest, np.argmax(is_used, axis=1))
    is_used &= start[:, None] <= _NUMBERS
    before = np.where(is_used, _before(is_used), -1)
    is_step = before >= 0
    intervals = is_step.sum(axis=1)
    passed = np.where(is_step, _taken(samples.age_s, before) - samples.age_s, 1.0)
    fell = np.where(is_step, _taken(lag, before) - lag, 0.0)
    observed_s = np.where(intervals > 0, _at(samples.age_s, start) - _at(samples.age_s, last), 1.0)
    net_per_s = np.where(intervals > 0, (_at(lag, start) - _at(lag, last)) / observed_s, 0.0)
    off = np.where(is_step, (fell - net_per_s[:, None] * passed) ** 2 / passed, 0.0)
    variance = off.sum(axis=1) / np.maximum(intervals - 1, 1)
    # Older samples are further apart than snapshots; two of them that both show something say nothing about the gap.
    is_next = before == _NUMBERS - 1
    gaps = np.where(is_next, np.minimum(passed, samples.age_s[:, [-2]]), passed) * is_step
    of_blocks = _variance_of_blocks(samples, lag, is_used, observed_s, net_per_s)
    return Pace(
        unread=_at(lag, last),
        age_s=_at(samples.age_s, last),
        net_per_s=net_per_s,
        variance=np.where(intervals >= FEWEST_FOR_BLOCKS, np.maximum(variance, of_blocks), variance),
        observed_s=observed_s,
        intervals=intervals,
        gap_s=gaps.sum(axis=1) / np.maximum(intervals, 1),
        longest_gap_s=gaps.max(axis=1),
        start=start,
    )


def _variance_of_blocks(samples: Samples, lag: Floats, is_used: Bools, observed_s: Floats, net_per_s: Floats) -> Floats:
    """The variance by BLOCKS long steps instead of short ones: more if traffic is high for minutes, then low."""
    newest_s = _at(samples.age_s, samples.last)
    bounds = []
    for share in np.linspace(1, 0, BLOCKS + 1):
        wanted = newest_s + share * observed_s
        bounds.append(np.argmin(np.where(is_used, np.abs(samples.age_s - wanted[:, None]), NEVER), axis=1))
    at = np.stack(bounds, axis=1)
    ages, lags = (np.take_along_axis(values, at, axis=1) for values in (samples.age_s, lag))
    passed = ages[:, :-1] - ages[:, 1:]
    rates = np.where(passed > 0, (lags[:, :-1] - lags[:, 1:]) / np.where(passed > 0, passed, 1), net_per_s[:, None])
    return np.asarray(observed_s / BLOCKS * ((rates - net_per_s[:, None]) ** 2).sum(axis=1) / (BLOCKS - 1))


def _at(values: Floats, columns: Ints) -> Floats:
    return np.asarray(values[np.arange(len(values)), columns])


def _taken(values: Floats, columns: Ints) -> Floats:
    return np.take_along_axis(values, np.maximum(columns, 0), axis=1)


def _before(is_used: Bools) -> Ints:
    """For each sample, the number of the used one before it; -1 if there is none."""
    reached = np.maximum.accumulate(np.where(is_used, _NUMBERS, -1), axis=1)
    return np.column_stack([np.full(len(is_used), -1), reached[:, :-1]])
