"""Generated weeks whose traffic has a daily and a weekly pattern, and differs from week to week.

The last week is one of `benchmarks.backlogs`, tick by tick: groups fall behind and catch up. Of the weeks before it,
what was written in each hour is known, as far as a lake would have it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.backlogs import TICK_S, Days, Floats, Kind, Simulation

WEEK_H, EARLIER = 168, 4
DAYS, GROUPS_OF_A_KIND = 7, 8
FORGETS_H = 6
"""After this, traffic has forgotten most of how it differed from its pattern."""


_TOO_SLOW = Kind(capacity=(1.1, 1.6))


@dataclass(frozen=True)
class Season:
    """How the traffic of groups changes from hour to hour and from week to week.

    weekend: traffic on Saturday and Sunday, as a part of that on other days. office: whether traffic is high from 8 to
    18 o'clock and low otherwise, and not a sine. differs: the standard deviation of the logarithm of an hour's traffic
    from its pattern; level: of a whole week's. grows: by how much it grows each week. holiday: whether one day, in an
    earlier week or the last, has little traffic. down: whether laglake was down for days in an earlier week. shifts: by
    how many hours the last week is late, as after a change of the clocks. wanders: whether there is no pattern at all.
    """

    behaves: Kind = _TOO_SLOW
    weekend: float = 0.6
    office: bool = False
    differs: float = 0.12
    level: float = 0.05
    grows: float = 0.0
    holiday: bool = False
    down: bool = False
    shifts: int = 0
    wanders: bool = False


SEASONS: dict[str, Season] = {
    "fast enough": Season(behaves=Kind(capacity=(1.7, 4.0))),
    "too slow by day": Season(),
    "office hours": Season(behaves=Kind(capacity=(1.2, 1.6)), office=True),
    "grows by 5% a week": Season(grows=0.05),
    "a holiday": Season(holiday=True),
    "laglake was down": Season(down=True),
    "weeks differ much": Season(differs=0.35, level=0.15),
    "change of the clocks": Season(shifts=1),
    "no pattern": Season(differs=0.3, weekend=1.0, wanders=True),
}


@dataclass(frozen=True)
class Weeks:
    """The days of the last week, and for each group and hour since the first week the records written per second.

    An hour of which a lake knows nothing is nan.
    """

    days: Days
    hours: Floats

    def earlier(self, hour: int, hours: int) -> Floats:
        """For each group, what was written in some hours one, two, … weeks before this hour of the last week."""
        first = EARLIER * WEEK_H + hour
        return np.stack([self.hours[:, first - w * WEEK_H :][:, :hours] for w in range(1, EARLIER + 1)], axis=1)


def generated(seed: int = 20260131) -> Weeks:
    """A week of GROUPS_OF_A_KIND groups of each kind, and EARLIER weeks before it."""
    kind = [name for name in SEASONS for _ in range(GROUPS_OF_A_KIND)]
    chance = np.random.default_rng(seed)
    last = _LastWeek(chance, kind)
    days = last.run()
    hours = (last.points[:, :-1] + last.points[:, 1:]) / 2
    noise = last.noise[:, None] * np.sqrt(2 * 600 / 3_600)
    known = last.base[:, None] * hours * np.exp(chance.normal(0, 1, hours.shape) * noise - noise**2 / 2)
    return Weeks(days, np.where(last.is_known[:, :-1], known, np.nan))


class _LastWeek(Simulation):
    def __init__(self, chance: np.random.Generator, kind: list[str]) -> None:
        of = [SEASONS[name] for name in kind]
        super().__init__(DAYS, chance, kind, [season.behaves for season in of])
        made = [_of_a_group(chance, season) for season in of]
        self.points, self.is_known = (np.array(some) for some in zip(*made, strict=True))

    def traffic(self, tick: int, state: Floats) -> Floats:
        """Records per second of each group."""
        hour, rest = divmod(tick * TICK_S / 3_600, 1)
        before, after = (self.points[:, EARLIER * WEEK_H + int(hour) + more] for more in (0, 1))
        return np.asarray(
            self.base * (before + (after - before) * rest) * np.exp(self.noise * state - self.noise**2 / 2)
        )


def _of_a_group(chance: np.random.Generator, season: Season) -> tuple[Floats, np.ndarray]:
    """The traffic at each full hour, as a part of the mean; and of which hours a lake knows it."""
    count = (EARLIER + 1) * WEEK_H + 1
    hour = np.arange(count)
    week = np.minimum(hour // WEEK_H, EARLIER)
    at = (hour - season.shifts * (week == EARLIER)) % WEEK_H
    phase = chance.integers(0, 24)
    of_day = (at + phase) % 24
    shape = (
        np.where((of_day >= 8) & (of_day < 18), 1.6, 0.6)
        if season.office
        else 1 + 0.5 * np.sin(of_day / 24 * 2 * np.pi)
    )
    shape = np.ones(count) if season.wanders else shape * np.where(at // 24 >= 5, season.weekend, 1)
    forgets_h = 24 if season.wanders else FORGETS_H
    differs = np.zeros(count)
    for number in range(1, count):
        step = chance.normal(0, season.differs * np.sqrt(2 / forgets_h))
        differs[number] = differs[number - 1] * (1 - 1 / forgets_h) + step
    level = chance.normal(0, season.level, EARLIER + 1)[week] + np.log1p(season.grows) * (hour / WEEK_H - EARLIER)
    found = shape / shape[:WEEK_H].mean() * np.exp(differs + level)
    is_known = chance.random(count) >= 0.01
    if season.holiday:
        day = chance.integers(0, 5) + 7 * chance.integers(1, EARLIER + 1)
        found[day * 24 : (day + 1) * 24] *= 0.3
    if season.down:
        first = WEEK_H * chance.integers(0, EARLIER) + chance.integers(0, WEEK_H)
        is_known[first : first + chance.integers(24, 96)] = False
    return found, is_known
