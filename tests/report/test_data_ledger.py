"""What the report computes from the ledger: the clusters, the newest snapshots, and the instants of charts."""

from chispa import assert_df_equality
from pyspark.sql import SparkSession

from pipeline.report import data
from pipeline.tables import COMPUTED, LAG, SNAPSHOTS
from tests.helpers.reports import MINUTE, NOON, frame, known, snapshot


def test_a_snapshot_has_lag_only_if_it_is_readable_and_was_calculated(spark: SparkSession) -> None:
    statuses = ["complete", "partial", "failed", "running", "complete"]
    snapshots = frame(spark, SNAPSHOTS, *(snapshot(i, s) for i, s in enumerate(statuses)))
    calculated = frame(spark, COMPUTED, *(snapshot(i, job="lag") for i in range(4)), snapshot(0, job="lag"))
    expected = [(NOON, True), (NOON + 60_000, True), (NOON + 120_000, False)]
    expected += [(NOON + 180_000, False), (NOON + 240_000, False)]
    assert_df_equality(
        data.ledger(snapshots, calculated).select("snapshot_id", "has_lag"),
        spark.createDataFrame(expected, "snapshot_id bigint, has_lag boolean"),
        ignore_row_order=True,
        ignore_nullable=True,
        ignore_metadata=True,
    )


def test_the_newest_snapshot_is_the_newest_that_has_ended(spark: SparkSession) -> None:
    refused = [("cluster", "east", "no route", 1), ("group", "g", "NOT_COORDINATOR", 2)]
    snapshots = frame(
        spark,
        SNAPSHOTS,
        snapshot(0, groups=3, partitions=9, expected={"groups": 3}, rows={"watermarks": 2, "committed_offsets": 7}),
        snapshot(1, "failed", errors=refused),
        snapshot(2, "running"),
        snapshot(0, "running", cluster="west"),
    )
    found = data.clusters(data.ledger(snapshots, frame(spark, LAG, known(0, "g", 1)))).collect()
    east = ["east", NOON + 60_000, "failed", "no route", None, None, None, NOON, NOON + 120_000, NOON]
    west = ["west", NOON, "running", None, None, None, None, NOON, NOON, None]
    assert [list(row) for row in found] == [[*east, 3, 9, 1, 0, 1, 1, None], [*west, 1, 0, 0, 0, 0, 1, None]]


def test_snapshots_that_were_passed_over_are_those_with_the_problem_and_without_lag(spark: SparkSession) -> None:
    other = ("group", "g", "NOT_COORDINATOR", 2)
    gone = ("lag", None, "some of the rows in watermarks are gone", 1)
    overflow = ("lag", None, "long overflow", 1)
    snapshots = frame(
        spark,
        SNAPSHOTS,
        snapshot(0, errors=[gone]),  # computed before the rows were gone
        snapshot(1, "partial", errors=[*[other] * 30, gone]),
        snapshot(2, errors=[overflow]),
        snapshot(3, "partial", errors=[other]),
        snapshot(4, errors=[gone]),
        snapshot(5),
        snapshot(0, cluster="north", errors=[overflow]),
        snapshot(1, cluster="north", errors=[overflow]),
        snapshot(0, cluster="west", errors=[]),
    )
    found = data.clusters(data.ledger(snapshots, frame(spark, LAG, known(0, "g", 1), known(3, "g", 1)))).collect()
    assert {row["cluster"]: row["passed_over"] and tuple(row["passed_over"]) for row in found} == {
        "east": (3, NOON + MINUTE, NOON + 4 * MINUTE, "some of the rows in watermarks are gone", True),
        "north": (2, NOON, NOON + MINUTE, "long overflow", False),
        "west": None,
    }


def test_the_newest_snapshots_of_any_status_are_listed_and_errors_left_out_are_counted(spark: SparkSession) -> None:
    errors = [("group", f"g{i}", "NOT_COORDINATOR", 1) for i in range(25)]
    snapshots = frame(
        spark, SNAPSHOTS, snapshot(0), snapshot(2, "running"), snapshot(1, "partial", errors=errors, groups=7)
    )
    newest = data.newest_snapshots(snapshots, 2).collect()
    assert [(r["snapshot_id"], r["status"], r["errors_total"]) for r in newest] == [
        (NOON + 120_000, "running", 0),
        (NOON + 60_000, "partial", 25),
    ]
    assert [e["where"] for e in newest[1]["errors"]] == [f"g{i}" for i in range(20)]
    assert (newest[1]["started_ms"], newest[1]["finished_ms"]) == (NOON + 60_000, NOON + 60_000)
    assert newest[0]["finished_ms"] is None


def test_a_hole_in_the_ledger_starts_a_new_segment(spark: SparkSession) -> None:
    ok = "complete"
    # Each case is a cluster: the minutes and statuses of its snapshots, and the segments expected.
    cases: dict[str, tuple[dict[float, str], list[tuple[float, int]]]] = {
        "nothing is missing": ({0: ok, 1: "partial"}, [(0, 0), (1, 0)]),
        "one failed": ({0: ok, 1: "failed", 2: ok}, [(0, 0), (2, 1)]),
        "one was killed": ({0: ok, 1: "running", 2: ok}, [(0, 0), (2, 1)]),
        "one was missed": ({0: ok, 1: ok, 3: ok, 4: ok}, [(0, 0), (1, 0), (3, 1), (4, 1)]),
        "called less often than scheduled": ({0: ok, 5: ok, 10: ok}, [(0, 0), (5, 0), (10, 0)]),
        "late, but not by another step": ({0: ok, 5: ok, 14.9: ok}, [(0, 0), (5, 0), (14.9, 0)]),
        "too hurried to miss one": ({0: ok, 0.1: ok, 0.9: ok}, [(0, 0), (0.1, 0), (0.9, 0)]),
    }
    rows = [
        {**snapshot(0, status, name, schedule_ms=1_000), "snapshot_id": NOON + int(minute * MINUTE)}
        for name, (statuses, _) in cases.items()
        for minute, status in statuses.items()
    ]
    snapshots = frame(spark, SNAPSHOTS, *rows)
    found: dict[str, list[tuple[float, int]]] = {name: [] for name in cases}
    for row in data.instants(data.ledger(snapshots, snapshots), 10).collect():
        found[row["cluster"]].append(((row["snapshot_id"] - NOON) / MINUTE, row["segment"]))
    assert found == {name: expected for name, (_, expected) in cases.items()}


def test_thinning_keeps_the_newest_and_no_hole_is_lost(spark: SparkSession) -> None:
    rows = [snapshot(minute, "failed" if minute == 6 else "complete", "thinned") for minute in range(8)]
    rows += [snapshot(minute, cluster="just fits") for minute in range(3)]
    snapshots = frame(spark, SNAPSHOTS, *rows)
    found = data.instants(data.ledger(snapshots, snapshots), 3).collect()
    assert [tuple(row) for row in found] == [
        *(("just fits", NOON + m * MINUTE, 0, 3) for m in (0, 1, 2)),
        *(("thinned", NOON + m * MINUTE, int(m > 6), 7) for m in (2, 4, 7)),
    ]
    newest = data.instants(data.ledger(snapshots, snapshots), 1, newest=3).where("cluster = 'thinned'").collect()
    assert [(r["snapshot_id"] - NOON) // MINUTE for r in newest] == [4, 5, 7]
