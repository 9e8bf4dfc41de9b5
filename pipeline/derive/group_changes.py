"""Writes `group_changes` for the snapshots that were just computed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame

from pipeline.analytics.keys import GROUP
from pipeline.analytics.status.changed_groups import CHANGED, changed_groups
from pipeline.analytics.status.group_changes import group_changes
from pipeline.analytics.status.group_looks import looks, looks_of_few
from pipeline.common.rows import Rows
from pipeline.derive.backlog import MAX_LOOKBACK, Backlog, Snapshot
from pipeline.derive.batch import Batch
from pipeline.derive.lag import Readers
from pipeline.lake import Lake, of_snapshots
from pipeline.lake.few_rows import MANY_ROWS
from pipeline.tables import COMMITTED_OFFSETS, GROUP_CHANGES, GROUP_MEMBERS, WATERMARKS


def keep_group_changes(batch: Batch, _: Readers) -> None:
    """Compares the groups of each snapshot of a batch with the snapshots before it.

    Mostly nothing has changed. So it first finds out which groups have, and only for these a query says how.
    """
    lake, cluster, backlog = batch.lake, batch.cluster, batch.backlog
    reach = reach_of(backlog)
    ids, oldest = [*reach], min(reach.values())
    snapshots = [s for s in (*backlog.before, *backlog.batch) if s.snapshot_id >= oldest]
    read = of_snapshots(cluster, [s.snapshot_id for s in snapshots])
    complete = [s.snapshot_id for s in snapshots if s.is_complete]
    members, commits = (lake.read_few_or_many(table, read) for table in (GROUP_MEMBERS, COMMITTED_OFFSETS))
    to_changed = partial(changed_groups, complete=complete, reach=reach)
    changed = lake.computed_once(_looks(lake, members, commits).grouped(GROUP, to_changed, CHANGED))
    if changed.is_empty():
        lake.delete(GROUP_CHANGES, of_snapshots(cluster, ids))  # rows of the same batch, if bronze was different then
        return
    bronze = _frames(lake, members, commits)
    changes = group_changes(changed.frame(lake.spark, CHANGED), *bronze, lake.read_where(WATERMARKS, read))
    lake.replace(GROUP_CHANGES, changes, of_snapshots(cluster, ids), sum(map(_most, snapshots)))


def _looks(lake: Lake, members: Rows, commits: Rows) -> Rows:
    if isinstance(members.rows, pa.Table) and isinstance(commits.rows, pa.Table):
        return Rows(looks_of_few(members.rows, commits.rows))
    return Rows(looks(*_frames(lake, members, commits)))


def _frames(lake: Lake, members: Rows, commits: Rows) -> tuple[DataFrame, DataFrame]:
    return members.frame(lake.spark, GROUP_MEMBERS.schema), commits.frame(lake.spark, COMMITTED_OFFSETS.schema)


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
