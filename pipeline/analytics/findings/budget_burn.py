"""The problem `budget_burn`: a group uses the error budget of a service-level objective too fast.

The rules are those of Google's Site Reliability Workbook (chapter "Alerting on SLOs"): 2 % of the budget in an hour, or
5 % in six hours, and it goes on: the last twelfth of this time must miss the objective, too.
"""

from __future__ import annotations

import pyarrow as pa

from pipeline.analytics.findings.problem import distinct_sql, problem_rows
from pipeline.analytics.keys import GROUP_AT
from pipeline.common.arrow_sql import arrow_queries, columns_sql, epoch_ms_sql, names_sql, struct_sql
from pipeline.common.epoch import HOUR_MS
from pipeline.kinds.objectives import BudgetFacts
from pipeline.tables import SLO

FAST, SLOW = 0.02, 0.05
"""The share of the budget that is too much in an hour, which is critical, and in six hours, which is a warning."""
SHORT = 12
"""The Workbook's short window is this part of the long one: 5 minutes of an hour, 30 minutes of six."""
_DESCRIBED = (
    *("slo", "objective", "target", "window_ms", "worst", "partitions_missed", "partitions"),
    *("burn_rate_1h", "burn_rate_6h", "attainment", "budget_left"),
)
BUDGETS = SLO.some(
    [
        *(*GROUP_AT, *_DESCRIBED, "topic", "is_met", "begun_at", "last_missed_at", "last_missed_ms"),
        *("last_known_is_met", "hour_missed_ms", "six_hours_missed_ms"),
    ]
)
"""The columns of SLO that this problem is found in."""


def budget_burn(slo: pa.Table) -> pa.Table:
    """The rows of PROBLEMS: one for each snapshot and group, of the objective whose budget is used fastest.

    `slo` has the columns of BUDGETS, and all rows of a group in a snapshot. A snapshot that misses the objective begins
    the problem; it must not be the only one. The problem goes on until no snapshot of the last twelfth of the time
    misses the objective, so that it ends soon after the cause, but not at each snapshot at which the group is well.
    Unknown snapshots do not begin it, and do not end it.
    """
    with arrow_queries({"budgets": slo}) as queries:
        return problem_rows(queries.rows(_PROBLEMS), BudgetFacts)


def _uses_sql(prefix: str, burn_rate: str, share: float, length_ms: int) -> str:
    """Whether at least this share of the budget was used, by more than one snapshot, and it goes on. NULL means no.

    After the last snapshot that misses the objective, the missed time of a window only becomes less. So what holds at a
    later one, with enough history before the last one that misses it, has held at that one.
    """
    last_ms = epoch_ms_sql("last_missed_at")
    conditions = (
        # Rounded, because 1 - 0.99 is more than 0.01.
        f"round({burn_rate} * {length_ms} / window_ms, 9) >= {share}::DOUBLE",
        f"{prefix}_missed_ms > last_missed_ms",
        f"({last_ms} >= snapshot_id - {length_ms // SHORT} OR (is_met IS NULL AND NOT last_known_is_met))",
        f"{last_ms} - {epoch_ms_sql('begun_at')} >= {length_ms}",
    )
    return f"coalesce({' AND '.join(conditions)}, false)"


_USES = {
    "is_fast": _uses_sql("hour", "burn_rate_1h", FAST, HOUR_MS),
    "is_slow": _uses_sql("six_hours", "burn_rate_6h", SLOW, 6 * HOUR_MS),
}
_OF_SPAN = {
    "span_ms": f"CASE WHEN is_fast THEN {HOUR_MS} ELSE {6 * HOUR_MS} END",
    "burn_rate": "CASE WHEN is_fast THEN burn_rate_1h ELSE burn_rate_6h END",
    # Like the burn rate: the snapshots since `hour_from` may speak for more than an hour.
    "used_ms": "least(CASE WHEN is_fast THEN hour_missed_ms ELSE six_hours_missed_ms END, span_ms)",
}
_RANK = struct_sql({name: name for name in ("is_fast", "burn_rate", "slo")})
_OF_WORST = ("snapshot_id", *_DESCRIBED, "is_fast", "span_ms", "used_ms")
_COLUMNS = {
    "kind": "'budget_burn'",
    "topic": "worst['topic']",
    "severity": "CASE WHEN worst['is_fast'] THEN 'critical' ELSE 'warning' END",
    "magnitude": "worst['burn_rate']",
    "facts": struct_sql({name: f"worst['{name}']" for name in _OF_WORST} | {"slos": "slos"}),
}
_PROBLEMS = f"""
    WITH used AS (SELECT *, {columns_sql(_USES)} FROM budgets),
    burning AS (SELECT *, {columns_sql(_OF_SPAN)} FROM used WHERE is_fast OR is_slow),
    of_groups AS (
        SELECT {names_sql(GROUP_AT)}, {distinct_sql("slo")} AS slos, arg_max(burning, {_RANK}) AS worst
        FROM burning GROUP BY ALL
    )
    SELECT {names_sql(GROUP_AT)}, {columns_sql(_COLUMNS)} FROM of_groups
"""
