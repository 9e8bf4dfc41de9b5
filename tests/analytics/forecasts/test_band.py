"""When a group will have caught up: values by hand, and each rule on both sides of its limits."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import pytest

from pipeline.analytics.arrow_series import NONE
from pipeline.analytics.forecasts.band import PAUSE_S, REASONS, forecast
from pipeline.analytics.forecasts.memory import SAMPLES, Memory, Sums, after
from pipeline.analytics.forecasts.rates import rate_per_s
from pipeline.common.epoch import DAY_MS, HOUR_MS, MINUTE_MS

T0 = 1_769_860_800_000
WRITTEN = 100
"""Records per second. A group has caught up when at most 6,000 are unread: those of a minute."""


class Found(NamedTuple):
    """A forecast in seconds; None is never, or not known."""

    reason: str | None
    in_s: float | None
    low_s: float | None
    high_s: float | None
    net_per_s: float | None = None


def remembered(steps: Sequence[tuple[float, float, float]], worst: float = 1.0) -> Memory:
    """The memory after snapshots: the second of each, the records written and committed until then."""
    memory = Memory.empty(1)
    for at_s, end, commits in steps:
        at_ms, lag = T0 + int(at_s * 1000), int(end) - int(commits)
        values = (at_ms, int(end), at_ms, int(commits), int(lag * worst), lag, 1)
        memory = after(memory, Sums.in_records(*(np.array([value]) for value in values)))
    return memory


def forecast_of(memory: Memory, markers: int = 0) -> Found:
    lag = memory.log_ends[:, -1] - memory.commits[:, -1]
    found = forecast(memory, lag, np.array([markers]), MINUTE_MS, 30 * MINUTE_MS)
    values = (found.in_s[0], found.low_s[0], found.high_s[0], found.net_per_s[0])
    return Found(REASONS[found.reason[0]], *(float(v) if np.isfinite(v) else None for v in values))


def by_minute(minutes: int, committed: Callable[[float], float], behind: int = 0, every_s: int = 60) -> Memory:
    """A group that is `behind` at first, and has committed so many records after so many seconds."""
    times = range(0, minutes * 60 + 1, every_s)
    return remembered([(at, behind + WRITTEN * at, committed(at)) for at in times])


def test_without_any_variation_only_a_change_of_traffic_makes_the_band_wide() -> None:
    found = forecast_of(by_minute(20, lambda at: 150 * at, behind=126_000))
    # 126,000 − 20 × 60 × 50 = 66,000 are unread, 60,000 too many; the group gains 50 a second; and it is seen to have
    # caught up at its next commit, on average half a minute later.
    assert found[:2] == (None, 60_000 / 50 + 30)
    assert found.net_per_s == 50
    assert found.low_s
    assert found.high_s
    # In 20 minutes, traffic of 100/s changes by 20 × √⅓ = 11.5 a second. The band is 1.7 times as wide to each side.
    assert 60_000 / (50 + 1.7 * 11.6) < found.low_s < 60_000 / 50 < found.high_s < 60_000 / (50 - 1.7 * 11.6) + 60


def test_no_traffic_cannot_change() -> None:
    memory = remembered([(at, 100_000, 50 * at) for at in range(0, 1_201, 60)])
    found = forecast_of(memory)
    assert found == Found(None, 830.0, pytest.approx(800, abs=0.01), pytest.approx(860, abs=0.01), 50.0)


@pytest.mark.parametrize(("unread", "expected"), [(6_000, Found(None, 0, 0, 0)), (6_001, None)])
def test_a_group_has_caught_up_if_no_more_is_unread_than_is_written_in_a_minute(
    unread: int, expected: Found | None
) -> None:
    found = forecast_of(by_minute(20, lambda at: WRITTEN * at, behind=unread))
    assert (found == expected) is (expected is not None)


@pytest.mark.parametrize(("markers", "reason"), [(3, None), (2, "never_at_this_rate")])
def test_transaction_markers_at_the_end_of_quiet_logs_are_not_unread(markers: int, reason: str | None) -> None:
    memory = remembered([(at, 1_000, 997) for at in range(0, 3_601, 60)])
    assert forecast_of(memory, markers).reason == reason


def test_a_group_that_reads_more_slowly_than_is_written_never_catches_up_at_this_rate() -> None:
    found = forecast_of(by_minute(20, lambda at: 40 * at, behind=50_000))
    assert found[:2] == ("never_at_this_rate", None)
    assert found[3:] == (None, -60.0)
    assert found.low_s
    assert found.low_s > HOUR_MS / 1000


def test_a_group_that_is_as_fast_as_its_traffic_may_catch_up_or_not() -> None:
    found = forecast_of(by_minute(20, lambda at: WRITTEN * at - 40 * (at % 120), behind=10_000))
    assert (found.reason, found.in_s) == ("too_uncertain", None)
    assert found.low_s
    assert found.low_s < HOUR_MS / 1000


@pytest.mark.parametrize(("snapshots", "reason"), [(1, "too_little_history"), (2, "too_little_history"), (3, None)])
def test_three_snapshots_are_needed(snapshots: int, reason: str | None) -> None:
    memory = remembered([(60 * n, 10**6 + 100 * n, 10**4 * n) for n in range(snapshots)])
    assert forecast_of(memory).reason == reason


def test_a_single_snapshot_without_unread_records_is_enough() -> None:
    assert forecast_of(remembered([(0, 70, 70)])) == Found(None, 0, 0, 0)


def test_after_an_outage_only_what_follows_counts() -> None:
    """Nothing was read for half an hour, then 300 records a second for ten minutes: 200 more than are written."""
    memory = by_minute(40, lambda at: max(0, at - 1_800) * 300)
    found = forecast_of(memory)
    # 240,000 were written, 180,000 read.
    assert found[:2] == (None, pytest.approx((60_000 - 6_000) / 200 + 30))
    assert found.net_per_s == pytest.approx(200)


def batches(at: float) -> float:
    """What is committed every ten minutes: 200 records a second have been read."""
    return 200 * (at // 600 * 600)


@pytest.mark.parametrize("minute", [50, 53, 58])
def test_between_two_commits_of_a_batch_the_lag_only_seems_to_grow(minute: int) -> None:
    found = forecast_of(by_minute(minute, batches, behind=700_000))
    # At the commit of minute 50: 700,000 + 300,000 − 600,000 unread, 100 a second faster than traffic.
    at_commit_s = (400_000 - 6_000) / 100
    assert found.reason is None
    assert found.in_s == pytest.approx(at_commit_s - 60 * (minute - 50) + 300, rel=0.05)


@pytest.mark.parametrize(("minute", "next_s"), [(52, 480), (57, 180)])
def test_a_batch_that_keeps_up_catches_up_at_its_next_commit(minute: int, next_s: int) -> None:
    found = forecast_of(by_minute(minute, lambda at: WRITTEN * (at // 600 * 600)))
    assert (found.reason, found.low_s) == (None, 0)
    assert found.in_s == pytest.approx(next_s, abs=120)
    assert found.high_s
    assert found.high_s >= next_s


def stopped(minutes: int) -> Memory:
    """A group that has kept up for half an hour, with a commit each minute, and then has stopped."""
    return by_minute(30 + minutes, lambda at: WRITTEN * min(at, 1_800))


@pytest.mark.parametrize(
    ("minutes", "reason"),
    [(PAUSE_S // 60 + 1, None), (PAUSE_S // 60 + 2, "never_at_this_rate"), (30, "never_at_this_rate")],
)
def test_a_group_that_has_committed_each_minute_has_stopped_if_it_does_not(minutes: int, reason: str | None) -> None:
    """In the first minute, it still counts as having caught up."""
    found = forecast_of(stopped(minutes))
    assert found.reason == reason
    assert (found.low_s is None) is (reason is not None)


@pytest.mark.parametrize(("minutes", "reason"), [(20, "paused"), (21, "paused"), (40, "never_at_this_rate")])
def test_a_group_that_often_stops_for_twenty_minutes_has_only_paused(minutes: int, reason: str) -> None:
    def committed(at: float) -> float:
        return WRITTEN * (at if at % 7_200 < 6_000 and at < 25_000 else at // 7_200 * 7_200 + 6_000)

    start = 3 * 7_200 + 6_000
    memory = remembered(
        [(at, WRITTEN * at, min(committed(at), WRITTEN * start)) for at in range(0, start + 60 * minutes + 1, 60)]
    )
    assert forecast_of(memory).reason == reason


def test_the_partition_that_is_furthest_behind_makes_the_band_wider() -> None:
    even = forecast_of(by_minute(20, lambda at: 150 * at, behind=126_000))
    steps = [(at, 126_000 + WRITTEN * at, 150 * at) for at in range(0, 1_201, 60)]
    memory = remembered(steps)
    # One partition has nearly all of it, and loses only 25 records a second.
    worst = np.where(memory.ends_ms != NONE, 91_000 - 25 * (memory.ends_ms - T0) // 1_000, NONE)
    uneven = forecast_of(Memory(**vars(memory) | {"worst_lag": worst}))
    assert uneven.low_s == pytest.approx(even.low_s, rel=0.01)
    assert uneven.high_s is None or uneven.high_s > (even.high_s or 0)
    assert (uneven.in_s or 0) > (even.in_s or 0)


@pytest.mark.parametrize(
    ("age_ms", "expected"),
    [(299_999, None), (300_000, 2.0), (599_999, 1.0), (600_000, None)],
)
def test_a_rate_needs_a_snapshot_from_that_time(age_ms: int, expected: float | None) -> None:
    values, times = np.full((1, SAMPLES), NONE), np.full((1, SAMPLES), NONE)
    values[0, -2:], times[0, -2:] = [0, 600], [T0 - age_ms, T0]
    found = rate_per_s(values, times, 5 * MINUTE_MS)[0]
    assert (None if np.isnan(found) else round(found, 3)) == expected


def test_rates_of_a_day_use_the_samples_of_that_day() -> None:
    """50 a second for a day, then 10 for an hour: the samples of three hours reach back for 24 to 27 hours."""
    steps = [(at, 50 * min(at, 86_400) + 10 * max(at - 86_400, 0), 0) for at in range(0, 90_001, 60)]
    memory = remembered(steps)
    five, hour, day = (rate_per_s(memory.log_ends, memory.ends_ms, span)[0] for span in (300_000, HOUR_MS, DAY_MS))
    assert (five, hour) == (10, 10)
    assert 48 < day < 49
