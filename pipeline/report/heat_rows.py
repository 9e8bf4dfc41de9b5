"""The lag of single partitions over time, and when objectives were missed: pure DataFrame → DataFrame.

Columns are those of the classes in `heat_model`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pipeline.analytics.keys import GROUP
from pipeline.analytics.lag.ladder import counted_lag

LAG_READ = (
    *("cluster", "snapshot_id", "snapshot_date", "group_id", "topic", "partition", "offset_status"),
    *("consumer_lag", "consumer_lag_bytes", "consumer_lag_ms", "consumer_age_ms", "member_id", "client_id", "host"),
)
"""The columns of `lag` that are read; those by which a report is selected are among them."""
_VALUES = {
    "records": "consumer_lag",
    "bytes": "consumer_lag_bytes",
    "ms": "consumer_lag_ms",
    "age": "consumer_age_ms",
}
_SERIES = ["topic", "partition"]


def partitions(lag: DataFrame, groups: Mapping[str, Collection[str]], limit: int) -> DataFrame:
    """The `limit` worst partitions of each group, as `heat_model.PartitionSeries`. `groups` are names by cluster."""
    ranked = _ranked(lag, groups)
    names = [*GROUP, *_SERIES, "total"]
    series = ["snapshot_id", *_VALUES, "status", "member", "client"]
    columns = [F.col("cells")[name].alias(f"{name}s" if name == "snapshot_id" else name) for name in series]
    return ranked.where(F.col("nth") <= limit).orderBy(*GROUP, "nth").select(*names, *columns)


def others(lag: DataFrame, groups: Mapping[str, Collection[str]], limit: int) -> DataFrame:
    """All other partitions of each group together, as `heat_model.OtherPartitions`.

    Offsets and bytes are sums, times are those of the partition that is furthest behind. Each leaves out the partitions
    where it is not known, which are counted in the column with `_unknown`.
    """
    cells = _ranked(lag, groups).where(F.col("nth") > limit).select(*GROUP, F.explode("cells").alias("cell"))
    merged = {"records": _summed_lags, "bytes": _summed_lags, "ms": F.max, "age": F.max}
    sums = cells.groupBy(*GROUP, F.col("cell.snapshot_id").alias("snapshot_id")).agg(
        F.count(F.lit(1)).alias("partitions"),
        *(merge(f"cell.{name}").alias(name) for name, merge in merged.items()),
        *(F.count_if(F.col("cell")[name].isNull()).alias(f"{name}_unknown") for name in merged),
    )
    names = ["snapshot_id", "partitions", *merged, *(f"{name}_unknown" for name in merged)]
    ordered = sums.groupBy(*GROUP).agg(F.sort_array(F.collect_list(F.struct(*names))).alias("cells"))
    columns = [F.col("cells")[name].alias(f"{name}s" if name == "snapshot_id" else name) for name in names]
    return ordered.orderBy(*GROUP).select(*GROUP, *columns)


def _summed_lags(name: str) -> Column:
    return F.try_sum(F.expr(counted_lag(name)))


def _ranked(lag: DataFrame, groups: Mapping[str, Collection[str]]) -> DataFrame:
    """A row for each partition with its `cells` by time, and `nth`: 1 for the worst of its group, of `total`.

    A partition is as bad as its greatest lag, or as the greatest age of its records if that is a worse rank. Those that
    have never had any are the last.
    """
    address = F.regexp_replace("host", "^/", "")
    client = F.when(F.col("client_id").isNotNull(), F.concat_ws(" at ", "client_id", address))
    values = [F.col(column).alias(name) for name, column in _VALUES.items()]
    owner = F.col("member_id").alias("member"), client.alias("client")
    cell = F.struct("snapshot_id", *values, F.col("offset_status").alias("status"), *owner)
    by_partition = (
        lag.where(_is_one_of(groups) & F.col("topic").isNotNull())
        .groupBy(*GROUP, *_SERIES)
        .agg(
            F.sort_array(F.collect_list(cell)).alias("cells"),
            F.max("consumer_lag").alias("most"),
            F.max("consumer_age_ms").alias("oldest"),
        )
    )
    group = Window.partitionBy(*GROUP)
    ranks = {name: F.rank().over(group.orderBy(F.desc_nulls_last(name))) for name in ("most", "oldest")}
    worst = (F.when(F.col(name) > 0, rank) for name, rank in ranks.items())
    by_rank = group.orderBy(F.asc_nulls_last("worst"), F.desc_nulls_last("most"), *_SERIES)
    ranked = by_partition.withColumn("worst", F.least(*worst)).withColumn("total", F.count(F.lit(1)).over(group))
    return ranked.withColumn("nth", F.row_number().over(by_rank))


def _is_one_of(groups: Mapping[str, Collection[str]]) -> Column:
    each = [(F.col("cluster") == name) & F.col("group_id").isin(sorted(ids)) for name, ids in groups.items()]
    return reduce(or_, each, F.lit(False))


def missed(slo: DataFrame, group_ids: Collection[str]) -> DataFrame:
    """When the named groups missed their objectives, or may have, as `heat_model.Missed`."""
    is_known = F.col("is_met").isNotNull()
    unmet = slo.where(F.col("group_id").isin(sorted(group_ids))).where(~F.coalesce("is_met", F.lit(False)))

    def when(condition: Column) -> Column:
        return F.sort_array(F.collect_list(F.when(condition, F.col("snapshot_id"))))

    return (
        unmet.groupBy(*GROUP, "slo")
        .agg(when(is_known).alias("missed_ids"), when(~is_known).alias("unknown_ids"))
        .orderBy(*GROUP, "slo")
    )
