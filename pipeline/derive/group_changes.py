"""Writes `group_changes` for the snapshots that were just computed."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial

import pyarrow as pa

from pipeline.analytics.keys import GROUP
from pipeline.analytics.status.changed_groups import CHANGED, changed_groups
from pipeline.analytics.status.group_changes import (
    CHANGE_PARTS,
    COMMITS_REMOVED,
    TopicIds,
    group_changes,
    in_same_topics,
)
from pipeline.analytics.status.group_looks import looks
from pipeline.common.data_source import arrow_schema
from pipeline.common.rows import Rows, bucketed
from pipeline.derive.backlog import MAX_LOOKBACK, Backlog, Snapshot
from pipeline.derive.batch import Batch
from pipeline.derive.lag import Readers
from pipeline.lake import Lake, among, of_snapshots
from pipeline.lake.few_rows import FEW_FOR_SPARK
from pipeline.tables import COMMITTED_OFFSETS, GROUP_CHANGES, GROUP_MEMBERS, WATERMARKS


def keep_group_changes(batch: Batch, _: Readers) -> None:
    """Compares the groups of each snapshot of a batch with the snapshots before it."""
    lake, cluster, backlog = batch.lake, batch.cluster, batch.backlog
    reach = reach_of(backlog)
    snapshots = [s for s in (*backlog.before, *backlog.batch) if s.snapshot_id >= min(reach.values())]
    read = of_snapshots(cluster, [s.snapshot_id for s in snapshots])
    complete = [s.snapshot_id for s in snapshots if s.is_complete]
    bronze = {
        name: lake.rows(table, read, *CHANGE_PARTS[name].names)
        for name, table in (("members", GROUP_MEMBERS), ("commits", COMMITTED_OFFSETS))
    }
    parts = rows_of_changed_groups(lake, bronze, complete, reach)
    compute = partial(group_changes, complete=complete, reach=reach)
    found = bucketed(parts, CHANGE_PARTS, GROUP, compute, GROUP_CHANGES.schema, backlog.buckets)
    changes = _in_same_topics(lake, cluster, lake.collected_if_few(found))
    if changes.is_empty():
        lake.delete(GROUP_CHANGES, batch.where)  # rows of the same batch, if bronze was different then
    else:
        lake.replace(GROUP_CHANGES, changes, batch.where)


def rows_of_changed_groups(
    lake: Lake, parts: Mapping[str, Rows], complete: Collection[int], reach: Mapping[int, int]
) -> Mapping[str, Rows]:
    """Of many bronze rows, those of the groups that have changed, for `group_changes`: mostly there are none.

    Few rows may be of other groups, too.
    """
    if all(isinstance(rows.rows, pa.Table) for rows in parts.values()):
        return parts
    frames = {name: parts[name].frame(lake.spark, schema) for name, schema in CHANGE_PARTS.items()}
    find_changed = partial(changed_groups, complete=complete, reach=reach)
    changed = lake.collected_if_few(Rows(looks(**frames)).grouped(GROUP, find_changed, CHANGED))
    if changed.is_empty():
        return {name: Rows(arrow_schema(schema).empty_table()) for name, schema in CHANGE_PARTS.items()}
    groups = changed.frame(lake.spark, CHANGED).select(*GROUP).distinct()
    return {name: Rows(frame).where_among(groups, GROUP) for name, frame in frames.items()}


def _in_same_topics(lake: Lake, cluster: str, changes: Rows) -> Rows:
    """The changes without commits that are gone with their topic."""
    removed = changes.where_in("change", [COMMITS_REMOVED])
    topics = removed.distinct("topic")
    if not topics:
        return changes
    compared = of_snapshots(cluster, removed.distinct("snapshot_id") | removed.distinct("earlier_snapshot_id"))
    topic_ids = topic_ids_of(lake, f"{compared} AND {among('topic', topics)}")
    return changes.mapped(partial(in_same_topics, topic_ids=topic_ids), GROUP_CHANGES.schema)


def topic_ids_of(lake: Lake, where: str) -> TopicIds:
    """The ids of topics in snapshots. A topic has one, unless the snapshot was taken while it was created again."""
    # A query is a template, and other brokers than Kafka may have topics with braces in their names.
    where = where.replace("{", "{{").replace("}", "}}")
    rows = lake.query(
        f"SELECT DISTINCT cluster, snapshot_id, topic, topic_id FROM {{watermarks}} WHERE {where}", WATERMARKS
    )
    topic_ids: dict[tuple[str, int, str], set[str | None]] = {}
    for row in rows:
        topic_ids.setdefault((row["cluster"], row["snapshot_id"], row["topic"]), set()).add(row["topic_id"])
    return topic_ids


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
        if rows >= FEW_FOR_SPARK:
            break
        snapshot_id = snapshot.snapshot_id
    return snapshot_id
