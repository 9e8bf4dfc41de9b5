"""The problems `rebalance_storm` and `flapping_member`: members of a group join and leave again and again."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame

from pipeline.analytics.findings.member_stays import (
    CANDIDATES,
    ENDS_AND_BEGINNINGS,
    FACTS,
    GROUP_ROUNDS,
    IN_WINDOWS,
    ROUNDS,
    WINDOW_MS,
    lower_quartile_sql,
    rounds_sql,
    who_sql,
)
from pipeline.analytics.findings.problem import PROBLEMS, distinct_sql, problem_rows
from pipeline.analytics.keys import GROUP, GROUP_AT
from pipeline.common.arrow_sql import arrow_queries, columns_sql, names_sql, struct_sql
from pipeline.common.buckets import Bucket
from pipeline.common.data_source import arrow_schema
from pipeline.common.rows import Rows, bucketed
from pipeline.kinds.members import RestlessFacts
from pipeline.kinds.text import NAMED
from pipeline.tables import GROUP_CHANGES, GROUP_MEMBERS

STORM, FLAPPING = "rebalance_storm", "flapping_member"
MEMBERS_A_STAY = 10
"""A group as a whole is a storm if it has a short stay for each so many members, or more: a large group that is scaled
by one member again and again has fewer."""
RESTLESS_PARTS = {
    "changes": GROUP_CHANGES.some(
        (*GROUP_AT, "earlier_snapshot_id", "change", "before", "after", "client_id", "host", "instance_id")
    ),
    "members": GROUP_MEMBERS.some((*GROUP_AT, "member_id", "client_id", "host", "instance_id", "group_type")),
}
"""What these problems are found in."""
_CANDIDATE = GROUP_CHANGES.some(GROUP)
"""The columns of a group that may have such a problem."""
MOST_CHANGES = 500_000
"""The most changes that a query gets. A change counts once for each snapshot to whose window it may belong. Two million
changes did not fit into the memory of a query."""


def find_restless_groups(parts: Mapping[str, Rows], snapshot_ids: Collection[int], buckets: int | None = None) -> Rows:
    """The rows of PROBLEMS from rows of RESTLESS_PARTS; see `restless_groups`.

    Of many members, only those of the groups that may have a problem travel to the workers: mostly these are few.
    """
    changes, members = parts["changes"], parts["members"]
    if isinstance(members.rows, DataFrame):
        candidates = changes.grouped(GROUP, restless_candidates, _CANDIDATE)
        members = members.where_among(candidates.frame(members.rows.sparkSession, _CANDIDATE), GROUP)
    compute = partial(restless_groups, snapshot_ids=sorted(snapshot_ids))
    return bucketed({"changes": changes, "members": members}, RESTLESS_PARTS, GROUP, compute, PROBLEMS, buckets)


def restless_candidates(changes: pa.Table) -> pa.Table:
    """The groups that may have a problem, from all changes of some groups."""
    with arrow_queries({"changes": changes}) as queries:
        return queries.rows(CANDIDATES).cast(arrow_schema(_CANDIDATE))


def restless_groups(bucket: Bucket, snapshot_ids: Sequence[int]) -> pa.Table:
    """The rows of PROBLEMS: groups in some snapshots whose members join and leave again and again.

    `changes` are the rows of GROUP_CHANGES from READ_MS before the first snapshot on, `members` those of the snapshots:
    all rows of each group in a bucket. If one member causes the rebalances, the problem is `flapping_member`; else it
    is `rebalance_storm`.

    A static member that restarts causes no rebalance (`is_quiet`), but may be a `flapping_member`.

    Two kinds of groups have no such problem: those that have no members now and then, which are the runs of a job, and
    those in which every member is new, if a member has joined or the group was seen without members: the snapshots may
    be taken as often as a job runs. A member that is alone is no `flapping_member` either.
    """
    at_once = max(1, MOST_CHANGES // max(1, len(bucket["changes"])))
    found = [arrow_schema(PROBLEMS).empty_table()]
    with arrow_queries(bucket) as queries:
        for first in range(0, len(snapshot_ids), at_once):
            some = pa.array(snapshot_ids[first : first + at_once], pa.int64())
            queries.add(snapshots=pa.Table.from_pydict({"snapshot_id": some}))
            found.append(problem_rows(queries.rows(_PROBLEMS), RestlessFacts))
    return pa.concat_tables(found)


_GROUP_AT, _MEMBER = names_sql(GROUP_AT), names_sql((*GROUP_AT, "who"))
_NAMED = ("client_id", "host", "instance_id", "group_type")
_MEMBERS = f"""
    SELECT {_GROUP_AT}, {who_sql()} AS who, group_type FROM (
        SELECT {_GROUP_AT}, member_id, {columns_sql({name: f"max({name})" for name in _NAMED})}
        FROM members SEMI JOIN candidates USING ({names_sql(GROUP)}) SEMI JOIN snapshots USING (snapshot_id)
        WHERE member_id IS NOT NULL GROUP BY {_GROUP_AT}, member_id
    )
"""
"""Who is a member in each snapshot: GROUP_AT, who, group_type."""

_USUAL = f"""
    SELECT {_GROUP_AT}, {lower_quartile_sql("all_rounds", "coalesce(quiet, 0)")} AS usual,
        {lower_quartile_sql("all_recent", "coalesce(quiet, 0)")} AS usual_recent
    FROM (
        SELECT {_GROUP_AT}, list(rounds ORDER BY rounds) AS all_rounds, list(recent ORDER BY recent) AS all_recent
        FROM of_members GROUP BY {_GROUP_AT}
    )
    LEFT JOIN (
        SELECT {_GROUP_AT}, count(*) AS quiet FROM known_members ANTI JOIN of_members USING ({_MEMBER})
        GROUP BY {_GROUP_AT}
    ) USING ({_GROUP_AT})
"""
"""How often most members of a group come and go. Members that do not are zeros."""
# One round fewer than a problem: members that begin together do not reach a number of rounds in the same snapshot.
_RESTLESS = f"""
    SELECT {_MEMBER}, stays, beyond >= {ROUNDS} AND recent >= usual_recent + 1 AS is_flapping,
        loud_stays < {ROUNDS - 1} AS is_quiet
    FROM (
        SELECT *, rounds - usual - empty AS beyond
        FROM of_members JOIN ({_USUAL}) USING ({_GROUP_AT}) JOIN facts USING ({_GROUP_AT})
    )
    WHERE beyond >= {ROUNDS - 1}
"""
"""The members that come and go more often than most: _MEMBER, stays, is_flapping (often enough, and until now).

is_quiet: it is a static member that restarts, for which the group does not rebalance.
Rounds after which the group was empty do not count. What most members do at once, such as a deployment, does not make
one of them restless.
"""

_FLAGGED_EVENTS = f"""
    SELECT events.*, CASE WHEN restless.is_quiet THEN 'quiet' WHEN NOT restless.is_quiet THEN 'loud' END AS restless
    FROM events LEFT JOIN restless USING ({_MEMBER}) WHERE NOT events.is_quiet
"""
_OTHERS = ("stays", "rounds", "recent", "span")
_OF_GROUPS = f"""
    SELECT {_GROUP_AT}, {columns_sql({name: f"max({name}) FILTER (restless IS NULL)" for name in _OTHERS})},
        max(fewer) FILTER (restless = 'loud') AS fewer
    FROM ({rounds_sql(_FLAGGED_EVENTS, (*GROUP_AT, "restless"))})
    GROUP BY {_GROUP_AT}
"""
"""The rounds of the members of each group that are not restless: GROUP_AT and the columns of `rounds_sql`.

fewer is about the restless members: how many fewer of them are there now than at another time.
"""

_SUMS = {
    "restless": "count(*) FILTER (NOT is_quiet)",
    "flapping": "count(*) FILTER (NOT is_quiet AND is_flapping)",
    "quiet": "count(*) FILTER (is_quiet AND is_flapping)",
    "worst": f"max({struct_sql({'is_loud': 'NOT is_quiet', 'stays': 'stays', 'who': 'who'})})",
    "restless_stays": "CAST(sum(stays) FILTER (NOT is_quiet) AS bigint)",
    "quiet_stays": "CAST(sum(stays) FILTER (is_quiet) AS bigint)",
    "clients": f"({distinct_sql('client')})[1:{NAMED}]",
}
_SUMMED = f"""
    SELECT {_GROUP_AT}, {columns_sql(_SUMS)} FROM (SELECT *, who ->> 'client_id' AS client FROM restless)
    GROUP BY {_GROUP_AT}
"""
"""The restless members of each group: GROUP_AT, restless, flapping and quiet (numbers), worst, stays, clients."""

_COUNTS = f"""
    SELECT {_GROUP_AT}, max(group_type) AS group_type, count(*) AS members,
        count(*) FILTER (is_quiet IS NULL) AS calm, count(*) FILTER (coalesce(is_quiet, true)) AS not_loud
    FROM known_members LEFT JOIN restless USING ({_MEMBER})
    GROUP BY {_GROUP_AT}
"""
"""The members of each group in each snapshot: GROUP_AT, group_type, members, and calm, which are not restless.

not_loud are those that at most restart as static members.
"""

_AT_LEAST_ZERO = ("restless", "flapping", "quiet", "restless_stays", "quiet_stays", "stays", "span", "fewer")
_GOES_ON = f"coalesce(rounds >= {GROUP_ROUNDS} + empty AND recent >= 2, false)"
_KINDS = {
    "steady": "CASE WHEN restless > 0 THEN not_loud ELSE calm END",
    # With KIP-848, each member that joins or leaves raises the epoch, also between two snapshots.
    "each_round": "2 * (members + span)",
    "rises": f"epochs >= each_round * ({GROUP_ROUNDS} + 1 + empty) AND recent_epochs >= 2 * each_round",
    "others": f"members > 1 AND {_GOES_ON} AND {MEMBERS_A_STAY} * stays >= members",
    # A pod whose address a deployment changes is known as two members, which are never there at the same time.
    "at_once": "members - not_loud + fewer",
    "by_stays": "(flapping > 0 AND restless > 1 AND at_once > 1) OR others",
    "by_epochs": "NOT by_stays AND members > 1 AND restless = 0 AND rises",
    "is_member": "flapping > 0 OR (restless = 0 AND quiet > 0)",
    "kind": f"""CASE WHEN by_stays OR by_epochs THEN '{STORM}'
        WHEN is_member AND steady > 0 THEN '{FLAPPING}' END""",
    "is_quiet": f"restless = 0 AND kind = '{FLAPPING}'",
    "all_stays": "CASE WHEN is_quiet THEN quiet_stays ELSE restless_stays + stays END",
    "may_be_a_job": "members <= new_now AND (joined_now > 0 OR empty > 0)",
}
"""by_epochs: only the epochs show the problem. is_quiet: only static members restart."""
_DESCRIBED = {
    "severity": "'warning'",
    "magnitude": "greatest(all_stays, epochs // 2)",
    "facts": struct_sql({name: name for name in RestlessFacts.model_fields} | {"window_ms": f"{WINDOW_MS}"}),
}
_PROBLEMS = f"""
    WITH candidates AS ({CANDIDATES}), windows AS ({IN_WINDOWS}), events AS ({ENDS_AND_BEGINNINGS}),
    facts AS ({FACTS}), known_members AS ({_MEMBERS}),
    of_members AS ({rounds_sql("SELECT * FROM events", (*GROUP_AT, "who"))}),
    restless AS ({_RESTLESS}), summed AS ({_SUMMED}), of_groups AS ({_OF_GROUPS}), counts AS ({_COUNTS}),
    found AS (
        SELECT * REPLACE ({columns_sql({name: f"coalesce({name}, 0)" for name in _AT_LEAST_ZERO})})
        FROM facts LEFT JOIN summed USING ({_GROUP_AT}) LEFT JOIN of_groups USING ({_GROUP_AT})
        JOIN counts USING ({_GROUP_AT})
    ),
    with_kind AS (SELECT *, {columns_sql(_KINDS)} FROM found)
    SELECT {_GROUP_AT}, kind, {columns_sql(_DESCRIBED)} FROM with_kind
    WHERE kind IS NOT NULL AND NOT may_be_a_job
"""
