"""Findings about members, brokers, clocks and the history: the same however many snapshots are computed together."""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from pyspark.sql import Row, SparkSession

from pipeline.common.epoch import MINUTE_MS, utc, utc_date
from pipeline.config import LakeConfig
from pipeline.derive import compute_cluster
from pipeline.derive.backlog import MAX_LOOKBACK, Backlog, Snapshot
from pipeline.derive.log_index import Index
from pipeline.derive.rare_problems import settled_snapshots
from pipeline.lake import Lake, of_snapshots
from pipeline.lake.few_rows import for_few_rows
from pipeline.tables import (
    COMMITTED_OFFSETS,
    FINDING_HISTORY,
    FINDINGS,
    GROUP_MEMBERS,
    SNAPSHOTS,
    WATERMARKS,
    Table,
)
from tests.helpers.stored import store, stored

T0 = 1_769_860_800_000
QUARTER_MS = 15 * MINUTE_MS
RESTARTS = (1, 2, 3, 4)
DEPLOYMENTS = (5, 6)
"""The snapshots in which the group with a standby has new members."""
UNREAD = (7, 8, 9)
"""The snapshots in which a broker did not describe the group, though its commits were read."""
UNDER_REPLICATED, WITHOUT_METADATA, AHEAD = (1, 2, 3, 4), 5, (10, 11, 12)
"""The snapshots in which broker 2 was not in sync, in which some metadata was not read, with a record of the future."""
FAILED = [T0 + 11 * QUARTER_MS + minute * MINUTE_MS for minute in (1, 2, 3)]
IDS = [T0 + number * QUARTER_MS for number in range(13)]
Rows = list[dict[str, Any]]


def bronze(number: int) -> dict[Table, Rows]:
    at = {"cluster": "east", "snapshot_id": IDS[number], "snapshot_date": utc_date(IDS[number])}
    at |= {"captured_at": utc(IDS[number])}
    orders = at | {"group_id": "orders", "group_type": "classic", "state": "Stable"}
    restarted = sum(number >= restart for restart in RESTARTS)
    deployed = sum(number >= deployment for deployment in DEPLOYMENTS)
    members = [("a-0", "a", 0), (f"b-{restarted}", "b", 1)]
    described: Rows = [
        orders | {"member_id": name, "client_id": client, "host": "/h", "topic": "t", "partition": partition}
        for name, client, partition in members
    ]
    if number in UNREAD:
        described = [orders | {"error": "COORDINATOR_NOT_AVAILABLE"}]
    standby = orders | {"group_id": "standby", "protocol": "consumer", "subscribed_topics": ["t"]}
    described += [
        standby
        | {"member_id": f"s-{n}-{deployed}", "client_id": f"s-{n}"}
        | ({"topic": "t", "partition": n} if n < 2 else {})
        for n in range(3)
    ]
    commit = at | {"topic": "t", "committed_offset": 9}
    ends = {"log_start_offset": 0, "last_stable_offset": 9, "high_watermark": 9, "log_end_offset": 9}
    isr = [1] if number in UNDER_REPLICATED else [1, 2]
    log = at | ends | {"topic": "t", "topic_id": "id", "leader": 1, "replicas": [1, 2], "isr": isr}
    log |= {"max_timestamp_ms": IDS[number] + (10 * MINUTE_MS if number in AHEAD else 0)}
    logs = [log | {"partition": partition} for partition in (0, 1)]
    if number in AHEAD:
        logs.append(log | {"topic": "seconds", "partition": 0, "max_timestamp_ms": IDS[number] // 1_000})
    if number == WITHOUT_METADATA:
        logs.append(at | {"error": "REQUEST_TIMED_OUT"})
    return {
        GROUP_MEMBERS: described,
        COMMITTED_OFFSETS: [
            commit | {"group_id": group, "partition": partition}
            for group in ("orders", "standby")
            for partition in (0, 1)
        ],
        WATERMARKS: logs,
    }


def land(lake: Lake, numbers: Sequence[int]) -> None:
    landed: dict[Table, Rows] = {}
    for number in numbers:
        rows = bronze(number)
        for table, some in rows.items():
            landed.setdefault(table, []).extend(some)
        errors = [("group_members", "orders", "COORDINATOR_NOT_AVAILABLE", 1)] if number in UNREAD else []
        errors += [("watermarks", "", "REQUEST_TIMED_OUT", 1)] if number == WITHOUT_METADATA else []
        landed.setdefault(SNAPSHOTS, []).append(
            {
                "cluster": "east",
                "snapshot_id": IDS[number],
                "snapshot_date": utc_date(IDS[number]),
                "run_id": "r",
                "status": "partial" if errors else "complete",
                "errors": errors,
                "groups": 1,
                "rows": {table.name: len(some) for table, some in rows.items()},
            }
        )
    at = [{"cluster": "east", "snapshot_id": i, "snapshot_date": utc_date(i)} for i in FAILED]
    landed[SNAPSHOTS] += [failed | {"run_id": "r", "status": "failed"} for failed in at]
    for table, found in landed.items():
        store(lake, table, found, of_snapshots("east", [*(IDS[n] for n in numbers), *FAILED]))


def snapshot(second: int) -> Snapshot:
    return Snapshot(T0 + 1_000 * second, "r", "complete", 0, 0, 0, 0, 0, 0)


# Case → the seconds of the snapshots before, those of the batch, and those of the batch that are judged.
SETTLED: dict[str, tuple[Sequence[int], Sequence[int], Sequence[int]]] = {
    "the first minutes of a lake": (range(0, 240, 60), [240], []),
    "just not half an hour": (range(0, 1_740, 60), [1_740], []),
    "half an hour": (range(0, 1_800, 60), [1_800], [1_800]),
    "a new lake in one batch": ([], range(0, 2_000, 60), range(1_800, 2_000, 60)),
    "an hour has no snapshots": ([0, 60, 120], [3_720], [3_720]),
    "too few snapshots for any rate": ([0, 3_600], [7_200, 10_800], [10_800]),
    "snapshots so close that half an hour is not looked back": (range(600, 1_800, 10), [1_800], [1_800]),
    "one fewer of them": (range(610, 1_800, 10), [1_800, 1_810], [1_810]),
}


@pytest.mark.parametrize("case", SETTLED)
def test_assignments_are_judged_once_the_history_shows_half_an_hour(case: str) -> None:
    before, batch, expected = SETTLED[case]
    with_lag = [snapshot(second) for second in before]
    backlog = Backlog(
        batch=[snapshot(second) for second in batch],
        before=with_lag[::-1][:MAX_LOOKBACK],
        index=Mock(spec=Index),  # not used
        has_more=False,
        history=[s.snapshot_id for s in with_lag],
    )
    assert settled_snapshots(backlog) == [T0 + 1_000 * second for second in expected]


def numbered(instant: datetime) -> int:
    return (int(instant.timestamp() * 1000) - T0) // QUARTER_MS


def times_of(row: Row) -> list[int | None]:
    """When a finding was first seen, last seen, resolved, and confirmed to be resolved."""
    times = (row.first_seen, row.last_seen, row.resolved_at, row.resolution_confirmed_at)
    return [None if instant is None else numbered(instant) for instant in times]


@pytest.mark.parametrize(
    "most",
    [
        pytest.param(None, marks=pytest.mark.thorough),
        # The second batch begins while problems last, have ended, and are resolved but not confirmed.
        pytest.param(7, marks=pytest.mark.thorough),
    ],
)
def test_each_problem_is_one_finding_until_snapshots_show_that_it_has_ended(
    spark: SparkSession, tmp_path: Path, most: int | None
) -> None:
    lake = Lake(spark, LakeConfig(root=str(tmp_path / "lake")))
    with for_few_rows(spark):
        lake.prepare()
        land(lake, range(len(IDS)))
        compute_cluster(lake, "east", lambda: utc(IDS[-1]), most=most)
        rows = stored(lake, FINDINGS)
        history = stored(lake, FINDING_HISTORY, "kind = 'flapping_member'")
    found = {row.kind: row for row in rows}
    assert {kind: (row.group_id, row.client_id, row.topic, *times_of(row)) for kind, row in found.items()} == {
        "flapping_member": ("orders", None, None, 4, 6, 10, 12),
        # It is judged as soon as there are three snapshots before, and half an hour. The three after a deployment do
        # not resolve it.
        "idle_member": ("standby", None, "t", 3, 12, None, None),
        "under_replicated": (None, None, None, 2, 4, 6, 8),
        "clock_ahead": (None, None, "t", 10, 12, None, None),
        "clock_behind": (None, None, "seconds", 10, 12, None, None),
        "snapshots_missing": (None, None, None, 12, 12, None, None),
    }
    assert len(rows) == len(found)
    assert sorted((r.snapshot_id - T0) // QUARTER_MS for r in history) == [4, 5, 6]
