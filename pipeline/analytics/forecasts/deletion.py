"""When retention will delete unread records, with a band, by the ages at which it has deleted records lately.

A record is deleted at an age D. With `retention.ms`, that is the retention time, and up to the time span of a segment
more; with `retention.bytes`, it follows the traffic. So D is not computed from settings: it lies between the least and
the greatest age at which records were deleted in the last one or two days. The oldest unread record has the age a. If
the group stands still, a grows by a second each second, and the record is deleted D - a from now. If it reads too
slowly, a grows more slowly, at a rate that is observed as that of the lag is, with the same band (see `band`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from pipeline.analytics.arrow_series import NONE, Floats, Ints
from pipeline.analytics.forecasts.band import (
    DRIFT,
    FEWEST_INTERVALS,
    FEWEST_OF_SHORT,
    HORIZONS_S,
    LONGEST_S,
    PAUSE_S,
    T_QUANTILES,
    caught_up_at,
    first_reached,
    t_quantile,
    waits_long,
)
from pipeline.analytics.forecasts.memory import Memory
from pipeline.analytics.forecasts.pace import LOOKED_BACK_S, Pace, Samples, pace_of
from pipeline.common.epoch import DAY_MS

RETURNS_S = 6 * 3_600
"""In this time, most of a change of traffic has gone again."""
SPREAD = DRIFT * (RETURNS_S / 3_600 / 2) ** 0.5
"""How far traffic is from its mean, as a part of it (a standard deviation): so far that it changes by DRIFT an hour."""
NO_DELETION_S = DAY_MS // 1000
"""It is said that no records are deleted at this rate only if none are within this time, even at the earliest."""
AGES_LOOKED_BACK_S = (27 * 3_600, LOOKED_BACK_S[0])
"""How far back samples show how fast the age grows. A day shows what an hour does not, if traffic has a daily cycle."""
DELETED_REASONS = (
    *(None, "not_known", "caught_up", "no_deletion_seen"),
    *("paused", "too_little_history", "never_at_this_rate", "too_uncertain"),
)
"""Why there is no time until records are deleted; where several hold, the first."""


@dataclass(frozen=True)
class Deletion:
    """When the first unread record is deleted. A time is inf for never, or if it is not known."""

    in_s: Floats
    low_s: Floats
    high_s: Floats
    reason: Ints


def deletion(memory: Memory, lag: Ints, oldest_ms: Ints, markers: Ints, tolerance_ms: int, window_ms: int) -> Deletion:
    """When unread records of series are deleted, after a snapshot in which they have this lag and oldest record.

    Both are NONE if they are not known. So many unread offsets may be transaction `markers`.
    """
    limit = np.maximum(caught_up_at(memory, tolerance_ms), markers)
    is_known = (lag != NONE) & (oldest_ms != NONE)
    has_caught_up = is_known & ((lag <= limit) | (oldest_ms == 0))
    is_seen = memory.least_age_ms != NONE
    inf = np.full((3, len(lag)), np.inf)
    found = Deletion(inf[0], inf[1], inf[2], np.zeros(len(lag), np.int64))
    for name, holds in (("no_deletion_seen", ~is_seen), ("caught_up", has_caught_up), ("not_known", ~is_known)):
        found.reason[holds] = DELETED_REASONS.index(name)
    at = np.flatnonzero(is_known & ~has_caught_up & is_seen)
    if len(at):
        some = memory.take(at)
        part = _of_backlogs(some, limit[at], oldest_ms[at] / 1000, tolerance_ms, window_ms)
        for name, values in vars(part).items():
            getattr(found, name)[at] = values
    return found


def _of_backlogs(memory: Memory, limit: Floats, age_s: Floats, tolerance_ms: int, window_ms: int) -> Deletion:
    samples = Samples.of(memory, limit)
    has_paused = samples.has_paused(PAUSE_S)
    has_stopped = has_paused & waits_long(memory, tolerance_ms, window_ms)
    least_s, most_s = _deleted_at(memory)
    middle_s = (least_s + most_s) / 2
    is_there = memory.oldest_ms != NONE
    ages_s = np.where(is_there, memory.oldest_ms, 0) / 1000
    samples = replace(samples, shows=samples.shows & is_there)
    pace = _growing(samples, ages_s)
    low_s, high_s = _bounds(pace, least_s, most_s)
    grows = pace.net_per_s < 0
    in_s = (middle_s - pace.unread - pace.gap_s) / np.where(grows, -pace.net_per_s, 1) - pace.age_s
    in_s = np.where(grows & (in_s <= LONGEST_S), np.maximum(in_s, 0), np.inf)
    is_enough = samples.shows.any(axis=1) & (pace.intervals >= FEWEST_INTERVALS)
    # A record does not age faster than time passes.
    soonest_s, latest_s = (np.maximum(limit_s - age_s, 0) for limit_s in (least_s, most_s))
    low_s = np.where(is_enough & ~has_paused, np.maximum(low_s, soonest_s), soonest_s)
    in_s = np.where(has_stopped, np.maximum(middle_s - age_s, 0), np.maximum(in_s, low_s))
    high_s = np.where(has_stopped, latest_s, np.maximum(high_s, in_s))
    reason = np.zeros(len(in_s), np.int64)
    rules = {
        "too_uncertain": np.isinf(in_s),
        "never_at_this_rate": np.isinf(in_s) & (low_s > NO_DELETION_S),
        "too_little_history": ~is_enough & ~has_stopped,
        "paused": has_paused & ~has_stopped,
    }
    for name, holds in rules.items():
        reason[holds] = DELETED_REASONS.index(name)
    is_said = reason == 0
    # If the record is older than any that was deleted lately, nothing says when it will be.
    high_s = np.where(is_said & (age_s < most_s), high_s, np.inf)
    return Deletion(np.where(is_said, in_s, np.inf), np.where(low_s > LONGEST_S, np.inf, low_s), high_s, reason)


def _deleted_at(memory: Memory) -> tuple[Floats, Floats]:
    """The least and the greatest age at which records were deleted, in seconds."""
    least, most = memory.least_age_before_ms, memory.most_age_before_ms
    least = np.where(least == NONE, memory.least_age_ms, np.minimum(least, memory.least_age_ms))
    most = np.where(most == NONE, memory.most_age_ms, np.maximum(most, memory.most_age_ms))
    return least / 1000, most / 1000


def _growing(samples: Samples, ages_s: Floats) -> Pace:
    """The pace of the age over a day or an hour, whichever is known better."""
    long, short = (pace_of(samples, ages_s, looked_back_s) for looked_back_s in AGES_LOOKED_BACK_S)
    uncertain = [t_quantile(pace) ** 2 * pace.variance / pace.observed_s for pace in (long, short)]
    is_better = (short.intervals >= FEWEST_OF_SHORT) & (uncertain[1] < uncertain[0])
    return Pace(*(np.where(is_better, vars(short)[name], vars(long)[name]) for name in vars(long)))


def _bounds(pace: Pace, least_s: Floats, most_s: Floats) -> tuple[Floats, Floats]:
    """In how many seconds the age reaches the least of the ages at the earliest, and the greatest at the latest.

    Between two commits the age grows by the time that passes, so it is greatest just before a commit.
    """
    span = HORIZONS_S[None, :]
    observed = pace.observed_s[:, None]
    walk = t_quantile(pace)[:, None] ** 2 * pace.variance[:, None] * (span + span**2 / observed)
    changes = 2 * SPREAD**2 * RETURNS_S * (span - RETURNS_S * (1 - np.exp(-span / RETURNS_S)))
    off = np.sqrt(walk + T_QUANTILES[-1] ** 2 * changes)
    fell = pace.net_per_s[:, None] * span
    low = (least_s - pace.unread - pace.longest_gap_s)[:, None] + fell - off
    high = (most_s - pace.unread)[:, None] + fell + off
    low_s, high_s = (np.maximum(first_reached(some) - pace.age_s, 0) for some in (low, high))
    return low_s, high_s
