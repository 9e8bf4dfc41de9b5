"""Writes `partition_status` and `group_status` for the snapshots that were just computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipeline.analytics.keys import GROUP_AT, READER
from pipeline.analytics.status.group_status import group_status
from pipeline.analytics.status.observed import OF_LAG, WITHOUT_MEMBERS
from pipeline.analytics.status.owners import Owned, with_owner
from pipeline.analytics.status.partition_status import (
    KNOWN_ROWS,
    LAG_ROWS,
    OF_KNOWN,
    PLAIN_ROWS,
    partition_status,
)
from pipeline.common.rows import Rows, together
from pipeline.config.owners import NO_OWNERS, Owners, in_a_column
from pipeline.config.status import StatusConfig
from pipeline.derive.backlog import Backlog
from pipeline.lake import Lake, of_snapshots
from pipeline.tables import COMMITTED_OFFSETS, GROUP_MEMBERS, GROUP_STATUS, LAG, PARTITION_STATUS, Table

ROWS_A_BUCKET = 100_000
"""Rows that are judged together, known ones included. More rows need more memory, fewer rows need more calls."""
IS_PLAIN = "committed_offset IS NOT NULL AND leader_epoch IS NULL"
"""Whether no leader epoch is stored with a commit."""
OF_COMMIT = (*READER, "snapshot_id")


def keep_status(lake: Lake, cluster: str, backlog: Backlog, settings: StatusConfig, owners: Owners = NO_OWNERS) -> None:
    """Judges the rows of a batch whose `lag` is written, continuing from the snapshots before it."""
    ids, earlier = [s.snapshot_id for s in backlog.batch], backlog.up_to_complete
    known = known_rows(lake, PARTITION_STATUS, cluster, earlier, OF_KNOWN, READER)
    lag = lake.read_few_or_many(LAG, of_snapshots(cluster, ids), *OF_LAG)
    plain = plain_commits(lake, cluster, ids)
    judged = statuses(lake.spark, lag, known, plain, settings, backlog.most_rows, backlog.reach)
    lake.replace(PARTITION_STATUS, judged, of_snapshots(cluster, ids))
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


def statuses(
    spark: SparkSession,
    lag: Rows,
    known: Rows,
    plain: Rows,
    settings: StatusConfig,
    most: int,
    reach: Mapping[int, int] = MappingProxyType({}),
) -> Rows:
    """The rows of PARTITION_STATUS for rows of `lag`; `most` is about how many these and the known ones are.

    The columns are those that `partition_status` needs of its three parts. See there for `reach`.
    """
    parts = {
        LAG_ROWS: (lag, LAG.some(OF_LAG)),
        KNOWN_ROWS: (known, PARTITION_STATUS.some(OF_KNOWN)),
        PLAIN_ROWS: (plain, COMMITTED_OFFSETS.some(OF_COMMIT)),
    }
    judge = partial(partition_status, settings=settings, reach=dict(reach))
    return together(spark, parts).grouped(READER, judge, PARTITION_STATUS.schema, 1 + most // ROWS_A_BUCKET)


def plain_commits(lake: Lake, cluster: str, snapshot_ids: Sequence[int]) -> Rows:
    """The commits with which no leader epoch is stored. Of many ones only those of groups without members."""
    where = f"{of_snapshots(cluster, snapshot_ids)} AND {IS_PLAIN}"
    plain = lake.read_few_or_many(COMMITTED_OFFSETS, where, *OF_COMMIT)
    if isinstance(plain.rows, pa.Table):
        return plain
    return Rows(of_empty_groups(plain.rows, lake.read_snapshots(GROUP_MEMBERS, cluster, snapshot_ids)))


def of_empty_groups(commits: DataFrame, members: DataFrame) -> DataFrame:
    """The commits of groups without members, by rows of GROUP_MEMBERS of the same snapshots."""
    empty = members.where(F.col("state").isin(*WITHOUT_MEMBERS)).select(*GROUP_AT).distinct()
    return commits.join(F.broadcast(empty), GROUP_AT, how="left_semi")


def known_rows(
    lake: Lake, table: Table, cluster: str, earlier: Sequence[int], columns: Sequence[str], series: Sequence[str]
) -> Rows:
    """The rows of earlier snapshots from which each series continues. Of many rows only the newest of each series."""
    known = lake.read_few_or_many(table, of_snapshots(cluster, earlier), *columns)
    if isinstance(known.rows, pa.Table) or len(earlier) <= 1:
        return known
    newest = known.rows.groupBy(*series).agg(F.max_by(F.struct(*columns), "snapshot_id").alias("newest"))
    return Rows(newest.select("newest.*"))
