"""Writes `partition_status` and `group_status` for the snapshots that were just computed."""

from __future__ import annotations

from functools import partial

from pipeline.analytics.keys import GROUP
from pipeline.analytics.status.group_status import GROUP_PARTS, group_rows
from pipeline.analytics.status.owners import Owned
from pipeline.common.rows import bucketed
from pipeline.config.owners import Owners, in_a_column
from pipeline.derive.batch import Batch
from pipeline.derive.lag import Readers
from pipeline.tables import GROUP_STATUS, PARTITION_STATUS


def keep_partition_status(batch: Batch, readers: Readers) -> None:
    """Writes `partition_status`."""
    batch.lake.replace(PARTITION_STATUS, readers.statuses, batch.where)


def keep_group_status(batch: Batch, readers: Readers) -> None:
    """Writes `group_status`, from the lag and the status of each reader."""
    owners, backlog = batch.settings.owners, batch.backlog
    others = Owned(channel=in_a_column(owners.channels))
    compute = partial(group_rows, rules=rules_of_groups(owners), others=others)
    parts = {"lag": readers.lag, "statuses": readers.statuses}
    groups = bucketed(parts, GROUP_PARTS, GROUP, compute, GROUP_STATUS.schema, backlog.buckets)
    most = sum(s.groups for s in backlog.batch)  # these are few, even if `lag` has many rows
    batch.lake.replace(GROUP_STATUS, groups, batch.where, most)


def rules_of_groups(owners: Owners) -> list[tuple[str, Owned]]:
    """Whose the groups are, by the rules that name no topic."""
    return [
        (rule.group, Owned(rule.owner, rule.tier, in_a_column(owners.channels_of_rule(rule))))
        for rule in owners.rules
        if rule.group is not None and rule.topic is None
    ]
