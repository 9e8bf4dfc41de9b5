"""Writes `group_changes` for the snapshots that were just computed."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.analytics.status.group_changes import group_changes
from pipeline.analytics.status.group_looks import changed_groups
from pipeline.derive.backlog import MAX_LOOKBACK, Backlog, Snapshot
from pipeline.lake import Lake, of_snapshots
from pipeline.lake.few_rows import MANY_ROWS
from pipeline.lake.ledger import COMPLETE
from pipeline.tables import COMMITTED_OFFSETS, GROUP_CHANGES, GROUP_MEMBERS, WATERMARKS


def keep_group_changes(lake: Lake, cluster: str, backlog: Backlog) -> None:
    """Compares the groups of each snapshot of a batch with the snapshots before it.

    Mostly nothing has changed. So one query finds out which groups have, and only for these a second one says how.
    """
    reach = reach_of(backlog)
    ids, oldest = [*reach], min(reach.values())
    snapshots = [s for s in (*backlog.before, *backlog.batch) if s.snapshot_id >= oldest]
    read = [s.snapshot_id for s in snapshots]
    complete = [s.snapshot_id for s in snapshots if s.status == COMPLETE]
    members, commits = (lake.read_snapshots(table, cluster, read) for table in (GROUP_MEMBERS, COMMITTED_OFFSETS))
    changed = lake.computed(changed_groups(members, commits, complete, reach))
    if not changed.limit(1).collect():
        lake.delete(GROUP_CHANGES, of_snapshots(cluster, ids))  # rows of the same batch, if bronze was different then
        return
    changes = group_changes(changed, members, commits, lake.read_snapshots(WATERMARKS, cluster, read))
    lake.replace(GROUP_CHANGES, changes, of_snapshots(cluster, ids), sum(map(_most, snapshots)))


def reach_of(backlog: Backlog) -> dict[int, int]:
    """For each snapshot of the batch, the oldest one that it is compared with: one of the MAX_LOOKBACK before it.

    A complete snapshot has every group, but while a group rebalances, it does not have its assignments. So more
    snapshots than those since the complete one are read, if they have few rows.
    """
    snapshots = [*backlog.before[::-1], *backlog.batch]
    return {
        snapshot_id: min(oldest, _first_of_few(snapshots[:number], snapshot_id))
        for number, (snapshot_id, oldest) in enumerate(backlog.reach.items(), len(backlog.before))
    }


def _first_of_few(before: Sequence[Snapshot], snapshot_id: int) -> int:
    """The oldest of the snapshots before one that together have few rows; if there is none, `snapshot_id` itself."""
    rows = 0
    for snapshot in before[: -MAX_LOOKBACK - 1 : -1]:
        rows += snapshot.rows
        if rows >= MANY_ROWS:
            break
        snapshot_id = snapshot.snapshot_id
    return snapshot_id


def _most(snapshot: Snapshot) -> int:
    """The most rows of `group_changes` that the rows of a snapshot may cause, there and in later snapshots.

    These are six for each group, if it appears with new values and vanishes again; two for each member, if it joins and
    leaves, and as many for each of its partitions; and one for each commit, if it is removed.
    """
    return 6 * snapshot.groups + 4 * snapshot.members + snapshot.commits
