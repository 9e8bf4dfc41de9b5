"""`group_changes` of made histories: the rows that are computed, and those of the model, in one form."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from pipeline.analytics.keys import GROUP
from pipeline.analytics.status.changed_groups import CHANGED, changed_groups
from pipeline.analytics.status.group_changes import CHANGE_PARTS, group_changes, in_same_topics
from pipeline.analytics.status.group_looks import looks, looks_sql
from pipeline.common.arrow_sql import arrow_queries
from pipeline.common.data_source import arrow_schema
from pipeline.common.epoch import MINUTE_MS, utc, utc_date
from pipeline.common.rows import Rows, bucketed
from pipeline.derive.group_changes import rows_of_changed_groups
from pipeline.lake import Lake
from pipeline.tables import CHANGES, GROUP_CHANGES
from tests.helpers.group_model import Look, Row, Taken, history_of

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


def bronze(histories: Histories, ids: Iterable[int]) -> dict[str, pa.Table]:
    """What the snapshots would have stored in group_members and committed_offsets, by the part of CHANGE_PARTS."""
    rows: dict[str, list[dict[str, Any]]] = {"members": [], "commits": []}
    for cluster, taken in histories.items():
        for t in taken:
            if t.snapshot_id in ids:
                at = {"cluster": cluster, "snapshot_id": t.snapshot_id, "captured_at": utc(t.snapshot_id + LATE_MS)}
                for group, look in t.groups.items():
                    rows["members"] += [at | {"group_id": group} | row for row in member_rows(look)]
                    rows["commits"] += [at | {"group_id": group} | row for row in commit_rows(look)]
                if not t.is_complete:  # groups that could not be listed
                    unlisted = at | {"error": "COORDINATOR_NOT_AVAILABLE"}
                    rows["members"].append(unlisted)
                    rows["commits"].append(unlisted)
    return {part: pa.Table.from_pylist(rows[part], arrow_schema(schema)) for part, schema in CHANGE_PARTS.items()}


def topic_ids_of(histories: Histories, ids: Iterable[int]) -> dict[tuple[str, int, str], set[str | None]]:
    return {
        (cluster, t.snapshot_id, topic): {topic_id}
        for cluster, taken in histories.items()
        for t in taken
        if t.snapshot_id in ids
        for topic, topic_id in t.topics.items()
    }


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


def as_many(parts: Mapping[str, pa.Table], lake: Lake) -> dict[str, DataFrame]:
    """Rows as Spark reads them if they are many: in several partitions."""
    return {part: Rows(rows).frame(lake.spark, CHANGE_PARTS[part]).repartition(2) for part, rows in parts.items()}


def changed_by_driver(
    parts: Mapping[str, pa.Table], complete: Sequence[int], reach: Mapping[int, int]
) -> list[dict[str, Any]]:
    with arrow_queries(parts) as queries:
        found: list[dict[str, Any]] = changed_groups(queries.rows(looks_sql()), complete, reach).to_pylist()
    return found


def changed_by_spark(
    parts: Mapping[str, pa.Table], complete: Sequence[int], reach: Mapping[int, int], lake: Lake
) -> list[dict[str, Any]]:
    find_changed = partial(changed_groups, complete=complete, reach=reach)
    return Rows(looks(**as_many(parts, lake))).grouped(GROUP, find_changed, CHANGED).collected()


def found(histories: Histories, batch: Sequence[int] | None = None, many: Lake | None = None) -> Found:
    """The rows for a batch of snapshots, or for all, from bronze rows that are as old as needed.

    They are computed on the driver; with a lake `many`, they are computed by its session, as if they were many.
    """
    taken = next(iter(histories.values()))
    reach = reach_of(taken)
    reach = {snapshot_id: reach[snapshot_id] for snapshot_id in batch or reach}
    ids = [t.snapshot_id for t in taken if min(reach.values()) <= t.snapshot_id <= max(reach)]
    complete = [t.snapshot_id for t in taken if t.is_complete and t.snapshot_id in ids]
    of_bronze = bronze(histories, ids)
    parts: Mapping[str, Rows] = {part: Rows(rows) for part, rows in of_bronze.items()}
    if many:
        frames = {part: Rows(frame) for part, frame in as_many(of_bronze, many).items()}
        parts = rows_of_changed_groups(many, frames, complete, reach)
    compute = partial(group_changes, complete=complete, reach=reach)
    changes = bucketed(parts, CHANGE_PARTS, GROUP, compute, GROUP_CHANGES.schema, buckets=2)
    filtered = partial(in_same_topics, topic_ids=topic_ids_of(histories, ids))
    rows = changes.mapped(filtered, GROUP_CHANGES.schema).collected()
    check_rows(rows, histories)
    return Counter(
        (row["cluster"], row["group_id"], row["snapshot_id"], row["earlier_snapshot_id"], change_of(row))
        for row in rows
    )


def check_rows(rows: Sequence[dict[str, Any]], histories: Histories) -> None:
    """What all rows have in common."""
    keys: Counter[Any] = Counter(tuple(row[name] for name in GROUP_CHANGES.key) for row in rows)
    assert not [key for key, count in keys.items() if count > 1]
    groups = {(cluster, t.snapshot_id): t.groups for cluster, taken in histories.items() for t in taken}
    for row in rows:
        assert [*row] == GROUP_CHANGES.columns
        assert row["snapshot_date"] == utc_date(row["snapshot_id"])
        assert row["change"] in CHANGES
        # Of a group that does not exist any more, nothing was captured.
        is_there = row["group_id"] in groups[row["cluster"], row["snapshot_id"]]
        assert row["captured_at"] == (utc(row["snapshot_id"] + LATE_MS) if is_there else None)


def change_of(row: Mapping[str, Any]) -> Row:
    values = {name: row[name] for name in Row._fields}
    return Row(**values | {"partitions": None if row["partitions"] is None else tuple(row["partitions"])})


def expected(histories: Histories) -> Found:
    reach = reach_of(next(iter(histories.values())))
    return Counter((cluster, *row) for cluster, taken in histories.items() for row in history_of(taken, reach))
