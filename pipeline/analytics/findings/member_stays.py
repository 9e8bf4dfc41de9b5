"""How often members of a group joined and left again, from rows of GROUP_CHANGES, as SQL text for DuckDB.

The number of changes does not show a problem: while 50 members are restarted one by one, something changes in each
snapshot for an hour. But each of them is replaced once, and the new one stays. So *short stays* are counted: those of
members that joined and left again within the window. They come in *rounds*: in one round, each of the members that come
and go has one short stay.
"""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.analytics.keys import GROUP, GROUP_AT
from pipeline.common.arrow_sql import columns_sql, names_sql, struct_sql
from pipeline.common.epoch import HOUR_MS, MINUTE_MS

WINDOW_MS = 2 * HOUR_MS
"""The time over which the stays in a group are counted, up to the end of its last short one."""
STILL_MS = 40 * MINUTE_MS
"""A problem lasts as long as a short stay has ended this recently: the longest regular stay of which the window has
enough."""
READ_MS = WINDOW_MS + STILL_MS
"""How long before a snapshot a change may count."""
ROUNDS, GROUP_ROUNDS = 3, 5
"""The fewest rounds that are a problem: of one member beyond those of the others, and of a group."""
JOINED, LEFT, RESTARTED, EPOCH, STATE, VANISHED = "joined", "left", "restarted", "epoch", "state", "vanished"
COUNTED = (JOINED, LEFT, RESTARTED, EPOCH, STATE, VANISHED)
"""The changes that count. Others do no harm."""
ENDINGS = (LEFT, RESTARTED, EPOCH)
"""A group without one of these changes in ROUNDS snapshots of the window has no problem."""
_WITHOUT_MEMBERS = ("Empty", "Dead")

CANDIDATES = f"""
    SELECT {names_sql(GROUP)} FROM changes WHERE change IN {ENDINGS}
    GROUP BY {names_sql(GROUP)} HAVING count(DISTINCT snapshot_id) >= {ROUNDS}
"""
"""The groups that may have a problem: GROUP, from `changes`, which are rows of GROUP_CHANGES."""

_OF_MEMBER = ("client_id", "host", "instance_id")
_FIRST = (
    f"arg_min({struct_sql({n: n for n in _OF_MEMBER})}, {struct_sql({n: n for n in ('snapshot_id', *_OF_MEMBER)})})"
)
_SAME = (*GROUP, "change", "before", "after")
IN_WINDOWS = f"""
    SELECT * FROM (
        SELECT {names_sql(_SAME)}, min(snapshot_id) AS changed_id, unnest({_FIRST})
        FROM changes SEMI JOIN candidates USING ({names_sql(GROUP)})
        GROUP BY {names_sql(_SAME)}, earlier_snapshot_id
    )
    JOIN snapshots ON snapshot_id >= changed_id AND snapshot_id - {READ_MS} < changed_id
"""
"""The changes of the `candidates` that may count in each of some snapshots: in `snapshots`, which have a snapshot_id.

Each has the GROUP_AT of such a snapshot, and changed_id: when it was seen. Both a late snapshot and its successor may
have a change, see GROUP_CHANGES. It is counted once.
"""


def who_sql() -> str:
    """Who a member is, as JSON: its group.instance.id, else its client_id and host, else its member_id.

    A member that joins again has another member_id, except with KIP-848.
    """
    is_dynamic = "instance_id IS NULL"
    has_address = f"{is_dynamic} AND client_id IS NOT NULL AND host IS NOT NULL"
    parts = {
        "instance": "instance_id",
        "client_id": "client_id",
        "host": f"CASE WHEN {has_address} THEN host END",
        "member_id": f"CASE WHEN {is_dynamic} AND NOT ({has_address}) THEN member_id END",
    }
    fields = ", ".join(f"""'"{name}":' || to_json({value})""" for name, value in parts.items())
    return f"'{{' || concat_ws(',', {fields}) || '}}'"


def _ends_or_begins(member: str, begins: str) -> str:
    """The changes with a member in the column `before` or `after`."""
    is_quiet = f"change = '{RESTARTED}' AND instance_id IS NOT NULL"
    return f"""
        SELECT {names_sql(GROUP_AT)}, changed_id, {names_sql(_OF_MEMBER)}, {is_quiet} AS is_quiet,
            {member} AS member_id, {begins} AS begins
        FROM windows WHERE change IN {(JOINED, LEFT, RESTARTED)} AND {member} IS NOT NULL
    """


ENDS_AND_BEGINNINGS = f"""
    SELECT {names_sql(GROUP_AT)}, changed_id, {who_sql()} AS who, is_quiet, begins,
        CASE WHEN NOT begins AND changed_id - begun <= {WINDOW_MS} THEN begun END AS begun_ms
    FROM (
        SELECT *, max(changed_id) FILTER (begins) OVER earlier AS begun
        FROM ({_ends_or_begins("before", "false")} UNION ALL {_ends_or_begins("after", "true")})
        WINDOW earlier AS (
            PARTITION BY {names_sql(GROUP_AT)}, member_id ORDER BY changed_id
            RANGE BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        )
    )
"""
"""A row for each stay that began or ended: GROUP_AT, changed_id, who, is_quiet, begins, begun_ms.

`windows` are the rows of IN_WINDOWS. is_quiet: a static member was replaced by itself, for which the group does not
rebalance (KIP-345). begun_ms is when a short stay began, in the row of its end.
"""

_THERE = {
    "begun": "count(*) FILTER (begins)",
    "ended": "count(*) FILTER (NOT begins)",
    "short": "count(*) FILTER (begun_ms >= begin_ms)",
    "loud": "count(*) FILTER (begun_ms >= begin_ms AND NOT is_quiet)",
    "late": f"count(*) FILTER (changed_id > snapshot_id - {STILL_MS} AND NOT begins)",
}
_MOST_THERE, _SO_MANY_MORE = "greatest(max(there), 0)", "sum(begun - ended)"
_SUMS = {
    "stays": "sum(short)",
    "begun": "sum(begun)",
    "ended": "sum(ended)",
    "span": f"{_MOST_THERE} - least(min(there), 0)",
    "fewer": f"{_MOST_THERE} - {_SO_MANY_MORE}",
    "loud_stays": "sum(loud)",
    "late": "sum(late)",
}


def rounds_sql(events: str, by: Sequence[str]) -> str:
    """The short stays of each key `by`, which begins with GROUP_AT: stays, loud_stays, rounds, recent, span and fewer.

    `events` is the query for rows of ENDS_AND_BEGINNINGS, which also have the other columns of the key.

    stays is their number, loud_stays that of those for whose end the group rebalanced, recent the rounds that ended
    lately. They are counted over WINDOW_MS up to the end of the group's last one, so that a problem lasts from one
    regular stay to the next. This is the same time for all members of a group: if one had a deployment more in its time
    than another, they could not be compared. A round is as many stays as members come and go: the most of those that
    are gone now, those that have come and are still there, and those that were there beyond the fewest at a time
    (span). So neither several deployments of many members nor a group that is scaled up and down count more than once
    each. fewer is how many fewer members are there now than at another time.
    """
    key, sums = names_sql(by), {name: f"CAST({total} AS bigint)" for name, total in _SUMS.items()}
    return f"""
        WITH events_until AS (
            SELECT *, coalesce(
                max(changed_id) FILTER (begun_ms IS NOT NULL) OVER (PARTITION BY {names_sql(GROUP_AT)}), snapshot_id
            ) - {WINDOW_MS} AS begin_ms
            FROM ({events})
        ),
        at_once AS (
            SELECT {key}, changed_id, {columns_sql(_THERE)} FROM events_until
            WHERE changed_id >= begin_ms GROUP BY {key}, changed_id
        ),
        summed AS (
            SELECT {key}, {columns_sql(sums)} FROM (
                SELECT *, sum(begun - ended) OVER (PARTITION BY {key} ORDER BY changed_id) AS there FROM at_once
            )
            GROUP BY {key}
        )
        SELECT {key}, stays, loud_stays, span, fewer,
            greatest(begun - stays, ended - stays, span, 1) AS coming_and_going,
            stays / coming_and_going AS rounds, late / coming_and_going AS recent
        FROM summed
    """


def lower_quartile_sql(ascending: str, zeros: str) -> str:
    """The lower quartile of a list and of so many zeros: what most members have in common, such as a deployment."""
    number = f"(({zeros} + len({ascending}) - 1) // 4)"
    return f"CASE WHEN {number} < {zeros} THEN 0 ELSE {ascending}[{number} - {zeros} + 1] END"


_IS_EMPTY = f"change = '{VANISHED}' OR (change = '{STATE}' AND after IN {_WITHOUT_MEMBERS})"
_RISEN = "greatest(TRY_CAST(after AS bigint) - TRY_CAST(before AS bigint), 0)"


def _rises_since(instant: str) -> str:
    return f"CAST(coalesce(sum(risen) FILTER (changed_id {instant}), 0) AS bigint)"


FACTS = f"""
    SELECT {names_sql(GROUP_AT)},
        count(DISTINCT changed_id) FILTER ({_IS_EMPTY}) AS empty,
        {_rises_since(f">= epoch_ms - {WINDOW_MS}")} AS epochs,
        {_rises_since(f"> snapshot_id - {STILL_MS}")} AS recent_epochs,
        count(*) FILTER (change IN {(JOINED, RESTARTED)} AND changed_id = snapshot_id) AS new_now,
        count(*) FILTER (change = '{JOINED}' AND changed_id = snapshot_id) AS joined_now
    FROM (
        SELECT *, CASE WHEN change = '{EPOCH}' THEN {_RISEN} END AS risen,
            max(changed_id) FILTER (change = '{EPOCH}') OVER (PARTITION BY {names_sql(GROUP_AT)}) AS epoch_ms
        FROM windows
    )
    GROUP BY {names_sql(GROUP_AT)}
"""
"""What else the changes of IN_WINDOWS show of each group.

GROUP_AT; empty, the number of snapshots in which it had lost all of its members; epochs, by how much its epoch has
risen within WINDOW_MS up to the last rise; recent_epochs, the same lately; new_now, the members that are new in this
snapshot; joined_now, those of them that replace no other member.
"""
