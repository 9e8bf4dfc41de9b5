"""The rules for a reader's status: each rule on both sides of each of its limits, and over a whole day of a reader."""

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
import pytest

from pipeline.analytics.arrow_series import NONE
from pipeline.analytics.status.memory import Memory, Observation, after
from pipeline.analytics.status.rules import STATUSES, Judged, statuses
from pipeline.common.epoch import DAY_MS, HOUR_MS, MINUTE_MS
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
        memory = after(memory, seen, SETTINGS.window_ms, SETTINGS.markers)
        seen = Judged(
            seen,
            memory,
            array(stable_lag),
            array(None if commit_ages_ms is None else at - commit_ages_ms),
            np.array([False]),
            SETTINGS,
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


@pytest.mark.parametrize(("lag", "at_first"), [(0, "ok"), (1, "ok"), (2, "unknown"), (500, "unknown")])
def test_a_steady_reader_is_ok_as_soon_as_its_commit_was_seen_to_move(lag: int, at_first: str) -> None:
    assert judged(steady(200, lag=lag)) == [at_first] + ["ok"] * 199


@pytest.mark.parametrize("lag", [0, 7])
def test_a_stopped_reader_is_found_by_the_third_snapshot_that_shows_the_same_commit(lag: int) -> None:
    """Whether or not it had read everything at the last snapshot in which it moved."""
    assert judged(stops(steady(10, lag=lag), 4))[10:] == ["ok", "ok", "not_progressing", "not_progressing"]


@pytest.mark.parametrize(("every_ms", "snapshots"), [(MINUTE_MS, 31), (5 * MINUTE_MS, 7), (15 * MINUTE_MS, 4)])
def test_the_usual_wait_is_the_window_until_it_is_known(every_ms: int, snapshots: int) -> None:
    """It is limited in time and in snapshots, so that a rare schedule gives the same status as a frequent one."""
    found = judged([(5, 10 + number) for number in range(40)], every_ms)
    first = max(snapshots - 1, 3)
    assert found == ["unknown"] * first + ["not_progressing"] * (40 - first)


@pytest.mark.parametrize(("every_min", "usual_s"), [(5, 2 * 210), (15, 2 * 810)])
@pytest.mark.parametrize(("more_s", "status"), [(-5, "ok"), (0, "not_progressing")])
def test_the_usual_wait_is_twice_the_second_longest_one(every_min: int, usual_s: int, more_s: int, status: str) -> None:
    """It waits from the snapshot after a commit to half a minute before the next one. Waits are forgotten slowly."""
    steps: list[Step] = [((minute - minute % every_min) * 10, minute * 10) for minute in range(61)]
    steps += [(600, 600 + 10 * number) for number in range(1, 5)]
    at_ms = [T0 + minute * MINUTE_MS for minute in range(64)]
    at_ms.append(at_ms[60] + 1_000 * (usual_s + more_s))
    assert judged(steps, at_ms=at_ms)[-1] == status


@pytest.mark.parametrize(
    ("members", "commit_ages_ms", "status"),
    [
        (1, None, "not_progressing"),
        (None, None, "not_progressing"),
        (0, None, "stopped"),
        (0, 1_000, "stalled"),
        (1, 1_000, "stalled"),
        (1, DAY_MS, "stopped"),
    ],
)
def test_commit_times_or_members_show_whether_a_group_commits(
    members: int | None, commit_ages_ms: int | None, status: str
) -> None:
    assert judged(stops(steady(10), 5), members=members, commit_ages_ms=commit_ages_ms)[-1] == status


def test_a_group_without_members_that_commits_is_ok() -> None:
    assert set(judged(steady(50, lag=3), members=0)[1:]) == {"ok"}


@pytest.mark.parametrize(("lag", "status"), [(0, "ok"), (1, "ok"), (2, "not_progressing")])
def test_one_unread_offset_of_a_quiet_log_may_be_a_transaction_marker(lag: int, status: str) -> None:
    committed = steady(10)[-1][0]
    assert committed is not None
    assert judged([*steady(10), *[(committed, committed + lag)] * 60])[-1] == status


@pytest.mark.parametrize("members", [0, 1])
def test_a_reader_of_a_recreated_topic_is_unknown_and_then_waits(members: int) -> None:
    """Its commit stays that of the former log: first beyond the new one's end, then in it."""
    steps: list[Step] = [*steady(10), *((900, 100 * number) for number in range(1, 120))]
    again = range(10, len(steps))
    found = judged(steps, is_new=again, topics=[1] * 10 + [2] * 119, members=members)
    assert found[:10] == ["ok"] * 10
    first = found.index("stopped" if members == 0 else "not_progressing")
    assert found[10:first] == ["unknown"] * (first - 10)  # for nine snapshots beyond the end
    assert first > 19
    assert found[-1] == ("stopped" if members == 0 else "not_progressing")


@pytest.mark.parametrize(("markers", "status"), [(2, "not_progressing"), (3, "ok")])
def test_as_many_unread_offsets_as_configured_markers_are_ok(
    monkeypatch: pytest.MonkeyPatch, markers: int, status: str
) -> None:
    monkeypatch.setattr(f"{__name__}.SETTINGS", StatusConfig(markers=markers))
    committed = steady(10)[-1][0]
    assert committed is not None
    assert judged([*steady(10), *[(committed, committed + 3)] * 60])[-1] == status


@pytest.mark.parametrize(
    ("lag", "markers", "status"),
    [
        pytest.param(1, 0, "not_progressing", id="the last record, which the setting alone would hide"),
        pytest.param(1, 1, "ok", id="one marker"),
        pytest.param(2, 1, "not_progressing", id="a record and a marker"),
        pytest.param(2, 2, "ok", id="two markers, which are more than the setting"),
        pytest.param(40, 39, "not_progressing", id="a record among many markers"),
        pytest.param(40, 40, "ok", id="many markers"),
        pytest.param(1, None, "ok", id="not known, as many as the setting"),
        pytest.param(2, None, "not_progressing", id="not known, more than the setting"),
    ],
)
def test_where_markers_are_counted_a_reader_waits_exactly_if_more_is_unread(
    lag: int, markers: int | None, status: str
) -> None:
    committed = steady(10)[-1][0]
    assert committed is not None
    assert judged([*steady(10), *[(committed, committed + lag)] * 60], markers=[0] * 10 + [markers] * 60)[-1] == status


@pytest.mark.parametrize(("records", "status"), [(0, "ok"), (1, "not_progressing")])
def test_markers_that_keep_being_written_are_no_records(records: int, status: str) -> None:
    committed = steady(10)[-1][0]
    assert committed is not None
    quiet = [(committed, committed + records + number) for number in range(1, 60)]
    assert judged([*steady(10), *quiet], markers=[0] * 10 + [*range(1, 60)])[-1] == status
    assert judged([*steady(10), *quiet])[-1] == "not_progressing", "without a count, a log that grows has records"


def test_a_reader_that_only_markers_are_left_for_does_not_wait() -> None:
    """So a long time before a marker does not make a long wait usual, and a stop is found as early as before."""
    night = [(900, 901)] * 600
    stopped = [(1_000, 1_000 + 100 * number) for number in range(4)]
    assert judged([*steady(10), *night, *stopped], markers=[0] * 10 + [1] * 600 + [0] * 4)[-1] == "not_progressing"
    assert judged([*steady(10), *night, *steady(20)[10:], *night], markers=[None] * 1_220)[-1] == "ok"


def test_markers_that_could_not_be_counted_now_and_then_give_no_alarm() -> None:
    markers = [0] * 10 + [1 if number % 7 else None for number in range(200)]
    assert set(judged([*steady(10), *[(900, 901)] * 200], markers=markers)) == {"ok"}


def test_a_group_without_members_is_ok_while_nothing_is_written() -> None:
    committed = steady(10)[-1][0]
    assert committed is not None
    assert set(judged([*steady(10), *[(committed, committed + 9)] * 60], members=0)) == {"ok"}


def test_an_hourly_batch_job_is_ok_after_two_hours() -> None:
    """It waits for 59 minutes, which is longer than a window; once that is usual, there is no alarm."""
    steps = [((minute - minute % 60) * 10, minute * 10) for minute in range(6 * 60)]
    found = judged(steps, members=0)
    assert "stopped" in found[:120]
    assert set(found[121:]) == {"ok"}
    stopped = judged([*steps, *[(steps[-1][0], 3_600 + number) for number in range(150)]], members=0)
    assert stopped[-1] == "stopped"


def test_one_incident_does_not_make_the_next_one_usual() -> None:
    stopped = stops(steady(10), 300)
    end = stopped[-1][1]
    assert end is not None
    healed: list[Step] = [(end + number, end + number) for number in range(30)]
    found = judged(stops([*stopped, *healed], 5))
    assert found[len(stopped) + 3 : len(stopped) + 30] == ["ok"] * 27
    assert found[-1] == "not_progressing"


def test_the_usual_wait_is_halved_after_a_week() -> None:
    hourly: list[Step] = [((minute - minute % 60) * 10, minute * 10) for minute in range(4 * 60)]
    start = hourly[-1][1]
    assert start is not None
    days: list[Step] = [(start + day, start + day) for day in range(60)]
    at_ms = [T0 + minute * MINUTE_MS for minute in range(len(hourly))]
    at_ms += [at_ms[-1] + day * DAY_MS for day in range(1, 61)]
    steps = stops([*hourly, *days], 5)
    at_ms += [at_ms[-1] + number * MINUTE_MS for number in range(1, 6)]
    assert judged(steps, at_ms=at_ms)[-1] == "not_progressing"


def test_a_gap_between_snapshots_is_not_a_wait() -> None:
    at_ms = [T0 + number * MINUTE_MS + (number // 5) * 5 * HOUR_MS for number in range(30)]
    found = judged(stops(steady(25, lag=3), 5), at_ms=at_ms)
    assert found[1:25] == ["ok"] * 24
    assert found[-1] == "not_progressing"


def test_a_commit_that_went_back_is_a_rewind_if_the_next_snapshot_confirms_it() -> None:
    ahead = steady(10)
    end = ahead[-1][1]
    assert end is not None
    assert judged([*ahead, (500, end + 100), (end + 200, end + 200)])[10:] == ["ok", "ok"]
    assert judged([*ahead, (500, end + 100), (600, end + 200)])[10:] == ["ok", "rewound"]
    again = judged([*ahead, (500, end + 100), (600, end + 200), (end, end + 300)])
    assert again[-1] == "ok"


@pytest.mark.parametrize(("to", "status"), [(899, "rewound"), (900, "ok"), (901, "ok")])
@pytest.mark.parametrize("written", [0, 3, 1_000])
def test_a_commit_beyond_the_end_that_is_set_back_to_the_end_is_no_rewind(to: int, status: str, written: int) -> None:
    """The group has read up to the end of that time at most, however much is written later."""
    steps: list[Step] = [*steady(10), (950, 900), *((to, 901 + written * number) for number in (1, 2))]
    assert judged(steps)[-1] == status


def test_the_status_rewound_lasts_for_a_window() -> None:
    steps: list[Step] = [(1_000_000, 1_000_000), *((number, 1_000_000) for number in range(60))]
    found = judged(steps)
    assert [number for number, status in enumerate(found) if status == "rewound"] == [*range(2, 32)]


def test_a_recreated_topic_is_not_a_rewind() -> None:
    found = judged([*steady(10), *steady(10)], is_new=[10])
    assert set(found) == {"ok"}


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


def test_a_snapshot_without_a_lag_does_not_change_the_memory() -> None:
    steps: list[Step] = [*steady(10), (None, 1_000), (900, None), (None, None)]
    end = 1_300
    found = judged(stops([*steps, (900, end)], 2))
    assert found[10:] == ["unknown"] * 3 + ["ok", "ok", "not_progressing"]


def test_observations_that_are_not_newer_change_nothing() -> None:
    at_ms = [T0 + number * MINUTE_MS for number in range(10)]
    at_ms[5] = at_ms[3] - 1
    assert set(judged(steady(10), at_ms=at_ms)) == {"ok"}


@pytest.mark.parametrize(
    ("topics", "expected"), [([1] * 10 + [2] * 10, {"ok", "unknown"}), ([1] * 20, {"ok", "rewound"})]
)
def test_the_memory_of_a_topic_with_another_id_begins_again(topics: list[int | None], expected: set[str]) -> None:
    again: list[Step] = [(committed, 900) for committed, _ in steady(10)]
    assert set(judged([*steady(10), *again], topics=topics)) == expected


def test_a_commit_read_before_a_known_snapshot_changes_nothing() -> None:
    """A late snapshot, whose successor has already been judged."""
    at_ms = [T0 + number * MINUTE_MS for number in range(12)]
    at_ms[10] = at_ms[8]
    assert set(judged([*steady(10), (100, 2_000), (1_100, 1_100)], at_ms=at_ms)) == {"ok"}
