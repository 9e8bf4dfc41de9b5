"""When retention will delete unread records: values by hand, and each rule on both sides of its limits."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import pytest

from pipeline.analytics.arrow_series import NONE
from pipeline.analytics.forecasts.deletion import DELETED_REASONS, deletion
from pipeline.analytics.forecasts.memory import Memory, Sums, after
from pipeline.common.epoch import DAY_MS, MINUTE_MS

T0 = 1_769_860_800_000
WRITTEN = 6_000
"""Records per minute."""


class Seen(NamedTuple):
    """A snapshot, in minutes and records; the log start in records and when its first record was written."""

    minute: int
    commits: int
    oldest: float | None
    log_start: int | None = 0
    start_minute: int | None = -360
    end: int | None = None


def remembered(snapshots: Sequence[Seen]) -> Memory:
    memory = Memory.empty(1)
    for seen in snapshots:
        at_ms, end = T0 + seen.minute * MINUTE_MS, WRITTEN * seen.minute if seen.end is None else seen.end
        lag = max(end - seen.commits, 0)
        start_ms = None if seen.start_minute is None else T0 + seen.start_minute * MINUTE_MS
        oldest_ms = None if seen.oldest is None else int(seen.oldest * MINUTE_MS)
        known = (at_ms, end, at_ms, seen.commits, lag, lag, 1, None, None, None, None, oldest_ms, seen.log_start)
        values = [np.array([NONE if value is None else value]) for value in (*known, start_ms)]
        memory = after(memory, Sums(*values))
    return memory


def forecast_of(
    snapshots: Sequence[Seen], markers: int = 0
) -> tuple[str | None, float | None, float | None, float | None]:
    """The reason and the three times in minutes; None is never, or not known."""
    memory, last = remembered(snapshots), snapshots[-1]
    lag = memory.log_ends[:, -1] - memory.commits[:, -1]
    oldest_ms = np.array([NONE if last.oldest is None else int(last.oldest * MINUTE_MS)])
    found = deletion(memory, lag, oldest_ms, np.array([markers]), MINUTE_MS, 30 * MINUTE_MS)
    in_s, low_s, high_s = (float(values[0]) for values in (found.in_s, found.low_s, found.high_s))
    return DELETED_REASONS[found.reason[0]], in_minutes(in_s), in_minutes(low_s), in_minutes(high_s)


def in_minutes(seconds: float) -> float | None:
    return seconds / 60 if np.isfinite(seconds) else None


def by_minute(
    minutes: int, commits: Callable[[int], int], oldest: Callable[[int], float], moves_at: int = 10
) -> list[Seen]:
    """After `moves_at` minutes, the records from 360 to 300 minutes before T0 are deleted: 310 to 370 minutes old."""
    return [
        Seen(minute, commits(minute), oldest(minute), *((0, -360) if minute < moves_at else (1_000, -300)))
        for minute in range(minutes + 1)
    ]


def stopped(minutes: int, moves_at: int = 10) -> list[Seen]:
    """A group that has kept up until minute 30."""
    return by_minute(minutes, lambda m: WRITTEN * min(m, 30), lambda m: max(0, m - 30), moves_at)


def test_the_records_of_a_group_that_has_stopped_are_deleted_at_the_ages_at_which_others_were() -> None:
    # At minute 90, the oldest record is 60 minutes old.
    assert forecast_of(stopped(90)) == (None, 280, 250, 310)


def test_a_slow_group_has_more_time_because_its_oldest_record_is_always_another() -> None:
    """The age of the oldest record grows by half a minute each minute, until it is 60 minutes."""
    reason, in_minutes, low, high = forecast_of(by_minute(120, lambda m: WRITTEN * m // 2, lambda m: m / 2))
    # It has 340 - 60 minutes, less the one minute that the age grows until the next commit.
    assert (reason, in_minutes) == (None, pytest.approx((280 - 1) / 0.5))
    # It cannot be sooner than if the group stopped now.
    assert low is not None
    assert 250 <= low < in_minutes
    assert high is None or high > (370 - 60) / 0.5


def test_a_group_that_stops_loses_records_sooner_than_a_slow_one_even_at_the_earliest() -> None:
    assert forecast_of(by_minute(120, lambda m: WRITTEN * m // 2, lambda m: m / 2))[2] == pytest.approx(250, rel=0.2)


def test_a_group_that_catches_up_loses_nothing_at_this_rate() -> None:
    reason, in_minutes, _, high = forecast_of(by_minute(120, lambda m: WRITTEN * 2 * m - 900_000, lambda m: 150 - m))
    assert (reason, in_minutes, high) == ("never_at_this_rate", None, None)


@pytest.mark.parametrize(("hours", "reason"), [(6, "too_uncertain"), (20, "never_at_this_rate")])
def test_that_nothing_is_deleted_at_this_rate_is_said_only_if_nothing_is_within_a_day(hours: int, reason: str) -> None:
    """The oldest record is always an hour old. Others were deleted so many hours later, and traffic may change."""
    old = -60 * (hours + 1)
    seen = [
        Seen(m, max(WRITTEN * (m - 60), 0), min(m, 60), *((0, old - 70) if m < 10 else (1_000, old + m)))
        for m in range(121)
    ]
    found, in_minutes, low, high = forecast_of(seen)
    assert (in_minutes, high) == (None, None)
    assert (found, low is None or low > 24 * 60) == (reason, reason == "never_at_this_rate")


def test_if_nothing_was_deleted_nobody_knows_when_something_will_be() -> None:
    assert forecast_of(stopped(90, moves_at=91)) == ("no_deletion_seen", None, None, None)


@pytest.mark.parametrize(("unread", "reason"), [(WRITTEN, "caught_up"), (WRITTEN + 1, "too_little_history")])
def test_a_group_that_has_caught_up_loses_nothing(unread: int, reason: str) -> None:
    found = [
        Seen(0, 0, 0, 0, -360),
        Seen(5, 0, 5, 1_000, -300),
        Seen(10, WRITTEN * 10 - unread, 1, 1_000, -300),
    ]
    assert forecast_of(found)[0] == reason


def test_markers_at_the_end_of_quiet_logs_are_not_deleted_unread() -> None:
    seen = [*stopped(30)[:30], *(Seen(m, WRITTEN * 30 - 3, m - 30, 1_000, -300, WRITTEN * 30) for m in range(30, 120))]
    assert [forecast_of(seen, markers)[0] for markers in (3, 2)] == ["caught_up", None]


def test_a_record_whose_age_is_not_known_has_no_forecast() -> None:
    assert forecast_of([*stopped(90)[:90], Seen(90, WRITTEN * 30, None, 1_000, -300)])[0] == "not_known"


def test_between_two_commits_of_a_batch_it_is_not_said_to_have_stopped() -> None:
    """It commits every 20 minutes what it had read then, and its age grows by half a minute each minute."""
    seen = by_minute(190, lambda m: WRITTEN * (m // 20 * 20) // 2, lambda m: m - (m // 20 * 20) / 2)
    reason, in_minutes, low, _ = forecast_of(seen)
    # At minute 180 it is 90 minutes old, and gets 10 to 20 minutes older until the next commit is seen.
    assert reason is None
    assert in_minutes is not None
    assert (340 - 90 - 20) / 0.5 - 10 <= in_minutes <= (340 - 90 - 10) / 0.5 - 10
    assert low is not None
    assert low < in_minutes


def test_a_record_that_is_older_than_those_that_were_deleted_has_no_latest_time() -> None:
    """Retention was made longer, for example. At minute 399 the oldest record is 369 minutes old, then 370."""
    assert [forecast_of(stopped(minute))[1:] for minute in (399, 400)] == [(0, 0, 1), (0, 0, None)]


DAY = DAY_MS // MINUTE_MS
FIRST, SECOND = Seen(0, 0, 0, 0, -100), Seen(10, 0, 0, 5, -80)
AGES: dict[str, tuple[list[Seen], list[int | None]]] = {
    "log start stands": ([FIRST, Seen(10, 0, 0, 0, -100)], [None, None, None, None]),
    "it moves": ([FIRST, SECOND], [90, 110, None, None]),
    "nothing is written": ([FIRST, SECOND._replace(end=0)], [None, None, None, None]),
    "it is not known meanwhile": ([FIRST, Seen(5, 0, 0, None, None), SECOND], [90, 110, None, None]),
    "it moves twice": ([FIRST, SECOND, Seen(20, 0, 0, 6, -60)], [80, 110, None, None]),
    "just within a day": ([FIRST, SECOND, Seen(DAY + 9, 0, 0, 6, -60)], [90, DAY + 89, None, None]),
    "a day later": ([FIRST, SECOND, Seen(DAY + 10, 0, 0, 6, DAY - 60)], [70, DAY + 90, 90, 110]),
    "two days later": (
        [FIRST, SECOND, Seen(DAY + 10, 0, 0, 6, DAY - 60), Seen(2 * DAY + 10, 0, 0, 7, DAY - 40)],
        [DAY + 50, DAY + 70, 70, DAY + 90],
    ),
}


@pytest.mark.parametrize("case", AGES)
def test_the_ages_at_which_records_were_deleted(case: str) -> None:
    snapshots, expected = AGES[case]
    memory = remembered(snapshots)
    names = ("least_age_ms", "most_age_ms", "least_age_before_ms", "most_age_before_ms")
    found = [getattr(memory, name)[0] for name in names]
    assert [None if age == NONE else age // MINUTE_MS for age in found] == expected
