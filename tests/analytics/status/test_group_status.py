"""`group_rows`, from literal rows of `lag` and `partition_status`."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from pipeline.analytics.status.group_status import GROUP_PARTS, group_rows
from pipeline.analytics.status.owners import Owned, Rules
from pipeline.common.data_source import arrow_schema
from pipeline.common.errors import BadValueError
from pipeline.tables import GROUP_STATUS, LAG, PARTITION_STATUS, Table
from tests.helpers.rows import few_rows

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
NOON_MS = int(NOON.timestamp() * 1000)
KEY = "snapshot_id group_id topic partition"
GREATEST = 2**63 - 1
"""The greatest bigint, which a client may commit as an offset."""


def part(name: str, table: Table, names: str, rows: Sequence[tuple[Any, ...]]) -> dict[str, pa.Table]:
    chosen = few_rows(table, f"{KEY} {names}", *rows).chosen(GROUP_PARTS[name]).collected_table()
    return {name: chosen}


def of_lag(names: str, *rows: tuple[Any, ...]) -> dict[str, pa.Table]:
    """The part `lag`; each row has the columns of KEY and the named ones."""
    return part("lag", LAG, names, rows)


def groups_of(bucket: dict[str, pa.Table], rules: Rules = ()) -> dict[str, dict[str, Any]]:
    found = group_rows(bucket, rules, Owned(channel="chat"))
    assert found.schema == arrow_schema(GROUP_STATUS.schema)
    rows = {row["group_id"]: row for row in found.to_pylist()}
    assert len(rows) == found.num_rows
    return rows


def test_of_partitions_that_are_equally_bad_the_first_one_is_shown() -> None:
    keys = [(NOON_MS, group, *at) for group in ("g", "h") for at in [("b", 0), ("a", 10), ("a", 9), ("a", 11)]]
    statuses = part(
        "statuses", PARTITION_STATUS, "status reason consumer_lag", [(*key, "stopped", "no_members", 7) for key in keys]
    )
    for row in groups_of(of_lag("", *keys) | statuses).values():
        assert (row["topic"], row["partition"], row["status"], row["reason"]) == ("a", 9, "stopped", "no_members")


def test_a_worse_status_and_then_more_lag_decide_before_the_name_of_a_partition() -> None:
    judged = [("a", "ok", 900), ("b", "stopped", -GREATEST - 1), ("c", "stopped", None), ("d", "stopped", 5)]
    keys = [(NOON_MS, "g", topic, 0) for topic, _, _ in judged]
    rows = [(*key, status, lag) for key, (_, status, lag) in zip(keys, judged, strict=True)]

    def shown(bucket: list[tuple[Any, ...]]) -> tuple[Any, Any]:
        statuses = part("statuses", PARTITION_STATUS, "status consumer_lag", bucket)
        row = groups_of(of_lag("", *keys) | statuses)["g"]
        return row["status"], row["topic"]

    assert shown(rows) == ("stopped", "d")
    assert shown(rows[:3]) == ("stopped", "c")  # a lag that is not known comes before a commit beyond the end
    assert shown(rows[:2]) == ("stopped", "b")


def test_a_status_began_when_the_first_partition_got_it_whose_beginning_is_known() -> None:
    later = NOON + timedelta(minutes=5)
    judged = [("stopped", None), ("stopped", later), ("stopped", NOON), ("ok", NOON - timedelta(days=1))]
    keys = [(NOON_MS, "g", "t", number) for number in range(len(judged))]
    rows = [(*key, *of) for key, of in zip(keys, judged, strict=True)]
    row = groups_of(of_lag("", *keys) | part("statuses", PARTITION_STATUS, "status since", rows))["g"]
    assert (row["since"], dict(row["statuses"])) == (NOON, {"stopped": 3, "ok": 1})


def test_without_statuses_a_group_has_sums_and_an_owner_but_no_status() -> None:
    lag = of_lag("consumer_lag", (NOON_MS, "g", "t", 0, 5), (NOON_MS, "h", "t", 0, None))
    found = groups_of(lag, [("^g$", Owned("shop", "1", "pager"))])
    of_statuses = ("status", "reason", "since", "topic", "partition", "statuses", "has_members", "commit_since")
    assert {row[name] for row in found.values() for name in of_statuses} == {None}
    assert {
        group: (row["consumer_lag"], row["owner"], row["tier"], row["channel"]) for group, row in found.items()
    } == {
        "g": (5, "shop", "1", "pager"),
        "h": (None, None, None, "chat"),
    }


def test_a_sum_beyond_a_bigint_is_not_known_and_no_error() -> None:
    lags = of_lag(
        "consumer_lag high_watermark offset_status",
        *((NOON_MS, "g", "t", number, GREATEST, GREATEST, "ok") for number in (0, 1)),
        (NOON_MS, "h", "t", 0, GREATEST, GREATEST, "ok"),
    )
    names = ("consumer_lag", "max_consumer_lag", "partitions_unknown", "log_ends")
    assert {group: tuple(row[name] for name in names) for group, row in groups_of(lags).items()} == {
        "g": (None, GREATEST, 0, None),
        "h": (GREATEST, GREATEST, 0, GREATEST),
    }


def test_a_difference_beyond_a_bigint_is_a_bad_value() -> None:
    lag = of_lag(
        "offset_status log_start_offset committed_offset", (NOON_MS, "g", "t", 0, "deleted_unread", GREATEST, -1)
    )
    with pytest.raises(BadValueError, match="Overflow"):
        group_rows(lag)


def test_of_equal_greatest_values_the_greatest_error_is_known() -> None:
    lag = of_lag(
        "consumer_lag_ms consumer_age_ms time_error_ms",
        (NOON_MS, "g", "t", 0, 5, 5, None),
        (NOON_MS, "g", "t", 1, 5, 6, 8),
        (NOON_MS, "g", "t", 2, 5, 9, None),
        (NOON_MS, "g", "t", 3, 4, 4, 100),
    )
    row = groups_of(lag)["g"]
    assert (row["consumer_lag_ms"], row["time_error_ms"]) == (5, 8)
    assert (row["consumer_age_ms"], row["age_error_ms"]) == (9, None)


@pytest.mark.parametrize(("late_us", "mean_ms"), [((0, 1_999), 1), ((-1_000, 0), -1), ((1_999, 1_999), 1)])
def test_half_a_millisecond_of_a_mean_instant_counts_as_one(late_us: tuple[int, int], mean_ms: int) -> None:
    rows = ((NOON_MS, "g", "t", n, NOON + timedelta(microseconds=late)) for n, late in enumerate(late_us))
    row = groups_of(of_lag("captured_at", *rows, (NOON_MS, "g", "t", 2, None)))["g"]
    assert (row["ends_at"], row["captured_at"]) == (NOON + timedelta(milliseconds=mean_ms), None)


def test_groups_of_other_snapshots_and_clusters_are_others() -> None:
    names = "cluster consumer_lag"
    rows = [(at, "g", "t", 0, cluster, lag) for at, cluster, lag in [(1, "a", 1), (2, "a", 2), (1, "b", 4)]]
    judged = [(*row[:5], status) for row, status in zip(rows, ("ok", "stopped", "unknown"), strict=True)]
    bucket = of_lag(names, *rows) | part("statuses", PARTITION_STATUS, "cluster status", judged)
    found = {(row["snapshot_id"], row["cluster"]): row for row in group_rows(bucket).to_pylist()}
    assert {key: (row["consumer_lag"], row["status"]) for key, row in found.items()} == {
        (1, "a"): (1, "ok"),
        (2, "a"): (2, "stopped"),
        (1, "b"): (4, "unknown"),
    }
