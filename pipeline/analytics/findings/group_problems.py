"""The problems of groups, topics and clusters at each snapshot: a row for each problem, with the columns of `problem`.

One cause is one problem, however many partitions it concerns. If a topic is the cause, such as one that was recreated,
the problem has no group, and its evidence names the groups; if partitions cannot be read, the cause is the cluster.
What groups share because it began at about the same time is decided later, when problems become findings (`shared`).
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipeline.analytics.findings.commits_expire import group_expires_in_ms
from pipeline.analytics.findings.data_loss import TRANSACTION
from pipeline.analytics.findings.group_kinds import magnitude, severity
from pipeline.analytics.findings.problem import problem, some
from pipeline.analytics.keys import SNAPSHOT
from pipeline.analytics.lag.ladder import DELETED_UNREAD_OFFSETS, counted_lag
from pipeline.analytics.series import read_ms
from pipeline.analytics.status.rules import STATUSES
from pipeline.common.finding_kinds import SHARED
from pipeline.config.status import StatusConfig

_MEMBERS = ("has_members", "members_seen_at", "commit_since")
_FACTS = (
    "status",
    "reason",
    "since_ms",
    "latest_ms",
    "at_ms",
    "rows",
    "of_group",
    "of_topic",
    "of_partitions",
    "group_type",
    "group_lag",
    "consumer_lag",
    "consumer_lag_bytes",
    "bytes_error",
    "existing",
    "consumer_age_ms",
    "written_per_s",
    "committed_per_s",
    "deleted",
    "commits_cut_off",
    "readable",
    "deleted_in_ms",
    "expires_in_ms",
    "members_seen_ms",
    "worst",
)
"""What the words say about a problem, with the names of its topics and groups."""


def group_problems(suspects: DataFrame, groups: DataFrame, settings: StatusConfig) -> DataFrame:
    """All such problems, from rows of SUSPECTS. `groups` are those of GROUP_STATUS of their snapshots, `with_rates`."""
    whole = groups.select(
        *SNAPSHOT,
        F.col("group_id").alias("of_group"),
        F.col("partitions").alias("of_partitions"),
        F.col("consumer_lag").alias("group_lag"),
        "group_type",
        F.greatest(F.unix_millis("members_seen_at"), F.unix_millis("commit_since")).alias("active_ms"),
        "written_per_s",
        "committed_per_s",
    )
    summed = suspects.groupBy(*SNAPSHOT, "kind", "of_group", "of_topic").agg(*_sums())
    joined = summed.join(F.broadcast(whole), [*SNAPSHOT, "of_group"], how="left").withColumn(
        "expires_in_ms", F.expr(group_expires_in_ms(settings.data_loss_within_ms))
    )
    return _described(joined.where((F.col("kind") != "commits_expire") | F.col("expires_in_ms").isNotNull()))


def _sums() -> list[Column]:
    """What all partitions of a problem show together."""
    unread = F.coalesce("consumer_lag", F.lit(-1))
    readable = F.col("high_watermark") - F.col("log_start_offset")
    existing = F.when(F.col("consumer_lag").isNotNull(), F.least(F.expr(counted_lag("consumer_lag")), readable))
    rank = F.array_position(F.array(*map(F.lit, STATUSES)), F.col("status"))
    place = F.struct("topic", "partition", F.unix_millis("since").alias("since_ms"))
    return [
        F.count(F.lit(1)).alias("rows"),
        F.sort_array(F.collect_set("topic")).alias("topics"),
        F.sort_array(F.collect_set("partition")).alias("partitions"),
        F.sort_array(F.collect_set("group_id")).alias("groups"),
        F.min_by("status", rank).alias("status"),
        F.max_by("reason", F.struct(unread, F.xxhash64("group_id", "topic", "partition"))).alias("reason"),
        F.min(F.unix_millis("since")).alias("since_ms"),
        F.max(F.unix_millis("since")).alias("latest_ms"),
        F.max(read_ms()).alias("at_ms"),
        F.try_sum(F.expr(counted_lag("consumer_lag"))).alias("consumer_lag"),
        F.try_sum(F.expr(counted_lag("consumer_lag_bytes"))).alias("consumer_lag_bytes"),
        F.try_sum("bytes_error").alias("bytes_error"),
        F.try_sum(existing).alias("existing"),
        F.max("consumer_age_ms").alias("consumer_age_ms"),
        F.try_sum(F.expr(DELETED_UNREAD_OFFSETS)).alias("deleted"),
        F.count_if(_was_cut_off()).alias("commits_cut_off"),
        F.try_sum(readable).alias("readable"),
        F.min("deleted_in_ms").alias("deleted_in_ms"),
        F.min("expires_in_ms").alias("expires_in_ms"),
        F.min("offsets_retention_ms").alias("offsets_retention_ms"),
        F.max(F.unix_millis("members_seen_at")).alias("members_seen_ms"),
        F.collect_list(F.when(F.col("kind").isin(*SHARED), place)).alias("places"),
        _worst(unread).alias("worst"),
    ]


def _was_cut_off() -> Column:
    """Whether the log is known to have been cut off below a commit that was within it.

    An earlier snapshot has seen the commit within the log if the reader got its status after the commit. A commit that
    was beyond the end when it was first seen may have been wrong from the beginning.
    """
    was_within = F.coalesce(F.col("since") > F.col("commit_since"), F.lit(False))
    return F.col("offset_status").eqNullSafe("truncated") | was_within


def _worst(unread: Column) -> Column:
    """The partition that is lost first, or else the one with the most lag; the hash decides between equal ones."""
    first_lost = F.coalesce(F.col("deleted_in_ms"), F.lit(2**62))
    names = ("topic", "partition", "consumer_lag", "records_per_s", "client_id", "host")
    of = F.struct(*names, *TRANSACTION)
    return F.max_by(of, F.struct(-first_lost, unread, F.xxhash64("topic", "partition")))


def _described(rows: DataFrame) -> DataFrame:
    topic = F.when(F.size("topics") == 1, F.col("topics")[0])
    facts = (
        *_FACTS,
        some("topics"),
        some("groups"),
        F.size("groups").alias("groups_affected"),
        F.size("partitions").alias("partition_numbers"),
    )
    return problem(
        rows,
        kind=F.col("kind"),
        group=F.col("of_group"),
        topic=topic,
        partitions=F.when(topic.isNotNull(), F.col("partitions")),
        severity=severity(),
        magnitude=magnitude(),
        places=F.when(F.col("kind").isin(*SHARED), F.to_json("places")),
        facts=facts,
    )
