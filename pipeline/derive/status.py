"""Writes `partition_status` and `group_status` for the snapshots that were just computed."""

from __future__ import annotations

from pyspark.sql import DataFrame

from pipeline.analytics.status.group_status import group_status
from pipeline.analytics.status.owners import Owned, with_owner
from pipeline.config.owners import NO_OWNERS, Owners, in_a_column
from pipeline.derive.backlog import Backlog
from pipeline.derive.lag import Readers
from pipeline.lake import Lake, of_snapshots
from pipeline.tables import GROUP_STATUS, LAG, PARTITION_STATUS


def keep_status(lake: Lake, cluster: str, backlog: Backlog, readers: Readers, owners: Owners = NO_OWNERS) -> None:
    """Writes the statuses of a batch, and the status of each group."""
    ids = [s.snapshot_id for s in backlog.batch]
    lake.replace(PARTITION_STATUS, readers.statuses, of_snapshots(cluster, ids))
    rows, partitions = (lake.read_snapshots(table, cluster, ids) for table in (LAG, PARTITION_STATUS))
    groups = sum(s.groups for s in backlog.batch)  # these are few, even if `lag` has many rows
    owned = _owned(group_status(rows, partitions), owners).select(*GROUP_STATUS.columns)
    lake.replace(GROUP_STATUS, owned, of_snapshots(cluster, ids), groups)


def _owned(groups: DataFrame, owners: Owners) -> DataFrame:
    """The groups with whose they are, by the rules that name no topic."""
    of_groups = [
        (rule.group, Owned(rule.owner, rule.tier, in_a_column(owners.channels_of_rule(rule))))
        for rule in owners.rules
        if rule.group is not None and rule.topic is None
    ]
    return with_owner(groups, of_groups, Owned(channel=in_a_column(owners.channels)))
