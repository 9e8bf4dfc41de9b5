"""Findings as they were known at an earlier time."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.analytics.findings.causes import CAUSE_COLUMNS
from pipeline.analytics.findings.findings import SO_FAR, findings_seen
from pipeline.analytics.keys import FINDING
from pipeline.common.data_source import arrow_schema
from pipeline.common.epoch import utc
from pipeline.common.rows import Rows, bucketed
from pipeline.tables import FINDING_HISTORY, FINDINGS

_CHANGING = (
    *("last_seen", "topic", "worst_at", "partitions", "severity", "magnitude", "summary", "evidence", "advice"),
    *CAUSE_COLUMNS,
)
_ENDS = ("resolved_at", "resolution_confirmed_at")


def lasting_at(findings: pa.Table, at_ms: int) -> pa.Table:
    """The rows of the findings that were seen both before an instant and after it."""
    at = pa.scalar(utc(at_ms), findings.schema.field("first_seen").type)
    return findings.filter(pc.and_(pc.less_equal(findings["first_seen"], at), pc.greater(findings["last_seen"], at)))


def findings_as_known(findings: pa.Table, history: Rows, at_ms: int) -> pa.Table:
    """The rows of `findings` as they were known at an instant, without anything that later snapshots added.

    `history` are the rows of `finding_history` up to then, of the findings in `lasting_at`. If a finding is
    older than that table, what was known about it then was not kept: these columns are NULL, the summary says so, and
    last_seen is the instant itself, because the finding lasted at that time.
    """
    seen = bucketed(
        {"rows": history}, {"rows": FINDING_HISTORY.schema}, ["finding_id"], lambda b: findings_seen(b["rows"]), SO_FAR
    )
    then = {_key(row): row for row in seen.collected()}
    known = [
        _as_known(row, then.get(_key(row), {}), utc(at_ms))
        for row in findings.to_pylist()
        if row["first_seen"] <= utc(at_ms)
    ]
    return pa.Table.from_pylist(known, arrow_schema(FINDINGS.schema))


def _key(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in FINDING)


def _as_known(row: dict[str, Any], then: dict[str, Any], at: datetime) -> dict[str, Any]:
    """One row, if `then` is the row of SO_FAR of the finding; empty if nothing was kept."""
    if row["last_seen"] <= at:
        ended = row["resolved_at"] if row["resolution_confirmed_at"] is None else row["resolution_confirmed_at"]
        values = {} if ended is not None and ended <= at else dict.fromkeys(_ENDS)
        return {**row, **values}
    if then:
        values = {name: then[name] for name in _CHANGING}
        times = ("last_seen", "worst_at", "cause_since", "grouped_at")
        values |= {name: utc(then[name]) for name in times if then[name] is not None}
    else:
        about = next(row[name] for name in ("client_id", "group_id", "topic", "cluster") if row[name] is not None)
        unknown = f"{row['kind']} of {about}: nothing was kept from that time."
        values = {**dict.fromkeys(_CHANGING), "last_seen": at, "summary": unknown}
    return {**row, **values, **dict.fromkeys(_ENDS)}
