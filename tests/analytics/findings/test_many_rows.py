"""Problems are the same however many rows they are found in: on the driver, and in buckets of Spark's workers."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from pipeline.analytics.findings.assignments import ASSIGNMENT_PARTS, find_assignment_problems
from pipeline.analytics.findings.clocks import STAMPED, find_clocks
from pipeline.analytics.findings.rebalances import RESTLESS_PARTS, find_restless_groups
from pipeline.analytics.findings.replicas import REPLICA_PARTS, find_missing_replicas
from pipeline.analytics.findings.unreadable import UNREADABLE_PARTS, find_unreadable
from pipeline.common.rows import Rows
from pipeline.tables import COMMITTED_OFFSETS, GROUP_CHANGES, GROUP_MEMBERS, GROUP_STATUS, LAG, WATERMARKS
from tests.helpers.rows import few_rows

THEN, NOW = 0, 300_000
RESTARTS = range(NOW - 7 * 300_000, NOW + 1, 300_000)
Parts = Mapping[str, Rows]


def unreadable() -> Parts:
    """Two snapshots of four readers with an error, and of a group that could not be read at all."""
    names = "snapshot_id group_id topic partition error"
    errors = [(at, group, "t", number, "E") for at in (THEN, NOW) for group in ("a", "b") for number in (0, 1)]
    unread = [(at, "c", None, None, "E") for at in (THEN, NOW)]
    return {
        "lag": few_rows(LAG, names, *errors),
        "commits": few_rows(COMMITTED_OFFSETS, names, *unread),
        "watermarks": few_rows(WATERMARKS, "snapshot_id topic partition leader replicas"),
    }


def under_replicated() -> Parts:
    """Five partitions without broker 3, one of which has no leader; two groups read it."""
    logs = [(at, "t", number, number or None, [1, 2, 3], [1, 2]) for at in (THEN, NOW) for number in range(5)]
    readers = [(NOW, group, "t", number) for group in ("a", "b") for number in range(5)]
    return {
        "watermarks": few_rows(WATERMARKS, "snapshot_id topic partition leader replicas isr", *logs),
        "lag": few_rows(LAG, "snapshot_id group_id topic partition", *readers),
    }


def wrong_clocks() -> Parts:
    """Three topics, whose newest records are an hour, two hours and three hours ahead."""
    at = datetime.fromtimestamp(NOW / 1000, UTC)
    rows = [(NOW, f"t{n}", p, at, NOW + (n + 1) * 3_600_000 - p, 7) for n in range(3) for p in range(2)]
    names = "snapshot_id topic partition captured_at max_timestamp_ms max_timestamp_offset"
    return {"watermarks": few_rows(WATERMARKS, names, *rows)}


def restless_groups() -> Parts:
    """Two groups, in each of which one member restarts in each of the eight snapshots, and one that is calm."""
    names = "snapshot_id earlier_snapshot_id group_id change before after client_id host"
    restarts = [
        (at, at - 300_000, group, "restarted", f"m{at - 300_000}", f"m{at}", "bad", "/h")
        for at in RESTARTS
        for group in ("a", "b")
    ]
    members = [(NOW, group, f"m{NOW}", "bad", "/h") for group in ("a", "b")]
    members += [(NOW, group, "calm", "calm", "/h") for group in ("a", "b", "c")]
    return {
        "changes": few_rows(GROUP_CHANGES, names, *restarts),
        "members": few_rows(GROUP_MEMBERS, "snapshot_id group_id member_id client_id host", *members),
    }


def assignments() -> Parts:
    """A group with a member too many, one in which a member has all partitions, and one in which each has one."""
    names = "snapshot_id group_id state protocol subscribed_topics member_id topic partition"
    common = ("Stable", "consumer")
    members: list[tuple[Any, ...]] = [(NOW, "idle", *common, ["four"], f"m{n}", "four", n) for n in range(4)]
    members.append((NOW, "idle", *common, ["four"], "m4", None, None))
    members += [(NOW, "uneven", *common, ["four"], "m0", "four", n) for n in range(4)]
    members.append((NOW, "uneven", *common, ["four"], "m1", None, None))
    members += [(NOW, "even", *common, ["four"], f"m{n}", "four", n) for n in range(4)]
    lags = [(NOW, group, "four", n, "m0", 10) for group in ("idle", "uneven", "even") for n in range(4)]
    statuses = [(NOW, group, {"warning": 4}, 40) for group in ("uneven", "even")]
    return {
        "members": few_rows(GROUP_MEMBERS, names, *members),
        "groups": few_rows(GROUP_STATUS, "snapshot_id group_id statuses consumer_lag", *statuses),
        "lag": few_rows(LAG, "snapshot_id group_id topic partition member_id consumer_lag", *lags),
        "changes": few_rows(GROUP_CHANGES, "snapshot_id group_id change"),
        "watermarks": few_rows(WATERMARKS, "snapshot_id topic partition", *((NOW, "four", n) for n in range(4))),
    }


CASES: dict[
    str, tuple[Parts, Mapping[str, StructType], Callable[[Parts], Rows], set[tuple[str, str | None, float]]]
] = {
    "unreadable": (
        unreadable(),
        UNREADABLE_PARTS,
        lambda parts: find_unreadable(parts, {NOW: THEN}, 3),
        {("unreadable", None, 5.0)},
    ),
    "replicas": (
        under_replicated(),
        REPLICA_PARTS,
        lambda parts: find_missing_replicas(parts, {NOW: THEN}, {NOW: THEN}, 3),
        {("under_replicated", None, 5.0)},
    ),
    "restless": (
        restless_groups(),
        RESTLESS_PARTS,
        lambda parts: find_restless_groups(parts, [NOW], 3),
        {("flapping_member", None, 7.0)},
    ),
    "assignments": (
        assignments(),
        {**ASSIGNMENT_PARTS, "watermarks": WATERMARKS.some(("cluster", "snapshot_id", "topic"))},
        lambda parts: find_assignment_problems(parts, 3),
        {("idle_member", "four", 1.0), ("uneven_assignment", "four", 4.0)},
    ),
    "clocks": (
        wrong_clocks(),
        {"watermarks": STAMPED},
        lambda parts: find_clocks(parts["watermarks"]),
        {("clock_ahead", f"t{n}", (n + 1) * 3_600_000.0) for n in range(3)},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_many_rows_have_the_same_problems_as_few(spark: SparkSession, case: str) -> None:
    few, schemas, find, expected = CASES[case]
    many = {
        name: Rows(rows.chosen(schemas[name]).frame(spark, schemas[name]).repartition(2)) for name, rows in few.items()
    }
    found = [find(parts).collected() for parts in (few, many)]
    for problems in found:
        assert {(row["kind"], row["topic"], row["magnitude"]) for row in problems} == expected
    by_driver, by_spark = (sorted(problems, key=str) for problems in found)
    assert by_driver == by_spark
