"""`make accuracy ARGS=forecasts`: how often a group had caught up within the band of its forecast, in generated days.

The days are those of `benchmarks.backlogs`. Each snapshot is remembered and forecast by the same functions as in a run,
without Spark. What really happened is known from the generator.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from benchmarks.backlogs import GROUPS_OF_A_KIND, KINDS, PARTITIONS, Days, generated
from pipeline.analytics.arrow_series import Bools, Floats, Ints
from pipeline.analytics.forecasts.band import NEVER_S, REASONS, forecast
from pipeline.analytics.forecasts.memory import Memory, Sums, after
from pipeline.config.status import StatusConfig

HEADING = "## Forecasts of generated days"
DAYS, WARM_UP = 7, 180
"""How many days, and how many minutes of the first are not judged, because little is known yet."""
CHUNK = 60
"""Snapshots that are forecast together."""
MIDNIGHT_MS, MINUTE_MS = 1_769_817_600_000, 60_000
BETWEEN_S = 60
"""Snapshots are a minute apart, so nothing is known more precisely."""
HORIZONS_S = {"up to 5 min": 300, "up to 30 min": 1_800, "up to 2 h": 7_200, "up to 6 h": 21_600, "longer": np.inf}


@dataclass(frozen=True)
class Outcomes:
    """Forecasts of groups that had not caught up, and what came: one element for each group and snapshot.

    caught_up_s: when the group had caught up, inf if not before the end. undisturbed_s: until when it neither stopped,
    started, grew nor was set back. left_s: until the end of the days. naive_s: the lag divided by the last net rate.
    """

    kind: np.ndarray[tuple[int], np.dtype[np.str_]]
    in_s: Floats
    low_s: Floats
    high_s: Floats
    reason: Ints
    naive_s: Floats
    caught_up_s: Floats
    undisturbed_s: Floats
    left_s: Floats

    @classmethod
    def joined(cls, parts: Iterable[Outcomes]) -> Outcomes:
        """All of them together."""
        return cls(*map(np.concatenate, zip(*(vars(part).values() for part in parts), strict=True)))

    def where(self, condition: Bools) -> Outcomes:
        """Some of them."""
        return Outcomes(*(values[condition] for values in vars(self).values()))

    def at_this_rate(self) -> Outcomes:
        """The same if the days ended just before the next event."""
        left_s = np.minimum(self.left_s, self.undisturbed_s)
        caught_up_s = np.where(self.caught_up_s <= left_s, self.caught_up_s, np.inf)
        return Outcomes(**vars(self) | {"left_s": left_s, "caught_up_s": caught_up_s})

    def inside(self) -> Bools:
        """Whether each outcome that is known lies inside of the band."""
        latest = self.high_s + BETWEEN_S
        known = np.isfinite(self.caught_up_s) | (latest < self.left_s)
        is_inside = (self.caught_up_s >= self.low_s - BETWEEN_S) & (self.caught_up_s <= latest)
        return np.asarray(is_inside[known & np.isfinite(self.in_s)])


def outcomes(days: Days) -> Outcomes:
    """All forecasts of the days with their outcomes."""
    return Outcomes.joined(_forecasts(days))


def _forecasts(days: Days) -> Iterator[Outcomes]:
    minutes, count = days.ends.shape
    lag, settings, kind = days.ends - days.commits, StatusConfig(), np.array(days.kind)
    nothing = np.zeros((1, count), bool)
    # An event in a minute is in the snapshot at its end, at least in part. The next minute's is still to come.
    caught_up_s, undisturbed_s = following(days.has_caught_up), following(np.concatenate([days.events[1:], nothing]))
    for at, memories in remembered(days):
        markers = np.full(CHUNK * count, settings.markers * PARTITIONS)
        found = forecast(memories, lag[at].ravel(), markers, settings.tolerance_ms, settings.window_ms)
        fell = lag[at.start - 1 : at.stop - 1] - lag[at]
        naive_s = np.where(fell > 0, lag[at] / np.maximum(fell, 1) * 60, np.inf)
        left_s = np.repeat((minutes - 1.0 - np.arange(at.start, at.stop)) * 60, count)
        every = Outcomes(
            kind=np.tile(kind, CHUNK),
            in_s=found.in_s,
            low_s=found.low_s,
            high_s=found.high_s,
            reason=found.reason,
            naive_s=naive_s.ravel(),
            caught_up_s=caught_up_s[at].ravel(),
            undisturbed_s=undisturbed_s[at].ravel(),
            left_s=left_s,
        )
        yield every.where((found.in_s != 0) | (found.low_s != 0) | (found.high_s != 0))


def remembered(days: Days) -> Iterator[tuple[slice, Memory]]:
    """What is known of all groups after each snapshot, CHUNK snapshots at a time, from WARM_UP on."""
    minutes, count = days.ends.shape
    memory, rows = Memory.empty(count), []
    for minute in range(minutes):
        at_ms = np.full(count, MIDNIGHT_MS + (minute + 1) * MINUTE_MS)
        ends, commits = days.ends[minute], days.commits[minute]
        sums = (ends, at_ms + 20, commits, days.worst_lag[minute], ends - commits)
        memory = after(memory, Sums.in_records(at_ms, *sums, np.arange(count)))
        rows.append(memory.rows())
        if len(rows) == CHUNK:
            at, memories, rows = slice(minute + 1 - CHUNK, minute + 1), Memory.of_rows(np.concatenate(rows)), []
            if at.start >= WARM_UP:
                yield at, memories


def following(happens: Bools) -> Floats:
    """For each minute and group, in how many seconds something happens; inf for never."""
    found = np.full((len(happens) + 1, happens.shape[1]), np.inf)
    for minute in range(len(happens) - 1, -1, -1):
        found[minute] = np.where(happens[minute], 0, found[minute + 1] + 60)
    return found[:-1]


def section() -> str:
    """Measures, and returns the section of the page."""
    return _section(outcomes(generated(DAYS)))


_ABOUT = """
{heading}

`make accuracy ARGS=forecasts` writes this section: {days} days of {groups} groups with {partitions} partitions each,
a snapshot each minute. Traffic has a daily cycle, noise and bursts. Twice a day each group stops for 5 minutes to 4
hours, and in these days it is once set back by 1 to 4 hours. {forecasts:,} times a group has not caught up and has a
forecast. The truth should lie inside of the band for 9 of 10 of them. If nothing disturbs the group, it does for
{inside:.1%}: for fewer if traffic is noisy or a group has just been scaled out, for more with commits in batches.

A forecast says what happens *at this rate*. It cannot know that a group will stop, start, grow or be set back. The
column "undisturbed" counts only what happened before that, "all" whatever happened.

| forecast | number | inside, undisturbed | inside, all | latest time known | latest / earliest | off | naive: off |
|---|---|---|---|---|---|---|---|
{by_horizon}

- **latest time known**: the others have no latest time, because the group may also never catch up.
- **latest / earliest**: how wide the band is, if both are known (median).
- **off**: the distance from the truth, as a part of the true time (median, undisturbed). **naive** is the lag divided
  by the net rate since the snapshot before, where that is a time at all.

| group | number | inside, undisturbed | inside, all | latest time known | latest / earliest | off | naive: off |
|---|---|---|---|---|---|---|---|
{by_kind}

Without a forecast, there is a reason. How often had such a group caught up an hour later, if nothing disturbed it?

| reason | number | caught up within the hour, undisturbed |
|---|---|---|
{by_reason}

A group with batches keeps up, although records are unread most of the time: its forecast is the next commit.
"""


def _section(found: Outcomes) -> str:
    bounds = [-1.0, *HORIZONS_S.values()]
    horizons = {
        name: found.where((found.in_s > bounds[number]) & (found.in_s <= bounds[number + 1]) & np.isfinite(found.in_s))
        for number, name in enumerate(HORIZONS_S)
    }
    kinds = {name: found.where(found.kind == name) for name in KINDS}
    return _ABOUT.format(
        heading=HEADING,
        days=DAYS,
        groups=GROUPS_OF_A_KIND * len(KINDS),
        partitions=PARTITIONS,
        inside=np.mean(found.at_this_rate().inside()),
        forecasts=int(np.isfinite(found.in_s).sum()),
        by_horizon="\n".join(_line(*one) for one in (horizons | {"all": found}).items()),
        by_kind="\n".join(_line(*one) for one in kinds.items()),
        by_reason="\n".join(_reason(found, number) for number in range(2, len(REASONS))),
    )


def _line(name: str, some: Outcomes) -> str:
    some = some.where(np.isfinite(some.in_s))
    undisturbed = some.at_this_rate()
    bounded = np.isfinite(some.high_s) & (some.low_s >= BETWEEN_S)
    width = np.median(some.high_s[bounded] / some.low_s[bounded]) if bounded.any() else np.nan
    cells = (
        f"{len(some.in_s):,}",
        f"{np.mean(undisturbed.inside()):.1%}",
        f"{np.mean(some.inside()):.1%}",
        f"{np.mean(np.isfinite(some.high_s)):.0%}",
        "–" if np.isnan(width) else f"{width:.1f}",
        *(f"{off:.0%}" for off in _off(undisturbed)),
    )
    return f"| {name} | {' | '.join(cells)} |"


def _off(some: Outcomes) -> Iterator[float]:
    """The median distance of both forecasts from the truth, as a part of it, where there are both."""
    both = np.isfinite(some.caught_up_s) & np.isfinite(some.naive_s) & (some.caught_up_s > 0)
    true_s = some.caught_up_s[both]
    for forecasts in (some.in_s, some.naive_s):
        yield float(np.median(np.abs(forecasts[both] - true_s) / true_s))


def _reason(found: Outcomes, number: int) -> str:
    some = found.where(found.reason == number)
    undisturbed = some.at_this_rate()
    known = (undisturbed.caught_up_s <= NEVER_S) | (undisturbed.left_s >= NEVER_S)
    share = np.mean(undisturbed.caught_up_s[known] <= NEVER_S)
    return f"| `{REASONS[number]}` | {len(some.in_s):,} | {share:.1%} |"
