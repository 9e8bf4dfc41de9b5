"""When a reader falls behind: the age of its oldest unread record rises by more than is usual for it."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest

from pipeline.analytics.status.memory import Memory, after
from pipeline.analytics.status.observation import Observation
from pipeline.analytics.status.rules import STATUSES, Judged, statuses
from pipeline.common.epoch import DAY_MS, MINUTE_MS
from tests.helpers.judged import SETTINGS, T0, Step, array, judged


def growing(minutes: int, by: int = 10, jitter: int = 0) -> list[Step]:
    """A reader that makes progress while its lag grows; the lag may also jump up and down."""
    return [(minute * 100, minute * (100 + by) + (minute % 3) * jitter) for minute in range(minutes)]


@pytest.mark.parametrize("jitter", [0, 90])
def test_lag_of_a_new_reader_that_grows_is_a_warning_after_the_window(jitter: int) -> None:
    """Also if it falls now and then, because it does not fall by more than it usually rises."""
    found = judged(growing(60, jitter=jitter))
    assert 29 <= found.index("warning") <= 41
    assert set(found[41:]) == {"warning"}


def with_usual_rises(to_s: int, minutes: int = 120) -> list[int]:
    """Ages in ms that rise to this age by at most a minute in each snapshot, and fall to 0, again and again."""
    once = [*range(0, to_s, 60), to_s] if to_s else [0]
    return [1_000 * once[minute % len(once)] for minute in range(minutes - minutes % len(once))]


def aged(ages_ms: Sequence[int], lags: Sequence[int] = ()) -> list[str]:
    """The statuses of a reader that moves in each snapshot, with these ages of its oldest unread record."""
    behind = lags or [1_000 + number for number in range(len(ages_ms))]
    return judged([(100 * number, 100 * number + lag) for number, lag in enumerate(behind)], ages_ms=ages_ms)


@pytest.mark.parametrize(("usual_s", "minute"), [(0, 5), (20, 5), (120, 8), (900, 45), (2_000, 45)])
def test_a_known_reader_falls_behind_as_soon_as_its_rise_is_unusual(usual_s: int, minute: int) -> None:
    """It gets 42 s older each minute. The limit is a minute more than twice the usual rise, or than the window."""
    before = with_usual_rises(usual_s)
    found = aged([*before, *range(0, 42_000 * 60, 42_000)])[len(before) :]
    assert found == ["ok"] * minute + ["warning"] * (60 - minute)


def test_an_age_that_rises_by_as_much_as_it_usually_does_is_ok() -> None:
    assert set(aged(with_usual_rises(300, 600))[60:]) == {"ok"}
    assert "warning" in aged([*with_usual_rises(300), *with_usual_rises(720, 13)])


def test_a_rise_of_each_monday_is_usual_from_the_third_one_on() -> None:
    """Its oldest record gets 50 s older each minute for half an hour. From then on, the reader catches up."""
    monday = [*range(0, 50_000 * 30, 50_000), *range(50_000 * 30, 0, -50_000)]
    at_ms = [T0 + week * 7 * DAY_MS + minute * MINUTE_MS for week in range(5) for minute in range(len(monday))]
    steps = [(100 * number, 100 * number + 1_000 + number) for number in range(len(at_ms))]
    found = judged(steps, at_ms=at_ms, ages_ms=monday * 5)
    weeks = [{*found[len(monday) * week :][: len(monday)]} for week in range(5)]
    assert ["warning" in week for week in weeks] == [True, True, False, False, False]


def test_a_reader_that_stopped_does_not_fall_behind_when_it_goes_on() -> None:
    """Its age jumps by more than the time that has passed, and then falls."""
    before = [1_000 * (minute % 3) for minute in range(120)]
    goes_on = [3_600_000 - 50_000 * minute for minute in range(60)]
    assert set(aged([*before, *goes_on])[2:]) == {"ok"}


@pytest.mark.parametrize(("shrinks_by", "status"), [(4, "warning"), (6, "ok")])
def test_a_reader_whose_lag_shrinks_catches_up_although_its_age_rises(shrinks_by: int, status: str) -> None:
    """The lag of the last snapshot is that many percent below the highest one of this rise."""
    before = with_usual_rises(0)
    ages = [*before, *range(0, 42_000 * 12, 42_000)]
    lags = [1_000] * (len(ages) - 1) + [1_000 - 10 * shrinks_by]
    assert aged(ages, lags)[-2:] == ["warning", status]


@pytest.mark.parametrize(("minutes", "status"), [(9, "warning"), (10, "ok")])
def test_a_rise_that_does_not_go_on_for_a_third_of_the_window_is_over(minutes: int, status: str) -> None:
    rises = range(0, 42_000 * 12, 42_000)
    assert aged([*with_usual_rises(0), *rises, *[rises[-1]] * minutes])[-1] == status


@pytest.mark.parametrize(("lasted_ms", "status"), [(299_999, "ok"), (300_000, "warning")])
def test_a_rise_must_last_for_a_sixth_of_the_window(lasted_ms: int, status: str) -> None:
    """It is seen in snapshots of 45 s, and its last one is so long after the one in which it began."""
    before = with_usual_rises(0)
    ages_ms = [*before, *range(60_000, 60_000 * 8, 60_000)]
    at_ms = [T0 + minute * MINUTE_MS for minute in range(len(before))]
    begin_ms = at_ms[-1]
    at_ms += [*(begin_ms + 45_000 * number for number in range(1, 7)), begin_ms + lasted_ms]
    steps = [(100 * number, 101 * number + 1_000) for number in range(len(ages_ms))]
    assert judged(steps, ages_ms=ages_ms, at_ms=at_ms)[-2:] == ["ok", status]


@pytest.mark.parametrize(("by", "status"), [(3, "ok"), (4, "warning")])
def test_an_age_of_a_new_reader_that_rises_by_less_than_twice_the_tolerance_is_ok(by: int, status: str) -> None:
    """Of a new reader, twice the tolerance: three records a minute are 106 s in 59 minutes, four are 142 s."""
    assert judged(growing(60, by=by))[-1] == status


def after_a_burst(read_a_minute: int) -> list[str]:
    """A hundred records a minute, but 2,000 in each of three minutes, and a reader with this speed."""
    written = np.cumsum([100] * 40 + [2_000] * 3 + [100] * 60)
    read, steps, ages_ms = 0, [], []
    for minute, end in enumerate(written.tolist()):
        read = min(read + read_a_minute, end)
        steps.append((read, end))
        ages_ms.append((minute - int(np.searchsorted(written, read, side="right"))) * MINUTE_MS if read < end else 0)
    assert max(ages_ms) > 20 * MINUTE_MS
    return judged(steps, ages_ms=ages_ms)


def test_a_group_that_works_off_a_burst_does_not_fall_behind() -> None:
    """Its oldest unread record gets older for longer than half an hour, but its lag shrinks."""
    assert set(after_a_burst(220)) == {"ok"}
    assert "warning" in after_a_burst(95)


def test_lag_without_an_age_gives_no_warning() -> None:
    assert set(judged(growing(60), has_age=False)[1:]) == {"ok"}


def steady_readers(parts: int, every_min: int, commit_s: int, behind_s: int, falls_behind: float) -> Counter[str]:
    """The statuses in a day of many partitions whose records come by chance, 50 a minute.

    Each commits every `commit_s` what was written until `behind_s` before, and ever longer before if it falls behind.
    """
    chance = np.random.default_rng(1)
    written = 1_000 + chance.poisson(50 / 12, (parts, 24 * 720 + 1)).cumsum(1)
    phase, memory, found = chance.integers(0, commit_s, parts), Memory.empty(parts), Counter[str]()
    for due_s in range(3_600, 24 * 3_600, 60 * every_min):
        at_s = due_s + int(chance.integers(0, 10))  # when it is read
        commit_at = (at_s - phase) // commit_s * commit_s + phase
        read_to = np.maximum(commit_at * (1 - falls_behind) - behind_s, 0).astype(np.int64)
        committed, end = written[np.arange(parts), read_to // 5], written[:, at_s // 5]
        age_ms = np.where(end > committed, (at_s - read_to) * 1_000, 0)
        at_ms = np.full(parts, T0 + 1_000 * at_s)
        nothing = np.zeros(parts, bool)
        known = (at_ms, np.ones(parts, np.int64), committed, end, end - committed, age_ms)
        seen = Observation(*known, nothing, array(1), *([array(None)] * 6))
        memory = after(memory, seen, SETTINGS.window_ms, SETTINGS.markers)
        seen = Judged(seen, memory, seen.lag, array(None), nothing, SETTINGS)
        found.update(STATUSES[number] for number in statuses(seen) if due_s >= 3 * 3_600)
    return found


@pytest.mark.parametrize(
    ("every_min", "commit_s", "behind_s"),
    [(1, 300, 0), (1, 5, 300), (5, 300, 0), (15, 5, 300), (1, 600, 60), (1, 180, 0), (1, 570, 0), (5, 600, 0)],
)
def test_lag_that_varies_randomly_gives_no_warning(every_min: int, commit_s: int, behind_s: int) -> None:
    assert steady_readers(50, every_min, commit_s, behind_s, falls_behind=0).keys() == {"ok"}


@pytest.mark.parametrize(("every_min", "commit_s"), [(1, 5), (1, 300), (5, 60), (15, 5)])
def test_a_reader_that_is_a_tenth_too_slow_gives_a_warning(every_min: int, commit_s: int) -> None:
    found = steady_readers(10, every_min, commit_s, 0, falls_behind=0.1)
    assert found.keys() <= {"ok", "warning"}
    assert found["warning"] > 0.9 * found.total()


def test_lag_that_does_not_grow_any_more_is_ok_again() -> None:
    steps = growing(60)
    end = steps[-1][1]
    assert end is not None
    lag = end - 5_900
    found = judged([*steps, *[(5_900 + n * 100, 5_900 + n * 100 + lag - 1) for n in range(1, 12)]])
    assert (found[59], found[-1]) == ("warning", "ok")


def test_growing_lag_on_a_rare_schedule_needs_four_higher_ages() -> None:
    found = judged([(n * 100, n * 110) for n in range(8)], every_ms=15 * MINUTE_MS)
    assert found == ["ok"] * 4 + ["warning"] * 4
