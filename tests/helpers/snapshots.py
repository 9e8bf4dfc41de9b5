"""What the tests of snapshots share: a fixed time, and what a snapshot of a quiet cluster leaves in the lake."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pipeline.lake import Lake, of_cluster
from pipeline.snapshot import SnapshotOutcome
from pipeline.tables import BRONZE, SNAPSHOTS, TABLES

DEAD = "127.0.0.1:1"
T0 = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
T0_MS = 1_769_860_800_000
ALL_ROWS = {"committed_offsets": 3, "group_members": 2, "watermarks": 2}
"""The rows of a snapshot of the cluster that `quiet.seed` makes."""

Take = Callable[..., dict[str, SnapshotOutcome]]


def clock(seconds: float = 0.0) -> Callable[[], datetime]:
    return lambda: T0 + timedelta(seconds=seconds)


def ledger_rows(lake: Lake, cluster: str) -> list[dict[str, Any]]:
    rows = lake.frame(SNAPSHOTS, of_cluster(cluster)).orderBy("snapshot_id").collect()
    return [row.asDict(recursive=True) for row in rows]


def bronze_rows(row: Any) -> dict[str, int]:
    """The ledger's numbers of rows in the tables that each snapshot writes; look-ups by time depend on earlier runs."""
    return {table: count for table, count in row["rows"].items() if table in ALL_ROWS}


def landed(lake: Lake, cluster: str) -> dict[str, int]:
    return {t.name: lake.frame(t, of_cluster(cluster)).count() for t in BRONZE}


def commits(folder: Path) -> dict[str, int]:
    return {t.name: len(list((folder / "lake" / t.name / "_delta_log").glob("*.json"))) for t in TABLES}
