"""The ruler, compared with a simulated log: whatever happens to the log, a value is within its error, or NULL."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.analytics.log_index.polyline import Reading, distance
from pipeline.analytics.log_index.ruler import FUTURE_MS, SETTLING_MS, Ruler, Sample, begun, continued
from tests.helpers.logsim import Log

MINUTE = 60_000
DAY = 24 * 60 * MINUTE
Step = Callable[[Log], object]


def producing(records: int, size: int, stamp_lag_ms: int) -> Step:
    return lambda log: log.append(records, size, log.now_ms - stamp_lag_ms)


def op(name: str, *arguments: int) -> Step:
    return lambda log: getattr(log, name)(*arguments)


produce = st.builds(
    producing, st.integers(1, 30), st.integers(10, 900), st.just(0) | st.integers(-FUTURE_MS, 20 * MINUTE)
)
pass_time = st.builds(op, st.just("wait"), st.integers(0, 3 * MINUTE) | st.integers(0, 3 * DAY))
happening = st.one_of(
    st.builds(op, st.sampled_from(["retain", "tier"]), st.integers(1, 4)),
    st.builds(op, st.just("delete_records"), st.integers(0, 300)),
    st.builds(op, st.just("compact"), st.integers(2, 3)),
    st.builds(op, st.sampled_from(["move", "recreate"])),
)
growth = st.lists(produce | pass_time, max_size=6)
# A truncation is observed before the log has grown past its old end; later it would look like growth.
cut = st.builds(op, st.just("truncate"), st.integers(0, 300)).map(lambda step: [step])
between_observations = st.one_of(growth, growth, st.lists(produce | pass_time | happening, max_size=6), cut)


def ruler_of(log: Log, history: list[list[Step]], *, with_lookups: bool = False, with_estimates: bool = False) -> Ruler:
    """The ruler of a log with this history, with an observation after each part; it is thinned now and then."""
    ruler = begun(log.observe())
    for number, steps in enumerate(history):
        ruler = continued(ruler, log.after(steps))
        assert_right(ruler, log, with_estimates=with_estimates)
        if with_lookups and log.is_in_order:  # if timestamps are not in order, an answer is only about its own record
            ruler = learnt_by_time(ruler, log)
            assert_right(ruler, log, with_estimates=with_estimates)
        if number % 5 == 4:
            ruler = ruler.thinned()
    return ruler


def learnt_by_time(ruler: Ruler, log: Log) -> Ruler:
    """The ruler after look-ups at doubling ages, as on a first run."""
    for doubling in range(14):
        asked_ms = log.now_ms - (MINUTE << doubling)
        found = log.first_from(asked_ms)
        ruler = ruler.learnt(Sample(asked_ms, *found)) if found else ruler
    return ruler


def assert_right(ruler: Ruler, log: Log, *, with_estimates: bool = False) -> None:
    """At each offset of the log, the truth is within the stated error, or the value is NULL.

    If growth had to be estimated, this holds only if all records have the same size.
    """
    end = ruler.bytes_before(log.log_end)
    for offset in range(log.log_start, log.log_end):
        position, timestamp = ruler.bytes_before(offset), ruler.timestamp_at(offset)
        if position and end:
            reported = distance(position, end)
            is_sure = reported.drift == (0, 0)
            assert abs(reported.value - log.bytes_to_end(offset)) <= reported.error or not (is_sure or with_estimates)
        if timestamp and log.has(offset):
            assert log.timestamp_of(offset) <= timestamp.value + timestamp.error
            # If not in order, the greatest timestamp so far is reported, which may be any time after the record's.
            assert log.timestamp_of(offset) >= timestamp.value - timestamp.error or not log.is_in_order


even = st.integers(1, 30).map(lambda n: producing(n, 100 * n, 0)) | pass_time
even_happening = st.one_of(
    st.builds(op, st.just("retain"), st.integers(1, 4)),
    st.builds(op, st.just("delete_records"), st.integers(0, 300)),
    st.just(op("move")),
)


@given(st.lists(st.lists(even, min_size=1, max_size=4) | st.lists(even | even_happening, max_size=6), max_size=25))
def test_with_records_of_equal_size_estimates_are_exact(history: list[list[Step]]) -> None:
    ruler_of(Log(), history, with_estimates=True)


def test_the_first_observation_does_not_underestimate_record_sizes() -> None:
    four = [producing(1, 100, 0)] * 4
    history = [
        [producing(10, 1_000, 0), op("delete_records", 10)],
        [*four, op("retain", 1)],
        [producing(7, 700, 0), op("retain", 1)],
    ]
    ruler_of(Log(), history, with_estimates=True)


@given(st.lists(between_observations, max_size=25), st.booleans())
def test_for_any_history_a_value_is_within_its_error_or_unknown(history: list[list[Step]], with_lookups: bool) -> None:
    ruler_of(Log(), history, with_lookups=with_lookups)


def produced(*sizes: int) -> list[Step]:
    return [producing(1, size, 0) for size in sizes]


TRAPS: dict[str, list[list[Step]]] = {
    "files go unseen while the log grows": [
        produced(102, 899),
        [op("delete_records", 1)],
        [*produced(10, 92), op("wait", SETTLING_MS - 1)],
    ],
    "an emptied file goes once the log grows again": [
        [*produced(500), op("delete_records", 1)],
        [op("wait", SETTLING_MS - 1)],
        [op("wait", 99_998), *produced(501)],
    ],
    "another replica has less below log start, and grows": [
        [*produced(500, 100), op("delete_records", 1), op("wait", 2 * SETTLING_MS)],
        [op("wait", 2 * SETTLING_MS)],
        [op("move"), *produced(600)],
    ],
    "compaction takes less than the log grows": [produced(*[400] * 6), [op("compact", 2), *produced(500, 500)]],
    "what was truncated is written anew": [
        produced(10, 10, 10, 10, 10),
        [op("truncate", 4)],
        [op("wait", DAY), *produced(10)],
    ],
    "retention takes less than the log grows": [produced(600, 600), [*produced(600, 600), op("retain", 3)]],
}


@pytest.mark.parametrize("trap", TRAPS)
def test_known_traps_do_not_give_wrong_values(trap: str) -> None:
    ruler_of(Log(), TRAPS[trap])


def test_if_the_size_shrinks_without_a_visible_reason_growth_is_estimated() -> None:
    log = Log()
    ruler = ruler_of(log, steady(3))
    seen = log.observe()
    shrunk = continued(ruler, seen._replace(log_end_offset=40, log_bytes=299))
    end, before = shrunk.bytes_before(40), shrunk.bytes_before(30)
    assert before
    assert end
    assert distance(before, end) == Reading(100, 100, (0, 100))


def test_an_unknown_size_leaves_a_gap_that_the_next_size_closes() -> None:
    log = Log()
    ruler = ruler_of(log, steady(3))
    hole = continued(ruler, log.observe()._replace(log_end_offset=40, log_bytes=None))
    assert [hole.bytes_before(x) is None for x in (30, 31, 40)] == [False, True, True]
    closed = continued(hole, log.observe()._replace(log_end_offset=50, log_bytes=500))
    end, before = closed.bytes_before(50), closed.bytes_before(30)
    assert before
    assert end
    assert distance(before, end) == Reading(200, 200, (0, 200))


def test_a_batch_written_between_reading_log_end_and_size_is_counted_once() -> None:
    log = Log()
    ruler = ruler_of(log, steady(3))
    raced = continued(ruler, log.observe()._replace(log_bytes=350, log_bytes_error=50))
    caught_up = continued(raced, log.observe()._replace(log_end_offset=35, log_bytes=350))
    assert [caught_up.bytes_before(x) for x in (30, 35)] == [Reading(350, 50), Reading(350, 0)]


def steady(minutes: int) -> list[list[Step]]:
    return [[producing(10, 100, 0), op("wait", MINUTE)] for _ in range(minutes)]


def errors(ruler: Ruler, log: Log) -> tuple[int, int]:
    """The largest stated errors in the whole log, in bytes and ms."""
    found = [(ruler.bytes_before(x), ruler.timestamp_at(x)) for x in range(log.log_start, log.log_end)]
    return (
        max(position.error for position, _ in found if position),
        max(timestamp.error for _, timestamp in found if timestamp),
    )


def test_a_log_that_only_grows_is_known_up_to_one_observation() -> None:
    log = Log()
    ruler = ruler_of(log, steady(50))
    bytes_error, ms_error = errors(ruler, log)
    assert (bytes_error - 100, ms_error // MINUTE) in {(0, 1), (1, 1)}
    assert ruler.restarts == 0


def test_after_records_were_deleted_only_that_interval_is_estimated() -> None:
    log = Log()
    ruler = ruler_of(log, [*steady(50), [*steady(1)[0], op("retain", 3)], *steady(SETTLING_MS // MINUTE + 5)])
    end = ruler.bytes_before(log.log_end)
    assert end
    errors = [
        distance(position, end).error for x in range(log.log_start, log.log_end) if (position := ruler.bytes_before(x))
    ]
    assert errors[0] <= 2 * 100 + SETTLING_MS // MINUTE + 3
    assert errors[-10] <= 101
    assert ruler.restarts == 0


def test_offsets_that_are_not_on_the_brokers_disk_have_no_byte_position() -> None:
    log = Log()
    ruler = ruler_of(log, [*steady(50), [op("tier", 2)]])
    local = log.observe().start
    assert local > 0
    assert [ruler.bytes_before(x) is None for x in (0, local - 1, local)] == [True, True, False]
    assert ruler.timestamp_at(log.log_end - 1) is not None


@pytest.mark.parametrize("happened", ["recreate", "truncate"])
def test_a_recreated_or_truncated_log_gets_a_new_ruler(happened: str) -> None:
    log = Log()
    ruler = ruler_of(log, [*steady(50), [op(happened, *([100] if happened == "truncate" else []))], *steady(2)])
    assert ruler.restarts == 1
    assert ruler.timestamp_at(50) is None


def test_a_timestamp_in_the_future_is_ignored_and_counted() -> None:
    log = Log()
    ruler = ruler_of(log, [*steady(5), [producing(1, 10, -7 * DAY)], *steady(5)])
    assert ruler.future_timestamps == 6
    assert [ruler.timestamp_at(x) is None for x in (49, 50, log.log_end - 1)] == [False, True, True]
    ruler = ruler_of(log, [[op("retain", 1)], *steady(2)])
    assert ruler.future_timestamps == 1
    assert ruler.timestamp_at(log.log_end - 1) is not None


@pytest.mark.parametrize("stamp_ms", [0, -5])
def test_a_timestamp_of_0_or_less_is_no_time(stamp_ms: int) -> None:
    log = Log()
    ruler = begun(log.observe())
    for _ in range(5):
        log.append(10, 100, stamp_ms)
        log.wait(MINUTE)
        ruler = continued(ruler, log.observe())
    ruler = ruler.learnt(Sample(0, 0, stamp_ms))
    assert {ruler.timestamp_at(offset) for offset in range(log.log_end)} == {None}
    assert ruler.future_timestamps == 0
    # Only when snapshots have seen the records is known.
    seen = ruler.arrival_ms.at(log.log_end)
    assert seen is not None
    assert seen.value == log.now_ms


def test_look_ups_give_times_at_the_first_snapshot() -> None:
    log = Log()
    for step in [step for steps in steady(100) for step in steps]:
        step(log)
    ruler = learnt_by_time(begun(log.observe()), log)
    found = [(ruler.timestamp_at(x), log.timestamp_of(x)) for x in range(log.log_end)]
    assert all(reported and abs(reported.value - true) <= MINUTE for reported, true in found)
