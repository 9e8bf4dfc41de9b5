"""The problem `budget_burn`: a group uses the error budget of a service-level objective too fast.

The rules are those of Google's Site Reliability Workbook (chapter "Alerting on SLOs"): 2 % of the budget in an hour, or
5 % in six hours, and it goes on: the last twelfth of this time must miss the objective, too.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipeline.analytics.findings.problem import problem
from pipeline.analytics.keys import GROUP_AT
from pipeline.common.epoch import HOUR_MS

FAST, SLOW = 0.02, 0.05
"""The share of the budget that is too much in an hour, which is critical, and in six hours, which is a warning."""
SHORT = 12
"""The Workbook's short window is this part of the long one: 5 minutes of an hour, 30 minutes of six."""

_FACTS = (
    "snapshot_id",
    "slo",
    "slos",
    "objective",
    "target",
    "window_ms",
    "worst",
    "partitions_missed",
    "partitions",
    "is_fast",
    "span_ms",
    "used_ms",
    "burn_rate_1h",
    "burn_rate_6h",
    "attainment",
    "budget_left",
)


def budget_burn(slo: DataFrame) -> DataFrame:
    """One problem for each snapshot and group in rows of SLO: of the objective whose budget is used fastest.

    A snapshot that misses the objective begins the problem; it must not be the only one. The problem goes on until no
    snapshot of the last twelfth of the time misses the objective, so that it ends soon after the cause, but not at each
    snapshot at which the group is well. Unknown snapshots do not begin it, and do not end it.
    """
    fast = _uses("hour", "burn_rate_1h", FAST, HOUR_MS)
    slow = _uses("six_hours", "burn_rate_6h", SLOW, 6 * HOUR_MS)
    burning = slo.where(fast | slow).withColumn("is_fast", fast)
    span_ms = F.when(F.col("is_fast"), HOUR_MS).otherwise(6 * HOUR_MS)
    missed_ms = F.when(F.col("is_fast"), F.col("hour_missed_ms")).otherwise(F.col("six_hours_missed_ms"))
    of = {
        "span_ms": span_ms,
        "burn_rate": F.when(F.col("is_fast"), F.col("burn_rate_1h")).otherwise(F.col("burn_rate_6h")),
        # Like the burn rate: the snapshots since `hour_from` may speak for more than an hour.
        "used_ms": F.least(missed_ms, span_ms),
    }
    rows = burning.withColumns(of)
    rank = F.struct("is_fast", "burn_rate", "slo")
    worst = rows.groupBy(*GROUP_AT).agg(
        F.sort_array(F.collect_set("slo")).alias("slos"),
        F.max_by(F.struct(*(name for name in rows.columns if name not in GROUP_AT)), rank).alias("worst"),
    )
    return _described(worst.select(*GROUP_AT, "slos", "worst.*"))


def _uses(prefix: str, burn_rate: str, share: float, length_ms: int) -> Column:
    """Whether at least this share of the budget was used, by more than one snapshot, and it goes on. NULL means no.

    After the last snapshot that misses the objective, the missed time of a window only becomes less. So what holds at a
    later one, with enough history before the last one that misses it, has held at that one.
    """
    at_ms, last_ms = F.col("snapshot_id"), F.unix_millis("last_missed_at")
    goes_on = (last_ms >= at_ms - length_ms // SHORT) | (F.col("is_met").isNull() & ~F.col("last_known_is_met"))
    was_known = last_ms - F.unix_millis("begun_at") >= length_ms
    is_repeated = F.col(f"{prefix}_missed_ms") > F.col("last_missed_ms")
    # Rounded, because 1 - 0.99 is more than 0.01.
    used = F.round(F.col(burn_rate) * length_ms / F.col("window_ms"), 9)
    return F.coalesce((used >= share) & is_repeated & goes_on & was_known, F.lit(False))


def _described(rows: DataFrame) -> DataFrame:
    return problem(
        rows,
        kind=F.lit("budget_burn"),
        group=F.col("group_id"),
        topic=F.col("topic"),
        severity=F.when(F.col("is_fast"), "critical").otherwise("warning"),
        magnitude=F.col("burn_rate"),
        facts=_FACTS,
    )
