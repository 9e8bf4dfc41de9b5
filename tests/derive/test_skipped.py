"""Findings about commits that a tool has moved: the same however many snapshots are computed together, and when."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession

from pipeline.common.epoch import MINUTE_MS, utc, utc_date
from pipeline.config import LakeConfig
from pipeline.derive import compute_cluster
from pipeline.lake import Lake, of_snapshots
from pipeline.lake.few_rows import for_few_rows
from pipeline.tables import COMMITTED_OFFSETS, FINDING_HISTORY, FINDINGS, GROUP_MEMBERS, SNAPSHOTS, WATERMARKS, Table
from tests.helpers.stored import store, stored

T0 = 1_769_860_800_000
SNAPSHOTS_TAKEN = 11
LAST = SNAPSHOTS_TAKEN - 1
IDS = [T0 + number * MINUTE_MS for number in range(SNAPSHOTS_TAKEN)]
STOPPED, RESET, GOES_ON, UNDONE = 4, 6, 7, 8
"""The groups have no members from the first on; their commits are other ones from the second on; one group goes on."""
END, EPOCH = 5_000, 2
LATE = 5
Rows = list[dict[str, Any]]


def committed(number: int) -> dict[tuple[str, str, int], tuple[int, int | None]]:
    """What each group has committed in each partition, and the leader epoch."""
    before = 100 * min(number, STOPPED - 1)
    is_reset = number >= RESET
    moved = (1_300, None) if is_reset else (before, EPOCH)
    undone = (before, None) if number >= UNDONE else moved
    after = (END - 100 + number, EPOCH) if number >= GOES_ON else moved
    return {
        ("shop", "t", 0): undone,
        ("shop", "t", 1): (310, None) if is_reset else (before, EPOCH),
        ("shop", "u", 0): (before, EPOCH),
        ("bank", "t", 0): after,
        ("bank", "t", 1): (END, EPOCH),
        ("job", "t", 0): (1_300 if is_reset else before, EPOCH),
        ("maps", "t", 0): (before + 40 + 900 * is_reset, None) if number >= STOPPED else (before, EPOCH),
        ("back", "t", 0): (1, None) if is_reset else (before, EPOCH),
        ("new", "again", 0): moved,
    }


def bronze(number: int) -> dict[Table, Rows]:
    at = {"cluster": "east", "snapshot_id": IDS[number], "snapshot_date": utc_date(IDS[number])}
    at |= {"captured_at": utc(IDS[number])}
    commits = committed(number)
    groups = sorted({group for group, _, _ in commits})
    runs = {group: number < STOPPED or (group == "bank" and number >= GOES_ON) for group in groups}
    ends = {"log_start_offset": 0, "last_stable_offset": END, "high_watermark": END, "log_end_offset": END}
    log = at | ends | {"leader": 1, "leader_epoch": EPOCH, "replicas": [1], "isr": [1]}
    ids = {"t": "t", "u": "u", "again": f"again-{number >= RESET}"}
    logs = [
        log | {"topic": topic, "partition": partition, "topic_id": ids[topic], "log_bytes": 10 * END}
        for topic, partition in sorted({(topic, partition) for _, topic, partition in commits})
    ]
    return {
        GROUP_MEMBERS: [
            at
            | {"group_id": group, "group_type": "classic"}
            | ({"state": "Stable", "member_id": group, "client_id": group} if runs[group] else {"state": "Empty"})
            for group in groups
        ],
        COMMITTED_OFFSETS: [
            at
            | {"group_id": group, "topic": topic, "partition": partition}
            | {"committed_offset": offset, "leader_epoch": epoch}
            for (group, topic, partition), (offset, epoch) in commits.items()
        ],
        WATERMARKS: logs,
    }


def land(lake: Lake, numbers: Iterable[int]) -> None:
    landed: dict[Table, Rows] = {}
    for number in numbers:
        rows = bronze(number)
        for table, some in rows.items():
            landed.setdefault(table, []).extend(some)
        at = {"cluster": "east", "snapshot_id": IDS[number], "snapshot_date": utc_date(IDS[number])}
        counts = {table.name: len(some) for table, some in rows.items()}
        known = at | {"run_id": "r", "status": "complete", "groups": 6, "rows": counts}
        landed.setdefault(SNAPSHOTS, []).append(known)
    for table, found in landed.items():
        ids = sorted({row["snapshot_id"] for row in found})
        store(lake, table, found, of_snapshots("east", ids))


def times_of(row: Row) -> list[int | None]:
    times = (row.first_seen, row.last_seen, row.resolved_at, row.resolution_confirmed_at)
    return [None if instant is None else (int(instant.timestamp() * 1000) - T0) // MINUTE_MS for instant in times]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("most", "late"),
    [
        pytest.param(None, (), id="together"),
        # The third batch begins with the reset.
        pytest.param(3, (), id="in four batches"),
        pytest.param(None, (LATE,), id="one is late"),
    ],
)
def test_a_reset_is_one_finding_until_it_is_undone(
    spark: SparkSession, tmp_path: Path, most: int | None, late: tuple[int, ...]
) -> None:
    lake = Lake(spark, LakeConfig(root=str(tmp_path / "lake")))
    with for_few_rows(spark):
        lake.prepare()
        land(lake, [number for number in range(SNAPSHOTS_TAKEN) if number not in late])
        compute_cluster(lake, "east", lambda: utc(IDS[-1]), most=most)
        if late:
            land(lake, late)
            compute_cluster(lake, "east", lambda: utc(IDS[-1]), most=most)
        rows = stored(lake, FINDINGS, "kind IN ('skipped', 'rewound')")
        history = stored(lake, FINDING_HISTORY, "kind = 'skipped'")
    found = {(row.kind, row.group_id): row for row in rows}
    assert {key: (row.topic, row.partitions, row.magnitude, *times_of(row)) for key, row in found.items()} == {
        ("skipped", "shop"): ("t", [0, 1], 1_010.0, RESET, LAST, None, None),
        ("skipped", "bank"): ("t", [0], 1_000.0, RESET, LAST, None, None),
        ("rewound", "back"): ("t", [0], 4_999.0, RESET + 1, LAST, None, None),
    }
    left = {(r.group_id, (r.snapshot_id - T0) // MINUTE_MS): json.loads(r.evidence) for r in history}
    assert {(group, number) for group, number in left} == {
        (group, number) for group in ("shop", "bank") for number in range(RESET, SNAPSHOTS_TAKEN)
    }
    assert [left["shop", number]["skipped_offsets"] for number in (RESET, UNDONE - 1, UNDONE)] == [1_010, 1_010, 10]
    assert left["shop", RESET]["offsets"] == [
        {"topic": "t", "partition": 0, "from": 300, "to": 1_300},
        {"topic": "t", "partition": 1, "from": 300, "to": 310},
    ]
    assert left["bank", LAST]["offsets"] == [{"topic": "t", "partition": 0, "from": 300, "to": 1_300}]
    shop, back = found["skipped", "shop"], found["rewound", "back"]
    assert shop.summary.startswith(
        "Commits were moved ahead at 2026-01-31 12:06 UTC in 2 of 3 partitions while the group had no members, and "
        "skip up to 1,010 records"
    )
    assert "--reset-offsets --group shop --topic t:0 --to-offset 300 --dry-run. The evidence has" in shop.advice
    assert "of each partition" not in found["skipped", "bank"].advice
    assert back.summary.endswith("This looks like a reset by a tool or an admin client.")
    assert "find out who has reset the offsets" in back.advice
