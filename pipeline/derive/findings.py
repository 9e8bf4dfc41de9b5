"""Writes `finding_history` and `findings` for the snapshots that were just computed."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from pipeline.analytics.findings.assignments import STABLE_MS, just_changed
from pipeline.analytics.findings.findings import OF_ASSIGNMENTS, finding_history, findings, subjects
from pipeline.analytics.findings.group_problems import group_problems
from pipeline.analytics.findings.rates import with_rates
from pipeline.analytics.findings.unreadable import errors_of, repeated_errors, unreadable
from pipeline.analytics.keys import GROUP_AT
from pipeline.analytics.status.group_looks import REBALANCING
from pipeline.config.notify import OwnerRule, owner_of
from pipeline.config.status import StatusConfig
from pipeline.derive.backlog import Backlog
from pipeline.derive.rare_problems import rare_problems, since
from pipeline.lake import Lake, instant_literal, of_cluster, of_snapshots
from pipeline.tables import (
    CLIENT_DIVERGENCE,
    COMMITTED_OFFSETS,
    FINDING_HISTORY,
    FINDINGS,
    GROUP_CHANGES,
    GROUP_MEMBERS,
    GROUP_STATUS,
    LAG,
    PARTITION_STATUS,
    WATERMARKS,
)

_SETTLED = ("Stable", "Empty", "Dead")
"""The states of a group whose assignments can be judged, or which has none."""
IF_NOT_OLDER = "greatest(s.last_seen, s.resolved_at) >= greatest(t.last_seen, t.resolved_at)"
"""A finding is only updated if another job has not continued it since it was read."""


def problems_of_groups(
    lake: Lake, cluster: str, backlog: Backlog, watermarks: DataFrame, settings: StatusConfig
) -> DataFrame:
    """The problems of groups, topics and the cluster in a batch whose `lag` and status are written."""
    ids = [s.snapshot_id for s in backlog.batch]
    lag, partitions, groups = (lake.read_snapshots(t, cluster, ids) for t in (LAG, PARTITION_STATUS, GROUP_STATUS))
    before, previous = backlog.compared_with, backlog.previous
    older = {*before.values(), *previous.values()} - {*ids}
    earlier, earlier_groups = (
        lake.read_snapshots(table, cluster, sorted(some))
        for table, some in ((LAG, older), (GROUP_STATUS, set(before.values())))
    )
    readers = lag if not older else lag.unionByName(earlier)
    groups = with_rates(groups, earlier_groups, before)
    errors = repeated_errors(errors_of(readers, _unread_groups(lake, cluster, [*older, *ids])), previous)
    found = group_problems(lag, partitions, groups, watermarks, readers, before, settings.data_loss_within_ms)
    others = (unreadable(errors), *rare_problems(lake, cluster, backlog, lag, groups, watermarks))
    return reduce(DataFrame.unionByName, others, found)


def _unread_groups(lake: Lake, cluster: str, snapshot_ids: Sequence[int]) -> DataFrame:
    """The groups whose commits could not be read at all."""
    where = f"{of_snapshots(cluster, snapshot_ids)} AND topic IS NULL AND error IS NOT NULL"
    return lake.read_where(COMMITTED_OFFSETS, where)


def keep_findings(
    lake: Lake,
    cluster: str,
    backlog: Backlog,
    problems: DataFrame,
    has_clients: bool,
    owners: Sequence[OwnerRule] = (),
) -> None:
    """Writes the findings of a batch from its problems. `has_clients`: whether clients have reported anything."""
    ids = [s.snapshot_id for s in backlog.batch]
    of_batch = of_snapshots(cluster, ids)
    found = lake.computed(problems)
    earlier = _earlier(lake, cluster, min(ids))
    kinds = {row["kind"] for row in found.select("kind").union(earlier.select("kind")).distinct().collect()}
    if not kinds:
        lake.delete(FINDING_HISTORY, of_batch)  # rows of the same batch, if it was computed with other settings
        return
    known = [*backlog.before, *backlog.batch]
    every = [s.snapshot_id for s in known]
    judged = {
        "group": [s.snapshot_id for s in known if s.lists_all_groups],
        "topic": [s.snapshot_id for s in known if s.is_whole],
        "cluster": every,
    }
    reported = lake.computed(_reported(lake, cluster, judged, kinds, has_clients=has_clients))
    lake.replace(FINDING_HISTORY, finding_history(found, reported, earlier, judged), of_batch)
    # A few rows for each group or client at most. They are collected because a MERGE would compute them a second time.
    rows = findings(lake.read_snapshots(FINDING_HISTORY, cluster, ids), reported, earlier, judged).collect()
    if rows:
        lake.merge(FINDINGS, [_owned(row, owners) for row in rows], cluster, IF_NOT_OLDER)


def _owned(row: Row, owners: Sequence[OwnerRule]) -> tuple[Any, ...]:
    """The row with the owner that the configuration names; if it names none, with the owner that it has."""
    rule = owner_of(owners, row["group_id"], row["topic"])
    values = row.asDict() | ({"owner": rule.owner} if rule else {})
    return tuple(values[name] for name in FINDINGS.columns)


def _reported(
    lake: Lake, cluster: str, judged: Mapping[str, list[int]], kinds: Collection[str], *, has_clients: bool
) -> DataFrame:
    """Clients that reported; groups that were read although others were not; and groups that were not read.

    The same for the members of groups, which are known if the group was also described and did not rebalance. And the
    cluster, where its metadata could not be read. If there are findings of `kinds` about assignments, the same for the
    assignments of groups, which are judged if they have not just changed.
    """
    every, with_all_groups = judged["cluster"], judged["group"]
    has_all = F.col("snapshot_id").isin([*with_all_groups])
    groups = lake.read_snapshots(GROUP_STATUS, cluster, every)
    is_read = (F.col("rows_with_error") == 0) & (F.col("partitions_unknown") == 0)
    is_settled = is_read & F.coalesce(~F.col("group_state").isin(*REBALANCING), F.lit(False))
    found = subjects(groups.where(is_read != has_all), "group", "group_id", is_read).union(
        subjects(groups.where(is_settled != has_all), "members", "group_id", is_settled)
    )
    of_members = ["members"]
    if {*kinds} & {*OF_ASSIGNMENTS}:
        of_members.append("assignments")
        changes = lake.read_where(GROUP_CHANGES, since(cluster, every, STABLE_MS))
        known = _with_unchanged(groups, is_settled, changes)
        is_same = F.col("is_unchanged")
        found = found.union(subjects(known.where(is_same != has_all), "assignments", "group_id", is_same))
    members_unread = (GROUP_MEMBERS, "group_id", "member_id IS NULL", {*every} - {*with_all_groups})
    unread = dict.fromkeys(of_members, members_unread)
    unread["replicas"] = (WATERMARKS, "cluster", "topic IS NULL", {*every} - {*judged["topic"]})
    for of, (table, name, is_whole, ids) in unread.items():
        if ids:
            rows = lake.read_where(table, f"{of_snapshots(cluster, ids)} AND {is_whole} AND error IS NOT NULL")
            found = found.union(subjects(rows.where(F.col(name).isNotNull()), of, name, F.lit(False)))
    if not has_clients:
        return found
    return found.union(subjects(lake.read_snapshots(CLIENT_DIVERGENCE, cluster, every), "client", "client_id"))


def _with_unchanged(groups: DataFrame, is_settled: Column, changes: DataFrame) -> DataFrame:
    """Adds is_unchanged: whether the assignments of a group can be judged, because they have not just changed."""
    settled = groups.where(is_settled & F.col("group_state").isin(*_SETTLED)).select(*GROUP_AT)
    same = settled.join(just_changed(settled, changes), GROUP_AT, how="left_anti").withColumn("is_same", F.lit(True))
    is_unchanged = F.coalesce("is_same", F.lit(False))
    return groups.join(same, GROUP_AT, how="left").withColumn("is_unchanged", is_unchanged)


def _earlier(lake: Lake, cluster: str, first: int) -> DataFrame:
    """The findings that are open, or that ended after the batch began."""
    begin = instant_literal(first)
    is_newer = f"resolved_at IS NULL OR resolved_at >= {begin} OR last_seen >= {begin}"
    return lake.read_where(FINDINGS, f"{of_cluster(cluster)} AND ({is_newer})")
