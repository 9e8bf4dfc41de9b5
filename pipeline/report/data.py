"""Aggregates of `snapshots`, `group_status` and `lag` that are small enough for one page: pure DataFrame → DataFrame.

Columns are those of the classes in `model` and `details_model`. Instants leave Spark as epoch ms, because a collected
timestamp would depend on the driver's time zone. NULL sums stay NULL.
"""

from __future__ import annotations

from collections.abc import Collection

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pipeline.analytics.keys import SNAPSHOT
from pipeline.lake.ledger import rows_of_snapshot
from pipeline.report.model import NO_PROGRESS, Group, Point, names_of
from pipeline.tables import DATA_LOSS, LAG, READABLE

ERRORS_LISTED = 20
UNHURRIED_MS = 60_000
"""A shorter step between snapshots is never a gap, because such snapshots were probably not taken by a schedule."""


def ledger(snapshots: DataFrame, calculated: DataFrame) -> DataFrame:
    """Adds `has_lag` to `snapshots`: it is readable, and `calculated` has its (cluster, snapshot_id).

    A running or failed snapshot never has lag, even if a killed run has left rows.
    """
    known = calculated.select(*SNAPSHOT).distinct().withColumn("found", F.lit(True))
    return (
        snapshots.join(known, on=SNAPSHOT, how="left")
        .withColumn("has_lag", F.col("status").isin(*READABLE) & F.col("found").isNotNull())
        .drop("found")
    )


def newest_snapshots(snapshots: DataFrame, limit: int) -> DataFrame:
    """The `limit` newest rows of the ledger with any status, newest first, each with at most ERRORS_LISTED errors."""
    return (
        snapshots.orderBy(F.desc("snapshot_id"), "cluster")
        .limit(limit)
        .select(
            "cluster",
            "snapshot_id",
            "status",
            F.unix_millis("started_at").alias("started_ms"),
            F.unix_millis("finished_at").alias("finished_ms"),
            "groups",
            "partitions",
            "expected",
            "warnings",
            F.slice("errors", 1, ERRORS_LISTED).alias("errors"),
            F.coalesce(F.array_size("errors"), F.lit(0)).alias("errors_total"),
        )
    )


def clusters(ledger: DataFrame) -> DataFrame:
    """One row per cluster: its newest ended snapshot, its newest with lag, and how many snapshots have each status.

    `most_rows` is the number of bronze rows in its largest snapshot. `passed_over` has its snapshots without lag that
    have an error about LAG in the ledger; NULL if there is none.
    """
    # A running snapshot has no result yet, and would hide that the one before it failed.
    recency = F.struct(F.col("status") != "running", "snapshot_id")

    def newest(column: str | Column) -> Column:
        return F.max_by(column, recency)

    def having(status: str) -> Column:
        return F.count_if(F.col("status") == status).alias(status)

    return (
        ledger.groupBy("cluster")
        .agg(
            newest("snapshot_id").alias("snapshot_id"),
            newest("status").alias("status"),
            newest(F.get(F.col("errors"), F.lit(0))["error"]).alias("error"),
            newest("groups").alias("groups"),
            newest("partitions").alias("partitions"),
            newest("expected").alias("expected"),
            F.min("snapshot_id").alias("first_snapshot_id"),
            F.max("snapshot_id").alias("last_snapshot_id"),
            F.max(F.when(F.col("has_lag"), F.col("snapshot_id"))).alias("lag_snapshot_id"),
            F.count("*").alias("snapshots"),
            F.max(rows_of_snapshot()).alias("most_rows"),
            having("complete"),
            having("partial"),
            having("failed"),
            having("running"),
            _passed_over().alias("passed_over"),
        )
        .orderBy("cluster")
    )


def _passed_over() -> Column:
    """`details_model.PassedOver` of a cluster. Snapshots that still have the lag of an earlier run are not included."""
    entry = F.get(F.filter("errors", lambda entry: entry["what"] == LAG.name), F.lit(0))
    reason = F.when(~F.col("has_lag"), entry["error"])
    id_ = F.when(reason.isNotNull(), F.col("snapshot_id"))
    found = F.struct(
        F.count(id_).alias("snapshots"),
        F.min(id_).alias("first_id"),
        F.max(id_).alias("last_id"),
        F.max_by(reason, id_).alias("reason"),
        (F.min(reason) < F.max(reason)).alias("has_other_reasons"),
    )
    return F.when(F.count(id_) > 0, found)


def instants(ledger: DataFrame, limit: int, newest: int = 1) -> DataFrame:
    """The snapshots with lag, at most `limit` per cluster, evenly thinned; the `newest` ones are always included.

    `segment` counts the gaps so far: a snapshot without lag, or a missed instant (a step at least twice as long as
    usual, and at least a minute). Thinning happens after the count, so that no gap is lost.
    """
    cluster = Window.partitionBy("cluster")
    so_far = cluster.orderBy("snapshot_id")
    step_ms = F.col("snapshot_id") - F.lag("snapshot_id").over(so_far)
    usual_ms = F.greatest(F.percentile_approx("step_ms", 0.5).over(cluster), F.col("schedule_ms"))
    is_late = (F.col("step_ms") >= 2 * usual_ms) & (F.col("step_ms") >= UNHURRIED_MS)
    is_hole = ~F.col("has_lag") | F.coalesce(is_late, F.lit(False))
    is_newest = F.col("nth") > F.col("total") - newest
    is_kept = (F.col("total") <= limit) | (F.col("nth") * limit % F.col("total") < limit) | is_newest
    return (
        ledger.withColumn("step_ms", step_ms)
        .withColumn("is_hole", is_hole)
        .withColumn("segment", F.sum(F.col("is_hole").cast("int")).over(so_far))
        .where("has_lag")
        .withColumn("nth", F.row_number().over(so_far))
        .withColumn("total", F.count("*").over(cluster))
        .where(is_kept)
        .orderBy(*SNAPSHOT)
        .select("cluster", "snapshot_id", "segment", "total")
    )


def as_groups(rows: DataFrame) -> DataFrame:
    """Rows of GROUP_STATUS as `model.Group`."""
    return rows.select(
        *(name for name in names_of(Group) if name in rows.columns and name not in ("status", "statuses")),
        F.col("offset_statuses").alias("statuses"),
        "status",
        F.unix_millis("since").alias("status_since_ms"),
        F.unix_millis("members_seen_at").alias("members_seen_ms"),
        F.col("reason").alias("status_reason"),
        F.col("statuses")[F.col("status")].alias("status_partitions"),
    )


def as_points(rows: DataFrame, group_ids: Collection[str]) -> DataFrame:
    """The rows of the named groups as `model.Point`."""
    kept = [name for name in names_of(Point) if name in rows.columns]
    return rows.where(F.col("group_id").isin(sorted(group_ids))).select(
        *kept,
        F.coalesce(F.col("offset_statuses")[DATA_LOSS], F.lit(0)).alias("deleted"),
        F.unix_millis("ends_at").alias("captured_ms"),
        F.unix_millis("captured_at").alias("committed_captured_ms"),
    )


def all_groups(rows: DataFrame) -> DataFrame:
    """Rows of GROUP_STATUS, summed up by cluster and snapshot as `model.ClusterPoint`. Unknown lags are left out."""
    return rows.groupBy(*SNAPSHOT).agg(
        F.count("*").alias("groups"),
        F.count_if(F.col("partitions_unknown") > 0).alias("groups_unknown"),
        F.try_sum("consumer_lag").alias("consumer_lag"),
        F.try_sum("consumer_lag_bytes").alias("consumer_lag_bytes"),
        F.count_if(F.col("partitions_unknown") + F.col("bytes_unknown") > 0).alias("bytes_unknown"),
        F.max("consumer_age_ms").alias("consumer_age_ms"),
        F.count_if(F.col("partitions_unknown") + F.col("age_unknown") > 0).alias("age_unknown"),
    )


def worst_first(groups: DataFrame, limit: int, found: Collection[str] = ()) -> DataFrame:
    """The `limit` worst groups: those that lost data, those in `found`, those without progress, then by lag.

    So groups that lost data are never left out. An unknown lag comes last.
    """
    has_lost_data = F.coalesce(F.col("statuses")[DATA_LOSS], F.lit(0)) > 0
    makes_none = F.coalesce(F.col("status").isin(*NO_PROGRESS), F.lit(False))
    first = (F.desc(has_lost_data), F.desc(F.col("group_id").isin(sorted(found))), F.desc(makes_none))
    return groups.orderBy(*first, F.desc_nulls_last("consumer_lag"), "cluster", "group_id").limit(limit)


def totals(groups: DataFrame) -> DataFrame:
    """`model.Totals` of each cluster."""
    is_not_committed = F.col("statuses")["no_commit"] > 0
    most = F.col("not_committed_offsets")
    return (
        groups.groupBy("cluster")
        .agg(
            F.count("*").alias("groups"),
            F.count_if(F.col("partitions_unknown") > 0).alias("groups_unknown"),
            F.count_if(F.col("statuses")[DATA_LOSS] > 0).alias("groups_with_loss"),
            F.count_if(F.col("statuses")["deleted_uncommitted"] > 0).alias("groups_deleted_uncommitted"),
            F.count_if(is_not_committed).alias("groups_not_committed"),
            F.when(F.count_if(is_not_committed & most.isNull()) == 0, F.try_sum(most)).alias("not_committed_offsets"),
        )
        .orderBy("cluster")
    )
