"""When a group will have caught up, if the coming hours are like the same hours of earlier weeks.

A group with a backlog reads as fast as it can: at the rate at which it has committed while it was behind. What will be
written in each coming hour is taken from the same hour of up to WEEKS earlier weeks. Each of them is scaled by the
traffic of the last hour: by the ratio of now to the same time in that week. So the lag after a time T is

    unread + written(T) - committed_per_s × T, give or take √(walk + t² × (1 + 1/n) × spread²)

where written(T) is the mean of the n scaled weeks, and spread is their standard deviation. The current week differs
from them as they differ from each other, so t is the quantile of Student's t for n - 1 degrees of freedom. The walk is
that of `band`: the rate varies from one snapshot to the next, and the rate of commits is known only from the time that
was observed. After a day, the same day is taken to come again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from pipeline.analytics.arrow_series import Bools, Floats, Ints
from pipeline.analytics.forecasts.band import (
    FEWEST_INTERVALS,
    PAUSE_S,
    REASONS,
    T_QUANTILES,
    Forecast,
    best_pace,
    caught_up_at,
    t_quantile,
    waits_long,
)
from pipeline.analytics.forecasts.memory import SAMPLES, Memory
from pipeline.analytics.forecasts.pace import Pace, Samples, pace_of
from pipeline.analytics.forecasts.rates import SPANS_MS, growth_per_s, rate_per_s
from pipeline.common.epoch import HOUR_MS

WEEKS, FEWEST_WEEKS = 4, 2
"""How many earlier weeks are looked at, and how many must be known."""
HOURS = 24
"""How many hours are taken from earlier weeks, beginning with the current one. The day then comes again."""
DAYS = 7
"""How many days are looked at."""
SOON_S = 3_600
"""A forecast of less than this is left as it is: the traffic of now is known better than that of earlier weeks."""
MOST_RATIO = 4.0
"""A week is not compared in which there was so many times more or less traffic at this time, as on a holiday."""
AT_ONCE = 1_000
"""How many series are computed at once: each of them needs up to 30 kB."""
HOUR_S = HOUR_MS // 1000
NEVER, UNCERTAIN = map(REASONS.index, ("never_at_this_rate", "too_uncertain"))
"""A group that does not catch up may still do so if traffic is lower than expected. It is said never to catch up only
if that is not possible within HOURS."""


@dataclass(frozen=True)
class _Written:
    """What is expected to be written after each of the times at_s: the mean of weeks, their variance, and quantiles."""

    at_s: Floats
    mean: Floats
    variance: Floats
    quantile: Floats


def by_same_hours(
    found: Forecast, memory: Memory, at: Ints, rates: Floats, markers: Ints, tolerance_ms: int, window_ms: int
) -> tuple[Forecast, Bools]:
    """The forecasts, with those of more than SOON_S made anew where earlier weeks are known; and which these are.

    `at` are the numbers of the series that earlier weeks are known of. `rates` has the records that were written per
    second for each of them, each of WEEKS earlier weeks, and each of 1 + HOURS hours: the first is the hour before the
    one in which the ends were read. nan is not known.
    """
    is_late = (found.in_s > SOON_S) & np.isin(found.reason, [0, NEVER, UNCERTAIN]) & np.isfinite(found.net_per_s)
    at, rates = at[is_late[at]], rates[is_late[at]]
    is_replaced = np.zeros(len(found.in_s), bool)
    if not len(at):
        return found, is_replaced
    made = {name: values.copy() for name, values in vars(found).items()}
    for first in range(0, len(at), AT_ONCE):
        some = at[first : first + AT_ONCE]
        its = memory.take(some)
        limit = np.maximum(caught_up_at(its, tolerance_ms), markers[some])
        times, is_known = _of_backlogs(its, limit, rates[first : first + AT_ONCE], tolerance_ms, window_ms)
        is_replaced[some] = is_known
        _put(made, some[is_known], *(values[is_known] for values in times))
    return Forecast(**made), is_replaced


def _put(made: dict[str, Floats], at: Ints, in_s: Floats, low_s: Floats, high_s: Floats) -> None:
    """Replaces the times of some series, and their reasons."""
    reason = np.where(np.isfinite(in_s), 0, np.where(low_s > HOURS * HOUR_S, NEVER, UNCERTAIN))
    values = {"in_s": in_s, "low_s": low_s, "high_s": np.where(reason == 0, high_s, np.inf), "reason": reason}
    for name, new in values.items():
        made[name][at] = new


def _of_backlogs(
    memory: Memory, limit: Floats, rates: Floats, tolerance_ms: int, window_ms: int
) -> tuple[tuple[Floats, Floats, Floats], Bools]:
    """The times of series that have not caught up, and for which of them they are known."""
    samples = Samples.of(memory, limit)
    # What is read as fast as the group can is what it commits while it is behind.
    numbers, has_caught_up = np.arange(SAMPLES), samples.is_there & (samples.lag <= limit[:, None])
    behind = np.where(has_caught_up, numbers + 1, 0).max(axis=1)
    hour = growth_per_s(memory.log_ends, memory.ends_ms, SPANS_MS["1h"])
    whole = best_pace(samples, samples.lag, hour)
    share = samples.worst_lag[:, -1] / np.maximum(samples.lag[:, -1], 1)
    worst = best_pace(samples, samples.worst_lag, hour * share)
    since = np.maximum(whole.start, behind)[:, None] <= numbers
    reads = pace_of(replace(samples, shows=samples.shows & since), _still_to_come(samples, memory.commits))
    of_worst = replace(samples, shows=samples.shows & (worst.start[:, None] <= numbers))
    wrote = pace_of(of_worst, _still_to_come(samples, memory.log_ends)).net_per_s * share
    written, is_known = _written(memory, rates)
    in_s, low_s, high_s = _times(whole, reads, samples.lag[:, -1] - limit, written)
    of_one = replace(written, mean=written.mean * share[:, None], variance=written.variance * share[:, None] ** 2)
    its = replace(reads, net_per_s=worst.net_per_s + wrote, variance=reads.variance * share**2)
    also = _times(worst, its, samples.worst_lag[:, -1] - limit * share, of_one)
    both = worst.intervals >= FEWEST_INTERVALS
    in_s = np.where(both, (in_s + also[0]) / 2, in_s)
    low_s, high_s = (
        np.where(both, np.minimum(low_s, also[1]), low_s),
        np.where(both, np.maximum(high_s, also[2]), high_s),
    )
    is_halted = samples.has_paused(PAUSE_S) | waits_long(memory, tolerance_ms, window_ms)
    return (in_s, low_s, high_s), is_known & (reads.intervals >= FEWEST_INTERVALS) & ~is_halted


def _still_to_come(samples: Samples, values: Ints) -> Floats:
    """By how much a value has grown since each sample. It falls as fast as the value grows."""
    return np.where(samples.is_there, values[:, -1:] - values, 0).astype(float)


def _written(memory: Memory, rates: Floats) -> tuple[_Written, Bools]:
    """What will be written by the scaled weeks, and where at least FEWEST_WEEKS of them are known for each hour."""
    ends_ms = memory.ends_ms[:, -1]
    passed = (ends_ms % HOUR_MS / HOUR_MS)[:, None]
    now = rate_per_s(memory.log_ends, memory.ends_ms, SPANS_MS["1h"])[:, None]
    then = rates[:, :, 0] * (1 - passed) + rates[:, :, 1] * passed
    ratio = np.where(then > 0, now / np.where(then > 0, then, 1), np.nan)
    is_like = (ratio > 1 / MOST_RATIO) & (ratio < MOST_RATIO)
    scaled = np.where(is_like[:, :, None], rates[:, :, 1:] * ratio[:, :, None], np.nan)
    known = np.isfinite(scaled)
    weeks = known.sum(axis=1)
    least = weeks.min(axis=1)
    mean = np.where(known, scaled, 0).sum(axis=1) / np.maximum(weeks, 1)
    # Where an hour of a week is not known, the other weeks say what it was.
    filled = np.where(known, scaled, mean[:, None, :])
    lasts = np.full((len(rates), HOURS * DAYS), float(HOUR_S))
    lasts[:, 0] = HOUR_S * (1 - passed[:, 0])
    summed = np.cumsum(np.tile(filled, (1, 1, DAYS)) * lasts[:, None, :], axis=2)
    some = is_like[:, :, None]
    count = np.maximum(is_like.sum(axis=1), 1)[:, None]
    middle = np.where(some, summed, 0).sum(axis=1) / count
    squares = np.where(some, (summed - middle[:, None, :]) ** 2, 0).sum(axis=1)
    degrees = np.maximum(least - 1, 1)
    variance = squares / degrees[:, None] * (1 + 1 / np.maximum(least, 1))[:, None]
    quantile = np.array(T_QUANTILES)[degrees - 1]
    start = np.zeros((len(rates), 1))
    at_s, middle, variance = (np.hstack([start, of]) for of in (np.cumsum(lasts, axis=1), middle, variance))
    return _Written(at_s, middle, variance, quantile), least >= FEWEST_WEEKS


def _times(pace: Pace, reads: Pace, over: Floats, written: _Written) -> tuple[Floats, Floats, Floats]:
    """In how many seconds the lag is no longer over its limit: most likely, at the earliest, and at the latest."""
    at_s, age = written.at_s, pace.age_s[:, None]
    left = np.maximum(over - reads.net_per_s * pace.age_s, 0)[:, None]
    middle = left + written.mean - reads.net_per_s[:, None] * at_s
    span = at_s + age * (at_s > 0)
    walk = pace.variance[:, None] * span + reads.variance[:, None] * span**2 / reads.observed_s[:, None]
    off = np.sqrt(t_quantile(pace)[:, None] ** 2 * walk + written.quantile[:, None] ** 2 * written.variance)
    in_s, low_s, high_s = (_first_reached(at_s, some) for some in (middle, middle - off, middle + off))
    return in_s + pace.gap_s / 2, low_s, high_s + pace.longest_gap_s


def _first_reached(at_s: Floats, values: Floats) -> Floats:
    """When a value is first not above 0, between two times by a straight line; inf if never."""
    is_reached = values <= 0
    at = np.argmax(is_reached, axis=1)
    every, before = np.arange(len(values)), np.maximum(at - 1, 0)
    above, below = values[every, before], values[every, at]
    share = np.where(at > 0, above / np.where(above > below, above - below, 1), 0)
    reached = at_s[every, before] + (at_s[every, at] - at_s[every, before]) * np.clip(share, 0, 1)
    return np.where(is_reached.any(axis=1), reached, np.inf)
