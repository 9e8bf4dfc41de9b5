"""What the page shows beside the lag of groups: partitions, findings, gauges, brokers. Pure DataFrame → DataFrame.

Columns are those of the classes in `details_model`; instants leave Spark as epoch ms.
"""

from __future__ import annotations

from collections.abc import Collection

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pipeline.analytics.histograms.quantiles import of_brokers
from pipeline.analytics.keys import GROUP, MEMBER
from pipeline.report.details_model import Change, Forecast, Gauge, Objective, Partition
from pipeline.report.model import names_of
from pipeline.report.timeline import CLIENTS_NAMED
from pipeline.tables import SEVERITIES

MEASURES = ("kip532_bytes", "kip532_ms", "reuse_bytes")
"""The measures that are shown by broker."""
CLIENTS_READ = CLIENTS_NAMED + 1
"""One more than is named, to know whether there are others."""


def partitions(lag: DataFrame, group_ids: Collection[str], limit: int) -> DataFrame:
    """The `limit` worst partitions of each named group: unusual offsets first, then by lag, unknown lag last."""
    worst = Window.partitionBy(*GROUP).orderBy(*_worst_first())
    return (
        lag.where(F.col("group_id").isin(sorted(group_ids)))
        .where(F.col("topic").isNotNull())
        .withColumn("nth", F.row_number().over(worst))
        .where(F.col("nth") <= limit)
        .orderBy(*GROUP, "nth")
        .select(*names_of(Partition))
    )


def _worst_first() -> list[Column]:
    is_odd = ~F.coalesce(F.col("offset_status").isin("ok", "no_commit"), F.lit(False))
    return [F.desc(is_odd), F.desc_nulls_last("consumer_lag"), F.col("topic"), F.col("partition")]


def worst_partitions(lag: DataFrame) -> DataFrame:
    """All partitions of all groups as `details_model.Partition`, in the same order."""
    rows = lag.where(F.col("topic").isNotNull())
    return rows.orderBy(*_worst_first(), "group_id", "cluster").select(*names_of(Partition))


def findings(findings: DataFrame, limit: int, first: str | None = None) -> DataFrame:
    """The `limit` most important findings: that with the id `first`, open ones, then by severity, then the newest."""
    gravity = F.array_position(F.array(*map(F.lit, SEVERITIES[::-1])), F.col("severity"))
    return (
        findings.orderBy(
            F.desc(F.col("finding_id").eqNullSafe(F.lit(first))),
            F.col("resolved_at").isNotNull(),
            F.asc_nulls_last(gravity),
            F.desc("first_seen"),
            "finding_id",
        )
        .limit(limit)
        .select(
            "kind",
            "cluster",
            "group_id",
            "client_id",
            "topic",
            "partitions",
            "severity",
            F.unix_millis("first_seen").alias("first_seen_ms"),
            F.unix_millis("last_seen").alias("last_seen_ms"),
            F.unix_millis("resolved_at").alias("resolved_ms"),
            "summary",
            "evidence",
            "advice",
            F.unix_millis("worst_at").alias("worst_ms"),
            "owner",
            "tier",
            "channel",
            "finding_id",
            "instance",
        )
    )


def findings_now(history: DataFrame, finding_ids: Collection[str]) -> DataFrame:
    """The evidence of the named findings in rows of `finding_history`, with the topic and partitions concerned."""
    named = history.where(F.col("finding_id").isin(sorted(finding_ids)))
    return named.select("cluster", "finding_id", "evidence", "topic", "partitions")


def findings_counted(findings: DataFrame) -> DataFrame:
    """One row: how many findings are `open`, and how many there are in `total`."""
    return findings.agg(F.count_if(F.col("resolved_at").isNull()).alias("open"), F.count("*").alias("total"))


def changes(group_changes: DataFrame, group_ids: Collection[str], limit: int) -> DataFrame:
    """What has changed in the named groups, at the `limit` newest snapshots of each with a change, as `Change`."""
    newest = Window.partitionBy(*GROUP).orderBy(F.desc("snapshot_id"))
    summed = group_changes.groupBy(*GROUP, "snapshot_id", "change").agg(
        F.count(F.lit(1)).alias("rows"),
        F.coalesce(F.sum(F.size("partitions")), F.lit(0)).alias("partitions"),
        F.max("before").alias("before"),
        F.max("after").alias("after"),
        F.slice(F.sort_array(F.collect_set("client_id")), 1, CLIENTS_READ).alias("clients"),
    )
    return (
        summed.where(F.col("group_id").isin(sorted(group_ids)))
        .withColumn("nth", F.dense_rank().over(newest))
        .where(F.col("nth") <= limit)
        .orderBy(*GROUP, "snapshot_id", "change")
        .select(*names_of(Change))
    )


def forecasts(forecasts: DataFrame, group_ids: Collection[str]) -> DataFrame:
    """The forecasts of the named groups for all of their topics together, as `Forecast`."""
    of_groups = F.col("group_id").isin(sorted(group_ids)) & F.col("topic").isNull()
    rows = forecasts.where(of_groups).withColumn("ends_ms", F.unix_millis("ends_at"))
    return rows.select(*names_of(Forecast))


def objectives(slo: DataFrame, limit: int) -> DataFrame:
    """The `limit` objectives with the least error budget left, as `Objective`; unknown ones come last."""
    worst = slo.orderBy(F.asc_nulls_last("budget_left"), "cluster", "slo", "group_id").limit(limit)
    return worst.select(*names_of(Objective))


def gauges(divergence: DataFrame, clients: int) -> DataFrame:
    """The rows, by time, of the `clients` clients whose gauge was the most misleading."""
    worst = (
        divergence.groupBy(*MEMBER)
        .agg(F.count_if(F.col("verdict") != "truthful").alias("wrong"), F.max("hidden_lag").alias("hidden"))
        .orderBy(F.desc("wrong"), F.desc_nulls_last("hidden"), *MEMBER)
        .limit(clients)
    )
    is_same = [F.col(f"d.{name}").eqNullSafe(F.col(f"w.{name}")) for name in MEMBER]
    return (
        divergence.alias("d")
        .join(F.broadcast(worst.alias("w")), is_same)
        .orderBy("snapshot_id")
        .select(*(F.col(f"d.{name}") for name in names_of(Gauge)))
    )


def names(lag: DataFrame, group_ids: Collection[str], limit: int) -> DataFrame:
    """The first `limit` topics, clients and hosts of each of the named groups, as `Names`."""
    columns = {"topics": "topic", "clients": "client_id", "hosts": "host"}
    found = lag.where(F.col("group_id").isin(sorted(group_ids))).groupBy(*GROUP)
    sets = found.agg(*(F.sort_array(F.collect_set(column)).alias(name) for name, column in columns.items()))
    is_cut = F.greatest(*(F.size(name) for name in columns)) > limit
    return sets.select(*GROUP, *(F.slice(name, 1, limit).alias(name) for name in columns), is_cut.alias("is_cut"))


def verdicts(divergence: DataFrame, group_ids: Collection[str]) -> DataFrame:
    """What the gauges of the clients of the named groups show, as `Verdict`: a row for each group with such clients."""
    is_misleading = F.coalesce(F.col("verdict").isin("blind", "stale"), F.lit(False))
    hidden = F.struct(is_misleading, F.coalesce("hidden_lag", F.lit(-1)), F.col("verdict").isNotNull(), "client_id")
    shown = F.max_by(F.struct("client_id", "max_lag", "max_consumer_lag", "verdict"), hidden)
    counts = F.count(F.lit(1)).alias("clients"), F.count_if(is_misleading).alias("misleading")
    rows = divergence.where(F.col("group_id").isin(sorted(group_ids))).groupBy(*GROUP)
    return rows.agg(*counts, shown.alias("shown")).select(*GROUP, "clients", "misleading", "shown.*").orderBy(*GROUP)


def distributions(histograms: DataFrame) -> DataFrame:
    """The histograms of MEASURES by broker: cluster, broker, measure, and the buckets."""
    return of_brokers(histograms.where(F.col("window_ms") == 0), *MEASURES).select(
        "cluster",
        "broker",
        "measure",
        "zero_count",
        "negative_count",
        "null_count",
        "bucket_offset",
        "bucket_counts",
        "max",
    )
