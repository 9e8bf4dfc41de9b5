"""Which subjects of findings could be judged in which snapshots. A finding only ends in snapshots where its own was."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from pipeline.analytics.findings.assignments import STABLE_MS
from pipeline.analytics.findings.known_findings import Row, subjects
from pipeline.analytics.lag.lag import NOT_IN_CLUSTER
from pipeline.analytics.status.group_looks import REBALANCING
from pipeline.derive.backlog import Backlog
from pipeline.derive.rare_problems import since
from pipeline.kinds import SubjectType, kind_named
from pipeline.lake import Lake, of_cluster, of_snapshots, one_of
from pipeline.tables import (
    CLIENT_DIVERGENCE,
    CLIENT_POSITIONS,
    COMMITTED_OFFSETS,
    FINDINGS,
    GROUP_CHANGES,
    GROUP_MEMBERS,
    GROUP_STATUS,
    WATERMARKS,
)

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
_NAMELESS = """
    SELECT DISTINCT snapshot_id, group_id IS NULL AS of_groups FROM {{committed_offsets}}
    WHERE {these} AND error IS NOT NULL AND topic IS NULL
    UNION SELECT DISTINCT snapshot_id, true AS of_groups FROM {{group_members}}
    WHERE {these} AND error IS NOT NULL AND group_id IS NULL
    UNION SELECT DISTINCT snapshot_id, false AS of_groups FROM {{watermarks}}
    WHERE {these} AND error IS NOT NULL AND topic IS NULL
"""
"""Where it is not known which groups could not be read, or which topics: a group may read any of them."""
_NAMED = {COMMITTED_OFFSETS.name, GROUP_MEMBERS.name, WATERMARKS.name, CLIENT_POSITIONS.name, "lag"}
"""What may not have been read of a snapshot that still names all groups and topics, if each of its errors names one."""
_INSTANTS = ("first_seen", "worst_at", "last_seen")
"""When what was known of a group is compared with what is known now."""
_KNOWN = """
    SELECT group_id, snapshot_id, partitions - greatest(rows_with_error, partitions_unknown) AS known
    FROM {{group_status}} WHERE {these} AND partitions > 0 AND group_id IN (
        SELECT DISTINCT group_id FROM {{findings}} WHERE {of_cluster} AND resolved_at IS NULL AND client_id IS NULL
    )
"""
"""Of the groups with open findings. In an outage these may be all of the cluster: their names are not in the query."""
_UNREAD = "SELECT DISTINCT '{of} ' || {name}, snapshot_id, false FROM {{{table}}} WHERE {where} AND error IS NOT NULL"
_CLIENTS = "SELECT DISTINCT 'client ' || client_id, snapshot_id, true FROM {{client_divergence}} WHERE {these}"


def snapshots_judged(lake: Lake, cluster: str, backlog: Backlog) -> tuple[dict[str, list[int]], list[int]]:
    """The snapshots of a batch, and some before it, in which each group, each topic, or the cluster could be judged.

    Also those in which some groups or topics could not be read. If a snapshot has their names, all others can be
    judged, also those that no longer exist: a cluster may have a topic for good that laglake may not read.
    """
    known = [*backlog.before, *backlog.batch]
    incomplete = [s.snapshot_id for s in known if not s.is_whole]
    named = [s.snapshot_id for s in known if not s.is_whole and {*s.unread} <= _NAMED]
    no_groups, no_topics = _nameless(lake, cluster, named) if named else (set(), set())
    no_groups |= {s.snapshot_id for s in known if not s.lists_all_groups} - {*named}
    no_topics |= {*incomplete} - {*named} | no_groups
    every = [s.snapshot_id for s in known]
    judged = {
        "group": [one for one in every if one not in no_groups],
        "topic": [one for one in every if one not in no_topics],
        "cluster": every,
    }
    return judged, incomplete


def _nameless(lake: Lake, cluster: str, snapshot_ids: Sequence[int]) -> tuple[set[int], set[int]]:
    """The snapshots in which it is not known which groups could not be read, and those of topics."""
    rows = lake.query(
        _NAMELESS.format(these=of_snapshots(cluster, snapshot_ids)), COMMITTED_OFFSETS, GROUP_MEMBERS, WATERMARKS
    )
    of_groups = {row["snapshot_id"] for row in rows if row["of_groups"]}
    return of_groups, {row["snapshot_id"] for row in rows if not row["of_groups"]}


def subjects_judged(
    lake: Lake,
    cluster: str,
    judged: Mapping[str, list[int]],
    incomplete: Sequence[int],
    kinds: Collection[str],
    *,
    has_clients: bool,
) -> dict[str, dict[int, bool]]:
    """`KnownFindings.others`: subjects that were judged in other snapshots than `judged` says, and reporting clients.

    `judged` and `incomplete` are those of `snapshots_judged`. A group can be judged if it was read without an error.
    Its members can be if it was also described and did not rebalance; its assignments, if they have also not just
    changed: they are only asked for if there are findings of `kinds` about them. A topic can be judged if its log and
    the commits in it could be read, the replicas of the cluster if its metadata could.
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
    if any(kind_named(name).subject is SubjectType.ASSIGNMENTS for name in kinds):
        of_members.append("assignments")
        parts.append(_OF_ASSIGNMENTS.format(stable_ms=STABLE_MS, changes=since(cluster, every, STABLE_MS, "c.")))
    if incomplete:
        parts += _unread_groups(cluster, incomplete, of_members)
    if topics_unread := {*incomplete} & {*judged["topic"]}:
        where = f"{of_snapshots(cluster, topics_unread)} AND topic IS NOT NULL"
        denied = f"{where} AND error <> '{NOT_IN_CLUSTER}'"  # what is deleted is not judged for ever
        parts.append(_UNREAD.format(of="topic", name="topic", table=WATERMARKS.name, where=where))
        parts.append(_UNREAD.format(of="topic", name="topic", table=COMMITTED_OFFSETS.name, where=denied))
    if replicas_unread := {*every} - {*judged["topic"]}:
        where = f"{of_snapshots(cluster, replicas_unread)} AND topic IS NULL"
        parts.append(_UNREAD.format(of="replicas", name="cluster", table=WATERMARKS.name, where=where))
    if has_clients:
        parts.append(_CLIENTS.format(these=of_snapshots(cluster, every)))
    statement = f"WITH g AS ({groups}) {' UNION ALL '.join(parts)}"
    tables = (GROUP_STATUS, GROUP_CHANGES, GROUP_MEMBERS, COMMITTED_OFFSETS, WATERMARKS, CLIENT_DIVERGENCE)
    return subjects(lake.query(statement, *(table for table in tables if f"{{{table.name}}}" in statement)))


def _unread_groups(cluster: str, incomplete: Sequence[int], of_members: Sequence[str]) -> Iterator[str]:
    """The queries for groups whose commits, or whose members, could not be read. They may have no status then."""
    of_groups = f"{of_snapshots(cluster, incomplete)} AND topic IS NULL AND group_id IS NOT NULL"
    for of in ("group", *of_members):
        yield _UNREAD.format(of=of, name="group_id", table=COMMITTED_OFFSETS.name, where=of_groups)
    for of in of_members:
        where = f"{of_groups} AND member_id IS NULL"
        yield _UNREAD.format(of=of, name="group_id", table=GROUP_MEMBERS.name, where=where)


def with_partly_read(
    lake: Lake, cluster: str, others: Mapping[str, Mapping[int, bool]], findings: Sequence[Row]
) -> dict[str, dict[int, bool]]:
    """`KnownFindings.others`, with groups that were only read in part as judged if that is enough for their findings.

    `findings` are those of `KnownFindings`. A group may have partitions that can never be read, for example of a
    deleted topic. They have nothing to do with its open findings if as many of its partitions are known as when these
    began, were at their worst, and were last seen.
    """
    found = {subject: {**of} for subject, of in others.items()}
    instants: dict[str, set[int]] = {}
    for row in findings:
        if row["resolved_at"] is None and row["client_id"] is None:
            group = row["group_id"]
            if group is not None and not all(found.get(f"group {group}", {}).values()):
                instants.setdefault(group, set()).update(row[name] for name in _INSTANTS)
    if not instants:
        return found
    unread = {at_ms for group in instants for at_ms, is_read in found[f"group {group}"].items() if not is_read}
    these = of_snapshots(cluster, sorted(unread.union(*instants.values())))
    rows = lake.query(_KNOWN.format(these=these, of_cluster=of_cluster(cluster)), GROUP_STATUS, FINDINGS)
    known = {(row["group_id"], row["snapshot_id"]): row["known"] for row in rows}
    for group, seen in instants.items():
        most = max((known.get((group, at_ms), 0) for at_ms in seen), default=0)
        of = found[f"group {group}"]
        of.update(
            (at_ms, True) for at_ms, is_read in of.items() if not is_read and 0 < most <= known.get((group, at_ms), 0)
        )
    return found
