"""`group_changes` of made histories: the rows that Spark computes, and those of the model, in one form."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from pipeline.analytics.keys import GROUP
from pipeline.analytics.status.changed_groups import CHANGED, changed_groups
from pipeline.analytics.status.group_changes import group_changes
from pipeline.analytics.status.group_looks import looks, looks_of_few
from pipeline.common.epoch import MINUTE_MS, utc, utc_date
from pipeline.common.rows import Rows
from pipeline.tables import CHANGES, COMMITTED_OFFSETS, GROUP_CHANGES, GROUP_MEMBERS, WATERMARKS
from tests.helpers.group_model import Look, Row, Taken, history_of
from tests.helpers.reports import frame

T0 = 1_769_860_800_000  # 2026-01-31T12:00:00Z
LATE_MS = 2_000
"""How long after its scheduled instant a group is described."""
LOOK_BACK = 10
Histories = dict[str, list[Taken]]
"""The snapshots of each cluster. All clusters have the same snapshots."""
Found = Counter[tuple[str, str, int, int, Row]]
"""Cluster, group, snapshot, earlier snapshot and change."""


def instant(minute: int) -> int:
    return T0 + minute * MINUTE_MS


def reach_of(taken: Sequence[Taken]) -> dict[int, int]:
    ids = [t.snapshot_id for t in taken]
    return {snapshot_id: ids[max(number - LOOK_BACK, 0)] for number, snapshot_id in enumerate(ids)}


def bronze(spark: SparkSession, histories: Histories, ids: Iterable[int]) -> tuple[DataFrame, DataFrame, DataFrame]:
    """What the snapshots would have stored in group_members, committed_offsets and watermarks."""
    members, commits, ends = [], [], []
    for cluster, taken in histories.items():
        for t in taken:
            if t.snapshot_id in ids:
                at = {"cluster": cluster, "snapshot_id": t.snapshot_id, "snapshot_date": utc_date(t.snapshot_id)}
                at |= {"captured_at": utc(t.snapshot_id + LATE_MS)}
                for group, look in t.groups.items():
                    members += [at | {"group_id": group} | row for row in member_rows(look)]
                    commits += [at | {"group_id": group} | row for row in commit_rows(look)]
                for topic, topic_id in t.topics.items():
                    ends += [at | {"topic": topic, "topic_id": topic_id, "partition": n} for n in range(2)]
                if not t.is_complete:  # groups that could not be listed
                    unlisted = at | {"error": "COORDINATOR_NOT_AVAILABLE"}
                    members.append(unlisted)
                    commits.append(unlisted)
    return (
        frame(spark, GROUP_MEMBERS, *members),
        frame(spark, COMMITTED_OFFSETS, *commits),
        frame(spark, WATERMARKS, *ends),
    )


def member_rows(look: Look) -> Iterator[dict[str, Any]]:
    group: dict[str, Any] = {"state": look.state, "group_type": look.group_type}
    if look.members is None:
        yield group | {"error": "NOT_COORDINATOR"}
        return
    group |= {"assignor": look.assignor, "group_epoch": look.group_epoch}
    if not look.members:
        yield group
    for number, (member, places) in enumerate(look.members.items()):
        named = group | member._asdict()
        yield from (named | {"topic": topic, "partition": partition} for topic, partition in places)
        if not places:
            yield named | {"error": "INCONSISTENT_GROUP_PROTOCOL" if look.is_garbled and number == 0 else None}


def commit_rows(look: Look) -> Iterator[dict[str, Any]]:
    if look.commits is None:
        yield {"error": "NOT_COORDINATOR"}
        return
    for (topic, partition), is_read in look.commits.items():
        result = {"committed_offset": 7} if is_read else {"error": "TOPIC_AUTHORIZATION_FAILED"}
        yield {"topic": topic, "partition": partition} | result


def changed_of(
    members: DataFrame, commits: DataFrame, complete: Sequence[int], reach: dict[int, int], *, are_few: bool
) -> Rows:
    """The groups that have changed, as the driver finds them if rows are few, or as Spark finds them."""
    rows = looks_of_few(members.toArrow(), commits.toArrow()) if are_few else looks(members, commits)
    found = Rows(rows).grouped(GROUP, partial(changed_groups, complete=complete, reach=reach), CHANGED)
    # As a lake keeps them. Arrow, because Python's instants would depend on the process's time zone.
    return found if are_few else Rows(found.rows.toArrow())


def found(
    spark: SparkSession, histories: Histories, batch: Sequence[int] | None = None, *, are_few: bool = True
) -> Found:
    """The rows for a batch of snapshots, or for all, from bronze rows that are as old as needed."""
    taken = next(iter(histories.values()))
    reach = reach_of(taken)
    reach = {snapshot_id: reach[snapshot_id] for snapshot_id in batch or reach}
    ids = [t.snapshot_id for t in taken if min(reach.values()) <= t.snapshot_id <= max(reach)]
    complete = [t.snapshot_id for t in taken if t.is_complete and t.snapshot_id in ids]
    members, commits, ends = bronze(spark, histories, ids)
    changed = changed_of(members, commits, complete, reach, are_few=are_few).frame(spark, CHANGED)
    rows = group_changes(changed, members, commits, ends).collect()
    keys: Counter[Any] = Counter(tuple(row[name] for name in GROUP_CHANGES.key) for row in rows)
    assert not [key for key, count in keys.items() if count > 1]
    for row in rows:
        assert list(row.asDict()) == GROUP_CHANGES.columns
        assert row.snapshot_date == utc_date(row.snapshot_id)
        assert row.change in CHANGES
        # Of a group that does not exist any more, nothing was captured.
        is_there = any(row.group_id in t.groups for t in histories[row.cluster] if t.snapshot_id == row.snapshot_id)
        assert (row.captured_at is not None) is is_there
    return Counter(
        (row.cluster, row.group_id, row.snapshot_id, row.earlier_snapshot_id, change_of(row)) for row in rows
    )


def change_of(row: Any) -> Row:
    values = {name: row[name] for name in Row._fields}
    return Row(**values | {"partitions": None if row.partitions is None else tuple(row.partitions)})


def expected(histories: Histories) -> Found:
    reach = reach_of(next(iter(histories.values())))
    return Counter((cluster, *row) for cluster, taken in histories.items() for row in history_of(taken, reach))
