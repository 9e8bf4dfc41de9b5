"""Between which snapshots something of a group has changed, in plain Python: see `group_looks`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructField, StructType

from pipeline.analytics.keys import GROUP, GROUP_AT
from pipeline.analytics.status.group_looks import LOOKS, REBALANCING, VALUES
from pipeline.common.data_source import arrow_schema
from pipeline.tables.columns import BOOLEAN, LONG, STRING

WITH_MEMBERS = ("classic", "consumer")
"""The types of groups whose members are read."""
MEMBERS, ASSIGNMENTS, COMMITS = CHECKED = ("members", "assignments", "commits")
"""What is compared row by row if a checksum has changed."""
GROUP_ITSELF = "group"
"""Whether the group is absent."""
_EARLIER = StructField("earlier", LONG)
_OF_VALUES = {GROUP_ITSELF: BOOLEAN, **dict.fromkeys(VALUES, STRING)}
CHANGED = StructType(
    [
        *(LOOKS[name] for name in (*GROUP_AT, "captured_at", "state")),
        StructField("last_state", STRING),
        *(
            StructField(
                f"{name}_change",
                StructType([_EARLIER, *(StructField(side, kind) for side in ("before", "after"))]),
            )
            for name, kind in _OF_VALUES.items()
        ),
        *(StructField(f"{name}_change", StructType([_EARLIER])) for name in CHECKED),
    ]
)
_ABSENT = {GROUP_ITSELF: True, **dict.fromkeys(VALUES), **dict.fromkeys(CHECKED, (0, 0))}
"""What is known of a group that does not exist: it has no members and no commits."""
Look = Mapping[str, Any]


def changed_groups(looks: pa.Table, complete: Collection[int], reach: Mapping[int, int]) -> pa.Table:
    """A row for each group and snapshot in `reach` in which something of the group has changed.

    `looks` are the LOOKS of some groups, all of each. `reach` maps each snapshot to the oldest one that it may be
    compared with. `complete` are the complete ones among all of these snapshots: only they show that a group does not
    exist. For everything X that may change, the column `X_change` is NULL if X is the same as before, or if one of the
    two is not known. Else it has `earlier`, the snapshot that it was compared with, and for a value also `before` and
    `after`. `last_state` is the state before.
    """
    groups: dict[tuple[Any, ...], dict[int, Look]] = defaultdict(dict)
    for look in looks.to_pylist():
        groups[tuple(look[name] for name in GROUP)][look["snapshot_id"]] = look
    found = [
        dict(zip(GROUP, group, strict=True)) | change
        for group, seen in groups.items()
        for change in _changes(seen, {*complete}, reach)
    ]
    return pa.Table.from_pylist(found, arrow_schema(CHANGED))


def _changes(seen: Mapping[int, Look], complete: set[int], reach: Mapping[int, int]) -> Iterator[dict[str, Any]]:
    """The changes of one group, from its looks by snapshot."""
    newest: dict[str, tuple[int, Any]] = {}  # when something was last known, and what it was
    for snapshot_id in sorted(complete | seen.keys()):
        look = seen.get(snapshot_id)
        now = _ABSENT if look is None else _known(look)
        if snapshot_id in reach:
            before = {name: known for name, known in newest.items() if known[0] >= reach[snapshot_id]}
            changes = {f"{name}_change": _change(name, now[name], *before[name]) for name in before}
            if any(changes.values()):
                captured_at = None if look is None else look["captured_at"]
                yield {
                    "snapshot_id": snapshot_id,
                    "captured_at": captured_at,
                    "state": now["state"],
                    "last_state": before.get("state", (0, None))[1],
                    **changes,
                }
        newest |= {name: (snapshot_id, value) for name, value in now.items() if value is not None or look is None}


def _known(look: Look) -> dict[str, Any]:
    """What a snapshot shows of a group that it has; None for what it does not show."""
    is_read = look["rows"] > 0 and look["unread"] == 0
    has_members = is_read and look["group_type"] in (None, *WITH_MEMBERS)
    is_settled = look["state"] not in REBALANCING and look["errors"] == 0
    members = (look["rows"], look["checksum"])
    return {
        GROUP_ITSELF: False,
        **{name: look[column] if is_read else None for name, column in VALUES.items()},
        MEMBERS: members if has_members else None,
        ASSIGNMENTS: members if has_members and is_settled else None,
        COMMITS: (look["commits"], look["commits_checksum"]) if look["commits_unread"] == 0 else None,
    }


def _change(name: str, now: Any, earlier: int, before: Any) -> dict[str, Any] | None:
    if now is None or before is None or now == before:
        return None
    return {"earlier": earlier} if name in CHECKED else {"earlier": earlier, "before": before, "after": now}
