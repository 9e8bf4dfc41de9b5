"""Writes `partition_status` and `group_status` for the snapshots that were just computed."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from pipeline.analytics.status.group_status import group_status
from pipeline.analytics.status.partition_status import partition_status
from pipeline.config.status import StatusConfig
from pipeline.derive.backlog import Snapshot
from pipeline.lake import Lake, of_snapshots
from pipeline.ledger import COMPLETE
from pipeline.tables import GROUP_STATUS, LAG, PARTITION_STATUS


def keep_status(
    lake: Lake, cluster: str, batch: Sequence[Snapshot], before: Sequence[Snapshot], settings: StatusConfig
) -> None:
    """Judge the rows of a batch, whose `lag` is written, going on from the snapshots before it, the newest first."""
    ids, reach = [s.snapshot_id for s in batch], _reach([*before[::-1], *batch])
    known = lake.read_snapshots(PARTITION_STATUS, cluster, [s.snapshot_id for s in before])
    rows = lake.read_snapshots(LAG, cluster, ids)
    judged = partition_status(rows, known, settings, sum(s.rows for s in (*before[:1], *batch)), reach)
    lake.replace(PARTITION_STATUS, judged, of_snapshots(cluster, ids))
    partitions = lake.read_snapshots(PARTITION_STATUS, cluster, ids)
    lake.replace(GROUP_STATUS, group_status(partitions), of_snapshots(cluster, ids))


def _reach(snapshots: Sequence[Snapshot]) -> dict[int, int]:
    """For each of successive snapshots the newest complete one before it, which has all readers; else the first."""
    reach, newest = {}, snapshots[0].snapshot_id
    for before, snapshot in pairwise(snapshots):
        newest = before.snapshot_id if before.status == COMPLETE else newest
        reach[snapshot.snapshot_id] = newest
    return reach
