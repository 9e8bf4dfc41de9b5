"""Commits that a tool has reset, and similar ones of applications: each condition on both sides of its limit."""

import random
from collections.abc import Sequence

import numpy as np
import pytest

from pipeline.analytics.arrow_series import NONE
from pipeline.analytics.status.memory import Memory, after
from pipeline.analytics.status.observation import Observation
from pipeline.analytics.status.rules import REASONS, STATUSES, Judged, reasons, statuses
from pipeline.common.epoch import DAY_MS, HOUR_MS, MINUTE_MS
from pipeline.config.status import StatusConfig
from tests.helpers.reset_model import Look, Skip, skips

T0 = 1_769_860_800_000
SETTINGS = StatusConfig()
E, PLAIN, UNKNOWN = 1, 0, None
"""A commit with an epoch, one without, and one of which it is not known."""


def array(values: Sequence[int | None]) -> np.ndarray:
    return np.array([NONE if value is None else value for value in values], np.int64)


def memories(readers: Sequence[Sequence[Look]], markers: int = 1) -> list[Memory]:
    """The memory of some readers after each of their looks."""
    memory, found = Memory.empty(len(readers)), []
    for looks in zip(*readers, strict=True):
        memory = after(memory, observed(looks), SETTINGS.window_ms, markers)
        found.append(memory)
    return found


def observed(looks: Sequence[Look]) -> Observation:
    ends = [look.committed + 1_000 for look in looks]
    nothing = array([None] * len(looks))
    return Observation(
        at_ms=array([look.at_ms for look in looks]),
        topic=array([1] * len(looks)),
        committed=array([look.committed for look in looks]),
        end=array(ends),
        lag=array([1_000] * len(looks)),
        age_ms=array([5_000] * len(looks)),
        is_new=np.zeros(len(looks), bool),
        has_members=array([look.members for look in looks]),
        has_epoch=array([look.epoch for look in looks]),
        log_start=array([look.log_start for look in looks]),
        position_bytes=nothing,
        error_since=nothing,
        error_until=nothing,
        unread_markers=nothing,
    )


def skip_of(memory: Memory, reader: int = 0) -> Skip | None:
    if memory.resets.skip_ms[reader] == NONE:
        assert {int(getattr(memory.resets, f"skip_{name}")[reader]) for name in ("from", "to", "written_ms")} == {NONE}
        return None
    resets = memory.resets
    return Skip(*(int(values[reader]) for values in (resets.skip_ms, resets.skip_from, resets.skip_to)))


def newest_skip(looks: Sequence[Look], markers: int = 1) -> tuple[int, int] | None:
    """The offsets that are skipped after the last look; the model agrees after each of them."""
    found = [skip_of(memory) for memory in memories([looks], markers)]
    assert found == skips(looks, markers)
    return None if found[-1] is None else found[-1][1:]


def looks_at(*steps: tuple[int, int | None, int | None], every_ms: int = MINUTE_MS) -> list[Look]:
    return [Look(T0 + number * every_ms, *step) for number, step in enumerate(steps)]


RUNS = [(100, E, 1), (200, E, 1), (300, E, 1)]
STOPS = [*RUNS, (300, E, 0)]
"""A consumer that runs and is stopped."""


def test_a_reset_skips_what_is_between_the_commits() -> None:
    looks = looks_at(*STOPS, (900, PLAIN, 0))
    assert newest_skip(looks) == (300, 900)
    assert skips(looks)[-1] == Skip(T0 + 4 * MINUTE_MS, 300, 900)


NOT_RESETS = {
    "a job that has read everything between two snapshots": [*STOPS, (900, E, 0)],
    "a job of which it is not known whether it stores epochs": [*STOPS, (900, UNKNOWN, 0)],
    "an explicit map at close, after the last snapshot with members": [*RUNS, (340, PLAIN, 0)],
    "an application that never stores epochs": [(100, UNKNOWN, 1), (200, UNKNOWN, 1), (300, PLAIN, 0), (900, PLAIN, 0)],
    "its runs are not seen": [(100, PLAIN, 0), (200, PLAIN, 0), (300, PLAIN, 0), (900, PLAIN, 0)],
    "a job that ends with an explicit map, after a run that was killed": [
        *[(100, PLAIN, 0), (200, E, 1), (300, PLAIN, 0), (400, E, 1), (400, E, 0), (900, PLAIN, 0)]
    ],
    "a job that ends with an explicit map, after runs that were killed": [
        *[(100, PLAIN, 0), (200, E, 0), (300, E, 0), (400, E, 0), (900, PLAIN, 0)]
    ],
    "an explicit map at close where nothing was read, and then a short run": [
        *STOPS,
        (300, PLAIN, 0),
        (340, PLAIN, 0),
    ],
    "a consumer that is no member": [(100, E, 0), (200, E, 0), (300, E, 0), (400, E, 0), (900, PLAIN, 0)],
    "too few commits with an epoch": [(200, E, 1), (300, E, 1), (300, E, 0), (900, PLAIN, 0)],
    "the group had members": [*STOPS, (900, PLAIN, 1)],
    "it is not known whether the group had members": [*STOPS[:-1], (300, E, None), (900, PLAIN, 0)],
    "it is not known whether the group has members": [*STOPS, (900, PLAIN, None)],
    "a client that was changed for one without epochs": [*RUNS, (400, UNKNOWN, 1), (500, PLAIN, 0), (900, PLAIN, 0)],
    "a leader changed, and the newest commit could not be verified": [
        *RUNS,
        (400, UNKNOWN, 1),
        (400, E, 0),
        (900, 0, 0),
    ],
    "only a marker": [*STOPS, (301, PLAIN, 0)],
    "the commit went back": [*STOPS, (200, PLAIN, 0)],
    "the commit is the same": [*STOPS, (300, PLAIN, 0)],
}


@pytest.mark.parametrize("what", NOT_RESETS)
def test_what_an_application_may_have_read_is_not_skipped(what: str) -> None:
    assert newest_skip(looks_at(*NOT_RESETS[what])) is None


@pytest.mark.parametrize(("markers", "to", "found"), [(1, 302, True), (1, 301, False), (0, 301, True), (3, 303, False)])
def test_as_few_offsets_as_there_may_be_markers_do_not_count(markers: int, to: int, found: bool) -> None:
    assert newest_skip(looks_at(*STOPS, (to, PLAIN, 0)), markers) == ((300, to) if found else None)


@pytest.mark.parametrize(("apart_ms", "found"), [(2 * HOUR_MS, True), (2 * HOUR_MS + 1, False)])
def test_between_distant_snapshots_anything_may_have_happened(apart_ms: int, found: bool) -> None:
    looks = looks_at(*STOPS, (900, PLAIN, 0))
    looks[-1] = looks[-1]._replace(at_ms=looks[-2].at_ms + apart_ms)
    assert (newest_skip(looks) is not None) == found


@pytest.mark.parametrize(("members", "found"), [(0, (300, 900)), (1, None), (None, None)])
def test_members_count_also_in_a_snapshot_without_lag(members: int | None, found: tuple[int, int] | None) -> None:
    """As while a broker is down: its partitions have no end, but the group may have run."""
    memory = Memory.empty(1)
    for look in looks_at(*STOPS, (300, E, members), (900, PLAIN, 0)):
        values = vars(observed([look]))
        if look.at_ms == T0 + 4 * MINUTE_MS:
            values |= {"end": array([None]), "lag": array([None])}
        memory = after(memory, Observation(**values), SETTINGS.window_ms, 1)
    skip = skip_of(memory)
    assert (skip and skip[1:]) == found


def test_a_group_may_be_away_for_days_before_its_reset() -> None:
    assert newest_skip(looks_at(*RUNS, *[(300, E, 0)] * 100, (900, PLAIN, 0), every_ms=HOUR_MS)) == (300, 900)


@pytest.mark.parametrize(("after_ms", "found"), [(7 * DAY_MS, False), (7 * DAY_MS + 1, True)])
def test_an_application_that_commits_without_epochs_now_and_then_is_not_judged_for_a_week(
    after_ms: int, found: bool
) -> None:
    """It is known from a commit that was first seen without members, just after some had been seen."""
    steps = [*RUNS, (340, PLAIN, 0), (400, E, 1), (500, E, 1), (600, E, 1), (600, E, 0), (900, PLAIN, 0)]
    looks = looks_at(*steps)
    last_ms = looks[3].at_ms + after_ms
    looks[-2:] = [looks[-2]._replace(at_ms=last_ms - MINUTE_MS), looks[-1]._replace(at_ms=last_ms)]
    assert (newest_skip(looks) is not None) == found


@pytest.mark.parametrize("hidden", [[(640, UNKNOWN, 1)], [(640, UNKNOWN, None)]])
def test_a_commit_without_an_epoch_counts_from_when_its_group_is_described(hidden: list[tuple[int, None, int]]) -> None:
    """As by an application that commits an explicit map: the snapshot that first has the commit cannot show it."""
    runs = [(700, E, 1), (800, E, 1), (900, E, 1), (900, E, 0)]
    assert newest_skip(looks_at(*STOPS, *hidden, (640, PLAIN, 0), *runs, (2_000, PLAIN, 0))) is None
    assert newest_skip(looks_at(*STOPS, *runs, (2_000, PLAIN, 0))) == (900, 2_000)


def test_a_second_reset_is_found_once_the_group_has_committed_again() -> None:
    steps = [*STOPS, (900, PLAIN, 0), (910, E, 1), (920, E, 1), (930, E, 1), (930, E, 0), (2_000, PLAIN, 0)]
    assert newest_skip(looks_at(*steps)) == (930, 2_000)
    assert newest_skip(looks_at(*steps[:6], (920, E, 1), (920, E, 0), (2_000, PLAIN, 0))) == (300, 900)


CORRECTED = [
    ("a tool copies offsets again and again", [(1_200, PLAIN, 0)], None),
    ("a tool has copied offsets", [(1_200, PLAIN, 0), (1_100, PLAIN, 0)], None),
    ("a copy whose group could not be described", [(1_200, UNKNOWN, None), (1_300, PLAIN, 0)], None),
    ("it is described later", [(1_200, UNKNOWN, None), (1_200, PLAIN, 0)], None),
    ("not yet", [(1_200, UNKNOWN, None), (1_200, UNKNOWN, None)], (300, 900)),
    ("the group could not be described, and nothing was copied", [(900, UNKNOWN, None), (900, PLAIN, 0)], (300, 900)),
    ("the copy goes back over what was skipped", [(1_200, UNKNOWN, None), (800, PLAIN, 0)], (300, 800)),
    ("an explicit map at close after the reset", [(950, E, 1), (960, PLAIN, 0), (960, PLAIN, 0)], (300, 900)),
    ("copies after the group has run", [(950, E, 1), (960, PLAIN, 0), (970, PLAIN, 0)], None),
    ("less is skipped", [(500, PLAIN, 0)], (300, 500)),
    ("all is taken back", [(300, PLAIN, 0)], None),
    ("more than all is taken back", [(100, PLAIN, 0)], None),
    ("twice", [(500, PLAIN, 0), (450, PLAIN, 0)], (300, 450)),
    ("but not what the group had read", [(100, PLAIN, 0), (300, PLAIN, 0)], None),
    ("the group goes on", [(950, E, 1), (990, E, 1)], (300, 900)),
    ("the application seeks back", [(950, E, 1), (400, E, 1)], (300, 400)),
    ("and reads it", [(950, E, 1), (300, E, 1), (950, E, 1)], None),
]


@pytest.mark.parametrize(("what", "steps", "left"), CORRECTED)
def test_what_is_skipped_becomes_less_when_the_commit_goes_back(
    what: str, steps: list[tuple[int, int, int]], left: tuple[int, int] | None
) -> None:
    assert newest_skip(looks_at(*STOPS, (900, PLAIN, 0), *steps)) == left, what


@pytest.mark.parametrize(("passed_ms", "left"), [(DAY_MS, (300, 900)), (DAY_MS + 1, None)])
def test_what_is_skipped_is_remembered_for_a_day(passed_ms: int, left: tuple[int, int] | None) -> None:
    looks = looks_at(*STOPS, (900, PLAIN, 0), (900, PLAIN, 0))
    looks[-1] = looks[-1]._replace(at_ms=looks[-2].at_ms + passed_ms)
    assert newest_skip(looks) == left


@pytest.mark.parametrize(("log_start", "left"), [(300, (300, 900)), (400, (400, 900)), (898, (898, 900)), (899, None)])
def test_records_that_retention_has_deleted_are_not_skipped(log_start: int, left: tuple[int, int] | None) -> None:
    later = [*looks_at(*STOPS, (900, PLAIN, 0)), Look(T0 + 5 * MINUTE_MS, 950, E, 1, log_start)]
    assert newest_skip(later) == left


@pytest.mark.parametrize(("log_start", "found"), [(299, (300, 900)), (300, (300, 900)), (301, None), (900, None)])
def test_a_consumer_whose_next_record_was_deleted_begins_elsewhere_without_a_tool(
    log_start: int, found: tuple[int, int] | None
) -> None:
    """With auto.offset.reset=latest, it commits the end of the log, without an epoch: it has read nothing yet."""
    looks = looks_at(*STOPS, (900, PLAIN, 0))
    looks[-1] = looks[-1]._replace(log_start=log_start)
    assert newest_skip(looks) == found
    assert newest_skip([*looks_at(*STOPS[:-1]), Look(looks[3].at_ms, 300, E, 0, log_start), looks[-1]]) == found


def test_a_tool_that_corrects_a_reset_is_recognised_as_long_as_the_reset_commit_is_in_the_log() -> None:
    looks = looks_at(*STOPS, (900, PLAIN, 0))
    at_ms = looks[-1].at_ms
    back = [Look(at_ms + MINUTE_MS, 500, PLAIN, 0, 400), Look(at_ms + 2 * MINUTE_MS, 450, PLAIN, 0, 400)]
    assert newest_skip([*looks, *back]) == (400, 450)
    assert newest_skip([*looks, back[0], back[1]._replace(log_start=501)]) is None


def test_the_first_skipped_record_has_the_age_that_it_had_before() -> None:
    looks = looks_at(*STOPS, (900, PLAIN, 0), (900, PLAIN, 0))
    found = memories([looks])
    assert [int(memory.resets.skip_written_ms[0]) for memory in found[-2:]] == [T0 + 3 * MINUTE_MS - 5_000] * 2
    looks[-1] = looks[-1]._replace(log_start=301)
    assert memories([looks])[-1].resets.skip_written_ms[0] == NONE


@pytest.mark.parametrize(
    ("now", "skipped_bytes", "error"),
    [(9_500, 6_500, 35), (3_001, 1, 35), (3_000, NONE, NONE), (800, NONE, NONE), (None, NONE, NONE)],
)
def test_bytes_are_the_distance_between_the_commits_in_the_log(now: int | None, skipped_bytes: int, error: int) -> None:
    """They are not known if the ruler has begun anew, as after an unclean election."""
    memory = Memory.empty(1)
    for look, position in zip(looks_at(*STOPS, (900, PLAIN, 0)), (None, None, None, 3_000, now), strict=True):
        values = vars(observed([look])) | {
            "position_bytes": array([position]),
            "error_since": array([10]),
            "error_until": array([25]),
        }
        memory = after(memory, Observation(**values), SETTINGS.window_ms, 1)
    assert (memory.resets.skip_bytes[0], memory.resets.skip_error[0]) == (skipped_bytes, error)
    assert (memory.resets.skip_from[0], memory.resets.skip_to[0]) == (300, 900)


BACK = [
    ("by a tool", [(200, PLAIN, 0)] * 2, ("rewound", "offsets_reset")),
    ("by the application", [(200, E, 1)] * 2, ("rewound", None)),
    ("perhaps by a run in between", [(200, E, 0)] * 2, ("rewound", None)),
    ("to what a tool has skipped", [(900, PLAIN, 0), (300, PLAIN, 0), (300, PLAIN, 0)], None),
    ("further than that", [(900, PLAIN, 0), (200, PLAIN, 0), (200, PLAIN, 0)], ("rewound", "offsets_reset")),
]


@pytest.mark.parametrize(("what", "steps", "expected"), BACK)
def test_a_commit_that_goes_back_is_a_rewind_and_says_whether_a_tool_did_it(
    what: str, steps: list[tuple[int, int, int]], expected: tuple[str, str | None] | None
) -> None:
    looks = looks_at(*STOPS, *steps)
    seen, memory = observed([looks[-1]]), memories([looks])[-1]
    judged = Judged(seen, memory, array([None]), array([None]), np.array([False]), SETTINGS)
    status = statuses(judged)
    found = STATUSES[status[0]], REASONS[reasons(judged, status)[0]]
    assert found == expected if expected else found[0] != "rewound", what


def a_reader(chance: random.Random) -> list[Look]:
    """An application that mostly stores epochs, is stopped now and then, and whose commits a tool resets."""
    looks, at_ms, committed, start, members, epoch = [], T0, 1_000, 0, 1, E
    for _ in range(80):
        at_ms += chance.choice([MINUTE_MS] * 20 + [3 * HOUR_MS, DAY_MS + 1, 8 * DAY_MS])
        members = members if chance.random() < 0.8 else 1 - members
        if members:
            committed += chance.choice([0, 5, 100])
            epoch = E if chance.random() < 0.97 else UNKNOWN
        elif chance.random() < 0.3:
            committed, epoch = max(committed + chance.choice([-300, -100, 0, 1, 2, 200, 500]), start), PLAIN
        start += chance.choice([0, 0, 0, 60])
        committed = max(committed, start if members else 0)
        known = members if chance.random() < 0.97 else None
        shown = UNKNOWN if known != 0 and epoch == PLAIN else epoch
        looks.append(Look(at_ms, committed, shown, known, start))
    return looks


def test_many_readers_have_what_the_model_says() -> None:
    chance = random.Random(7)
    readers = [a_reader(chance) for _ in range(300)]
    found = memories(readers)
    count = 0
    for number, looks in enumerate(readers):
        expected = skips(looks)
        assert [skip_of(memory, number) for memory in found] == expected
        count += len({skip for skip in expected if skip})
    assert count > 80
