"""Which subjects of findings could be judged in which snapshots. A finding only ends in snapshots where its own was."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from pipeline.analytics.findings.assignments import STABLE_MS
from pipeline.analytics.findings.past import OF_ASSIGNMENTS, subjects
from pipeline.analytics.status.group_looks import REBALANCING
from pipeline.derive.backlog import Backlog
from pipeline.derive.rare_problems import since
from pipeline.lake import Lake, of_snapshots, one_of
from pipeline.tables import CLIENT_DIVERGENCE, GROUP_CHANGES, GROUP_MEMBERS, GROUP_STATUS, WATERMARKS

_SETTLED = ("Stable", "Empty", "Dead")
"""The states of a group whose assignments can be judged, or which has none."""
_GROUPS = """
    SELECT group_id, snapshot_id, is_read, is_read AND coalesce({is_settled}, false) AS has_settled,
    coalesce({has_assignments}, false) AS has_assignments, {has_all} AS has_all FROM (
        SELECT *, rows_with_error = 0 AND partitions_unknown = 0 AS is_read FROM {{group_status}} WHERE {these}
    )
"""
_OF_GROUPS = "SELECT 'group ' || group_id AS subject, snapshot_id, is_read AS is_judged FROM g WHERE is_read <> has_all"
_OF_MEMBERS = "SELECT 'members ' || group_id, snapshot_id, has_settled FROM g WHERE has_settled <> has_all"
_OF_ASSIGNMENTS = """
    SELECT 'assignments ' || group_id, snapshot_id, is_unchanged FROM (
        SELECT g.group_id, g.snapshot_id, g.has_all,
        g.has_settled AND g.has_assignments AND c.group_id IS NULL AS is_unchanged
        FROM g LEFT JOIN (
            SELECT DISTINCT g.group_id, g.snapshot_id FROM g JOIN {{group_changes}} c ON c.group_id = g.group_id
            AND c.snapshot_id <= g.snapshot_id AND c.snapshot_id > g.snapshot_id - {stable_ms}
            WHERE {changes} AND c.change <> 'commits_removed'
        ) c ON c.group_id = g.group_id AND c.snapshot_id = g.snapshot_id
    ) WHERE is_unchanged <> has_all
"""
_UNREAD = "SELECT '{of} ' || {name}, snapshot_id, false FROM {{{table}}} WHERE {where} AND error IS NOT NULL"
_CLIENTS = "SELECT DISTINCT 'client ' || client_id, snapshot_id, true FROM {{client_divergence}} WHERE {these}"


def snapshots_judged(backlog: Backlog) -> dict[str, list[int]]:
    """The snapshots of a batch, and some before it, in which each group, each topic, or the cluster could be judged."""
    known = [*backlog.before, *backlog.batch]
    return {
        "group": [s.snapshot_id for s in known if s.lists_all_groups],
        "topic": [s.snapshot_id for s in known if s.is_whole],
        "cluster": [s.snapshot_id for s in known],
    }


def subjects_judged(
    lake: Lake, cluster: str, judged: Mapping[str, list[int]], kinds: Collection[str], *, has_clients: bool
) -> dict[str, dict[int, bool]]:
    """`Past.others`: subjects that were judged in other snapshots than `judged` says, and clients that reported.

    A group can be judged if it was read without an error. Its members can be if it was also described and did not
    rebalance; its assignments, if they have also not just changed: they are only asked for if there are findings of
    `kinds` about them. The replicas of the cluster can be judged if its metadata could be read.
    """
    every, with_all_groups = judged["cluster"], {*judged["group"]}
    groups = _GROUPS.format(
        is_settled=f"NOT {one_of('group_state', REBALANCING)}",
        has_assignments=one_of("group_state", _SETTLED),
        has_all=one_of("snapshot_id", sorted(with_all_groups)) if with_all_groups else "false",
        these=of_snapshots(cluster, every),
    )
    parts = [_OF_GROUPS, _OF_MEMBERS]
    of_members = ["members"]
    if {*kinds} & {*OF_ASSIGNMENTS}:
        of_members.append("assignments")
        parts.append(_OF_ASSIGNMENTS.format(stable_ms=STABLE_MS, changes=since(cluster, every, STABLE_MS, "c.")))
    if members_unread := {*every} - with_all_groups:
        where = f"{of_snapshots(cluster, members_unread)} AND member_id IS NULL AND group_id IS NOT NULL"
        parts += (_UNREAD.format(of=of, name="group_id", table=GROUP_MEMBERS.name, where=where) for of in of_members)
    if replicas_unread := {*every} - {*judged["topic"]}:
        where = f"{of_snapshots(cluster, replicas_unread)} AND topic IS NULL"
        parts.append(_UNREAD.format(of="replicas", name="cluster", table=WATERMARKS.name, where=where))
    if has_clients:
        parts.append(_CLIENTS.format(these=of_snapshots(cluster, every)))
    statement = f"WITH g AS ({groups}) {' UNION ALL '.join(parts)}"
    tables = (GROUP_STATUS, GROUP_CHANGES, GROUP_MEMBERS, WATERMARKS, CLIENT_DIVERGENCE)
    return subjects(lake.query(statement, *(table for table in tables if f"{{{table.name}}}" in statement)))
