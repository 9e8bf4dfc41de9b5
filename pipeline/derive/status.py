"""Writes `partition_status` and `group_status` for the snapshots that were just computed."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipeline.analytics.keys import READER
from pipeline.analytics.status.group_status import group_status
from pipeline.analytics.status.owners import with_owner
from pipeline.analytics.status.partition_status import partition_status, plain_commits
from pipeline.config.notify import OwnerRule
from pipeline.config.status import StatusConfig
from pipeline.derive.backlog import Backlog
from pipeline.lake import Lake, of_snapshots
from pipeline.tables import COMMITTED_OFFSETS, GROUP_MEMBERS, GROUP_STATUS, LAG, PARTITION_STATUS


def keep_status(
    lake: Lake, cluster: str, backlog: Backlog, settings: StatusConfig, owners: Sequence[OwnerRule] = ()
) -> None:
    """Judges the rows of a batch whose `lag` is written, continuing from the snapshots before it."""
    ids, earlier = [s.snapshot_id for s in backlog.batch], backlog.up_to_complete
    known = lake.read_snapshots(PARTITION_STATUS, cluster, earlier)
    if len(earlier) > 1:
        known = newest_rows(known, READER)
    rows = lake.read_snapshots(LAG, cluster, ids)
    most = sum(s.rows for s in (*backlog.before[:1], *backlog.batch))
    bronze = (lake.read_snapshots(table, cluster, ids) for table in (COMMITTED_OFFSETS, GROUP_MEMBERS))
    judged = partition_status(rows, known, settings, most, backlog.reach, plain_commits(*bronze))
    lake.replace(PARTITION_STATUS, judged, of_snapshots(cluster, ids))
    partitions = lake.read_snapshots(PARTITION_STATUS, cluster, ids)
    groups = sum(s.groups for s in backlog.batch)  # these are few, even if `lag` has many rows
    of_groups = [(rule.group, rule.owner) for rule in owners if rule.group is not None and rule.topic is None]
    owned = with_owner(group_status(rows, partitions), of_groups).select(*GROUP_STATUS.columns)
    lake.replace(GROUP_STATUS, owned, of_snapshots(cluster, ids), groups)


def newest_rows(known: DataFrame, series: Sequence[str]) -> DataFrame:
    """The newest row of each series. Only these are sent to Python."""
    newest = known.groupBy(*series).agg(F.max_by(F.struct(*known.columns), "snapshot_id").alias("newest"))
    return newest.select("newest.*")
