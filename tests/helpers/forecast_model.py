"""Forecasts of one series in plain Python: what is remembered, how fast it moves, and when it will have caught up."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import fmean
from typing import NamedTuple

from pipeline.analytics.forecasts.band import DRIFT, LONGEST_S, NEVER_S, PAUSE_S, T_QUANTILES
from pipeline.analytics.forecasts.memory import TIERS
from pipeline.common.epoch import DAY_MS, HOUR_MS, MINUTE_MS

HORIZONS_S = [10 * (LONGEST_S / 10) ** (number / 159) for number in range(160)]
LONG_S, SHORT_S = 4_200, 1_200


class Seen(NamedTuple):
    """What a snapshot shows of one series; None is not known."""

    ends_ms: int | None
    log_ends: int | None
    commits_ms: int | None
    commits: int | None
    worst_lag: int | None
    lag: int | None
    identity: int
    log_end_bytes: int | None
    log_end_error_bytes: int | None
    commit_bytes: int | None
    commit_error_bytes: int | None
    oldest_ms: int | None
    log_starts: int | None
    start_ms: int | None


class Sample(NamedTuple):
    """A snapshot that is remembered."""

    ends_ms: int
    log_ends: int
    commits_ms: int
    commits: int
    worst_lag: int
    log_end_bytes: int | None
    log_end_error_bytes: int | None
    commit_bytes: int | None
    commit_error_bytes: int | None
    oldest_ms: int | None

    @property
    def lag(self) -> int:
        return max(self.log_ends - self.commits, 0)


@dataclass(frozen=True)
class Known:
    """What is remembered of one series."""

    identity: int | None = None
    waiting_ms: int | None = None
    longest_ms: int | None = None
    second_ms: int | None = None
    waits_ms: int | None = None
    log_starts: int | None = None
    start_ms: int | None = None
    deleted: list[list[tuple[int, int, int]]] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)

    def after(self, seen: Seen) -> Known:
        """What is remembered after one more snapshot."""
        known = [value for value in seen[:7] if value is not None]
        if len(known) < 7 or seen.lag is None:
            return self
        old = Known() if self.identity not in (None, seen.identity) else self
        new, last = Sample(*known[:5], *seen[7:12]), old.samples[-1] if old.samples else None
        if last and (new.ends_ms <= last.ends_ms or new.commits_ms <= last.commits_ms):
            return self
        longest, second, waits = old.longest_ms, old.second_ms, old.waits_ms
        if last and new.commits != last.commits:
            lasted = 0 if old.waiting_ms is None else new.ends_ms - old.waiting_ms
            share = 0.5 ** ((new.ends_ms - waits) / (7 * DAY_MS)) if waits is not None else 0
            faded = [int((wait or 0) * share) for wait in (longest, second)]
            second, longest = sorted([*faded, lasted])[1:]
            waits = new.ends_ms
        goes_on = last is not None and new.commits == last.commits and old.waiting_ms is not None
        waiting = None if seen.lag <= 0 else old.waiting_ms if goes_on else new.ends_ms
        went_back = last and (new.log_ends < last.log_ends or new.commits < last.commits)
        samples = thinned([*([] if went_back else old.samples), new])
        retention = old.retention_after(seen)
        return Known(seen.identity, waiting, longest, second, waits, *retention, samples)

    def retention_after(self, seen: Seen) -> tuple[int | None, int | None, list[list[tuple[int, int, int]]]]:
        """The log starts, and the days on which records were deleted: when, and the least and the greatest age."""
        assert seen.ends_ms is not None
        if seen.log_starts is None or seen.start_ms is None:
            return self.log_starts, self.start_ms, self.deleted
        days = [list(day) for day in self.deleted]
        has_written = self.samples and (seen.log_ends or 0) > self.samples[-1].log_ends
        if has_written and self.start_ms is not None and seen.log_starts > (self.log_starts or 0):
            if not days or seen.ends_ms - days[-1][0][0] >= DAY_MS:
                days.append([])
            days[-1].append((seen.ends_ms, seen.ends_ms - seen.start_ms, seen.ends_ms - self.start_ms))
        return seen.log_starts, seen.start_ms, days[-2:]

    @property
    def deleted_ages(self) -> list[int | None]:
        """Since when the newest day is counted, its least and greatest age, and those of the day before."""
        days = [(day[0][0], min(d[1] for d in day), max(d[2] for d in day)) for day in self.deleted]
        before, now = [(None, None, None), (None, None, None), *days][-2:]
        return [now[0], now[1], now[2], before[1], before[2]]


def thinned(samples: Sequence[Sample]) -> list[Sample]:
    """The first sample of each minute, five minutes or three hours, by their age; and the newest."""
    kept = []
    for number, sample in enumerate(samples):
        age_ms = samples[-1].ends_ms - sample.ends_ms
        cell_ms = next((each for most, each in TIERS if age_ms < most), None)
        before = samples[number - 1].ends_ms if number else None
        is_first = cell_ms and (before is None or before // cell_ms != sample.ends_ms // cell_ms)
        if is_first or sample is samples[-1]:
            kept.append(sample)
    return kept


def byte_rate(samples: Sequence[Sample], span_ms: int, of: str) -> float | str | None:
    """The rate in bytes of what was `written` or `committed`; a reason; or None if there is no rate in records."""
    now, is_written = samples[-1], of == "written"
    old = [s for s in samples if read_at(now, of) - read_at(s, of) >= span_ms]
    if not old or read_at(now, of) - read_at(old[-1], of) >= 2 * span_ms:
        return None
    then, passed_s = old[-1], (read_at(now, of) - read_at(old[-1], of)) / 1000
    if (now.log_ends == then.log_ends) if is_written else (now.commits == then.commits):
        return 0.0
    last, first = (s.log_end_bytes if is_written else s.commit_bytes for s in (now, then))
    if last is None:
        return "not_known"
    if first is None:
        return "too_little_history"
    error = max((now.log_end_error_bytes or 0) - (then.log_end_error_bytes or 0), 0)
    if not is_written:
        error += (now.commit_error_bytes or 0) + (then.commit_error_bytes or 0)
    grown = last - first
    return "too_uncertain" if grown < 0 or 4 * error > grown else grown / passed_s


def read_at(sample: Sample, of: str) -> int:
    return sample.ends_ms if of == "written" else sample.commits_ms


class Pace(NamedTuple):
    """How fast a lag falls, see `pace.Pace`."""

    unread: float
    age_s: float
    net_per_s: float
    variance: float
    observed_s: float
    intervals: int
    gap_s: float
    longest_gap_s: float


def growth(samples: Sequence[Sample], span_ms: int) -> float:
    """Records written per second since the newest sample that is old enough, or else the oldest."""
    now = samples[-1]
    old = [s for s in samples if now.ends_ms - s.ends_ms >= span_ms]
    then = old[-1] if old else samples[0]
    passed = now.ends_ms - then.ends_ms
    return (now.log_ends - then.log_ends) * 1000 / passed if passed else 0.0


def pace(points: Sequence[tuple[float, float]], within_s: float, ages_s: Sequence[float]) -> Pace:
    """The pace by points: how many seconds ago, and the lag then; the newest last. `ages_s`: of all samples."""
    used = [(age, lag) for age, lag in points if age <= points[-1][0] + within_s]
    highest = max(range(len(used)), key=lambda n: (used[n][1], n))
    if len(used) - 1 - highest >= 2:
        used = used[highest:]
    (first_age, first_lag), (age, unread) = used[0], used[-1]
    steps = [(a - b, la - lb) for (a, la), (b, lb) in pairwise(used)]
    if not steps:
        return Pace(unread, age, 0, 0, 1, 0, 0, 0)
    observed = first_age - age
    net = (first_lag - unread) / observed
    variance = sum((fell - net * passed) ** 2 / passed for passed, fell in steps) / max(len(steps) - 1, 1)
    if len(steps) >= 6:
        bounds = [min(used, key=lambda p, w=age + observed * n / 4: abs(p[0] - w)) for n in (4, 3, 2, 1, 0)]
        rates = [(la - lb) / (a - b) if a > b else net for (a, la), (b, lb) in pairwise(bounds)]
        variance = max(variance, observed / 4 * sum((rate - net) ** 2 for rate in rates) / 3)
    gaps = []
    for (a, _), (b, _) in pairwise(used):
        has_none_between = ages_s.index(b) == ages_s.index(a) + 1
        gaps.append(min(a - b, ages_s[-2]) if has_none_between else a - b)
    return Pace(unread, age, net, variance, observed, len(steps), sum(gaps) / len(gaps), max(gaps))


def quantile(intervals: int) -> float:
    """Student's t."""
    return T_QUANTILES[min(max(intervals - 2, 0), 29)]


def best(points: Sequence[tuple[float, float]], written: float, ages_s: Sequence[float]) -> Pace:
    """The pace over 70 or 20 minutes, whichever says more."""
    long, short = pace(points, LONG_S, ages_s), pace(points, SHORT_S, ages_s)

    def off(p: Pace) -> float:
        drift = T_QUANTILES[-1] ** 2 * (DRIFT * written) ** 2 / 3600 * p.observed_s / 3
        return quantile(p.intervals) ** 2 * p.variance / p.observed_s + drift

    if short.intervals >= 4 and off(short) < off(long):
        return short._replace(variance=max(short.variance, long.variance))
    return long


def times(p: Pace, limit: float, written: float) -> tuple[float, float, float]:
    """When the lag reaches the limit: by the rate, at the earliest, at the latest."""
    if p.unread <= limit:
        return max(p.gap_s - p.age_s, 0), 0, max(2 * p.longest_gap_s - p.age_s, p.gap_s)
    over = p.unread - limit
    bounds = []
    for sign in (-1, 1):
        before = None
        for t in HORIZONS_S:
            walk = p.variance * (t + t * t / p.observed_s)
            drift = (DRIFT * written) ** 2 / 3600 * (t**3 + t * t * p.observed_s) / 3
            value = over - p.net_per_s * t + sign * quantile(p.intervals) * math.sqrt(walk + drift)
            if value <= 0:
                share = before[1] / (before[1] - value) if before else 0
                bounds.append(before[0] + (t - before[0]) * share if before else t)
                break
            before = (t, value)
        else:
            bounds.append(math.inf)
    middle = over / p.net_per_s if p.net_per_s > 0 else math.inf
    middle = math.inf if middle > LONGEST_S else middle
    low, high = (max(bound - p.age_s, 0) for bound in bounds)
    return max(middle - p.age_s, 0) + p.gap_s / 2, low, high + p.longest_gap_s


def forecast(known: Known, lag: int | None, markers: int) -> tuple[str | None, float, float, float]:
    """The reason, and the three times; inf for never, or not known."""
    never = (math.inf, math.inf, math.inf)
    if lag is None:
        return "not_known", *never
    samples = known.samples
    limit = max(growth(samples, 5 * MINUTE_MS) * 60, markers)
    if lag <= limit:
        return None, 0, 0, 0
    age = [(samples[-1].ends_ms - s.ends_ms) / 1000 for s in samples]
    shown = [n for n, s in enumerate(samples) if n == 0 or s.commits > samples[n - 1].commits or s.lag <= limit]
    has_paused, has_stopped = halted(known, age, shown)
    if has_stopped:
        return "never_at_this_rate", *never
    whole, middle, low, high = of_both(samples, age, shown, limit)
    if has_paused:
        return "paused", *never
    if whole.intervals < 2:
        return "too_little_history", *never
    if math.isinf(middle):
        return ("never_at_this_rate" if low > NEVER_S else "too_uncertain"), math.inf, low, math.inf
    return None, middle, low, high


def halted(known: Known, age: Sequence[float], shown: Sequence[int]) -> tuple[bool, bool]:
    """Whether the group commits nothing for longer than lately, and also for longer than ever."""
    recent = [n for n in shown if age[n] <= age[shown[-1]] + LONG_S]
    gaps = sorted(age[a] - age[b - 1] for a, b in pairwise(recent))
    has_paused = age[shown[-1]] > max(2 * (gaps[-2] if len(gaps) > 1 else 0), PAUSE_S)
    waited = known.samples[-1].ends_ms - known.waiting_ms if known.waiting_ms is not None else 0
    usual = 30 * MINUTE_MS if known.second_ms is None else 2 * known.second_ms
    return has_paused, has_paused and waited >= max(usual, MINUTE_MS)


def of_both(
    samples: Sequence[Sample], age: Sequence[float], shown: Sequence[int], limit: float
) -> tuple[Pace, float, float, float]:
    """The pace of all partitions, and the times by it and by the partition that is furthest behind."""
    written, share = growth(samples, HOUR_MS), samples[-1].worst_lag / max(samples[-1].lag, 1)
    whole = best([(age[n], samples[n].lag) for n in shown], written, age)
    worst = best([(age[n], samples[n].worst_lag) for n in shown], written * share, age)
    middle, low, high = times(whole, limit, written)
    if worst.intervals >= 2:
        also = times(worst, limit * share, written * share)
        middle, low, high = fmean([middle, also[0]]), min(low, also[1]), max(high, also[2])
    return whole, middle, low, high
