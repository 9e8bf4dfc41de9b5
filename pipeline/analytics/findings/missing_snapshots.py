"""The problem `snapshots_missing`: snapshots failed or were not taken, so that the history has a hole."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pyarrow as pa

from pipeline.analytics.findings.problem import problem_rows
from pipeline.common.epoch import HOUR_MS
from pipeline.kinds.brokers import LedgerFacts
from pipeline.kinds.text import LISTED
from pipeline.tables import SNAPSHOTS

WINDOW_MS = HOUR_MS
FEWEST = 3
"""How many must be missing within the window: one or two are usual, for example while brokers restart."""
TAKEN = SNAPSHOTS.some(("cluster", "snapshot_id", "status", "warnings", "errors"))
"""The columns of SNAPSHOTS that show this problem."""


def snapshots_missing(ledger: pa.Table, snapshot_ids: Collection[int]) -> pa.Table:
    """The rows of PROBLEMS: one for each of the snapshots before which others are missing.

    `ledger` are the rows of SNAPSHOTS of one cluster, from WINDOW_MS before the first of the snapshots on.
    """
    taken = ledger.to_pylist()
    found = []
    for at_ms in sorted(snapshot_ids):
        within = [row for row in taken if at_ms - WINDOW_MS < row["snapshot_id"] <= at_ms]
        facts = _facts(within)
        magnitude = facts["failed"] + facts["missed"]
        if magnitude >= FEWEST:
            of_snapshot = {"snapshot_id": at_ms, "cluster": within[0]["cluster"], "kind": "snapshots_missing"}
            found.append({**of_snapshot, "severity": "warning", "magnitude": magnitude, "facts": facts})
    return problem_rows(pa.Table.from_pylist(found), LedgerFacts)


def _facts(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    failed = [row for row in rows if row["status"] == "failed"]
    after_a_hole = [row for row in rows if _missed(row)]
    errors = {row["errors"][0]["error"] for row in failed if row["errors"]} - {None}
    return {
        "failed": len(failed),
        "missed": sum(map(_missed, rows)),
        "first_ms": min((row["snapshot_id"] for row in (*failed, *after_a_hole)), default=None),
        "errors": sorted(errors)[:LISTED],
    }


def _missed(row: Mapping[str, Any]) -> int:
    """How many instants passed without a snapshot just before this one."""
    missed: int | None = dict(row["warnings"] or ()).get("missed_instants")
    return missed or 0
