"""The part of a lake that a page about one finding shows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pipeline.common.epoch import HOUR_MS, MINUTE_MS, to_epoch_ms
from pipeline.common.errors import LakeError
from pipeline.kinds.causes import with_causes_merged
from pipeline.lake import Lake
from pipeline.report.model.selection import FINDING_ID, Selection
from pipeline.tables import FINDINGS

_AFTER_MS = 30 * MINUTE_MS
_BEFORE_MS = (30 * MINUTE_MS, 6 * HOUR_MS)


def selection_of(lake: Lake, finding_id: str) -> Selection:
    """What to show about a finding, which the first digits of its finding_id name.

    This is its group, or all groups that share its cause, which a cause_id names, too; if the cause is a topic, the
    groups that its evidence names; else its whole cluster. The time is from some time before it began (as long as it
    lasted, but at least half an hour and at most six hours) until half an hour after it was resolved.

    Raises LakeError if there is no such finding, or if there are several.
    """
    if not FINDING_ID.fullmatch(finding_id):
        raise LakeError(f"--incident {finding_id!a}: not a finding_id: 6 to 64 digits of 0-9 and a-f")
    is_meant = f"finding_id LIKE '{finding_id}%'"
    of_cause = (
        f"cause_id IN (SELECT DISTINCT cause_id FROM {{findings}} WHERE {is_meant} OR cause_id LIKE '{finding_id}%')"
    )
    rows = with_causes_merged(lake.query(f"SELECT * FROM {{findings}} WHERE {is_meant} OR {of_cause}", FINDINGS))
    if not rows:
        raise LakeError(
            f"--incident {finding_id}: there is no such finding; the table findings and the report have their ids"
        )
    if len(rows) > 1:
        raise LakeError(f"--incident {finding_id}: several findings begin with this; write more of the id")
    (row,) = rows
    begin_ms, last_ms = to_epoch_ms(row["first_seen"]), to_epoch_ms(row["last_seen"])
    ends = [to_epoch_ms(row[name]) for name in ("resolved_at", "resolution_confirmed_at") if row[name] is not None]
    least, most = _BEFORE_MS
    before_ms = min(max(max([last_ms, *ends]) - begin_ms, least), most)
    return Selection(
        (row["cluster"],),
        from_ms=begin_ms - before_ms,
        to_ms=max(ends) + _AFTER_MS if ends else None,
        group_ids=_groups(row),
        finding_id=row["finding_id"],
    )


def _groups(row: Mapping[str, Any]) -> tuple[str, ...] | None:
    """The groups that a finding concerns; None if it does not say."""
    if row["group_id"] is not None:
        return (row["group_id"],)
    return tuple(json.loads(row["evidence"] or "{}").get("groups") or ()) or None
