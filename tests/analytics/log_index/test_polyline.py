"""A line that was thinned repeatedly, compared with all values that were ever observed."""

import math
import random
from collections.abc import Callable, Iterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.analytics.log_index.polyline import TOLERANCE, Polyline, Reading

DAYS = 30
MINUTES = DAYS * 24 * 60

Observed = tuple[int, int, bool]
observed = st.lists(
    st.tuples(st.integers(1, 1_000), st.integers(0, 10_000) | st.integers(0, 3), st.booleans()), min_size=1, max_size=80
)


def seen_and_line(steps: list[Observed]) -> tuple[list[tuple[int, int]], Polyline]:
    """All observed values, and the line made of them, which is thinned where the steps say so."""
    line, seen, offset, value = Polyline(), [], 0, 0
    for run, rise, is_thinned in steps:
        offset, value = offset + run, value + rise
        seen.append((offset, value))
        line = line.extended(offset, value)
        if is_thinned:
            line = line.thinned()
    return seen, line


def reading(line: Polyline, offset: int) -> Reading:
    found = line.at(offset)
    assert found is not None
    return found


@given(observed)
def test_observed_values_stay_within_tolerance_after_any_number_of_thinnings(steps: list[Observed]) -> None:
    seen, line = seen_and_line(steps)
    end = seen[-1][1]
    for offset, value in seen:
        found = reading(line, offset)
        assert abs(found.value - value) <= TOLERANCE * (end - value) + 1
        assert abs(found.value - value) <= found.error


def assert_covers_whatever_happened(line: Polyline, known: list[tuple[int, int]]) -> None:
    for (older, low), (newer, high) in pairwise(known):
        for offset in {older + 1, (older + newer) // 2, newer - 1} - {older, newer}:
            found = reading(line, offset)
            # All records may have been written right after the first observation, or right before the second.
            assert found.value - found.error <= low <= high <= found.value + found.error


@given(observed)
def test_the_error_covers_anything_between_two_observations(steps: list[Observed]) -> None:
    seen, line = seen_and_line(steps)
    assert_covers_whatever_happened(line, seen)


@given(observed, st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), max_size=10))
def test_a_refined_value_is_exact_and_widens_no_other_error(
    steps: list[Observed], lookups: list[tuple[float, float]]
) -> None:
    seen, line = seen_and_line(steps)
    known = dict(seen)
    for part, rise in lookups:
        offset = seen[0][0] + int(part * (seen[-1][0] - seen[0][0]))
        low = max(v for x, v in known.items() if x <= offset)
        high = min(v for x, v in known.items() if x >= offset)
        value = known.setdefault(offset, low + int(rise * (high - low)))
        line = line.refined(offset, value)
        assert reading(line, offset) == Reading(value, 0)
        line = line.thinned()
    for offset, value in known.items():
        assert abs(reading(line, offset).value - value) <= reading(line, offset).error
    assert_covers_whatever_happened(line, sorted(known.items()))


def test_a_split_piece_keeps_the_error_of_removed_observations() -> None:
    known = [(x, x) for x in range(0, 110, 10)]
    line = Polyline()
    for offset, value in known:
        line = line.extended(offset, value)
    line = line.thinned().refined(15, 20)
    assert [v.offset for v in line.vertices] == [0, 15, 100]
    assert_covers_whatever_happened(line, sorted([*known, (15, 20)]))


def test_a_value_below_the_line_extends_it() -> None:
    line = Polyline().extended(10, 100).refined(4, 40)
    assert [line.at(x) for x in (3, 4, 7, 10)] == [None, Reading(40, 0), Reading(70, 30), Reading(100, 0)]


@pytest.mark.parametrize(("offset", "value"), [(15, 99), (15, 201), (5, 101), (21, 200)])
def test_a_value_that_contradicts_the_line_is_refused(offset: int, value: int) -> None:
    with pytest.raises(ValueError, match=f"offset {offset}"):
        Polyline().extended(10, 100).extended(20, 200).refined(offset, value)


@given(observed, st.integers(0, 90_000))
def test_trimming_does_not_change_later_values(steps: list[Observed], offset: int) -> None:
    _, line = seen_and_line(steps)
    trimmed = line.since(offset)
    first, last = line.vertices[0].offset, line.vertices[-1].offset
    assert [trimmed.at(x) for x in range(max(offset, first), last + 1, 97)] == [
        line.at(x) for x in range(max(offset, first), last + 1, 97)
    ]
    assert sum(v.offset <= offset for v in trimmed.vertices) <= 1


def test_outside_of_the_line_values_are_unknown() -> None:
    line = Polyline().extended(10, 100).extended(20, 200)
    assert [line.at(x) for x in (9, 10, 15, 20, 21)] == [
        None,
        Reading(100, 0),
        Reading(150, 50),
        Reading(200, 0),
        None,
    ]
    assert Polyline().at(0) is None


def test_a_value_that_was_not_exact_widens_the_error() -> None:
    line = Polyline().extended(10, 100, 5).extended(20, 200, 7)
    assert [line.at(x) for x in (10, 15, 20)] == [Reading(100, 5), Reading(150, 57), Reading(200, 7)]


@pytest.mark.parametrize(("offset", "value"), [(20, 300), (19, 300), (21, 199)])
def test_an_offset_or_value_that_goes_back_is_refused(offset: int, value: int) -> None:
    with pytest.raises(ValueError, match="cannot follow 200 at offset 20"):
        Polyline().extended(10, 100).extended(20, 200).extended(offset, value)


def daily(minute: int) -> float:
    return 1 + 0.8 * math.sin(2 * math.pi * minute / 1440)


WORKLOADS: dict[str, tuple[int, Callable[[random.Random, int], float]]] = {
    "steady": (64, lambda chance, minute: 600),
    "a daily cycle": (256, lambda chance, minute: 600 * daily(minute)),
    "log-normal minutes": (256, lambda chance, minute: 600 * chance.lognormvariate(0, 1)),
    "bursts": (256, lambda chance, minute: 20_000 if chance.random() < 0.02 else 60),
    "all of it, with pauses": (
        256,
        lambda chance, minute: (
            0
            if minute // 180 % 7 == 3
            else 600 * daily(minute) * chance.lognormvariate(0, 0.5) + (50_000 if chance.random() < 0.005 else 0)
        ),
    ),
}


def snapshots(rate: Callable[[random.Random, int], float]) -> Iterator[tuple[int, int]]:
    """The log end and the newest timestamp, minute by minute; a minute without records adds nothing."""
    chance, offset = random.Random(20260131), 0
    for minute in range(MINUTES):
        records = int(rate(chance, minute))
        if records:
            offset += records
            yield offset, 1_767_225_600_000 + minute * 60_000


@pytest.mark.parametrize("workload", WORKLOADS)
def test_thirty_days_of_minutes_fit_into_few_points_within_one_percent(workload: str) -> None:
    most, rate = WORKLOADS[workload]
    line, seen, peak = Polyline(), [], 0
    for number, (offset, value) in enumerate(snapshots(rate)):
        seen.append((offset, value))
        line = line.extended(offset, value)
        if number % 60 == 59:
            line = line.thinned()
            peak = max(peak, len(line.vertices))
    assert peak <= most
    end = seen[-1][1]
    strays = [(abs(reading(line, offset).value - value), end - value) for offset, value in seen]
    assert all(stray <= TOLERANCE * distance + 1 for stray, distance in strays)
