"""How much of its error budget each group has used: from sums that each snapshot continues, and their differences.

A snapshot speaks for the time since the snapshot before. Each row has the sums of this time since they began, so the
time in any window is the difference of two rows, and the cost of a snapshot does not depend on the length of windows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F

from pipeline.analytics.keys import GROUP
from pipeline.analytics.series import by_snapshot, carried_forward, run_number
from pipeline.analytics.slo.objectives import of_slo
from pipeline.common.columns import columns_of
from pipeline.common.epoch import HOUR_MS
from pipeline.config.slo import SloConfig
from pipeline.tables import SLO

SHORT_MS = {"hour": HOUR_MS, "six_hours": 6 * HOUR_MS}
"""The times over which burn rates are computed, by the prefix of their columns."""
WINDOW = "window"
_BUDGET = [*GROUP, "slo"]
_CHAIN = [*_BUDGET, "begun_ms"]
"""Rows whose sums continue each other."""
_SUMS = ["snapshot_id", "met_ms", "missed_ms"]
_LAST = ["last_missed_at", "last_missed_ms", "last_known_is_met"]
"""What each row knows of the newest rows of its chain, up to itself."""


@dataclass(frozen=True)
class Timeline:
    """The snapshots of a batch. Each mapping has a value for each of them.

    `earlier`: the snapshot of the cluster just before; the first of all has none. `counted_ms`: for how much of the
    time since then the snapshot speaks. `reach`: the oldest snapshot that it may continue from. `before`: the snapshots
    before the batch, of which the newest row of a group is continued.
    """

    earlier: Mapping[int, int]
    counted_ms: Mapping[int, int]
    reach: Mapping[int, int]
    before: Sequence[int]


def budgets(met: DataFrame, known: DataFrame, slos: Mapping[str, SloConfig], timeline: Timeline) -> DataFrame:
    """The rows of SLO for the snapshots of a batch.

    `met` are the rows of `objectives_met`. `known` are rows of SLO: those of `timeline.before`, and those of older
    snapshots at which a window begins now that did not begin there at the snapshots before the batch. Sums begin again
    if the objective, its topics or its window have changed; the target may change.
    """
    stored = known.where(_is_defined_as(slos)).withColumn("begun_ms", F.unix_millis("begun_at"))
    starts = _starts(stored.where(F.col("snapshot_id").isin([*timeline.before])))
    rows = _summed(met, stored, timeline).unionByName(starts, allowMissingColumns=True)
    lengths = {_of_length(slo.window_ms): slo.window_ms for slo in slos.values()}
    begins = {name: _begin(length_ms) for name, length_ms in (SHORT_MS | lengths).items()}
    new = rows.withColumns(begins).where("is_new").withColumns(_definition(slos))
    window = of_slo(slos, lambda slo: F.col(_of_length(slo.window_ms)))
    parts = [part for prefix in (*SHORT_MS, WINDOW) for part in _differences(prefix).items()]
    return (
        new.withColumn(WINDOW, window)
        .withColumns({"earlier_snapshot_id": by_snapshot(timeline.earlier), **dict(parts)})
        .withColumns({"begun_at": F.timestamp_millis("begun_ms"), **_window_figures(), **_burn_rates()})
        .select(*columns_of(SLO.schema))
    )


def _is_defined_as(slos: Mapping[str, SloConfig]) -> Column:
    """Whether a stored row has the objective, the topics and the window of the configuration."""
    same = (
        (F.col("slo") == name)
        & (F.col("objective") == slo.objective)
        & F.col("topics").eqNullSafe(F.lit(slo.topics))
        & (F.col("window_ms") == slo.window_ms)
        for name, slo in slos.items()
    )
    return reduce(or_, same)


def _definition(slos: Mapping[str, SloConfig]) -> dict[str, Column]:
    return {
        "objective": of_slo(slos, lambda slo: F.lit(slo.objective)),
        "topics": of_slo(slos, lambda slo: F.lit(slo.topics).cast("string")),
        "target": of_slo(slos, lambda slo: F.lit(slo.target)),
        "window_ms": of_slo(slos, lambda slo: F.lit(slo.window_ms)),
    }


def _summed(met: DataFrame, stored: DataFrame, timeline: Timeline) -> DataFrame:
    """Stored rows and new ones (`is_new`) with _CHAIN, _SUMS, _LAST; new ones continue the newest row in their reach.

    The first row of a chain has sums of 0, because it is not known since when its state lasts.
    """
    old = stored.select(*_CHAIN, *_SUMS, *_LAST, F.lit(False).alias("is_new"))
    new = met.withColumn("is_new", F.lit(True))
    series = Window.partitionBy(*_BUDGET).orderBy("snapshot_id")
    last_id = F.lag("snapshot_id").over(series)
    is_first = F.col("is_new") & (last_id.isNull() | (last_id < by_snapshot(timeline.reach)))
    by_run = Window.partitionBy(*_BUDGET, "run").orderBy("snapshot_id")
    continued = carried_forward(F.struct("begun_ms", "met_ms", "missed_ms", *_LAST), ~F.col("is_new"), by_run)
    counted = F.when(F.col("is_new"), F.when(F.col("is_first"), 0).otherwise(by_snapshot(timeline.counted_ms)))

    def total(name: str, of: Column) -> Column:
        added = F.sum(F.when(of, F.col("counted_ms")).otherwise(0)).over(by_run)
        return F.coalesce(F.col("continued")[name], F.lit(0)) + added

    return (
        new.unionByName(old, allowMissingColumns=True)
        .withColumn("is_first", is_first)
        .withColumn("run", run_number(F.col("is_first"), series))
        .withColumns({"continued": continued, "counted_ms": counted})
        .withColumns(
            {
                "begun_ms": F.coalesce(F.col("continued")["begun_ms"], F.first("snapshot_id").over(by_run)),
                "met_ms": total("met_ms", F.col("is_met")),
                "missed_ms": total("missed_ms", ~F.col("is_met")),
                **_last(by_run),
            }
        )
        .drop("continued", "run", "is_first")
    )


def _last(by_run: WindowSpec) -> dict[str, Column]:
    """_LAST, from the new rows of a run and from the stored row that it continues. `is_met` is NULL at stored rows."""
    this = F.struct(F.timestamp_millis("snapshot_id").alias("at"), F.col("counted_ms").alias("ms"))
    missed = F.last(F.when(~F.col("is_met"), this), ignorenulls=True).over(by_run)
    values = (missed["at"], missed["ms"], F.last("is_met", ignorenulls=True).over(by_run))
    return {name: F.coalesce(value, F.col("continued")[name]) for name, value in zip(_LAST, values, strict=True)}


def _starts(stored: DataFrame) -> DataFrame:
    """Where the windows of some rows begin, with the sums until then: these rows themselves are not read again."""
    starts = (
        F.struct(
            F.unix_millis(f"{prefix}_from").alias("snapshot_id"),
            *((F.col(name) - F.col(f"{prefix}_{name}")).alias(name) for name in ("met_ms", "missed_ms")),
        )
        for prefix in (*SHORT_MS, WINDOW)
    )
    return stored.select(*_CHAIN, F.inline(F.array(*starts)))


def _of_length(length_ms: int) -> str:
    return f"{WINDOW}_{length_ms}"


def _begin(length_ms: int) -> Column:
    """_SUMS of the newest row of the chain that is `length_ms` old or older; of the chain's begin if there is none."""
    until = Window.partitionBy(*_CHAIN).orderBy("snapshot_id").rangeBetween(Window.unboundedPreceding, -length_ms)
    zero = F.lit(0).cast("bigint")
    at_first = F.struct(F.col("begun_ms").alias("snapshot_id"), zero.alias("met_ms"), zero.alias("missed_ms"))
    # The greatest, because two rows may be of the same snapshot; and a late one adds nothing to the sums.
    return F.coalesce(F.max(F.struct(*_SUMS)).over(until), at_first)


def _differences(prefix: str) -> dict[str, Column]:
    begin = F.col(prefix)
    return {
        f"{prefix}_from": F.timestamp_millis(begin["snapshot_id"]),
        **{f"{prefix}_{name}": F.greatest(F.col(name) - begin[name], F.lit(0)) for name in ("met_ms", "missed_ms")},
    }


def _window_figures() -> dict[str, Column]:
    """What the window shows. It begins at a snapshot, so it may be a little longer than `window_ms`."""
    met, missed, length = F.col("window_met_ms"), F.col("window_missed_ms"), F.col("window_ms")
    passed = F.least(F.col("snapshot_id") - F.col(WINDOW)["snapshot_id"], length)
    return {
        "window_unknown_ms": F.greatest(passed - met - missed, F.lit(0)),
        "attainment": F.when(met + missed > 0, met / (met + missed)),
        "budget_left": F.when(met + missed > 0, 1 - F.least(missed, length) / ((1 - F.col("target")) * length)),
    }


def _burn_rates() -> dict[str, Column]:
    """The share of the time that was missed, divided by the share that may be missed. Unknown time is not missed."""

    def rate(prefix: str, length_ms: int) -> Column:
        share = F.least(F.col(f"{prefix}_missed_ms"), F.lit(length_ms)) / length_ms
        return F.when(F.col("snapshot_id") - F.col("begun_ms") >= length_ms, share / (1 - F.col("target")))

    names = ("burn_rate_1h", "burn_rate_6h")
    return {name: rate(*of) for name, of in zip(names, SHORT_MS.items(), strict=True)}
