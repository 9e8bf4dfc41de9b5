"""How often a group had caught up within the band if earlier weeks are the base: a part of the back-test.

The weeks are those of `benchmarks.seasons`. What really happened is known from the generator.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.backlogs import PARTITIONS
from benchmarks.forecasts import BETWEEN_S, CHUNK, Outcomes, following, remembered
from benchmarks.seasons import EARLIER, GROUPS_OF_A_KIND, SEASONS, WEEK_H, Weeks, generated
from pipeline.analytics.arrow_series import Bools
from pipeline.analytics.forecasts.band import REASONS, forecast
from pipeline.analytics.forecasts.same_hour import HOURS, by_same_hours
from pipeline.config.status import StatusConfig

HEADING = "## Forecasts by the same hour of earlier weeks"
HOURS_LATER = {"within 2 h": 2, "after 2 to 6 h": 6, "after 6 to 12 h": 12, "later": np.inf}
NEVER = REASONS.index("never_at_this_rate")
DAY_S = 86_400


@dataclass(frozen=True)
class Both:
    """The same forecasts by the traffic of now and by that of earlier weeks, with what came."""

    now: Outcomes
    same: Outcomes

    def where(self, condition: Bools) -> Both:
        """Some of them."""
        return Both(self.now.where(condition), self.same.where(condition))


def outcomes(weeks: Weeks) -> Both:
    """All forecasts for which earlier weeks are used: without these, and with them."""
    days = weeks.days
    minutes, count = days.ends.shape
    lag, settings, kind = days.ends - days.commits, StatusConfig(), np.array(days.kind)
    caught_up_s = following(days.has_caught_up)
    undisturbed_s = following(np.concatenate([days.events[1:], np.zeros((1, count), bool)]))
    parts: tuple[list[Outcomes], list[Outcomes]] = ([], [])
    for span, memories in remembered(days):
        at = np.arange(span.start, span.stop)
        limits = (np.full(CHUNK * count, settings.markers * PARTITIONS), settings.tolerance_ms, settings.window_ms)
        found = forecast(memories, lag[at].ravel(), *limits)
        rates = np.concatenate([weeks.earlier(int(one + 1) // 60 - 1, HOURS + 1) for one in at])
        by_weeks, is_other = by_same_hours(found, memories, np.arange(CHUNK * count), rates, *limits)
        for part, one in zip(parts, (found, by_weeks), strict=True):
            every = Outcomes(
                kind=np.tile(kind, CHUNK),
                in_s=one.in_s,
                low_s=one.low_s,
                high_s=one.high_s,
                reason=one.reason,
                naive_s=np.full(CHUNK * count, np.inf),
                caught_up_s=caught_up_s[at].ravel(),
                undisturbed_s=undisturbed_s[at].ravel(),
                left_s=np.repeat((minutes - 1.0 - at) * 60, count),
            )
            part.append(every.where(is_other))
    return Both(*map(Outcomes.joined, parts))


def section() -> str:
    """The section of the page, measured."""
    return _section(generated())


_COLUMNS = (
    "| number | off: now | same hour | never, wrongly: now | same hour "
    "| inside: now | same hour | inside, all: same hour | latest time known: now | same hour |"
)
_ABOUT = """
{heading}

`make accuracy ARGS=forecasts` writes this section, too: a week of {groups} groups with 4 partitions each, a snapshot
each minute, and what was written in each hour of the {earlier} weeks before. Traffic has a daily and a weekly pattern,
noise of minutes, and differs from its pattern by about 12% for hours and by 5% for a whole week, unless the table says
otherwise. One hour of a hundred is not known. Most groups can read only 1.1 to 1.6 times the mean traffic. Groups stop
and are set back as in the days above.

Only the forecasts for which earlier weeks are used are counted: {number:,} that were more than an hour away, or that
said that the group does not catch up. Each is made twice: by the traffic of **now**, as in a lake without history, and
by that of the **same hour** of earlier weeks.

| group {columns}
|---|---|---|---|---|---|---|---|---|---|---|
{by_kind}

| has caught up {columns}
|---|---|---|---|---|---|---|---|---|---|---|
{by_time}

- **off**: the distance from the truth, as a part of the true time (median, undisturbed). A forecast without a time is
  farther off than any other.
- **never, wrongly**: of the groups that caught up undisturbed, how many had the reason `never_at_this_rate`.
- **inside**: how often the truth lay inside of the band, if nothing disturbed the group; **all**: whatever happened.
- **latest time known**: the other forecasts have no latest time, because the group may also never catch up.

With fewer earlier weeks, the band is wider:

| earlier weeks | number | off | never, wrongly | inside | inside, all | latest time known | latest / earliest |
|---|---|---|---|---|---|---|---|
{by_weeks}

Of the groups that are said never to catch up, {wrong_now:.0%} had caught up within a day by the traffic of now, and
{wrong_same:.0%} by the same hour, if nothing disturbed them.

The weeks are generated, because no recording of real traffic is long enough. Real weeks may differ more from each
other; the band is then wider, because it is measured from how much they differ.
"""


def _section(weeks: Weeks) -> str:
    found = outcomes(weeks)
    came_h = found.now.at_this_rate().caught_up_s / 3_600
    bounds = [0.0, *HOURS_LATER.values()]
    times = {
        name: found.where((came_h > bounds[number]) & (came_h <= bounds[number + 1]) & np.isfinite(came_h))
        for number, name in enumerate(HOURS_LATER)
    }
    kinds = {name: found.where(found.now.kind == name) for name in SEASONS}
    fewer = {str(count): outcomes(_since(weeks, EARLIER - count)) for count in range(2, EARLIER)}
    return _ABOUT.format(
        heading=HEADING,
        columns=_COLUMNS,
        groups=GROUPS_OF_A_KIND * len(SEASONS),
        earlier=EARLIER,
        number=len(found.now.in_s),
        by_kind="\n".join(_line(*one) for one in (kinds | {"all": found}).items()),
        by_time="\n".join(_line(*one) for one in times.items()),
        by_weeks="\n".join(_line_of_weeks(*one) for one in (fewer | {str(EARLIER): found}).items()),
        wrong_now=_never_but_soon(found.now),
        wrong_same=_never_but_soon(found.same),
    )


def _since(weeks: Weeks, week: int) -> Weeks:
    """The same if the lake begins with this week."""
    hours = weeks.hours.copy()
    hours[:, : week * WEEK_H] = np.nan
    return Weeks(weeks.days, hours)


def _line(name: str, some: Both) -> str:
    both = (some.now, some.same)
    cells = [f"{len(some.now.in_s):,}"]
    for measure in (_off, _never_wrongly, _inside):
        cells += [f"{measure(one):.0%}" if np.isfinite(measure(one)) else "–" for one in both]
    cells.append(f"{np.mean(some.same.inside()):.0%}")
    cells += [f"{_latest_known(one):.0%}" for one in both]
    return f"| {name} | {' | '.join(cells)} |"


def _line_of_weeks(name: str, some: Both) -> str:
    same = some.same
    bounded = np.isfinite(same.high_s) & (same.low_s >= BETWEEN_S)
    shares = (_off(same), _never_wrongly(same), _inside(same), np.mean(same.inside()), _latest_known(same))
    width = np.median(same.high_s[bounded] / same.low_s[bounded])
    return f"| {name} | {len(same.in_s):,} | {' | '.join(f'{share:.0%}' for share in shares)} | {width:.1f} |"


def _off(some: Outcomes) -> float:
    undisturbed = some.at_this_rate()
    came = np.isfinite(undisturbed.caught_up_s) & (undisturbed.caught_up_s > 0)
    true_s = undisturbed.caught_up_s[came]
    return float(np.median(np.abs(some.in_s[came] - true_s) / true_s))


def _never_wrongly(some: Outcomes) -> float:
    return float(np.mean(some.reason[np.isfinite(some.at_this_rate().caught_up_s)] == NEVER))


def _inside(some: Outcomes) -> float:
    return float(np.mean(some.at_this_rate().inside()))


def _latest_known(some: Outcomes) -> float:
    return float(np.mean(np.isfinite(some.high_s[np.isfinite(some.in_s)])))


def _never_but_soon(some: Outcomes) -> float:
    """Of the groups that are said never to catch up, the part that had caught up a day later."""
    undisturbed = some.where(some.reason == NEVER).at_this_rate()
    known = (undisturbed.caught_up_s <= DAY_S) | (undisturbed.left_s >= DAY_S)
    return float(np.mean(undisturbed.caught_up_s[known] <= DAY_S))
