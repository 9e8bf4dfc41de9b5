"""The status of a reader after each of its steps, as the rules judge it."""

from collections.abc import Iterable, Sequence

import numpy as np

from pipeline.analytics.arrow_series import NONE
from pipeline.analytics.status.memory import Memory, after
from pipeline.analytics.status.observation import Observation
from pipeline.analytics.status.rules import STATUSES, Judged, statuses
from pipeline.common.epoch import MINUTE_MS
from pipeline.config.status import StatusConfig

T0 = 1_769_860_800_000
SETTINGS = StatusConfig()
Step = tuple[int | None, int | None]
"""What is committed, and where the log ends."""
RATE = 100
"""Records from one step to the next, so that lag has an age."""


def array(*values: int | None) -> np.ndarray:
    return np.array([NONE if value is None else value for value in values])


def judged(
    steps: Sequence[Step],
    every_ms: int = MINUTE_MS,
    *,
    members: int | None = 1,
    has_age: bool = True,
    stable_lag: int | None = None,
    commit_ages_ms: int | None = None,
    is_new: Iterable[int] = (),
    at_ms: Sequence[int] | None = None,
    topics: Sequence[int | None] = (),
    ages_ms: Sequence[int] = (),
    markers: Sequence[int | None] = (),
    settings: StatusConfig = SETTINGS,
) -> list[str]:
    """The status after each step of one reader."""
    memory, found = Memory.empty(1), []
    for number, (committed, end) in enumerate(steps):
        at = at_ms[number] if at_ms else T0 + number * every_ms
        lag = None if committed is None or end is None else end - committed
        topic = topics[number] if topics else None
        new = np.array([number in set(is_new)])
        age_ms = None if lag is None or not has_age else max(lag, 0) * every_ms // RATE
        age_ms = ages_ms[number] if ages_ms else age_ms
        unread_markers = markers[number] if markers else None
        known = (array(value) for value in (at, topic, committed, end, lag, age_ms))
        seen = Observation(*known, new, array(members), *([array(None)] * 5), array(unread_markers))
        memory = after(memory, seen, settings.window_ms, settings.markers)
        seen = Judged(
            seen,
            memory,
            array(stable_lag),
            array(None if commit_ages_ms is None else at - commit_ages_ms),
            np.array([False]),
            settings,
        )
        found.append(STATUSES[statuses(seen)[0]])
    return found


def steady(count: int, rate: int = 100, lag: int = 0) -> list[Step]:
    """A reader that keeps up."""
    return [(number * rate, number * rate + lag) for number in range(count)]


def stops(steps: Sequence[Step], count: int, rate: int = 100) -> list[Step]:
    """The steps, and then steps in which the commit does not change while the log grows."""
    committed, end = steps[-1]
    assert end is not None
    return [*steps, *((committed, end + rate * number) for number in range(1, count + 1))]
