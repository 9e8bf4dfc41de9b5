"""The problems of groups that follow from their members, and from how these have changed."""

from __future__ import annotations

from pyspark.sql import DataFrame

from pipeline.analytics.findings.assignments import STABLE_MS, assignment_problems
from pipeline.analytics.findings.member_stays import ENDINGS, ROUNDS, WINDOW_MS
from pipeline.analytics.findings.rebalances import restless_groups
from pipeline.analytics.status.rules import FALLING_BEHIND, WAITS
from pipeline.common.epoch import utc_date
from pipeline.derive.backlog import Backlog
from pipeline.lake import Lake, of_cluster, of_snapshots, one_of
from pipeline.tables import GROUP_CHANGES, GROUP_MEMBERS, GROUP_STATUS

_WHAT_THERE_IS = """
    SELECT 'restless' AS what FROM (
        SELECT group_id FROM {{group_changes}} WHERE {changes} AND {is_ending}
        GROUP BY group_id HAVING count(DISTINCT snapshot_id) >= {rounds} LIMIT 1
    ) UNION ALL SELECT 'shared' AS what FROM (
        SELECT group_id FROM {{group_members}} WHERE {batch} AND protocol = 'consumer'
        AND member_id IS NOT NULL AND topic IS NULL AND error IS NULL LIMIT 1
    ) UNION ALL SELECT 'shared' AS what FROM (
        SELECT group_id FROM {{group_status}} WHERE {batch} AND {may_fall_behind} LIMIT 1
    )
"""
"""Whether groups have changed often, and whether members have no partition or groups may fall behind.

Mostly this is not so. The plan of the batch then does not have these parts.
"""


def problems_of_members(
    lake: Lake, cluster: str, backlog: Backlog, lag: DataFrame, groups: DataFrame, watermarks: DataFrame
) -> list[DataFrame]:
    """The problems in a batch whose other tables are written: DataFrames with the columns of `problem`."""
    ids = [s.snapshot_id for s in backlog.batch]
    statement = _WHAT_THERE_IS.format(
        changes=_changes(cluster, ids, WINDOW_MS),
        is_ending=one_of("change", ENDINGS),
        rounds=ROUNDS,
        batch=of_snapshots(cluster, ids),
        may_fall_behind=one_of("status", (*WAITS, FALLING_BEHIND, "rewound")),
    )
    there_is = {row["what"] for row in lake.query(statement, GROUP_CHANGES, GROUP_MEMBERS, GROUP_STATUS)}
    found = []
    if "restless" in there_is:
        changes = lake.read_where(GROUP_CHANGES, _changes(cluster, ids, WINDOW_MS))
        found.append(restless_groups(changes, lake.read_snapshots(GROUP_MEMBERS, cluster, ids), ids))
    judged = [*backlog.compared_with]  # not the first snapshots of a cluster, before which changes are not known
    if "shared" in there_is and judged:
        changes = lake.read_where(GROUP_CHANGES, _changes(cluster, judged, STABLE_MS))
        members = lake.read_snapshots(GROUP_MEMBERS, cluster, judged)
        found.append(assignment_problems(members, groups, lag, watermarks, changes))
    return found


def _changes(cluster: str, ids: list[int], before_ms: int) -> str:
    """The predicate for the changes in some snapshots, and in this time before them."""
    after = min(ids) - before_ms
    return (
        f"{of_cluster(cluster)} AND snapshot_date >= DATE'{utc_date(after)}' "
        f"AND snapshot_id > {after} AND snapshot_id <= {max(ids)}"
    )
