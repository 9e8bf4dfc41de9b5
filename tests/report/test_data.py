"""What the report computes from `lag`: the groups, their sums, and the points of charts."""

import json
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from pipeline.analytics.status.group_status import group_rows
from pipeline.report.model.report import Group, Point, Totals
from pipeline.report.read import aggregates
from pipeline.report.read.objects import made
from pipeline.tables import LAG
from tests.conftest import ROOT
from tests.helpers.reports import NOON, at, frame, known, lag_row, table_of


def query_of(notebook: str, text: str) -> str:
    """The SQL in the only cell that contains the text."""
    cells = json.loads((ROOT / "notebooks" / notebook).read_text("utf-8"))["cells"]
    (source,) = (source for cell in cells if text in (source := "".join(cell["source"])))
    found: str = source.split('"""')[1]
    return found


def groups_of(*rows: dict[str, Any]) -> tuple[Group, ...]:
    """The groups that rows of `lag` are of, none of which was judged."""
    return made(Group, aggregates.worst_first(summed(*rows), 9))


def summed(*rows: dict[str, Any]) -> pa.Table:
    """The rows of `group_status` for rows of `lag`."""
    return group_rows({"lag": table_of(LAG, *rows)})


def mixed() -> list[dict[str, Any]]:
    """A group with known and unknown lags, in four partitions."""
    member = {"group_state": "Stable", "group_type": "consumer", "member_id": "m1"}
    return [
        lag_row(
            0,
            "mixed",
            0,
            consumer_lag=7,
            consumer_lag_stable=4,
            transaction_lag=3,
            headroom=20,
            client_id="c2",
            consumer_lag_bytes=70,
            bytes_error=3,
            consumer_lag_ms=900,
            time_error_ms=8,
            consumer_age_ms=4_000,
            **member,
        ),
        lag_row(0, "mixed", 1, consumer_lag=-2, headroom=50, offset_status="beyond_end", client_id="c1", **member),
        lag_row(
            0,
            "mixed",
            2,
            offset_status="no_commit",
            transaction_lag=1,
            log_start_offset=50,
            high_watermark=80,
            **member,
        ),
        lag_row(0, "mixed", 3, offset_status="no_watermark", error="LEADER_NOT_AVAILABLE", **member),
    ]


def both_known() -> list[dict[str, Any]]:
    """A group at a snapshot in which the lag of both of its partitions is known."""
    return [
        known(
            0,
            "g",
            5,
            consumer_lag_bytes=500,
            consumer_lag_ms=80,
            headroom=3,
            high_watermark=20,
            committed_offset=15,
            consumer_age_ms=95,
            captured_at=at(0, seconds=80),
            committed_captured_at=at(0, seconds=70),
        ),
        lag_row(
            0,
            "g",
            1,
            consumer_lag=6,
            consumer_lag_bytes=200,
            consumer_lag_ms=90,
            headroom=-9,
            offset_status="deleted_unread",
            high_watermark=20,
            committed_offset=14,
            captured_at=at(0, seconds=90),
            committed_captured_at=at(0, seconds=70),
        ),
    ]


def test_a_group_sums_what_is_known_and_counts_what_is_not() -> None:
    (found,) = groups_of(*mixed())
    assert found == Group(
        cluster="east",
        snapshot_id=NOON,
        group_id="mixed",
        partitions=4,
        partitions_unknown=1,
        consumer_lag=7,
        max_consumer_lag=7,
        consumer_lag_stable=4,
        stable_unknown=2,
        transaction_lag=4,
        min_headroom=20,
        unread_offsets=None,
        statuses={"ok": 1, "beyond_end": 1, "no_commit": 1, "no_watermark": 1},
        group_state="Stable",
        group_type="consumer",
        members=1,
        clients=2,
        client_id="c1",
        rows_with_error=1,
        error="LEADER_NOT_AVAILABLE",
        consumer_lag_bytes=70,
        bytes_error=3,
        bytes_unknown=1,
        consumer_lag_ms=900,
        time_error_ms=8,
        ms_unknown=1,
        consumer_age_ms=4_000,
        age_error_ms=8,
        age_unknown=1,
        not_committed_offsets=30,
    )


ABSURD = 2**63 - 1
"""The greatest offset that a client may commit."""


def test_a_commit_beyond_the_end_of_one_partition_hides_no_backlog() -> None:
    beyond = {"consumer_lag": 1_000 - ABSURD, "consumer_lag_stable": 900 - ABSURD, "consumer_lag_bytes": -5_000}
    beyond |= {"committed_offset": ABSURD, "high_watermark": 1_000, "offset_status": "beyond_end"}
    unread = {
        "consumer_lag_stable": 4_900,
        "consumer_lag_bytes": 50_000,
        "committed_offset": 0,
        "high_watermark": 5_000,
    }
    rows = lag_row(0, "g", 0, **beyond), lag_row(0, "g", 1, consumer_lag=5_000, **unread)
    (found,) = groups_of(*rows)
    assert (found.consumer_lag, found.consumer_lag_stable, found.consumer_lag_bytes) == (5_000, 4_900, 50_000)
    assert found.statuses == {"ok": 1, "beyond_end": 1}
    # Nobody has read beyond the end, so a rate of commits does not count it.
    (point,) = made(Point, aggregates.points(summed(*rows)))
    assert (point.commits, point.log_ends) == (1_000, 6_000)


def test_a_group_says_why_it_has_no_lag_and_how_much_it_has_lost() -> None:
    rows = (
        lag_row(0, "unknown", 0, offset_status=None, error="NOT_COORDINATOR"),
        lag_row(0, "uncommitted", 0, offset_status="no_commit"),
        known(0, "lost", 90, headroom=-15, committed_offset=5, log_start_offset=20, offset_status="deleted_unread"),
        # A client has consumed two of these five.
        lag_row(
            0,
            "lost",
            1,
            consumer_lag=10,
            headroom=-5,
            committed_offset=5,
            consumed_offset=7,
            log_start_offset=10,
            offset_status="deleted_unread",
        ),
        known(0, "went on", 9, headroom=-5, consumed_offset=12, offset_status="deleted_uncommitted"),
        # The topic was recreated, so the old headroom does not mean a loss in the new topic.
        known(0, "recreated", 0, headroom=-7, offset_status="recreated"),
    )
    found = {group.group_id: group for group in groups_of(*rows)}
    assert {
        g.group_id: (g.consumer_lag, g.partitions_unknown, g.why_no_lag, g.unread_offsets, g.statuses)
        for g in found.values()
    } == {
        "unknown": (None, 1, "unknown", None, {"unknown": 1}),
        "uncommitted": (None, 0, "no commit", None, {"no_commit": 1}),
        "lost": (100, 0, "no commit", 18, {"deleted_unread": 2}),
        "went on": (9, 0, "no commit", None, {"deleted_uncommitted": 1}),
        "recreated": (0, 0, "no commit", None, {"recreated": 1}),
    }
    assert (found["lost"].min_headroom, found["lost"].stable_unknown) == (-15, 1)
    assert (found["unknown"].members, found["unknown"].client_id, found["unknown"].error) == (
        0,
        None,
        "NOT_COORDINATOR",
    )


def test_groups_that_lost_data_come_first_and_unknown_lag_last() -> None:
    groups = summed(
        lag_row(0, "unknown", 0, offset_status="no_watermark"),
        known(0, "small", 1),
        known(0, "big", 1_000),
        known(0, "lost", 0, offset_status="deleted_unread", headroom=-1),
    )

    def names(groups: pa.Table, *found: str) -> list[str]:
        listed: list[str] = aggregates.worst_first(groups, 3, found)["group_id"].to_pylist()
        return listed

    assert names(groups) == ["lost", "big", "small"]
    assert names(groups, "unknown", "lost", "absent") == ["lost", "unknown", "big"]
    stopped = [row | {"status": "stopped" if row["group_id"] == "small" else None} for row in groups.to_pylist()]
    assert names(pa.Table.from_pylist(stopped, groups.schema)) == ["lost", "small", "big"]
    assert made(Totals, aggregates.totals(groups)) == (Totals("east", 4, 1, 1, 0, 0, None),)


def test_what_is_not_committed_yet_is_bounded_by_the_logs_and_by_what_was_consumed() -> None:
    def not_committed(group: str, partition: int, **more: Any) -> dict[str, Any]:
        return lag_row(0, group, partition, offset_status="no_commit", high_watermark=100, **more)

    rows = (
        known(0, "both", 7),
        not_committed("both", 1, log_start_offset=40),
        not_committed("both", 2, log_start_offset=40, consumed_offset=90),
        not_committed("seen in part", 0, log_start_offset=0),
        not_committed("seen in part", 1, log_start_offset=None),
        not_committed("elsewhere", 0, log_start_offset=40, cluster="west"),
        known(0, "committed", 1, log_start_offset=0, high_watermark=100, cluster="west"),
    )
    found = {group.group_id: (group.consumer_lag, group.not_committed_offsets) for group in groups_of(*rows)}
    assert found == {
        "both": (7, 70),
        "seen in part": (None, None),
        "elsewhere": (None, 60),
        "committed": (1, None),
    }
    totals = made(Totals, aggregates.totals(summed(*rows)))
    assert [(t.cluster, t.groups_not_committed, t.not_committed_offsets) for t in totals] == [
        ("east", 2, None),
        ("west", 1, 60),
    ]


def test_the_notebook_counts_what_was_lost_in_each_partition(spark: SparkSession) -> None:
    def lost(minute: int, group: str, partition: int, start: int, **more: Any) -> dict[str, Any]:
        plain = {"committed_offset": 10, "offset_status": "deleted_unread", "captured_at": at(minute, seconds=30)}
        return lag_row(minute, group, partition, log_start_offset=start, **plain | more)

    lag = frame(
        spark,
        LAG,
        *(lost(minute, "over", 0, 20 + 10 * minute) for minute in (0, 1)),
        lost(1, "over", 1, 15),
        lost(2, "over", 0, 90, committed_offset=95, offset_status="ok"),
        *(lost(minute, "lasts", 0, 20) for minute in (0, 1, 2)),
        lost(1, "read meanwhile", 0, 20, consumed_offset=20, offset_status="deleted_uncommitted"),
        lost(1, "gone", 0, 13),
    )
    lag.createOrReplaceTempView("lag")
    counted = spark.sql(query_of("06_sql.ipynb", "offset_status = 'deleted_unread'")).collect()
    spark.catalog.dropTempView("lag")
    lost_by = sorted((r["group_id"], r["partition"], r["lost"]) for r in counted)
    assert lost_by == [("gone", 0, 3), ("lasts", 0, 10), ("over", 0, 20), ("over", 1, 5)]


def test_points_keep_an_unknown_lag_unknown() -> None:
    rows = (
        *both_known(),
        known(1, "g", 5, high_watermark=20),
        lag_row(1, "g", 1, offset_status=None),
        lag_row(2, "g", 0, offset_status="no_watermark"),
    )
    read = {"captured_ms": NOON + 85_000, "committed_captured_ms": NOON + 70_000}
    first = Point("east", NOON, "g", 11, 0, 700, 0, 90, 0, 2, 1, 40, 29, 95, 1, **read)
    assert made(Point, aggregates.points(summed(*rows).select(aggregates.POINT_READ))) == (
        first,
        Point("east", NOON + 60_000, "g", 5, 1, None, 1, None, 1, 2, 0, None, None, None, 1, None, None),
        Point("east", NOON + 120_000, "g", None, 1, None, 0, None, 0, 1, 0, None, None, None, 0, None, None),
    )
