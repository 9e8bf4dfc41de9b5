"""Look-ups by time in a simulated log: how many are needed, and how exactly times are known afterwards."""

import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.analytics.log_index.polyline import TOLERANCE
from pipeline.analytics.log_index.ruler import NOTHING, Observation, begun, continued
from pipeline.analytics.log_index.time_search import FINEST_MS, FIRST_AGE_MS, TimeSearch
from tests.helpers.logsim import Log

HOUR = 3_600_000


def searched(log: Log, *rungs: int, most: int = 200) -> tuple[TimeSearch, int]:
    """The finished search at a log's first snapshot, and how many look-ups it took."""
    return carried_on(TimeSearch(begun(log.observe()), rungs), log, most)


def carried_on(search: TimeSearch, log: Log, most: int = 200) -> tuple[TimeSearch, int]:
    return search, len(asked_of(search, log, most))


def asked_of(search: TimeSearch, log: Log, most: int = 200) -> list[int]:
    """The timestamps that a search asks for, until it ends."""
    asked: list[int] = []
    while (ask := search.ask()) and len(asked) < most:
        asked.append(ask.timestamp_ms)
        found = log.first_from(ask.timestamp_ms)
        if found:
            search.answered(ask.timestamp_ms, *found)
        else:
            assert search.ruler.last.max_timestamp_ms is None, "nothing is asked for that is newer than all records"
            search.unanswered(ask.timestamp_ms)
    return asked


def without_newest(log: Log) -> Observation:
    """A snapshot of a broker that does not report its newest record."""
    return log.observe()._replace(max_timestamp_ms=None, max_timestamp_offset=None)


def filled(gap_ms: Callable[[random.Random], float], records: int = 3_000) -> Log:
    log, chance = Log(segment_bytes=10**9), random.Random(7)
    for _ in range(records):
        log.append(1, 100)
        log.wait(int(gap_ms(chance)))
    return log


WORKLOADS: dict[str, tuple[int, Callable[[random.Random], float]]] = {
    "steady": (18, lambda chance: 10_000),
    "log-normal pauses": (20, lambda chance: 10_000 * chance.lognormvariate(0, 2)),
    "bursts with hours between": (30, lambda chance: 6 * HOUR if chance.random() < 0.01 else 20),
    "all at once": (12, lambda chance: 0),
}


@pytest.mark.parametrize("workload", WORKLOADS)
@pytest.mark.parametrize("rung", [0, 1, 700, 1_500, 2_900, 2_999])
def test_one_rung_is_known_within_tolerance_after_a_few_look_ups(workload: str, rung: int) -> None:
    most, gap_ms = WORKLOADS[workload]
    log = filled(gap_ms)
    search, lookups = searched(log, rung)
    found = search.ruler.timestamp_at(rung)
    assert found
    tolerated = max(FINEST_MS, TOLERANCE * (log.timestamp_of(2_999) - found.value))
    assert abs(found.value - log.timestamp_of(rung)) <= found.error <= tolerated
    assert lookups <= most


batches = st.lists(st.tuples(st.integers(1, 20), st.integers(0, HOUR) | st.integers(0, 1_000)), min_size=1, max_size=40)


@given(batches, st.lists(st.floats(0, 1), min_size=1, max_size=5), st.floats(0, 0.99))
def test_all_rungs_of_any_log_are_known_within_tolerance(
    produced: list[tuple[int, int]], shares: list[float], deleted: float
) -> None:
    log = Log()
    for records, pause_ms in produced:
        log.append(records, 100)
        log.wait(pause_ms)
    log.delete_records(int(deleted * log.log_end))
    rungs = [log.log_start + int(share * (log.log_end - log.log_start - 1)) for share in shares]
    search, lookups = searched(log, *rungs)
    end_ms = log.timestamp_of(log.log_end - 1)
    for rung in rungs:
        found = search.ruler.timestamp_at(rung)
        assert found
        assert abs(found.value - log.timestamp_of(rung)) <= found.error
        assert found.error <= max(FINEST_MS, TOLERANCE * (end_ms - found.value))
    assert lookups < 200


@given(batches, st.integers(0, 365 * 24 * HOUR) | st.integers(0, 100))
def test_an_unknown_newest_record_is_looked_up(produced: list[tuple[int, int]], idle_ms: int) -> None:
    log = Log()
    for records, pause_ms in produced:
        log.wait(pause_ms)
        log.append(records, 100)
    log.wait(idle_ms)
    search, lookups = carried_on(TimeSearch(begun(without_newest(log)), (log.log_end - 1,)), log)
    found = search.ruler.timestamp_at(log.log_end - 1)
    assert found
    assert abs(found.value - log.timestamp_of(log.log_end - 1)) <= found.error <= FINEST_MS
    assert search.ruler.arrival_ms == NOTHING
    assert lookups <= 60


@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(0, HOUR), st.sampled_from([0, 0, -HOUR, HOUR])), min_size=1),
    st.integers(0, 24 * HOUR),
)
def test_in_any_log_the_search_for_the_newest_record_ends_and_asks_nothing_twice(
    produced: list[tuple[int, int, int]], idle_ms: int
) -> None:
    """Some records have timestamps that are an hour too early or too late."""
    log = Log()
    for records, pause_ms, lie_ms in produced:
        log.wait(pause_ms)
        log.append(records, 100, log.now_ms + lie_ms)
    log.wait(idle_ms)
    search = TimeSearch(begun(without_newest(log)), (0, log.log_end // 2, log.log_end - 1))
    asked = asked_of(search, log)
    assert len(asked) < 200
    assert len(set(asked)) == len(asked)
    newest = search.ruler.timestamp_at(log.log_end - 1)
    if newest and search.ruler.arrival_ms == NOTHING:
        assert abs(newest.value - max(log.timestamps_ms)) <= newest.error


def test_the_next_snapshot_looks_up_only_newer_records() -> None:
    log = filled(lambda chance: 10, 1_000)
    search, _ = carried_on(TimeSearch(begun(without_newest(log)), (999,)), log)
    again = TimeSearch(continued(search.ruler, without_newest(log)), (999,))
    assert again.ask() is None
    log.append(1, 100)
    log.wait(60_000)
    search, lookups = carried_on(TimeSearch(continued(search.ruler, without_newest(log)), (1_000,)), log)
    found = search.ruler.timestamp_at(1_000)
    assert found
    assert abs(found.value - log.timestamp_of(1_000)) <= found.error <= FINEST_MS
    assert lookups <= 15


def test_a_record_that_is_older_than_the_one_before_it_ends_the_search_for_the_newest() -> None:
    log = filled(lambda chance: 10, 10)
    search, _ = carried_on(TimeSearch(begun(without_newest(log)), (9,)), log)
    newest = search.ruler.timestamp_at(9)
    log.append(1, 100, log.now_ms - HOUR)
    search, lookups = carried_on(TimeSearch(continued(search.ruler, without_newest(log)), (10,)), log)
    found = search.ruler.timestamp_at(10)
    assert newest
    assert found
    assert abs(found.value - newest.value) <= found.error
    assert lookups <= 10


def test_the_search_ends_if_records_have_no_timestamp() -> None:
    log = filled(lambda chance: 10, 1)
    search = TimeSearch(begun(without_newest(log)), (0,))
    lookups = 0
    while ask := search.ask():
        lookups += 1
        search.unanswered(ask.timestamp_ms)
    assert lookups <= 20
    assert search.samples == []


def test_nothing_is_looked_up_if_no_record_has_a_time() -> None:
    log = filled(lambda chance: 10, 10)
    newest = log.observe()._replace(max_timestamp_ms=None)
    assert newest.max_timestamp_offset is not None
    assert TimeSearch(begun(newest), (3,)).ask() is None


def test_a_search_in_a_log_with_timestamps_of_0_learns_nothing_and_ends() -> None:
    log = Log()
    for _ in range(5):
        log.append(1, 100, 0)
    search, lookups = carried_on(TimeSearch(begun(without_newest(log)), (0, 3)), log)
    assert lookups <= 20
    assert search.samples == []


def test_nothing_is_looked_up_if_a_record_in_the_future_would_be_every_answer() -> None:
    log = filled(lambda chance: 1_000, 10)
    log.append(1, 100, log.now_ms + HOUR)
    assert TimeSearch(begun(log.observe()), (3,)).ask() is None


def test_records_out_of_order_end_the_search() -> None:
    log = Log()
    for age_ms in (0, 50 * FIRST_AGE_MS, 20 * FIRST_AGE_MS, 40 * FIRST_AGE_MS, 0):
        log.append(1, 100, log.now_ms - age_ms)
    search, lookups = searched(log, 1, 2, 3)
    assert search.ask() is None
    assert lookups <= 20


@pytest.mark.parametrize("rung", [9, 10, 11])
def test_offsets_with_known_times_are_not_looked_up(rung: int) -> None:
    log = filled(lambda chance: 30, 10)
    ask = TimeSearch(begun(log.observe()), (rung,)).ask()
    assert (ask is None) is (rung >= 9)
