"""Writes `finding_history` and `findings` for the snapshots that were just computed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from pipeline.analytics.findings.findings import finding_history, findings, subjects
from pipeline.analytics.findings.group_problems import group_problems
from pipeline.analytics.findings.rates import with_rates
from pipeline.config.notify import OwnerRule, owner_of
from pipeline.config.status import StatusConfig
from pipeline.derive.backlog import Backlog
from pipeline.lake import Lake, instant_literal, of_cluster, of_snapshots
from pipeline.lake.ledger import COMPLETE
from pipeline.tables import CLIENT_DIVERGENCE, FINDING_HISTORY, FINDINGS, GROUP_STATUS, LAG, PARTITION_STATUS

IF_NOT_OLDER = "greatest(s.last_seen, s.resolved_at) >= greatest(t.last_seen, t.resolved_at)"
"""A finding is only updated if another job has not continued it since it was read."""


def problems_of_groups(
    lake: Lake, cluster: str, backlog: Backlog, watermarks: DataFrame, settings: StatusConfig
) -> DataFrame:
    """The problems of groups, topics and the cluster in a batch whose `lag` and status are written."""
    ids = [s.snapshot_id for s in backlog.batch]
    lag, partitions, groups = (lake.read_snapshots(t, cluster, ids) for t in (LAG, PARTITION_STATUS, GROUP_STATUS))
    before = backlog.compared_with
    earlier, earlier_groups = (lake.read_snapshots(t, cluster, [*set(before.values())]) for t in (LAG, GROUP_STATUS))
    groups = with_rates(groups, earlier_groups, before)
    return group_problems(lag, partitions, groups, watermarks, earlier, before, settings.data_loss_within_ms)


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
    if found.select("cluster").union(earlier.select("cluster")).isEmpty():
        lake.delete(FINDING_HISTORY, of_batch)  # rows of the same batch, if it was computed with other settings
        return
    known = [*backlog.before, *backlog.batch]
    complete = [s.snapshot_id for s in known if s.status == COMPLETE]
    partial = [s.snapshot_id for s in known if s.status != COMPLETE]
    reported = _reported(lake, cluster, partial, [s.snapshot_id for s in known] if has_clients else [])
    if partial or has_clients:
        reported = lake.computed(reported)
    lake.replace(FINDING_HISTORY, finding_history(found, reported, earlier, complete), of_batch)
    # A few rows for each group or client at most. They are collected because a MERGE would compute them a second time.
    rows = findings(lake.read_snapshots(FINDING_HISTORY, cluster, ids), reported, earlier, complete).collect()
    if rows:
        lake.merge(FINDINGS, [_owned(row, owners) for row in rows], cluster, IF_NOT_OLDER)


def _owned(row: Row, owners: Sequence[OwnerRule]) -> tuple[Any, ...]:
    """The row with the owner that the configuration names; if it names none, with the owner that it has."""
    rule = owner_of(owners, row["group_id"], row["topic"])
    values = row.asDict() | ({"owner": rule.owner} if rule else {})
    return tuple(values[name] for name in FINDINGS.columns)


def _reported(lake: Lake, cluster: str, partial: Sequence[int], with_clients: Sequence[int]) -> DataFrame:
    """The subjects that were judged in some snapshots: clients; and of partial snapshots, what was read without error.

    The cluster as a whole is judged in each snapshot.
    """
    clients = subjects(lake.read_snapshots(CLIENT_DIVERGENCE, cluster, with_clients), "client", "client_id")
    is_read = (F.col("rows_with_error") == 0) & (F.col("partitions_unknown") == 0)
    groups = lake.read_snapshots(GROUP_STATUS, cluster, partial)
    topics = lake.read_snapshots(LAG, cluster, partial).where(F.col("topic").isNotNull())
    by_topic = topics.groupBy("cluster", "snapshot_id", "topic").agg(F.count("error").alias("errors"))
    whole = groups.select("cluster", "snapshot_id", F.lit("cluster").alias("subject")).distinct()
    read = subjects(groups.where(is_read), "group", "group_id").union(
        subjects(by_topic.where("errors = 0"), "topic", "topic")
    )
    return clients.union(read).union(whole)


def _earlier(lake: Lake, cluster: str, first: int) -> DataFrame:
    """The findings that are open, or that ended after the batch began."""
    begin = instant_literal(first)
    is_newer = f"resolved_at IS NULL OR resolved_at >= {begin} OR last_seen >= {begin}"
    return lake.read_where(FINDINGS, f"{of_cluster(cluster)} AND ({is_newer})")
