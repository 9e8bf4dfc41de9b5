"""The rules for a reader's status: each rule on both sides of each of its limits, and over a whole day of a reader."""

import pytest

from pipeline.common.epoch import DAY_MS, HOUR_MS, MINUTE_MS
from tests.helpers.judged import T0, Step, judged, steady, stops


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
    """The group has read at most up to where the log ended then, however much is written later."""
    steps: list[Step] = [*steady(10), (950, 900), *((to, 901 + written * number) for number in (1, 2))]
    assert judged(steps)[-1] == status


def test_the_status_rewound_lasts_for_a_window() -> None:
    steps: list[Step] = [(1_000_000, 1_000_000), *((number, 1_000_000) for number in range(60))]
    found = judged(steps)
    assert [number for number, status in enumerate(found) if status == "rewound"] == [*range(2, 32)]


def test_a_recreated_topic_is_not_a_rewind() -> None:
    found = judged([*steady(10), *steady(10)], is_new=[10])
    assert set(found) == {"ok"}


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
