"""Whether each group meets its service-level objectives in a snapshot."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, StringType

from pipeline.analytics.lag.group_sums import GROUP_ROW
from pipeline.common.arrow_udf import with_arrow_column
from pipeline.config.slo import SloConfig
from pipeline.config.value_types import matches

KNOWN = ("ok", "deleted_unread", "deleted_uncommitted")
"""The offset_status of partitions whose lags can be compared with a limit. With others, commit and log do not fit."""


def of_slo(slos: Mapping[str, SloConfig], value: Callable[[SloConfig], Column]) -> Column:
    """A value for each row's objective, which the column `slo` names."""
    return F.coalesce(*(F.when(F.col("slo") == name, value(slo)) for name, slo in slos.items()))


def objectives_met(lag: DataFrame, slos: Mapping[str, SloConfig], markers: int) -> DataFrame:
    """A row for each objective and group that matches: GROUP_ROW, slo, and from partitions to is_met of SLO.

    A partition without a commit does not count, because it has no lag: many groups never commit in an empty partition.
    If no more than `markers` offsets are unread, all of them may be transaction markers, which no reader ever gets. So
    it is not known whether such a partition misses its objective: no source says what an offset holds.
    """
    readers = lag.where(F.col("topic").isNotNull() & ~F.col("offset_status").eqNullSafe("no_commit"))
    value = F.when(F.col("offset_status").isin(*KNOWN), of_slo(slos, lambda slo: F.col(slo.limit.column)))
    is_low = F.col("value") <= of_slo(slos, lambda slo: F.lit(slo.limit.most))
    has_records = F.coalesce(F.col("consumer_lag") > markers, F.lit(True))
    rows = (
        readers.join(_matching(readers, slos), ["group_id", "topic"])
        .withColumn("value", value)
        .withColumn("is_met", F.when(is_low | has_records, is_low))
    )
    return rows.groupBy(*GROUP_ROW, "slo").agg(*_counts()).withColumn("is_met", _all_met())


def _counts() -> list[Column]:
    missing = F.when(~F.col("is_met"), F.col("topic"))
    return [
        F.count(F.lit(1)).alias("partitions"),
        F.count_if(~F.col("is_met")).alias("partitions_missed"),
        F.count_if(F.col("is_met").isNull()).alias("partitions_unknown"),
        F.max(F.when(F.col("is_met").isNotNull(), F.col("value"))).alias("worst"),
        F.when(F.min(missing) == F.max(missing), F.min(missing)).alias("topic"),
    ]


def _all_met() -> Column:
    """Whether a group meets its objective: not if one partition misses it, whatever is not known of the others."""
    return F.when(F.col("partitions_missed") > 0, False).when(F.col("partitions_unknown") == 0, True)


def _matching(readers: DataFrame, slos: Mapping[str, SloConfig]) -> DataFrame:
    """The objectives that concern each group in each topic: group_id, topic, slo.

    The expressions are Python's, as everywhere in the configuration; Java's are different. So Python searches for them,
    once for each pair of names.
    """
    names = readers.select("group_id", "topic").distinct()
    found = with_arrow_column(names, "slos", _search(slos), ArrayType(StringType()), F.col("group_id"), F.col("topic"))
    return found.select("group_id", "topic", F.explode("slos").alias("slo"))


def _search(slos: Mapping[str, SloConfig]) -> Callable[[pa.Array, pa.Array], pa.Array]:
    rules = [(name, slo.groups, slo.topics) for name, slo in slos.items()]

    def found(groups: pa.Array, topics: pa.Array) -> pa.Array:
        pairs = zip(groups.to_pylist(), topics.to_pylist(), strict=True)
        rows = [[name for name, of, at in rules if matches(of, group) and matches(at, topic)] for group, topic in pairs]
        return pa.array(rows, pa.list_(pa.string()))

    return found
