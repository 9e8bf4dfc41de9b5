"""The problems of groups that follow from their members, and from how these have changed."""

from __future__ import annotations

from pyspark.sql import DataFrame

from pipeline.analytics.findings.member_stays import ENDINGS, ROUNDS, WINDOW_MS
from pipeline.analytics.findings.rebalances import restless_groups
from pipeline.common.epoch import utc_date
from pipeline.derive.backlog import Backlog
from pipeline.lake import Lake, of_cluster, one_of
from pipeline.tables import GROUP_CHANGES, GROUP_MEMBERS


def problems_of_members(lake: Lake, cluster: str, backlog: Backlog) -> DataFrame | None:
    """The problems in a batch whose `group_changes` are written; None if no group has changed often enough."""
    ids = [s.snapshot_id for s in backlog.batch]
    after = min(ids) - WINDOW_MS
    where = (
        f"{of_cluster(cluster)} AND snapshot_date >= DATE'{utc_date(after)}' "
        f"AND snapshot_id > {after} AND snapshot_id <= {max(ids)}"
    )
    changed = (
        f"SELECT group_id FROM {{{GROUP_CHANGES.name}}} WHERE {where} AND {one_of('change', ENDINGS)} "
        f"GROUP BY group_id HAVING count(DISTINCT snapshot_id) >= {ROUNDS} LIMIT 1"
    )
    if not lake.query(changed, GROUP_CHANGES):
        return None
    members = lake.read_snapshots(GROUP_MEMBERS, cluster, ids)
    return restless_groups(lake.read_where(GROUP_CHANGES, where), members, ids)
