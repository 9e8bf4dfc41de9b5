"""The log index: rulers in Arrow compared with rulers in Python, and extended from snapshot to snapshot."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import reduce
from random import Random
from typing import Any, TypeVar

import pyarrow as pa
import pytest
from chispa import assert_df_equality
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_type

from pipeline.analytics.log_index.index import FORGOTTEN_MS, index_rows, known_rulers, rulers
from pipeline.analytics.log_index.ruler import Observation, Ruler, begun, continued
from pipeline.analytics.log_index.ruler_lookup import read_rulers
from pipeline.analytics.log_index.ruler_storage import decoded, encoded
from pipeline.analytics.log_index.ruler_update import OBSERVATION, SAMPLE, rulers_after
from pipeline.tables import LOG_INDEX, LOG_SAMPLES, WATERMARKS
from tests.analytics.log_index.test_ruler import MINUTE, Step, between_observations, ruler_of
from tests.helpers.logsim import Log
from tests.helpers.rows import frame

Row = TypeVar("Row")
START = datetime(2026, 1, 31, tzinfo=UTC)
START_MS = 1_769_817_600_000
COLUMNS = (
    "snapshot_id captured_at topic partition topic_id leader log_start_offset local_log_start_offset high_watermark "
    "log_end_offset max_timestamp_ms max_timestamp_offset log_bytes log_bytes_error cleanup_policy error"
)


@given(st.lists(st.lists(between_observations, max_size=15), min_size=1, max_size=4))
def test_arrow_and_numpy_give_the_same_values_as_python(histories: list[list[list[Step]]]) -> None:
    logs = [Log() for _ in histories]
    made = [ruler_of(log, history) for log, history in zip(logs, histories, strict=True)]
    stored = encoded(made)
    assert list(decoded(stored)) == made
    ends = [log.log_end + 3 for log in logs]
    asked = pa.array([[*range(end), None] for end in ends], pa.list_(pa.int64()))
    for ruler, end, read in zip(made, ends, read_rulers(stored, asked).to_pylist(), strict=True):
        assert read.pop() is None
        for offset in range(end):
            assert_same(read[offset], ruler, offset)


@given(
    st.lists(st.lists(between_observations, min_size=1, max_size=25), min_size=1, max_size=3),
    st.lists(st.integers(1, 4), min_size=25, max_size=25),
)
def test_rulers_are_extended_in_arrow_as_in_python(histories: list[list[list[Step]]], steps: list[int]) -> None:
    seen = [observations(history) for history in histories]
    made = [reduce(continued, seen_rows[1:], begun(seen_rows[0])) for seen_rows in seen]
    stored, done = pa.nulls(len(seen), pa.binary()), 0
    for step in steps:
        batch = [seen_rows[done : done + step] for seen_rows in seen]
        rows = [[{"snapshot_id": done + n, "is_asked": False} | x._asdict() for n, x in enumerate(b)] for b in batch]
        series = rulers_after(
            stored,
            pa.array(rows, pa.list_(to_arrow_type(OBSERVATION))),
            pa.nulls(len(seen), pa.list_(to_arrow_type(SAMPLE))),
        )
        newest = pa.array([each[-1]["ruler"] if each else None for each in series.to_pylist()], stored.type)
        stored = pa.array([b or a for a, b in zip(stored.to_pylist(), newest.to_pylist(), strict=True)], stored.type)
        done += step
    assert list(decoded(stored)) == made


@given(
    st.lists(between_observations, min_size=2, max_size=12),
    st.randoms(use_true_random=False),
    st.lists(st.booleans(), min_size=12, max_size=12),
)
def test_late_snapshots_do_not_change_the_ruler_of_newer_ones(
    history: list[list[Step]], chance: Random, is_written: list[bool]
) -> None:
    """For any scheduled instants, in any order of computing, and however often the index is written in between."""
    seen_rows = observations(history)
    ids = disordered(range(1, len(seen_rows) + 1), chance)
    stored, through, tail = pa.nulls(1, pa.binary()), 0, []
    counted: list[Observation] = []
    for (i, seen_at), writes in zip(
        disordered(list(zip(ids, seen_rows, strict=True)), chance), is_written, strict=False
    ):
        if i > through:  # the index already includes newer ones than the others
            tail.append((i, seen_at))
        if tail and writes:
            newer = sorted(x for _, x in tail if not counted or x.captured_ms >= counted[-1].captured_ms)
            stored, through, tail, counted = carried_on(stored, tail), max(tail)[0], [], counted + newer
            assert list(decoded(stored)) == [reduce(continued, counted[1:], begun(counted[0]))]


def disordered(values: Sequence[Row], chance: Random) -> list[Row]:
    """The values, of which some are later than others that follow them."""
    return [value for _, value in sorted(enumerate(values), key=lambda pair: pair[0] + chance.uniform(0, 4))]


def carried_on(stored: pa.Array, tail: list[tuple[int, Observation]]) -> pa.Array:
    rows = [x._asdict() | {"snapshot_id": i, "is_asked": False} for i, x in sorted(tail, key=lambda pair: pair[1])]
    seen_rows = pa.array([rows], pa.list_(to_arrow_type(OBSERVATION)))
    (series,) = rulers_after(stored, seen_rows, pa.nulls(1, pa.list_(to_arrow_type(SAMPLE)))).to_pylist()
    return pa.array([series[-1]["ruler"]], stored.type)


def observations(history: list[list[Step]]) -> list[Observation]:
    """What snapshots see of a log with this history."""
    log = Log()
    return [log.after(steps) for steps in history]


def assert_same(read: dict[str, Any], ruler: Ruler, offset: int) -> None:
    position, timestamp = ruler.bytes_before(offset), ruler.timestamp_at(offset)
    assert (read["position_bytes"] is None) is (position is None)
    if position:
        # numpy divides floats, so the value and the error may differ by one.
        assert read["position_bytes"] == pytest.approx(position.value, abs=1)
        assert read["position_error_bytes"] == pytest.approx(position.error, abs=1)
        assert (read["drift_before_bytes"], read["drift_after_bytes"]) == position.drift
    if timestamp:
        assert read["timestamp_ms"] == pytest.approx(timestamp.value, abs=1)
        assert read["timestamp_error_ms"] == pytest.approx(timestamp.error, abs=1)
        assert read["is_arrival"] is False
    before = ruler.timestamp_ms.at(offset)
    if before and offset >= ruler.last.log_start_offset:
        assert read["newest_before_ms"] == pytest.approx(before.value, abs=1)


def test_without_a_ruler_or_offsets_there_are_no_readings() -> None:
    log = Log()
    made = ruler_of(log, [])
    stored = encoded([made, None])
    read = read_rulers(stored, pa.array([None, [5]], pa.list_(pa.int64()))).to_pylist()
    assert read[0] == []
    assert set(read[1][0].values()) == {None}


def seen_at(minute: int, end: int, size: int, **other: Any) -> tuple[Any, ...]:
    """A row of `watermarks` for a log that was written to until the minute of the snapshot."""
    row = {
        "snapshot_id": minute,
        "captured_at": START + timedelta(minutes=minute),
        "topic": "t",
        "partition": 0,
        "topic_id": "A",
        "leader": 1,
        "log_start_offset": 0,
        "high_watermark": end,
        "log_end_offset": end,
        "max_timestamp_ms": START_MS + minute * MINUTE,
        "max_timestamp_offset": end - 1,
        "log_bytes": size,
        "log_bytes_error": 0,
    } | other
    return tuple(row.get(name) for name in COLUMNS.split())


GROWING = [seen_at(1, 100, 1_000), seen_at(2, 200, 3_000), seen_at(3, 300, 3_500)]


def seen_by(spark: SparkSession, seen_rows: list[tuple[Any, ...]]) -> tuple[DataFrame, DataFrame]:
    samples = frame(spark, LOG_SAMPLES, "snapshot_id topic partition asked_ms offset timestamp_ms", *SAMPLES)
    seen = {row[0] for row in seen_rows}
    return frame(spark, WATERMARKS, COLUMNS, *seen_rows), samples.where(F.col("snapshot_id").isin(seen))


def rulers_of(spark: SparkSession, seen_rows: list[tuple[Any, ...]], index: DataFrame | None = None) -> DataFrame:
    return rulers(frame(spark, LOG_INDEX, "topic") if index is None else index, *seen_by(spark, seen_rows), 0)


def index_of(spark: SparkSession, seen_rows: list[tuple[Any, ...]], through: int) -> DataFrame:
    return index_rows(frame(spark, LOG_INDEX, "topic"), *seen_by(spark, seen_rows), through)


SAMPLES = [(1, "t", 0, START_MS, 0, START_MS + 1_000)]


def test_each_snapshot_and_each_look_up_adds_a_point(spark: SparkSession) -> None:
    (row,) = index_of(spark, GROWING, 3).collect()
    assert [tuple(point) for point in row.points] == [
        (0, 0, None),
        (1, None, START_MS + 1_000),
        (100, 1_000, START_MS + MINUTE),
        (200, 3_000, START_MS + 2 * MINUTE),
        (300, 3_500, START_MS + 3 * MINUTE),
    ]
    assert (row.topic_id, row.seen_at.astimezone(UTC), row.restarts) == ("A", START + timedelta(minutes=3), 0)
    assert sorted(row.snapshot_id for row in rulers_of(spark, GROWING).collect()) == [1, 2, 3]


def test_the_index_extended_by_later_snapshots_equals_one_from_all_snapshots(spark: SparkSession) -> None:
    index = index_of(spark, GROWING[:2], 2)
    at_once = rulers_of(spark, GROWING).where("snapshot_id = 3")
    assert_df_equality(rulers_of(spark, GROWING[2:], index), at_once, ignore_nullable=True, ignore_row_order=True)
    former = seen_at(0, 50, 500, topic_id="of the topic before it was created anew")
    known = known_rulers(index, seen_by(spark, [former, *GROWING[:2]])[0]).collect()
    assert {row.snapshot_id for row in known} == {1, 2}
    for ruler in decoded(pa.array([row.ruler for row in known])):
        assert ruler
        assert ruler.last.log_end_offset == 200


def test_observations_count_in_the_order_in_which_they_were_made(
    spark: SparkSession,
) -> None:
    """If a run is late or repeated, or a driver's clock is ahead, an earlier instant is read after a later one."""
    chance, minutes = Random(7), range(1, 13)
    orders = {partition: chance.sample(minutes, len(minutes)) for partition in range(1, 20)}

    def seen_rows(*, in_order: bool) -> list[tuple[Any, ...]]:
        return [
            seen_at(
                minute, 100 * minute, 1_000 * minute, partition=partition, snapshot_id=minute if in_order else instant
            )
            for partition, order in orders.items()
            for minute, instant in zip(minutes, order, strict=True)
        ]

    expected, found = (index_of(spark, seen_rows(in_order=in_order), minutes[-1]) for in_order in (True, False))
    assert_df_equality(found, expected, ignore_row_order=True)
    assert {(row.restarts, len(row.points)) for row in found.collect()} == {(0, 1 + len(minutes))}
    made = rulers_of(spark, seen_rows(in_order=False)).where("partition = 1").collect()
    ends = {row.snapshot_id: ruler.last.log_end_offset for row, ruler in zip(made, decoded_of(made), strict=True)}
    assert ends == {instant: 100 * minute for minute, instant in zip(minutes, orders[1], strict=True)}


def test_an_observation_older_than_the_index_changes_nothing(spark: SparkSession) -> None:
    index = index_of(spark, GROWING, 3)
    late = seen_at(2, 200, 3_000, snapshot_id=4)
    made = rulers_of(spark, [late], index).collect()
    assert [row.snapshot_id for row in made] == [4]
    assert list(decoded_of(made)) == list(decoded_of(index.collect()))


def decoded_of(rows: list[Any]) -> Iterable[Any]:
    return decoded(pa.array([row.ruler for row in rows], pa.binary()))


def test_a_partition_that_could_not_be_read_keeps_its_ruler_for_a_week(spark: SparkSession) -> None:
    unread = seen_at(3, 300, 3_500, error="NOT_LEADER_OR_FOLLOWER")
    made = rulers_of(spark, [*GROWING[:2], unread])
    assert [row.snapshot_id for row in made.orderBy("snapshot_id").collect()] == [1, 2]
    index = index_of(spark, GROWING[:2], 2)
    nothing = seen_by(spark, [])
    last_ms = START_MS + 2 * MINUTE
    kept = [index_rows(index, *nothing, last_ms + FORGOTTEN_MS + late).count() for late in (0, 1)]
    assert kept == [1, 0]
