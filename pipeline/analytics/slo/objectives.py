"""Whether each group meets its service-level objectives in a snapshot."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, StringType

from pipeline.analytics.lag.group_sums import GROUP_ROW
from pipeline.common.arrow_udf import with_arrow_column
from pipeline.common.expressions import matches
from pipeline.config.slo import SloConfig

KNOWN = ("ok", "deleted_unread", "deleted_uncommitted")
"""The offset_status of partitions whose lags can be compared with a limit. With others, commit and log do not fit."""


def of_slo(slos: Mapping[str, SloConfig], value: Callable[[SloConfig], Column]) -> Column:
    """A value for each row's objective, which the column `slo` names."""
    return F.coalesce(*(F.when(F.col("slo") == name, value(slo)) for name, slo in slos.items()))


def objectives_met(lag: DataFrame, slos: Mapping[str, SloConfig], markers: int) -> DataFrame:
    """A row for each objective and group that matches: GROUP_ROW, slo, and from partitions to is_met of SLO.

    A partition without a commit does not count, because it has no lag: many groups never commit in an empty partition.
    Where only transaction markers are unread, which no reader ever gets, the value is 0. Where unread_markers is not
    known, no more than `markers` unread offsets may all be markers, so it is not known whether such a partition misses
    its objective.
    """
    readers = lag.where(F.col("topic").isNotNull() & ~F.col("offset_status").eqNullSafe("no_commit"))
    unread_markers = F.when(F.col("headroom") >= 0, F.col("unread_markers"))  # what was deleted is not known
    lag_of = of_slo(slos, lambda slo: F.col(slo.limit.column))
    of_records = F.when(F.col("consumer_lag") <= unread_markers, 0).otherwise(lag_of)
    value = F.when(F.col("offset_status").isin(*KNOWN), of_records)
    is_low = F.col("value") <= of_slo(slos, lambda slo: F.lit(slo.limit.most))
    most_markers = F.coalesce(unread_markers, F.lit(markers))
    has_records = F.coalesce(F.col("consumer_lag") > most_markers, F.lit(True))
    rows = (
        _of_objectives(readers, slos)
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


def _of_objectives(readers: DataFrame, slos: Mapping[str, SloConfig]) -> DataFrame:
    """The readers, once for each objective that concerns the group at the topic: its name is the column `slo`.

    The expressions are Python's, as everywhere in the configuration; Java's are different. So Python searches for them,
    once for each pair of names that Spark sends it together. The names are sent with all rows, because finding the
    pairs first would mean to read the rows twice.
    """
    read = {"offset_status", "consumer_lag", "headroom", "unread_markers", *(slo.limit.column for slo in slos.values())}
    names = readers.select(*GROUP_ROW, "topic", *sorted(read))
    found = with_arrow_column(names, "slos", _search(slos), ArrayType(StringType()), F.col("group_id"), F.col("topic"))
    return found.withColumn("slo", F.explode("slos")).drop("slos")


def _search(slos: Mapping[str, SloConfig]) -> Callable[[pa.Array, pa.Array], pa.Array]:
    rules = [(name, slo.groups, slo.topics) for name, slo in slos.items()]

    def found(groups: pa.Array, topics: pa.Array) -> pa.Array:
        of, at = groups.dictionary_encode(), topics.dictionary_encode()
        names = of.dictionary.to_pylist(), at.dictionary.to_pylist()
        width = len(at.dictionary)
        codes = of.indices.to_numpy().astype("int64") * width + at.indices.to_numpy()
        pairs, rows = np.unique(codes, return_inverse=True)
        each = ((names[0][pair // width], names[1][pair % width]) for pair in pairs.tolist())
        slos_of = [[n for n, g, t in rules if matches(g, group) and matches(t, topic)] for group, topic in each]
        return pa.array(slos_of, pa.list_(pa.string())).take(pa.array(rows))

    return found
