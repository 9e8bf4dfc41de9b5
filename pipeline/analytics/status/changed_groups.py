"""Between which snapshots something of a group has changed, in plain Python: see `group_looks`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import pyarrow as pa

from pipeline.analytics.keys import GROUP, GROUP_AT
from pipeline.analytics.status.group_looks import REBALANCING, VALUES
from pipeline.common.data_source import arrow_schema
from pipeline.tables import GROUP_CHANGES

WITH_MEMBERS = ("classic", "consumer")
"""The types of groups whose members are read."""
MEMBERS, ASSIGNMENTS, COMMITS = CHECKED = ("members", "assignments", "commits")
"""What is compared row by row if a checksum has changed."""
CHANGED = GROUP_CHANGES.some((*GROUP_AT, "earlier_snapshot_id", "change", "before", "after"))
"""What has changed in a group between two snapshots: a change of the group itself, or one of CHECKED in `change`."""
_IS_ABSENT = "is_absent"
_ABSENT = {_IS_ABSENT: True, **dict.fromkeys(VALUES), **dict.fromkeys(CHECKED, (0, 0))}
"""What is known of a group that does not exist: it has no members and no commits."""
Look = Mapping[str, Any]


def changed_groups(looks: pa.Table, complete: Collection[int], reach: Mapping[int, int]) -> pa.Table:
    """The rows of CHANGED for the snapshots in `reach`.

    `looks` are the looks of some groups, all of each. `reach` maps each snapshot to the oldest one that it may be
    compared with. `complete` are the complete ones among all of these snapshots: only they show that a group does not
    exist. Each value is compared with the newest earlier one that is known. There is no row if the two are the same, or
    if one of them is not known.
    """
    groups: dict[tuple[Any, ...], dict[int, Look]] = defaultdict(dict)
    for look in looks.to_pylist():
        groups[tuple(look[name] for name in GROUP)][look["snapshot_id"]] = look
    found = [
        dict(zip(GROUP, group, strict=True)) | change
        for group, seen in groups.items()
        for change in _changes_of_group(seen, {*complete}, reach)
    ]
    return pa.Table.from_pylist(found, arrow_schema(CHANGED))


def _changes_of_group(
    seen: Mapping[int, Look], complete: set[int], reach: Mapping[int, int]
) -> Iterator[dict[str, Any]]:
    """The changes of one group, from its looks by snapshot."""
    newest: dict[str, tuple[int, Any]] = {}  # when something was last known, and what it was
    for snapshot_id in sorted(complete | seen.keys()):
        look = seen.get(snapshot_id)
        now = _ABSENT if look is None else _known_of(look)
        if snapshot_id in reach:
            before = {name: known for name, known in newest.items() if known[0] >= reach[snapshot_id]}
            for name, (earlier_id, value) in before.items():
                if now[name] is None or value is None or now[name] == value:
                    continue
                change = _change_of(name, before, now)
                yield {"snapshot_id": snapshot_id, "earlier_snapshot_id": earlier_id, **change}
        newest |= {name: (snapshot_id, value) for name, value in now.items() if value is not None or look is None}


def _known_of(look: Look) -> dict[str, Any]:
    """What a snapshot shows of a group that it has; None for what it does not show."""
    is_read = look["rows"] > 0 and look["unread"] == 0
    has_members = is_read and look["group_type"] in (None, *WITH_MEMBERS)
    is_settled = look["state"] not in REBALANCING and look["errors"] == 0
    members = (look["rows"], look["checksum"])
    return {
        _IS_ABSENT: False,
        **{name: look[column] if is_read else None for name, column in VALUES.items()},
        MEMBERS: members if has_members else None,
        ASSIGNMENTS: members if has_members and is_settled else None,
        COMMITS: (look["commits"], look["commits_checksum"]) if look["commits_unread"] == 0 else None,
    }


def _change_of(name: str, before: Mapping[str, tuple[int, Any]], now: Mapping[str, Any]) -> dict[str, Any]:
    """The change of a value, or of the group as a whole, which appears or vanishes with its state."""
    if name in CHECKED:
        return {"change": name}
    if name in VALUES:
        return {"change": name, "before": before[name][1], "after": now[name]}
    if now[_IS_ABSENT]:
        return {"change": "vanished", "before": before["state"][1] if "state" in before else None}
    return {"change": "appeared", "after": now["state"]}
