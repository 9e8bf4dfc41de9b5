"""The forecast of one series by the same hours of earlier weeks, in plain Python."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

from pipeline.analytics.forecasts.band import T_QUANTILES
from pipeline.common.epoch import HOUR_MS, MINUTE_MS
from tests.helpers.forecast_model import LONG_S, Known, Pace, best, growth, pace, quantile

HOUR_S, HOURS, DAYS = 3_600, 24, 7
Times = tuple[float, float, float]


def by_weeks(known: Known, markers: int, rates: Sequence[Sequence[float | None]]) -> Times | None:
    """When the series will have caught up, by the rates of each earlier week; None if they say too little.

    The first rate of a week is that of the hour before the one in which the ends were read.
    """
    samples = known.samples
    now = samples[-1]
    limit = max(growth(samples, 5 * MINUTE_MS) * 60, markers)
    age = [(now.ends_ms - s.ends_ms) / 1000 for s in samples]
    shown = [n for n, s in enumerate(samples) if n == 0 or s.commits > samples[n - 1].commits or s.lag <= limit]
    share, hour = now.worst_lag / max(now.lag, 1), growth(samples, HOUR_MS)
    whole = best([(age[n], samples[n].lag) for n in shown], hour, age)
    worst = best([(age[n], samples[n].worst_lag) for n in shown], hour * share, age)
    caught_up = min((a for a, s in zip(age, samples, strict=True) if s.lag <= limit), default=math.inf)
    behind = [n for n in shown if age[n] < caught_up and age[n] <= since(whole)]
    weeks = scaled(known, rates)
    if len(behind) < 3 or weeks is None:
        return None
    reads = pace([(age[n], -samples[n].commits) for n in behind], LONG_S, age)
    found = reached(whole, reads, now.lag - limit, weeks, 1.0, now.ends_ms)
    if worst.intervals >= 2:
        its = [(age[n], -samples[n].log_ends) for n in shown if age[n] <= since(worst)]
        wrote = pace(its, LONG_S, age).net_per_s * share
        read = reads._replace(net_per_s=worst.net_per_s + wrote, variance=reads.variance * share**2)
        also = reached(worst, read, now.worst_lag - limit * share, weeks, share, now.ends_ms)
        found = (fmean([found[0], also[0]]), min(found[1], also[1]), max(found[2], also[2]))
    return found


def since(p: Pace) -> float:
    """How long ago the first sample was taken that a pace is known from; a little more, because it is rounded."""
    return p.age_s + p.observed_s + 1e-6


def scaled(known: Known, rates: Sequence[Sequence[float | None]]) -> list[list[float | None]] | None:
    """The coming hours of each week that is like this one, scaled to the traffic of the last hour."""
    now = known.samples[-1]
    old = [s for s in known.samples if now.ends_ms - s.ends_ms >= HOUR_MS]
    if not old or now.ends_ms - old[-1].ends_ms >= 2 * HOUR_MS:
        return None
    level = (now.log_ends - old[-1].log_ends) * 1000 / (now.ends_ms - old[-1].ends_ms)
    passed, found = now.ends_ms % HOUR_MS / HOUR_MS, []
    for week in rates:
        if week[0] is None or week[1] is None:
            continue
        then = week[0] * (1 - passed) + week[1] * passed
        if then > 0 and 1 / 4 < level / then < 4:
            found.append([None if rate is None else rate * level / then for rate in week[1:]])
    known_weeks = [sum(week[hour] is not None for week in found) for hour in range(HOURS)]
    return found if min(known_weeks) >= 2 else None


def reached(
    p: Pace, reads: Pace, over: float, weeks: Sequence[Sequence[float | None]], share: float, ends_ms: int
) -> Times:
    """When the lag is not over its limit any more: most likely, at the earliest, and at the latest."""
    count = min(sum(week[hour] is not None for week in weeks) for hour in range(HOURS))
    means = [fmean([rate for week in weeks if (rate := week[hour]) is not None]) for hour in range(HOURS)]
    written, at = [0.0] * len(weeks), 0.0
    left = max(over - reads.net_per_s * p.age_s, 0)
    points = [(at, left, 0.0)]
    for number in range(HOURS * DAYS):
        lasts = HOUR_S * (1 - ends_ms % HOUR_MS / HOUR_MS) if number == 0 else HOUR_S
        for which, week in enumerate(weeks):
            rate = week[number % HOURS]
            written[which] += share * lasts * (means[number % HOURS] if rate is None else rate)
        at += lasts
        spread = sum((one - fmean(written)) ** 2 for one in written) / (count - 1) * (1 + 1 / count)
        span = at + p.age_s
        walk = p.variance * span + reads.variance * span**2 / reads.observed_s
        off = math.sqrt(quantile(p.intervals) ** 2 * walk + T_QUANTILES[count - 2] ** 2 * spread)
        points.append((at, left + fmean(written) - reads.net_per_s * at, off))
    in_s, low, high = (first([(t, lag + sign * off) for t, lag, off in points]) for sign in (0, -1, 1))
    return in_s + p.gap_s / 2, low, high + p.longest_gap_s


def first(points: Sequence[tuple[float, float]]) -> float:
    """When the value is first not above 0."""
    before = None
    for at, value in points:
        if value <= 0:
            return at if before is None else before[0] + (at - before[0]) * before[1] / (before[1] - value)
        before = (at, value)
    return math.inf
