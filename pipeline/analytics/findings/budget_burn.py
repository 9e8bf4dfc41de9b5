"""The problem `budget_burn`: a group uses the error budget of a service-level objective too fast.

The rules are those of Google's Site Reliability Workbook (chapter "Alerting on SLOs"): 2 % of the budget in an hour, or
5 % in six hours, and it goes on: the last twelfth of this time must miss the objective, too.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipeline.analytics.findings.group_kinds import NAMED
from pipeline.analytics.findings.problem import duration, in_utc, problem, sentence
from pipeline.analytics.keys import GROUP_AT
from pipeline.common.epoch import HOUR_MS

FAST, SLOW = 0.02, 0.05
"""The share of the budget that is too much in an hour, which is critical, and in six hours, which is a warning."""
SHORT = 12
"""The Workbook's short window is this part of the long one: 5 minutes of an hour, 30 minutes of six."""


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
        "allowed_ms": (1 - F.col("target")) * F.col("window_ms"),
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
    left_ms = F.col("budget_left") * F.col("allowed_ms")
    lasts_ms = F.when(left_ms > 0, F.round(left_ms * F.col("span_ms") / F.col("used_ms"))).cast("bigint")
    return problem(
        rows.withColumn("lasts_ms", lasts_ms),
        kind=F.lit("budget_burn"),
        group=F.col("group_id"),
        topic=F.col("topic"),
        severity=F.when(F.col("is_fast"), "critical").otherwise("warning"),
        magnitude=F.col("burn_rate"),
        summary=_summary(),
        evidence=_evidence(),
        advice=F.lit(
            "The group's other findings and its lag say what is wrong. If nothing is, the objective may be stricter "
            "than the group can be: add consumers, or change the objective."
        ),
    )


def _summary() -> Column:
    span = F.when(F.col("is_fast"), "hour").otherwise("6 hours")
    part = F.concat(F.lit(" was missed for "), duration(F.col("used_ms")), F.lit(" of the last "))
    left = F.concat(
        _percent(F.col("budget_left"), 1),
        F.lit(" of the error budget is left, and at this rate it lasts for "),
        duration(F.col("lasts_ms")),
    )
    others = F.array_join(F.slice(F.array_remove("slos", F.col("slo")), 1, NAMED), ", ")
    return sentence(
        "Objective ",
        F.col("slo"),
        ": ",
        F.col("objective"),
        F.when(F.col("used_ms") >= F.col("span_ms"), " was missed during all of the last ").otherwise(part),
        span,
        ", and must be met for ",
        _percent(F.col("target"), 4),
        " of ",
        duration(F.col("window_ms")),
        ". ",
        F.coalesce(left, F.lit("The error budget is used up")),
        ".",
        F.when(others != "", F.concat(F.lit(" Other objectives whose budget is used too fast: "), others, F.lit("."))),
    )


def _percent(share: Column, digits: int) -> Column:
    """A share in percent, without zeros at its end: 99.9 %."""
    text = F.regexp_replace(F.format_number(100 * share, digits), r"\.?0+$", "")
    return F.concat(text, F.lit(" %"))


def _evidence() -> dict[str, Column]:
    return {
        "slos": F.slice("slos", 1, NAMED),
        "objective": F.col("objective"),
        "target": F.col("target"),
        "window_ms": F.col("window_ms"),
        "worst": F.col("worst"),
        "partitions_missed": F.col("partitions_missed"),
        "partitions": F.col("partitions"),
        "burn_rate_1h": F.round("burn_rate_1h", 2),
        "burn_rate_6h": F.round("burn_rate_6h", 2),
        "attainment": F.round("attainment", 6),
        "budget_left": F.round("budget_left", 4),
        "used_up_at": in_utc(F.col("snapshot_id") + F.col("lasts_ms"), "yyyy-MM-dd'T'HH:mm:ss'Z'"),
    }
