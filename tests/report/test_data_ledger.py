"""What the report computes from the ledger: the clusters, the newest snapshots, and the instants of charts."""

from pipeline.report.model.ledger import Cluster, PassedOver, SnapshotError
from pipeline.report.read import aggregates
from pipeline.report.read.objects import clusters, snapshots
from pipeline.tables import COMPUTED, LAG, SNAPSHOTS
from tests.helpers.reports import MINUTE, NOON, known, snapshot, table_of


def test_a_snapshot_has_lag_only_if_it_is_readable_and_was_calculated() -> None:
    statuses = ["complete", "partial", "failed", "running", "complete"]
    taken = table_of(SNAPSHOTS, *(snapshot(i, s) for i, s in enumerate(statuses)))
    calculated = table_of(COMPUTED, *(snapshot(i, job="lag") for i in range(4)), snapshot(0, job="lag"))
    found = aggregates.ledger(taken, calculated).to_pylist()
    assert sorted(((r["snapshot_id"] - NOON) // MINUTE, r["has_lag"]) for r in found) == [
        (0, True),
        (1, True),
        (2, False),
        (3, False),
        (4, False),
    ]


def test_the_newest_snapshot_is_the_newest_that_has_ended() -> None:
    refused = [("cluster", "east", "no route", 1), ("group", "g", "NOT_COORDINATOR", 2)]
    taken = table_of(
        SNAPSHOTS,
        snapshot(0, groups=3, partitions=9, expected={"groups": 3}, rows={"watermarks": 2, "committed_offsets": 7}),
        snapshot(1, "failed", errors=refused),
        snapshot(2, "running"),
        snapshot(0, "running", cluster="west"),
    )
    found = aggregates.clusters(aggregates.ledger(taken, table_of(LAG, known(0, "g", 1))))
    east = ("east", NOON + 60_000, "failed", "no route", None, None, {}, NOON, NOON + 120_000, NOON)
    west = ("west", NOON, "running", None, None, None, {}, NOON, NOON, None)
    assert clusters(found) == (Cluster(*east, 3, 1, 0, 1, 1, None), Cluster(*west, 1, 0, 0, 0, 1, None))
    assert found["most_rows"].to_pylist() == [9, 0]


def test_snapshots_that_were_passed_over_are_those_with_the_problem_and_without_lag() -> None:
    other = ("group", "g", "NOT_COORDINATOR", 2)
    gone = ("lag", None, "some of the rows in watermarks are gone", 1)
    overflow = ("lag", None, "long overflow", 1)
    taken = table_of(
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
    found = aggregates.clusters(aggregates.ledger(taken, table_of(LAG, known(0, "g", 1), known(3, "g", 1))))
    gone_at = NOON + MINUTE, NOON + 4 * MINUTE
    assert {of.cluster: of.passed_over for of in clusters(found)} == {
        "east": PassedOver(3, *gone_at, "some of the rows in watermarks are gone", has_other_reasons=True),
        "north": PassedOver(2, NOON, NOON + MINUTE, "long overflow", has_other_reasons=False),
        "west": None,
    }


def test_the_newest_snapshots_of_any_status_are_listed_and_errors_left_out_are_counted() -> None:
    errors = [("group", f"g{i}", "NOT_COORDINATOR", 1) for i in range(25)]
    taken = table_of(SNAPSHOTS, snapshot(0), snapshot(2, "running"), snapshot(1, "partial", errors=errors, groups=7))
    newest = snapshots(aggregates.newest_snapshots(taken, 2))
    assert [(s.snapshot_id, s.status, s.errors_total) for s in newest] == [
        (NOON + 120_000, "running", 0),
        (NOON + 60_000, "partial", 25),
    ]
    assert newest[1].errors == tuple(SnapshotError("group", f"g{i}", "NOT_COORDINATOR", 1) for i in range(20))
    assert (newest[1].started_ms, newest[1].finished_ms) == (NOON + 60_000, NOON + 60_000)
    assert newest[0].finished_ms is None


def test_a_hole_in_the_ledger_starts_a_new_segment() -> None:
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
    taken = table_of(SNAPSHOTS, *rows)
    found: dict[str, list[tuple[float, int]]] = {name: [] for name in cases}
    for row in aggregates.instants(aggregates.ledger(taken, taken), 10).to_pylist():
        found[row["cluster"]].append(((row["snapshot_id"] - NOON) / MINUTE, row["segment"]))
    assert found == {name: expected for name, (_, expected) in cases.items()}


def test_thinning_keeps_the_newest_and_no_hole_is_lost() -> None:
    rows = [snapshot(minute, "failed" if minute == 6 else "complete", "thinned") for minute in range(8)]
    rows += [snapshot(minute, cluster="just fits") for minute in range(3)]
    taken = table_of(SNAPSHOTS, *rows)
    found = aggregates.instants(aggregates.ledger(taken, taken), 3).to_pylist()
    assert [tuple(row.values()) for row in found] == [
        *(("just fits", NOON + m * MINUTE, 0, 3) for m in (0, 1, 2)),
        *(("thinned", NOON + m * MINUTE, int(m > 6), 7) for m in (2, 4, 7)),
    ]
    newest = aggregates.instants(aggregates.ledger(taken, taken), 1, newest=3).to_pylist()
    assert [(r["snapshot_id"] - NOON) // MINUTE for r in newest if r["cluster"] == "thinned"] == [4, 5, 7]
