"""The table `forecasts` from rows of `lag`: its sums by hand, and the same rows however snapshots are computed."""

import random
from collections.abc import Sequence
from datetime import UTC
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession

from pipeline.analytics.forecasts.sums import sums
from pipeline.common.epoch import DAY_MS, MINUTE_MS, utc
from pipeline.tables import FORECASTS, LAG
from tests.helpers.forecast_rows import NAMES, T0, followed, lag_row
from tests.helpers.rows import frame

MINUTES = 30


def summed(spark: SparkSession, *rows: tuple[Any, ...]) -> dict[tuple[str, str | None], Row]:
    return {(row.group_id, row.topic): row for row in sums(frame(spark, LAG, NAMES, *rows)).collect()}


def test_a_group_has_a_row_for_each_topic_and_one_for_all(spark: SparkSession) -> None:
    rows = [
        lag_row(T0, "g", "a", 0, 5, 10),
        lag_row(T0, "g", "a", 1, 3, 4),
        lag_row(T0, "g", "b", 0, 90, 100),
        lag_row(T0, "g", "b", 1, None, 70),
        lag_row(T0, "none", "a", 0, None, 10),
    ]
    found = summed(spark, *rows)
    shown = ("partitions", "log_ends", "commits", "consumer_lag", "worst_lag", "ends_ms", "commits_ms")
    assert {key: tuple(row[name] for name in shown) for key, row in found.items()} == {
        ("g", "a"): (2, 14, 8, 6, 5, T0 + 1_500, T0 + 3_000),
        ("g", "b"): (1, 100, 90, 10, 10, T0 + 1_000, T0 + 2_000),
        ("g", None): (3, 114, 98, 16, 10, T0 + 1_333, T0 + 2_667),
        ("none", "a"): (0, *[None] * 6),
        ("none", None): (0, *[None] * 6),
    }


@pytest.mark.parametrize(
    "odd",
    [
        {"high_watermark": None, "consumer_lag": None, "offset_status": "no_watermark"},
        {"committed_offset": None, "consumer_lag": None, "offset_status": None},
        {"offset_status": "recreated"},
        {"offset_status": "truncated"},
        {"offset_status": "beyond_end", "consumer_lag": -3},
        {"consumer_lag": 2**62, "high_watermark": 2**63 - 1},  # the sum would be too large
    ],
)
def test_a_sum_is_not_known_if_one_of_its_values_is_not(spark: SparkSession, odd: dict[str, Any]) -> None:
    found = summed(
        spark,
        lag_row(T0, "g", "a", 0, 5, 2**62),
        lag_row(T0, "g", "a", 1, 3, 4, **odd),
        lag_row(T0, "g", "b", 0, 5, 10),
    )
    assert {key: (row.log_ends, row.commits, row.consumer_lag) for key, row in found.items()} == {
        ("g", "a"): (None, None, None),
        ("g", "b"): (10, 5, 5),
        ("g", None): (None, None, None),
    }


def test_a_commit_above_the_high_watermark_takes_nothing_from_the_sum(spark: SparkSession) -> None:
    rows = (lag_row(T0, "g", "a", 0, 12, 10, consumer_lag=-2), lag_row(T0, "g", "a", 1, 3, 10))
    assert summed(spark, *rows)["g", "a"].consumer_lag == 7


def test_deleted_records_do_not_hide_a_sum(spark: SparkSession) -> None:
    found = summed(spark, lag_row(T0, "g", "a", 0, 5, 10, offset_status="deleted_unread"))
    assert found["g", "a"].consumer_lag == 5


def test_an_error_of_a_whole_group_hides_its_sums(spark: SparkSession) -> None:
    rows = [lag_row(T0, "g", "a", 0, 5, 10), (T0, "g", *[None] * 9)]
    found = summed(spark, *rows)
    assert {key: row.log_ends for key, row in found.items()} == {("g", "a"): 10, ("g", None): None}


@pytest.mark.parametrize(("partition", "topic_id"), [(1, "new"), (2, "a")])
def test_other_partitions_have_another_identity(spark: SparkSession, partition: int, topic_id: str) -> None:
    rows = [lag_row(T0, "g", "a", 0, 5, 10), lag_row(T0, "g", "a", 1, 5, 10)]
    before, after = (
        summed(spark, *some) for some in (rows, [rows[0], lag_row(T0, "g", "a", partition, 5, 10, topic_id=topic_id)])
    )
    for key in (("g", "a"), ("g", None)):
        assert before[key].identity != after[key].identity
        assert before[key].partitions == after[key].partitions


def history(seed: int) -> list[tuple[int, list[tuple[Any, ...]]]]:
    """Snapshots of groups that read, stop, are reset, get partitions or another topic, or cannot be read."""
    chance = random.Random(seed)
    state = {(g, t, p): [1_000, 1_000] for g in "abcd" for t in "xy" for p in (0, 1)}
    ids = dict.fromkeys("xy", 0)
    taken, at_ms = [], T0
    for number in range(MINUTES):
        at_ms += DAY_MS if number == 20 else MINUTE_MS
        if number == 12:
            state |= {("a", "x", 2): [500, 500]}
        if number == 15:
            ids["y"] += 1
            state |= {key: [0, 0] for key in state if key[1] == "y"}
        rows = []
        for key, offsets in state.items():
            offsets[1] += chance.choice([0, 100, 120])
            offsets[0] = min(offsets[1], offsets[0] + chance.choice([0, 90, 300]))
            if key[0] == "d" and number == 8:
                offsets[0] = 10
            odd = {"high_watermark": None, "consumer_lag": None, "offset_status": "no_watermark"}
            some = {"topic_id": f"{key[1]}{ids[key[1]]}"} | (odd if chance.random() < 0.05 else {})
            if key[0] != "c" or number not in range(5, 9):
                rows.append(lag_row(at_ms, *key, *offsets, **some))
        taken.append((at_ms, rows))
    return taken


def in_order(rows: Sequence[Row]) -> list[tuple[Any, ...]]:
    return sorted(((*row,) for row in rows), key=lambda row: tuple(str(value) for value in row[:7]))


def test_snapshot_by_snapshot_and_together_the_rows_are_the_same(spark: SparkSession) -> None:
    taken = history(seed=1)
    ids = [snapshot_id for snapshot_id, _ in taken]
    reach = dict(zip(ids[1:], ids, strict=False))  # all snapshots are complete
    lag = frame(spark, LAG, NAMES, *(row for _, rows in taken for row in rows))
    nothing = spark.createDataFrame([], FORECASTS.schema)
    together = followed(spark, lag, nothing, reach)
    known, singly = nothing, []
    for first, last in ((0, 1), (1, 2), (2, 9), (9, 10), (10, 25), (25, MINUTES)):
        some = followed(spark, lag.where(lag.snapshot_id.isin(ids[first:last])), known, reach)
        singly += some
        known = spark.createDataFrame([row for row in some if row.snapshot_id == ids[last - 1]], FORECASTS.schema)
    assert in_order(singly) == in_order(together)
    assert len({(row.snapshot_id, row.group_id, row.topic) for row in together}) == len(together)
    by_key = {(row.group_id, row.topic, ids.index(row.snapshot_id)): row for row in together}
    # Group c was away from snapshots 5 to 8, which were complete: it is new at 9, with one sample and a half memory.
    assert all(("c", "x", number) not in by_key for number in range(5, 9))
    assert len(by_key["c", "x", 9].remembered) in (0, 8 * 17)
    # Topic y was recreated at 15. After a day without a snapshot, rates of five minutes are not known.
    assert len(by_key["b", "y", 15].remembered) in (0, 8 * 17)
    assert by_key["b", "x", 20].written_per_s_5m is None
    assert by_key["b", "x", 19].written_per_s_5m is not None
    assert {row.reason for row in together} >= {None, "not_known", "too_little_history"}
    assert all((row.caught_up_in_ms is None) == (row.reason is not None) for row in together)
    assert all((row.log_ends is None) == (row.reason == "not_known") for row in together)


def test_a_steady_group_by_hand(spark: SparkSession) -> None:
    """Each second, 100 records are written and 150 are committed. At the end, 66,000 are unread."""
    rows = [
        lag_row(T0 + number * MINUTE_MS, "g", "t", 0, 9_000 * number, 126_000 + 6_000 * number) for number in range(21)
    ]
    nothing = spark.createDataFrame([], FORECASTS.schema)
    found = followed(spark, frame(spark, LAG, NAMES, *rows), nothing, {})
    newest = {row.topic: row for row in found if row.snapshot_id == T0 + 20 * MINUTE_MS}
    assert newest.keys() == {"t", None}
    for row in newest.values():
        assert row.asDict().keys() == {*FORECASTS.columns}
        assert (row.consumer_lag, row.worst_lag, row.partitions) == (66_000, 66_000, 1)
        assert (row.written_per_s_5m, row.committed_per_s_5m) == (100, 150)
        assert (row.written_per_s_1h, row.committed_per_s_1d) == (None, None)
        assert (row.net_per_s, row.net_error_per_s, row.reason) == (50, 0, None)
        assert row.caught_up_in_ms == 1_230_000
        assert row.caught_up_in_low_ms < 1_200_000 < row.caught_up_in_high_ms
        assert row.ends_at.astimezone(UTC) == utc(T0 + 20 * MINUTE_MS + 1_000)
        assert row.captured_at.astimezone(UTC) == utc(T0 + 20 * MINUTE_MS + 2_000)


def test_without_rows_there_is_no_forecast(spark: SparkSession) -> None:
    nothing = spark.createDataFrame([], FORECASTS.schema)
    assert followed(spark, spark.createDataFrame([], LAG.schema), nothing, {}) == []
