"""How fast the logs of a group grow, and how fast it commits, between two snapshots."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from pipeline.analytics.arrow_series import compared_snapshots
from pipeline.analytics.keys import GROUP
from pipeline.common.arrow_sql import arrow_queries, columns_sql, epoch_ms_sql, names_sql, struct_sql

COMPARED = ("partitions", "log_ends", "commits", "ends_at", "captured_at")
"""The columns of GROUP_STATUS that rates come from."""


def with_rates(groups: pa.Table, before: Mapping[int, int]) -> pa.Table:
    """Adds written_per_s and committed_per_s to rows of GROUP_STATUS: offsets a second since an earlier snapshot.

    `before` maps a snapshot to the one with which it is compared, which must be among the rows. A rate is NULL if there
    is none, if the group reads other partitions than then, if a sum is not known, or if the value went back: a reset
    says nothing about the speed.
    """
    with arrow_queries({"groups": groups, "before": compared_snapshots(before)}) as queries:
        return queries.rows(_RATED)


def _per_s(value: str, read_at: str) -> str:
    # As a double, because a sum times 1,000 may exceed a bigint.
    moved = f"({value}::DOUBLE - past['{value}'])"
    read_then = f"past['{read_at}']"
    passed_ms = f"({epoch_ms_sql(read_at)} - {epoch_ms_sql(read_then)})"
    is_alike = f"partitions = past['partitions'] AND {passed_ms} > 0 AND {moved} >= 0"
    return f"CASE WHEN {is_alike} THEN {moved} * 1000 / {passed_ms} END"


_RATES = {"written_per_s": _per_s("log_ends", "ends_at"), "committed_per_s": _per_s("commits", "captured_at")}
_RATED = f"""
    WITH states AS (
        SELECT {names_sql(GROUP)}, snapshot_id AS then_id, {struct_sql({name: name for name in COMPARED})} AS past
        FROM groups
    )
    SELECT groups.*, {columns_sql(_RATES)}
    FROM groups LEFT JOIN before USING (snapshot_id) LEFT JOIN states USING ({names_sql(GROUP)}, then_id)
"""
