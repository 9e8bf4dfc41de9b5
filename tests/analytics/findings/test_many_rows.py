"""Problems are the same however many rows they are found in: on the driver, and in buckets of Spark's workers."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from pipeline.analytics.findings.clocks import STAMPED, find_clocks
from pipeline.analytics.findings.replicas import REPLICA_PARTS, find_under_replicated
from pipeline.analytics.findings.unreadable import UNREADABLE_PARTS, find_unreadable
from pipeline.common.rows import Rows
from pipeline.tables import COMMITTED_OFFSETS, LAG, WATERMARKS
from tests.helpers.rows import few_rows

THEN, NOW = 0, 300_000
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
        lambda parts: find_under_replicated(parts, {NOW: THEN}, {NOW: THEN}, 3),
        {("under_replicated", None, 5.0)},
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
