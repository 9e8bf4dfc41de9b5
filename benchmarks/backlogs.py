"""Generated days of groups that fall behind and catch up again: what they read and commit, each minute.

The clock ticks every 5 seconds; a snapshot is taken each minute. Traffic has a daily cycle, random noise and bursts.
Groups stop and start again, are set back by hours, are scaled out, and commit often or rarely. All of it follows from
one seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

TICK_S = 5
PER_MINUTE = 60 // TICK_S
DAY_S = 86_400
PARTITIONS, MEMBERS = 4, 2
GROUPS_OF_A_KIND = 12


@dataclass(frozen=True)
class Kind:
    """How groups behave.

    cycle: how far traffic rises above and falls below its mean during a day, as a part of the mean. noise: the standard
    deviation of the logarithm of traffic, which changes within minutes. bursts: whether traffic is 20 times as much for
    three minutes every two hours. capacity: how many times the mean traffic the group can read. commits_s: how often
    it commits. scales: whether it is scaled out while it works off a backlog. weights: how traffic is spread over
    partitions.
    """

    cycle: float = 0.5
    noise: float = 0.15
    bursts: bool = False
    capacity: tuple[float, float] = (1.7, 4.0)
    commits_s: int = TICK_S
    scales: bool = False
    weights: tuple[float, ...] = (0.25, 0.25, 0.25, 0.25)


KINDS: dict[str, Kind] = {
    "steady traffic": Kind(cycle=0.0, noise=0.02),
    "daily cycle": Kind(),
    "noisy traffic": Kind(noise=0.6),
    "bursts": Kind(bursts=True, capacity=(3.0, 5.0)),
    "commits every minute": Kind(commits_s=60),
    "commits every ten minutes": Kind(commits_s=600),
    "scaled out meanwhile": Kind(scales=True),
    "too slow by day": Kind(capacity=(1.1, 1.4)),
    "uneven partitions": Kind(weights=(0.4, 0.3, 0.2, 0.1), capacity=(2.5, 5.0)),
}


@dataclass(frozen=True)
class Days:
    """For each minute and group: the sums of log ends and of commits, and the greatest lag of a partition.

    `has_caught_up`: whether everything was committed that was written more than a minute ago, in all partitions.
    `kind`: the kind of each group. `events`: whether it stops, starts, grows or is set back in this minute.
    """

    ends: Ints
    commits: Ints
    worst_lag: Ints
    has_caught_up: npt.NDArray[np.bool_]
    events: npt.NDArray[np.bool_]
    kind: list[str]


def generated(days: int, seed: int = 20260131) -> Days:
    """Some days of GROUPS_OF_A_KIND groups of each kind."""
    kind = [name for name in KINDS for _ in range(GROUPS_OF_A_KIND)]
    return Simulation(days, np.random.default_rng(seed), kind, [KINDS[name] for name in kind]).run()


class Simulation:
    """Groups with the names of their kinds, and the kinds themselves, for some days."""

    def __init__(self, days: int, chance: np.random.Generator, kind: list[str], of: Sequence[Kind]) -> None:
        self.chance, self.ticks, self.kind = chance, days * DAY_S // TICK_S, kind
        self.count = len(self.kind)
        self.cycle, self.noise = (np.array([getattr(k, name) for k in of]) for name in ("cycle", "noise"))
        self.bursts, self.scales = (np.array([getattr(k, name) for k in of]) for name in ("bursts", "scales"))
        self.weights = np.array([k.weights for k in of])
        self.every = np.array([k.commits_s for k in of]) // TICK_S
        self.base = 10 ** chance.uniform(1.0, 3.0, self.count)
        self.capacity = self.base * np.array([chance.uniform(*k.capacity) for k in of])
        self.phase, self.burst_at = chance.uniform(0, 1, self.count), chance.integers(0, 7_200, self.count)
        self.runs, self.back, self.more = self._events()

    def _events(self) -> tuple[npt.NDArray[np.bool_], dict[int, list[tuple[int, int]]], Floats]:
        """When groups run, when they are set back (tick → group and ticks), and how much larger they are by then."""
        chance = self.chance
        runs, more = np.ones((self.ticks, self.count), bool), np.ones((self.ticks, self.count))
        back: dict[int, list[tuple[int, int]]] = {}
        for group in range(self.count):
            for _ in range(self.ticks * TICK_S // (DAY_S // 2)):
                at, length = chance.integers(0, self.ticks), int(60 * 10 ** chance.uniform(0.7, 2.4)) // TICK_S
                runs[at : at + length, group] = False
                if self.scales[group]:
                    grows = at + length + int(chance.uniform(600, 3_600)) // TICK_S
                    more[grows : grows + 4 * 3_600 // TICK_S, group] = 2.0
            set_back = int(chance.integers(self.ticks // 4, self.ticks))
            back.setdefault(set_back, []).append((group, int(chance.uniform(1, 4) * 3_600) // TICK_S))
        return runs, back, more

    def run(self) -> Days:
        """What each minute shows."""
        shape = (self.count, PARTITIONS)
        end, read, committed = np.zeros(shape), np.zeros(shape), np.zeros(shape)
        ends = np.zeros((self.ticks, *shape))
        state = np.zeros((2, self.count))
        seen: dict[str, list[npt.NDArray[np.bool_] | Floats]] = {"ends": [], "commits": [], "worst": [], "done": []}
        for tick in range(self.ticks):
            # Noise that forgets within ten minutes, of traffic and of the time that a record takes.
            state = state * (1 - TICK_S / 600) + self.chance.normal(0, np.sqrt(2 * TICK_S / 600), state.shape)
            end = end + self.chance.poisson(self.traffic(tick, state[0])[:, None] * self.weights * TICK_S)
            ends[tick] = end
            for group, by in self.back.get(tick, ()):
                read[group] = committed[group] = np.minimum(committed[group], ends[max(tick - by, 0), group])
            read = self._read(tick, read, end, state[1])
            is_due = self.runs[tick] & (tick % self.every == 0)
            committed = np.where(is_due[:, None], np.floor(read), committed)
            if tick % PER_MINUTE == PER_MINUTE - 1:
                old = ends[max(tick - PER_MINUTE, 0)]
                shown = {"ends": end.sum(axis=1), "commits": committed.sum(axis=1)}
                shown["worst"] = (end - committed).max(axis=1)
                for name, value in shown.items():
                    seen[name].append(value)
                seen["done"].append((committed >= old).all(axis=1))
        found = {name: np.array(values).astype(np.int64) for name, values in seen.items()}
        has_caught_up = found["done"].astype(bool)
        events = self._minutes_with_events()
        return Days(found["ends"], found["commits"], found["worst"], has_caught_up, events, self.kind)

    def _minutes_with_events(self) -> npt.NDArray[np.bool_]:
        changes = np.diff(self.runs, axis=0, prepend=True) | (np.diff(self.more, axis=0, prepend=1.0) != 0)
        for tick, some in self.back.items():
            changes[tick, [group for group, _ in some]] = True
        return np.asarray(changes.reshape(-1, PER_MINUTE, self.count).any(axis=1))

    def traffic(self, tick: int, state: Floats) -> Floats:
        """Records per second of each group."""
        at_s = tick * TICK_S
        daily = 1 + self.cycle * np.sin(2 * np.pi * (at_s / DAY_S + self.phase))
        burst = np.where(self.bursts & ((at_s + self.burst_at) % 7_200 < 180), 20, 1)
        return np.asarray(self.base * daily * np.exp(self.noise * state - self.noise**2 / 2) * burst)

    def _read(self, tick: int, read: Floats, end: Floats, state: Floats) -> Floats:
        """Each member reads its partitions; what one partition does not need is left for the other."""
        pace = self.capacity * self.more[tick] * np.exp(0.05 * state) * TICK_S / MEMBERS
        pace = np.where(self.runs[tick], pace, 0.0)
        found = read.copy()
        each = PARTITIONS // MEMBERS
        for member in range(MEMBERS):
            its = slice(member * each, (member + 1) * each)
            unread = end[:, its] - read[:, its]
            share = np.minimum(unread, pace[:, None] / each)
            left = np.maximum(pace - share.sum(axis=1), 0)
            more = np.minimum(unread - share, left[:, None])
            scale = np.divide(left, more.sum(axis=1), out=np.ones(self.count), where=more.sum(axis=1) > left)
            found[:, its] += share + more * scale[:, None]
        return found
