"""When a group will have caught up, with a band that the truth lies in for nine of ten forecasts.

The lag is a random walk with a drift: after a time T it is unread - net_per_s × T, give or take z × √V, with

    V = variance × (T + T² / observed) + (drift × written)² × (T³ / 3 + T² × observed / 3)

The first part is the walk itself, and that its drift is known only from the time that was observed; z is the quantile
of Student's t for the number of steps. The second part is that traffic changes: its rate is a random walk, too, which
moves by DRIFT in an hour. That makes it an integrated random walk, as in the local linear trend model (Harvey,
Forecasting, Structural Time Series Models and the Kalman Filter, 1989, section 2.3). The earliest and the latest time
are those at which the lower and the upper end of the lag's band first reach the lag of a group that has caught up.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from pipeline.analytics.arrow_series import NONE, Bools, Floats, Ints
from pipeline.analytics.forecasts.memory import Memory
from pipeline.analytics.forecasts.pace import LOOKED_BACK_S, Pace, Samples, pace_of
from pipeline.analytics.forecasts.rates import SPANS_MS, growth_per_s

DRIFT = 0.2
"""By how much traffic changes within an hour, as a part of itself: a standard deviation, chosen by the back-test."""
LONGEST_S = 30 * 86_400
"""A forecast that is further away is not made."""
HORIZONS_S = np.geomspace(10, LONGEST_S, 160)
"""The times at which bands are looked at."""
NEVER_S = 3_600
"""A group that does not catch up at the observed rate may still do so soon by chance. If that is possible within this
time, the rate is too uncertain to say "never"."""
PAUSE_S = 150
"""A group that has not committed for less than this has not paused."""
FEWEST_INTERVALS = 2
"""The fewest steps between samples by which a rate and its error are known."""
FEWEST_OF_SHORT = 4
"""The fewest steps for which a short time may say more than a long one."""
T_QUANTILES = (
    *(6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812),
    *(1.796, 1.782, 1.771, 1.761, 1.753, 1.746, 1.740, 1.734, 1.729, 1.725),
    *(1.721, 1.717, 1.714, 1.711, 1.708, 1.706, 1.703, 1.701, 1.699, 1.697),
)
"""The quantiles of Student's t for 1, 2, … 30 degrees of freedom that 5 % of its values exceed."""
REASONS = (None, "not_known", "paused", "too_little_history", "never_at_this_rate", "too_uncertain")
"""Why there is no forecast; where several hold, the first."""


@dataclass(frozen=True)
class Forecast:
    """Forecasts of series. A time is inf for never, or if it is not known. `reason` is an index in REASONS.

    net_per_s, net_error_per_s, observed_s: how fast the lag falls, within which error (of the same band), and over
    which time this was observed; nan if there is too little history.
    """

    in_s: Floats
    low_s: Floats
    high_s: Floats
    reason: Ints
    net_per_s: Floats
    net_error_per_s: Floats
    observed_s: Floats


def caught_up_at(memory: Memory, tolerance_ms: int) -> Floats:
    """The lag of a group that has caught up: at most what is written within the tolerance."""
    return growth_per_s(memory.log_ends, memory.ends_ms, SPANS_MS["5m"]) * tolerance_ms / 1000


def forecast(memory: Memory, lag: Ints, markers: Ints, tolerance_ms: int, window_ms: int) -> Forecast:
    """The forecasts for series after a snapshot in which their lag is `lag`; NONE if it is not known.

    So many unread offsets may be transaction `markers`, which no reader ever gets.
    """
    limit = np.maximum(caught_up_at(memory, tolerance_ms), markers)
    found = _nothing(len(lag))
    found.reason[lag == NONE] = REASONS.index("not_known")
    for values in (found.in_s, found.low_s, found.high_s):
        values[(lag != NONE) & (lag <= limit)] = 0
    at = np.flatnonzero((lag != NONE) & (lag > limit))
    if len(at):
        some = memory.take(at)
        _put(found, at, _of_backlogs(some, limit[at], tolerance_ms, window_ms))
    return found


def _nothing(count: int) -> Forecast:
    inf, nan = np.full((3, count), np.inf), np.full((3, count), np.nan)
    return Forecast(inf[0], inf[1], inf[2], np.zeros(count, np.int64), nan[0], nan[1], nan[2])


def _put(whole: Forecast, at: Ints, part: Forecast) -> None:
    for name, values in vars(part).items():
        getattr(whole, name)[at] = values


def _of_backlogs(memory: Memory, limit: Floats, tolerance_ms: int, window_ms: int) -> Forecast:
    """The forecasts of series that have not caught up."""
    samples = Samples.of(memory, limit)
    has_paused = samples.has_paused(PAUSE_S)
    has_stopped = has_paused & waits_long(memory, tolerance_ms, window_ms)
    shows = samples.shows.copy()
    shows[:, -1] |= has_stopped  # that nothing is committed is all that is to be seen
    samples = replace(samples, shows=shows)
    written = growth_per_s(memory.log_ends, memory.ends_ms, SPANS_MS["1h"])
    whole = best_pace(samples, samples.lag, written)
    in_s, low_s, high_s = _times(whole, limit, written)
    share = samples.worst_lag[:, -1] / np.maximum(samples.lag[:, -1], 1)
    worst = best_pace(samples, samples.worst_lag, written * share)
    also = _times(worst, limit * share, written * share)
    # The group has not caught up before its last partition has. But partitions that are done make room for the others.
    both = worst.intervals >= FEWEST_INTERVALS
    in_s = np.where(both, (in_s + also[0]) / 2, in_s)
    low_s = np.where(has_stopped, np.inf, np.where(both, np.minimum(low_s, also[1]), low_s))
    high_s = np.where(both, np.maximum(high_s, also[2]), high_s)
    in_s = np.where(has_stopped, np.inf, in_s)
    has_rate = whole.intervals >= FEWEST_INTERVALS
    reason = _reasons(in_s, low_s, has_rate | has_stopped, has_paused & ~has_stopped)
    is_known, has_low = reason == 0, reason >= REASONS.index("never_at_this_rate")
    error = t_quantile(whole) * np.sqrt(whole.variance / whole.observed_s)
    return Forecast(
        in_s=np.where(is_known, in_s, np.inf),
        low_s=np.where(is_known | has_low, low_s, np.inf),
        high_s=np.where(is_known, high_s, np.inf),
        reason=reason,
        net_per_s=np.where(has_rate, whole.net_per_s, np.nan),
        net_error_per_s=np.where(has_rate, error, np.nan),
        observed_s=np.where(has_rate, whole.observed_s, np.nan),
    )


def best_pace(samples: Samples, lag: Floats, written: Floats) -> Pace:
    """The pace over the time from which it is known best: a short one if traffic changes, a long one if it is noisy."""
    long, short = (pace_of(samples, lag, looked_back_s) for looked_back_s in LOOKED_BACK_S)

    def uncertainty(pace: Pace) -> Floats:
        walk = t_quantile(pace) ** 2 * pace.variance / pace.observed_s
        return np.asarray(walk + T_QUANTILES[-1] ** 2 * (DRIFT * written) ** 2 / 3600 * pace.observed_s / 3)

    is_better = (short.intervals >= FEWEST_OF_SHORT) & (uncertainty(short) < uncertainty(long))
    # In a short time, the variance is small now and then by chance.
    short = replace(short, variance=np.maximum(short.variance, long.variance))
    return Pace(*(np.where(is_better, vars(short)[name], vars(long)[name]) for name in vars(long)))


def waits_long(memory: Memory, tolerance_ms: int, window_ms: int) -> Bools:
    """Whether a wait is longer than is usual for the group: the rule of the statuses, for all partitions together."""
    waited = np.where(memory.waiting_ms != NONE, memory.ends_ms[:, -1] - memory.waiting_ms, 0)
    usual = np.where(memory.second_ms != NONE, 2 * np.maximum(memory.second_ms, 0), window_ms)
    return np.asarray((waited >= tolerance_ms) & (waited >= usual))


def _times(pace: Pace, limit: Floats, written: Floats) -> tuple[Floats, Floats, Floats]:
    """In how many seconds the lag reaches the limit: by the rate, at the earliest, and at the latest.

    The forecast begins at the last commit. Progress is seen only when the group commits again.
    """
    span = HORIZONS_S[None, :]
    over = np.maximum(pace.unread - limit, 0)[:, None]
    drift = ((DRIFT * written) ** 2 / 3600)[:, None]
    observed = pace.observed_s[:, None]
    varies = pace.variance[:, None] * (span + span**2 / observed) + drift * (span**3 + span**2 * observed) / 3
    middle, off = over - pace.net_per_s[:, None] * span, t_quantile(pace)[:, None] * np.sqrt(varies)
    low, high = (np.maximum(first_reached(some) - pace.age_s, 0) for some in (middle - off, middle + off))
    does_catch_up = pace.net_per_s > 0
    in_s = np.where(does_catch_up, over[:, 0] / np.where(does_catch_up, pace.net_per_s, 1), np.inf)
    in_s = np.maximum(np.where(in_s > LONGEST_S, np.inf, in_s) - pace.age_s, 0) + pace.gap_s / 2
    # If it had caught up at its last commit, it will at the next.
    keeps_up = pace.unread <= limit
    next_s = np.maximum(pace.gap_s - pace.age_s, 0)
    latest_s = np.maximum(2 * pace.longest_gap_s - pace.age_s, pace.gap_s)
    return (
        np.where(keeps_up, next_s, in_s),
        np.where(keeps_up, 0, low),
        np.where(keeps_up, latest_s, high + pace.longest_gap_s),
    )


def first_reached(values: Floats) -> Floats:
    """The first horizon at which a value is not above 0, between two horizons by a straight line; inf if none is."""
    is_reached = values <= 0
    at = np.argmax(is_reached, axis=1)
    every, before = np.arange(len(values)), np.maximum(at - 1, 0)
    above, below = values[every, before], values[every, at]
    share = np.where(at > 0, above / np.where(above > below, above - below, 1), 0)
    reached = HORIZONS_S[before] + (HORIZONS_S[at] - HORIZONS_S[before]) * np.clip(share, 0, 1)
    return np.where(is_reached.any(axis=1), reached, np.inf)


def t_quantile(pace: Pace) -> Floats:
    """How many standard deviations a band is wide to each side, by the number of steps that its pace is known from."""
    return np.asarray(np.array(T_QUANTILES)[np.clip(pace.intervals - 2, 0, len(T_QUANTILES) - 1)])


def _reasons(in_s: Floats, low_s: Floats, is_enough: Bools, is_paused: Bools) -> Ints:
    """Why there is no forecast, as an index in REASONS."""
    rules = {
        "paused": is_paused,
        "too_little_history": ~is_enough,
        "never_at_this_rate": np.isinf(in_s) & (low_s > NEVER_S),
        "too_uncertain": np.isinf(in_s),
    }
    found = np.zeros(len(in_s), np.int64)
    for name, holds in reversed(rules.items()):
        found[holds] = REASONS.index(name)
    return found
