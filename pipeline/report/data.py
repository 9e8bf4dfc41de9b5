"""Aggregates of `snapshots` and `lag` that one page can hold: pure DataFrame → DataFrame.

Columns are those of the classes in `model`; instants leave Spark as epoch ms, as a collected timestamp would depend on
the driver's time zone. NULL sums stay NULL.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pipeline.analytics.clients.divergence import whole_sum
from pipeline.analytics.instants import mean_read_ms, read_ms
from pipeline.analytics.lag.ladder import deleted_unread_offsets
from pipeline.ledger import rows_of_snapshot
from pipeline.report.model import DATA_LOSS, NO_PROGRESS, OFFSET_STATUSES, UNKNOWN
from pipeline.tables import READABLE

ERRORS_LISTED = 20
_MOVES = {"high_watermark": "log_ends", "committed_offset": "commits"}
UNHURRIED_MS = 60_000
"""Snapshots closer together than this are not on a scheduler's clock: a longer step is no missed one."""


def ledger(snapshots: DataFrame, calculated: DataFrame) -> DataFrame:
    """`snapshots` with `has_lag`: readable, and among the (cluster, snapshot_id) of `calculated`.

    A running or failed snapshot never has lag, even where a killed run left rows.
    """
    known = calculated.select("cluster", "snapshot_id").distinct().withColumn("found", F.lit(True))
    return (
        snapshots.join(known, on=["cluster", "snapshot_id"], how="left")
        .withColumn("has_lag", F.col("status").isin(*READABLE) & F.col("found").isNotNull())
        .drop("found")
    )


def newest_snapshots(snapshots: DataFrame, limit: int) -> DataFrame:
    """The `limit` newest rows of the ledger, of any status, newest first; at most ERRORS_LISTED errors each."""
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
    """One row per cluster: its newest snapshot that has ended, its newest with lag, its snapshots of each status.

    And `most_rows`, the bronze rows of its largest snapshot.
    """
    # One that runs says nothing yet, and would hide that the one before it failed.
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
        )
        .orderBy("cluster")
    )


def instants(ledger: DataFrame, limit: int, newest: int = 1) -> DataFrame:
    """The snapshots with lag, at most `limit` per cluster, evenly thinned; and so many of the newest in any case.

    `segment` counts the holes so far: a snapshot without lag, or an instant that was missed (a step of
    twice the usual, and of a minute at least). Thinning happens after the count, so that no hole is thinned away.
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
        .withColumn("segment", F.sum(F.col("is_hole").cast("bigint")).over(so_far))
        .where("has_lag")
        .withColumn("nth", F.row_number().over(so_far))
        .withColumn("total", F.count("*").over(cluster))
        .where(is_kept)
        .orderBy("cluster", "snapshot_id")
        .select("cluster", "snapshot_id", "segment", "total")
    )


def _is_unknown(measure: str) -> Column:
    """Whether a lag should be known and is not; without a commit there is none to know."""
    return F.col(measure).isNull() & ~F.col("offset_status").eqNullSafe("no_commit")


def _lacking(measure: str) -> Column:
    """How many partitions have a lag that is not known in a unit."""
    return F.count_if(F.col("consumer_lag").isNotNull() & F.col(measure).isNull())


def _is_loss() -> Column:
    return F.col("offset_status") == DATA_LOSS


def _most_not_committed() -> Column:
    """The most that a group may still read in its partitions without a commit; NULL if one of them is not known."""
    is_not_committed = F.col("offset_status") == "no_commit"
    most = F.col("high_watermark") - F.greatest("log_start_offset", "consumed_offset")
    is_known = F.count_if(is_not_committed & most.isNull()) == 0
    return F.when(is_known, F.try_sum(F.when(is_not_committed, F.greatest(most, F.lit(0)))))


def groups(lag: DataFrame) -> DataFrame:
    """One row per cluster, snapshot and group, as `model.Group`; `statuses` counts offset_status, 0 left out.

    An offset_status of NULL is counted as UNKNOWN.
    """
    status = F.coalesce("offset_status", F.lit(UNKNOWN))
    names = (*OFFSET_STATUSES, UNKNOWN)
    counts = [F.count_if(status == name).alias(name) for name in names]
    pairs = [column for name in names for column in (F.lit(name), F.col(name))]
    statuses = F.map_filter(F.create_map(*pairs), lambda _, count: count > 0)
    return (
        lag.groupBy("cluster", "snapshot_id", "group_id")
        .agg(
            *_records(), *counts, *_members(), *_bytes_and_time(), _most_not_committed().alias("not_committed_offsets")
        )
        .withColumn("statuses", statuses)
        .drop(*names)
    )


def _records() -> list[Column]:
    """What the partitions of a group come to in records."""
    unread = F.when(_is_loss(), deleted_unread_offsets())
    return [
        F.count("partition").alias("partitions"),
        F.count_if(_is_unknown("consumer_lag")).alias("partitions_unknown"),
        F.try_sum("consumer_lag").alias("consumer_lag"),
        F.max("consumer_lag").alias("max_consumer_lag"),
        F.try_sum("consumer_lag_stable").alias("consumer_lag_stable"),
        F.count_if(_is_unknown("consumer_lag_stable")).alias("stable_unknown"),
        F.try_sum("transaction_lag").alias("transaction_lag"),
        F.min("headroom").alias("min_headroom"),
        F.try_sum(unread).alias("unread_offsets"),
    ]


def _members() -> list[Column]:
    """The state of a group, who is in it, and what of it could not be read."""
    return [
        F.max("group_state").alias("group_state"),
        F.max("group_type").alias("group_type"),
        F.size(F.collect_set("member_id")).alias("members"),
        F.size(F.collect_set("client_id")).alias("clients"),
        F.min("client_id").alias("client_id"),
        F.count("error").alias("rows_with_error"),
        F.min("error").alias("error"),
    ]


def _bytes_and_time() -> list[Column]:
    """The lag of a group in bytes, in time, and its age."""
    return [
        F.try_sum("consumer_lag_bytes").alias("consumer_lag_bytes"),
        F.try_sum("bytes_error").alias("bytes_error"),
        _lacking("consumer_lag_bytes").alias("bytes_unknown"),
        F.max("consumer_lag_ms").alias("consumer_lag_ms"),
        F.max_by("time_error_ms", "consumer_lag_ms").alias("time_error_ms"),
        _lacking("consumer_lag_ms").alias("ms_unknown"),
        F.max("consumer_age_ms").alias("consumer_age_ms"),
        # The age needs one end of the span only, whose error is a part of this.
        F.max_by("time_error_ms", "consumer_age_ms").alias("age_error_ms"),
        _lacking("consumer_age_ms").alias("age_unknown"),
    ]


def worst_first(groups: DataFrame, limit: int, found: Collection[str] = ()) -> DataFrame:
    """The `limit` worst groups: those that lost data, those `found`, those without progress, then the most lag.

    So none that lost data is cut. An unknown lag is last.
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
            F.count_if(F.col("statuses")["truncated"] > 0).alias("groups_truncated"),
            F.count_if(F.col("statuses")["beyond_end"] > 0).alias("groups_beyond_end"),
            F.count_if(F.col("statuses")["recreated"] > 0).alias("groups_recreated"),
            F.count_if(F.col("statuses")["deleted_uncommitted"] > 0).alias("groups_deleted_uncommitted"),
            F.count_if(is_not_committed).alias("groups_not_committed"),
            F.when(F.count_if(is_not_committed & most.isNull()) == 0, F.try_sum(most)).alias("not_committed_offsets"),
        )
        .orderBy("cluster")
    )


def history(lag: DataFrame, group_ids: Collection[str]) -> DataFrame:
    """The named groups at each snapshot, as `model.Point`."""
    return (
        lag.where(F.col("group_id").isin(sorted(group_ids)))
        .groupBy("cluster", "snapshot_id", "group_id")
        .agg(
            F.try_sum("consumer_lag").alias("consumer_lag"),
            F.count_if(_is_unknown("consumer_lag")).alias("partitions_unknown"),
            F.try_sum("consumer_lag_bytes").alias("consumer_lag_bytes"),
            _lacking("consumer_lag_bytes").alias("bytes_unknown"),
            F.max("consumer_lag_ms").alias("consumer_lag_ms"),
            _lacking("consumer_lag_ms").alias("ms_unknown"),
            F.count("partition").alias("partitions"),
            F.count_if(_is_loss()).alias("deleted"),
            *(whole_sum(name).alias(as_name) for name, as_name in _MOVES.items()),
            F.max("consumer_age_ms").alias("consumer_age_ms"),
            _lacking("consumer_age_ms").alias("age_unknown"),
            mean_read_ms().alias("captured_ms"),
            mean_read_ms("committed_captured_at").alias("committed_captured_ms"),
        )
    )


def losses(lag: DataFrame, shown: Mapping[str, int], limit: int) -> DataFrame:
    """`model.Loss` of each group that has one, the greatest first: what was lost, but not at the snapshots `shown`."""
    is_shown = [(F.col("cluster") == cluster) & (F.col("last_id") == id_) for cluster, id_ in shown.items()]
    return (
        lag.where(_is_loss())
        .groupBy("cluster", "group_id", "topic", "partition")
        .agg(
            F.max(deleted_unread_offsets()).alias("unread_offsets"),
            F.min(read_ms()).alias("first_ms"),
            F.max(read_ms()).alias("last_ms"),
            F.max("snapshot_id").alias("last_id"),
        )
        .where(~reduce(or_, is_shown, F.lit(False)))
        .groupBy("cluster", "group_id")
        .agg(
            F.count("*").alias("partitions"),
            F.try_sum("unread_offsets").alias("unread_offsets"),
            F.min("first_ms").alias("first_ms"),
            F.max("last_ms").alias("last_ms"),
        )
        .orderBy(F.desc_nulls_first("unread_offsets"), "cluster", "group_id")
        .limit(limit)
    )
