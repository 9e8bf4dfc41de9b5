"""When a group will have caught up by the same hours of earlier weeks: by hand, at the limits, and by a model."""

import math
import random
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest

from pipeline.analytics.arrow_series import NONE
from pipeline.analytics.forecasts.band import REASONS, Forecast, forecast
from pipeline.analytics.forecasts.memory import Memory, Sums, after
from pipeline.analytics.forecasts.same_hour import HOURS, MOST_RATIO, WEEKS, by_same_hours
from pipeline.analytics.forecasts.weeks import LATEST_MS, first_of_hours, is_far_behind, rates_of_weeks, spans_of
from pipeline.common.epoch import HOUR_MS, MINUTE_MS
from tests.helpers import forecast_model as model
from tests.helpers.forecast_weeks_model import by_weeks

T0 = 1_769_860_800_000
"""A full hour."""
WEEK_MS = 168 * HOUR_MS
Rates = Sequence[float | None]
NOW = Sums.in_records
NIGHT = [150.0, 150.0, 150.0, *[50.0] * 22]
"""The hour before, the current one and one more have the traffic of now; then there is less."""


def remembered(written: float = 150.0, committed: float = 100.0, behind: int = 100_000, minutes: int = 70) -> Memory:
    """A group of one partition that has been behind for `minutes`, until T0."""
    memory = Memory.empty(1)
    for at in range(-minutes * 60, 1, 60):
        passed = at + minutes * 60
        end, commits = behind + int(written * passed), int(committed * passed)
        values = (T0 + at * 1000, end, T0 + at * 1000, commits, end - commits, end - commits, 1)
        memory = after(memory, NOW(*(np.array([value]) for value in values)))
    return memory


def found(memory: Memory, *weeks: Rates) -> tuple[Forecast, bool]:
    """The forecast with these weeks, the last one first, and whether it is made by them."""
    rates = np.full((1, WEEKS, HOURS + 1), np.nan)
    for number, week in enumerate(weeks):
        rates[0, number] = [np.nan if rate is None else rate for rate in week]
    limits = (np.array([0]), MINUTE_MS, 30 * MINUTE_MS)
    plain = forecast(memory, memory.log_ends[:, -1] - memory.commits[:, -1], *limits)
    made, is_made = by_same_hours(plain, memory, np.array([0]), rates, *limits)
    if not is_made[0]:
        assert made is plain or all(np.array_equal(v, vars(plain)[n], equal_nan=True) for n, v in vars(made).items())
    return made, bool(is_made[0])


def test_a_group_that_is_too_slow_now_catches_up_when_less_is_written() -> None:
    """310,000 are unread, 9,000 of them are written in a minute. For two hours it falls behind by 50 a second."""
    made, is_made = found(remembered(), NIGHT, NIGHT)
    over = 100_000 + 50 * 4_200 - 9_000 + 2 * 3_600 * 50
    # All weeks are equal, so there is no band; the commit is seen half a minute later, or a minute at the latest.
    assert is_made
    assert REASONS[made.reason[0]] is None
    assert made.in_s[0] == pytest.approx(7_200 + over / 50 + 30)
    assert made.low_s[0] == pytest.approx(7_200 + over / 50)
    assert made.high_s[0] == pytest.approx(7_200 + over / 50 + 60)


def test_earlier_weeks_are_scaled_to_the_traffic_of_now() -> None:
    half, third = ([rate / by for rate in NIGHT] for by in (2, 3))
    assert found(remembered(), half, third)[0].in_s[0] == pytest.approx(found(remembered(), NIGHT, NIGHT)[0].in_s[0])


def test_the_band_is_as_wide_as_the_weeks_differ() -> None:
    """The weeks have 40 and 60 a second by night. So the group comes closer by 50, give or take t × √(1 + ½) × s."""
    weeks = [[150.0, 150.0, 150.0, *[rate] * 22] for rate in (40.0, 60.0)]
    made, _ = found(remembered(), *weeks)
    over = 661_000
    assert made.in_s[0] == pytest.approx(7_200 + over / 50 + 30)
    off = 6.314 * math.sqrt(1.5) * math.sqrt(200)  # more than 50: so perhaps it never catches up
    assert made.low_s[0] == pytest.approx(7_200 + over / (50 + off), rel=0.01)
    assert np.isinf(made.high_s[0])


def without(week: Rates, hour: int) -> list[float | None]:
    return [None if number == hour else rate for number, rate in enumerate(week)]


@pytest.mark.parametrize(
    ("weeks", "is_made"),
    [
        ([], False),
        ([NIGHT], False),
        ([NIGHT, NIGHT], True),
        ([NIGHT, without(NIGHT, 24)], False),
        ([NIGHT, without(NIGHT, 24), NIGHT], True),
        ([NIGHT, without(NIGHT, 0), NIGHT], True),
        ([without(NIGHT, 5), without(NIGHT, 9), NIGHT], True),
        ([without(NIGHT, 5), without(NIGHT, 5), NIGHT], False),
        ([NIGHT, [rate * MOST_RATIO * 0.99 for rate in NIGHT]], True),
        ([NIGHT, [rate * MOST_RATIO * 1.01 for rate in NIGHT]], False),
        ([NIGHT, [rate / MOST_RATIO * 1.01 for rate in NIGHT]], True),
        ([NIGHT, [rate / MOST_RATIO * 0.99 for rate in NIGHT]], False),
        ([NIGHT, [0.0] * 25], False),
    ],
)
def test_two_weeks_must_be_known_and_like_this_one(weeks: list[Rates], *, is_made: bool) -> None:
    assert found(remembered(), *weeks)[1] is is_made


def test_an_unknown_hour_is_not_an_hour_without_traffic() -> None:
    whole, hole = (found(remembered(), NIGHT, NIGHT, some)[0].in_s[0] for some in (NIGHT, without(NIGHT, 4)))
    assert whole == hole


@pytest.mark.parametrize(("behind", "is_made"), [(188_000, False), (190_000, True)])
def test_what_is_soon_is_forecast_by_the_traffic_of_now(behind: int, *, is_made: bool) -> None:
    """Each second, 150 are written and 145 + 50 are committed: after an hour, 162,000 fewer are unread."""
    made, is_other = found(remembered(committed=195.0, behind=behind + 170_000), NIGHT, NIGHT)
    assert is_other is is_made, made


def test_of_a_group_that_has_stopped_earlier_weeks_say_nothing() -> None:
    assert not found(remembered(committed=0.0), NIGHT, NIGHT)[1]


def test_a_group_that_had_caught_up_an_hour_ago_reads_as_fast_as_it_has_since_then() -> None:
    """It keeps up with 90 a second for 40 minutes. Then 150 are written, and it reads 100: that is all it can."""
    memory, end, commits = Memory.empty(1), 0, 0
    for number in range(81):
        end, commits = end + (90 if number <= 40 else 150) * 60, commits + (90 if number <= 40 else 100) * 60
        at_ms = T0 + (number - 80) * MINUTE_MS
        values = (at_ms, end, at_ms, commits, end - commits, end - commits, 1)
        memory = after(memory, NOW(*(np.array([value]) for value in values)))
    level = (20 * 90 + 40 * 150) / 60  # in the last hour
    flat = [level, *[70.0] * 24]
    made, is_made = found(memory, flat, flat)
    assert is_made
    assert made.in_s[0] == pytest.approx((40 * 50 * 60 - 9_000) / (100 - 70) + 30)


@pytest.mark.parametrize(
    ("written", "reason", "low"),
    [
        ((95.0, 160.0), "too_uncertain", 301_000 / (355 - 27.5)),
        # Within the band, it may come closer by 6.314 × √1.5 × 0.905 - 5 = 2 a second.
        ((104.36, 105.64), "never_at_this_rate", 301_000 / 2),
        ((120.0, 120.0), "never_at_this_rate", math.inf),
    ],
)
def test_a_group_is_said_never_to_catch_up_only_if_it_cannot_within_a_day(
    written: tuple[float, float], reason: str, low: float
) -> None:
    """It reads 100 a second; on average, more will be written. 301,000 are too many."""
    made, is_made = found(remembered(), *([150.0, *[rate] * 24] for rate in written))
    assert is_made
    assert (REASONS[made.reason[0]], made.in_s[0], made.high_s[0]) == (reason, math.inf, math.inf)
    assert made.low_s[0] == pytest.approx(low, rel=0.1)


def a_group(chance: random.Random) -> list[model.Seen]:
    """Two hours of a group that falls behind, catches up, or commits rarely."""
    end, commits, read = 2_000_000, 2_000_000 - chance.randint(0, 400_000), 0.0
    read, batch, seen = float(commits), chance.choice([1, 1, 1, 5]), []
    written, reads, share = chance.uniform(50, 150), chance.uniform(40, 160), chance.choice([0.25, 0.5, 1.0])
    offset_s = chance.randint(0, 3_599)
    for number in range(120):
        at_ms = T0 + offset_s * 1000 + number * MINUTE_MS + chance.randint(-900, 900)
        end += int(written * 60 * chance.uniform(0.8, 1.2))
        read = min(float(end), read + reads * 60 * chance.uniform(0.95, 1.05))
        commits = int(read) if number % batch == 0 else commits
        lag = end - commits
        values = (at_ms, end, at_ms + 20, commits, int(lag * share), lag, 1)
        seen.append(model.Seen(*values, *[None] * 7))
    return seen


@pytest.mark.parametrize("seed", range(2))
def test_many_series_at_once_give_the_same_as_each_in_plain_python(seed: int) -> None:
    chance, count = random.Random(seed), 60
    groups = [a_group(chance) for _ in range(count)]
    rates = np.full((count, WEEKS, HOURS + 1), np.nan)
    for which in range(count):
        level = chance.uniform(40, 160)
        for week in range(chance.choice([1, 2, 3, 4])):
            rates[which, week] = [
                np.nan if chance.random() < 0.01 else level * chance.uniform(0.3, 1.5) for _ in range(HOURS + 1)
            ]
    memory, known = Memory.empty(count), [model.Known()] * count
    for number in range(120):
        seen = [group[number] for group in groups]
        every = zip(*([NONE if value is None else value for value in one] for one in seen), strict=True)
        memory = after(memory, Sums(*(np.array(values) for values in every)))
        known = [was.after(one) for was, one in zip(known, seen, strict=True)]
    limits = (np.full(count, 1), MINUTE_MS, 30 * MINUTE_MS)
    plain = forecast(memory, memory.log_ends[:, -1] - memory.commits[:, -1], *limits)
    made, is_made = by_same_hours(plain, memory, np.arange(count), rates, *limits)
    kinds: Counter[str] = Counter()
    for which, one in enumerate(known):
        reason, in_s, _, _ = model.forecast(one, one.samples[-1].lag, 1)
        is_late = reason in (None, "never_at_this_rate", "too_uncertain") and in_s > 3_600
        weeks = [[None if math.isnan(rate) else rate for rate in week] for week in rates[which].tolist()]
        expected = by_weeks(one, 1, weeks) if is_late else None
        assert bool(is_made[which]) is (expected is not None)
        if expected is None:
            kinds["plain"] += 1
            continue
        has_time = math.isfinite(expected[0])
        found_times = (made.in_s[which], made.low_s[which], made.high_s[which])
        assert found_times == pytest.approx(expected if has_time else (math.inf, expected[1], math.inf), rel=1e-6)
        kinds["time" if has_time else REASONS[made.reason[which]] or ""] += 1
    assert kinds.keys() >= {"plain", "time"}, kinds


def test_the_snapshots_of_earlier_weeks_are_the_first_of_their_hours() -> None:
    now = T0 + 7 * MINUTE_MS
    spans = spans_of(now, now)
    assert spans[0] == (T0 - WEEK_MS, T0 - WEEK_MS + 25 * HOUR_MS + LATEST_MS)
    assert [first for first, _ in spans] == [T0 - week * WEEK_MS for week in (1, 2, 3, 4)]
    begin = T0 - WEEK_MS
    inside = [begin, begin + MINUTE_MS, begin + HOUR_MS + LATEST_MS - 1, begin + 25 * HOUR_MS]
    outside = [begin - HOUR_MS, begin + 2 * HOUR_MS + LATEST_MS, begin + 26 * HOUR_MS, now]
    assert first_of_hours([*outside, *inside], spans) == [inside[0], *inside[2:]]


def test_the_rate_of_an_hour_is_in_the_row_at_its_end() -> None:
    week = T0 - WEEK_MS
    known = (
        np.array([0, 0, 0, 1, 0]),
        np.array([week, week + HOUR_MS + 60_000, week + 24 * HOUR_MS, week, week - WEEK_MS]),
        np.array([1.0, 2.0, 3.0, 4.0, 5.0]),
    )
    rates = rates_of_weeks(np.array([T0 + 59 * MINUTE_MS, T0, NONE]), np.array([0, 1, 1]), known)
    expected = np.full((3, WEEKS, HOURS + 1), np.nan)
    expected[0, 0, [0, 1, 24]] = 1.0, 2.0, 3.0
    expected[0, 1, 0] = 5.0
    expected[1, 0, 0] = 4.0
    assert np.array_equal(rates, expected, equal_nan=True)
    nothing = (np.array([], np.int64), np.array([], np.int64), np.array([]))
    assert np.isnan(rates_of_weeks(np.array([T0]), np.array([0]), nothing)).all()


def test_groups_are_compared_in_the_snapshots_in_which_they_are_far_behind() -> None:
    rows = pa.table({"snapshot_id": [1, 1, 2, 2, 3], "group_id": ["a", "b", "a", "b", "a"]})
    assert is_far_behind(rows, {1: ["a"], 2: ["b"]}).tolist() == [True, False, False, True, False]
    assert not is_far_behind(rows, {}).any()


def test_many_series_have_the_forecasts_that_each_has_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are computed some at a time, because each needs much memory."""
    monkeypatch.setattr("pipeline.analytics.forecasts.same_hour.AT_ONCE", 2)
    backlogs = [100_000, 1, 200_000, 300_000, 400_000, 500_000]
    alone = [remembered(behind=behind) for behind in backlogs]
    together = Memory.of_rows(np.concatenate([memory.rows() for memory in alone]))
    at = np.array([0, 2, 3, 4, 5])
    rates = np.full((len(at), WEEKS, HOURS + 1), np.nan)
    rates[:, :2] = NIGHT
    rates[2, 1] = np.nan  # of this series, one week is too few
    limits = (np.zeros(len(alone), np.int64), MINUTE_MS, 30 * MINUTE_MS)
    plain = forecast(together, together.log_ends[:, -1] - together.commits[:, -1], *limits)
    made, is_made = by_same_hours(plain, together, at, rates, *limits)
    assert is_made.tolist() == [True, False, True, False, True, True]
    for number, memory in enumerate(alone):
        weeks = [NIGHT, NIGHT] if is_made[number] else []
        expected = vars(found(memory, *weeks)[0])
        for name, values in vars(made).items():
            assert np.array_equal(values[[number]], expected[name], equal_nan=True), (number, name)
