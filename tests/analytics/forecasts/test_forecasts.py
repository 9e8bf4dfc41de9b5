"""The table `forecasts` from rows of `lag`: its sums by hand, and the same rows however snapshots are computed."""

import random
from collections.abc import Sequence
from datetime import UTC
from functools import partial
from hashlib import md5
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession

from pipeline.analytics.forecasts.forecasts import FORECAST_PARTS, forecasts
from pipeline.analytics.keys import GROUP
from pipeline.common.epoch import DAY_MS, MINUTE_MS, utc
from pipeline.common.rows import Rows, bucketed
from pipeline.config import StatusConfig
from pipeline.tables import FORECASTS
from tests.helpers.forecast_rows import NAMES, T0, followed, known_of, lag_of, lag_row, summed

MINUTES = 30


def test_a_group_has_a_row_for_each_topic_and_one_for_all() -> None:
    rows = [
        lag_row(T0, "g", "a", 0, 5, 10),
        lag_row(T0, "g", "a", 1, 3, 4),
        lag_row(T0, "g", "b", 0, 90, 100),
        lag_row(T0, "g", "b", 1, None, 70),
        lag_row(T0, "none", "a", 0, None, 10),
    ]
    found = summed(NAMES, *rows)
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
def test_a_sum_is_not_known_if_one_of_its_values_is_not(odd: dict[str, Any]) -> None:
    found = summed(
        NAMES,
        lag_row(T0, "g", "a", 0, 5, 2**62),
        lag_row(T0, "g", "a", 1, 3, 4, **odd),
        lag_row(T0, "g", "b", 0, 5, 10),
    )
    assert {key: (row.log_ends, row.commits, row.consumer_lag) for key, row in found.items()} == {
        ("g", "a"): (None, None, None),
        ("g", "b"): (10, 5, 5),
        ("g", None): (None, None, None),
    }


def test_a_commit_above_the_high_watermark_takes_nothing_from_the_sum() -> None:
    rows = (lag_row(T0, "g", "a", 0, 12, 10, consumer_lag=-2), lag_row(T0, "g", "a", 1, 3, 10))
    assert summed(NAMES, *rows)["g", "a"].consumer_lag == 7


def test_deleted_records_do_not_hide_a_sum() -> None:
    found = summed(NAMES, lag_row(T0, "g", "a", 0, 5, 10, offset_status="deleted_unread"))
    assert found["g", "a"].consumer_lag == 5


def test_an_error_of_a_whole_group_hides_its_sums() -> None:
    rows = [lag_row(T0, "g", "a", 0, 5, 10), (T0, "g", *[None] * 9)]
    found = summed(NAMES, *rows)
    assert {key: row.log_ends for key, row in found.items()} == {("g", "a"): 10, ("g", None): None}


@pytest.mark.parametrize(("partition", "topic_id"), [(1, "new"), (2, "a")])
def test_other_partitions_have_another_identity(partition: int, topic_id: str) -> None:
    rows = [lag_row(T0, "g", "a", 0, 5, 10), lag_row(T0, "g", "a", 1, 5, 10)]
    before, after = (
        summed(NAMES, *some) for some in (rows, [rows[0], lag_row(T0, "g", "a", partition, 5, 10, topic_id=topic_id)])
    )
    for key in (("g", "a"), ("g", None)):
        assert before[key].identity != after[key].identity
        assert before[key].partitions == after[key].partitions


def test_a_group_with_the_partitions_of_two_topics_exchanged_has_another_identity() -> None:
    one, other = (
        summed(NAMES, *(lag_row(T0, "g", topic, partition, 5, 10, topic_id="i") for topic, partition in some))
        for some in ([("a", 1), ("b", 2)], [("a", 2), ("b", 1)])
    )
    assert one["g", None].identity != other["g", None].identity


def test_an_identity_is_the_same_in_every_version_of_the_engine() -> None:
    """It is compared with that of an earlier run."""
    hashes = [int.from_bytes(md5(text).digest()[8:], "little") for text in (b"a 0 a", b"a 1 a", b" 0 b c")]
    rows = [lag_row(T0, "g", "a", n, 5, 10) for n in (0, 1)] + [lag_row(T0, "g", "b c", 0, 5, 10, topic_id=None)]
    found = summed(NAMES, *rows)
    assert found["g", "a"].identity == (hashes[0] ^ hashes[1]) >> 1
    assert found["g", None].identity == (hashes[0] ^ hashes[1] ^ hashes[2]) >> 1


def test_a_sum_of_a_topic_that_is_too_large_is_not_left_out_of_that_of_its_group() -> None:
    rows = [
        (*lag_row(T0, "g", topic, partition, 5, 10), position)
        for topic, partition, position in (("a", 0, 2**62), ("a", 1, 2**62), ("b", 0, 7))
    ]
    found = summed(f"{NAMES} high_watermark_bytes", *rows)
    assert {topic: (row.log_end_bytes, row.consumer_lag) for (_, topic), row in found.items()} == {
        "a": (None, 10),
        "b": (7, 5),
        None: (None, 15),
    }


def test_if_one_sum_of_a_group_is_too_large_none_of_it_is_known() -> None:
    rows = [lag_row(T0, "g", topic, 0, 2**62 - 5, 2**62) for topic in "ab"]
    found = summed(NAMES, *rows)
    assert {topic: (row.log_ends, row.commits, row.consumer_lag) for (_, topic), row in found.items()} == {
        "a": (2**62, 2**62 - 5, 5),
        "b": (2**62, 2**62 - 5, 5),
        None: (None, None, None),
    }


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


def test_snapshot_by_snapshot_and_together_the_rows_are_the_same() -> None:
    taken = history(seed=1)
    ids = [snapshot_id for snapshot_id, _ in taken]
    reach = dict(zip(ids[1:], ids, strict=False))  # all snapshots are complete
    together = followed(lag_of(NAMES, *(row for _, rows in taken for row in rows)), reach=reach)
    known: list[Row] = []
    singly: list[Row] = []
    for first, last in ((0, 1), (1, 2), (2, 9), (9, 10), (10, 25), (25, MINUTES)):
        some = followed(lag_of(NAMES, *(row for _, rows in taken[first:last] for row in rows)), known, reach)
        singly += some
        known = [row for row in some if row.snapshot_id == ids[last - 1]]
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


@pytest.mark.parametrize("at_once", [1, 20])
def test_the_forecasts_of_some_groups_do_not_depend_on_others(monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    """They are computed some at a time, because each needs much memory."""
    taken = history(seed=2)
    before, after = (lag_of(NAMES, *(row for _, rows in some for row in rows)) for some in (taken[:4], taken[4:11]))
    reach = {snapshot_id: taken[number][0] for number, (snapshot_id, _) in enumerate(taken[1:])}
    known = followed(before, reach=reach)
    together = followed(after, known, reach)
    monkeypatch.setattr("pipeline.analytics.forecasts.forecasts.ROWS_AT_ONCE", at_once)
    assert in_order(followed(after, known, reach)) == in_order(together)
    assert {len(row.remembered) for row in together} != {0}


def test_in_workers_the_rows_are_the_same(spark: SparkSession) -> None:
    taken = history(seed=3)
    before, after = (lag_of(NAMES, *(row for _, rows in some for row in rows)) for some in (taken[:3], taken[3:6]))
    known = followed(before)
    parts = {"lag": after, "known": known_of(known)}
    many = {name: Rows(spark.createDataFrame(rows, FORECAST_PARTS[name])) for name, rows in parts.items()}
    compute = partial(forecasts, settings=StatusConfig(), reach={})
    found = bucketed(many, FORECAST_PARTS, GROUP, compute, FORECASTS.schema, 2).collected_table()
    assert in_order([Row(**row) for row in found.to_pylist()]) == in_order(followed(after, known))


def test_a_steady_group_by_hand() -> None:
    """Each second, 100 records are written and 150 are committed. At the end, 66,000 are unread."""
    rows = [
        lag_row(T0 + number * MINUTE_MS, "g", "t", 0, 9_000 * number, 126_000 + 6_000 * number) for number in range(21)
    ]
    found = followed(lag_of(NAMES, *rows))
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


def test_without_rows_there_is_no_forecast() -> None:
    assert followed(lag_of(NAMES)) == []
