"""The table `findings`: a problem that lasts is one row, which grows older, and is resolved when it ends."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pipeline.tables import FINDINGS

OF_A_TOPIC = ("paused_partition",)
"""Kinds of which a client has one for each topic. Of others the topic is the cause, which may become known later."""
RESOLVED_AFTER = 3
SLOW_RESOLVED_AFTER = 5
"""Snapshots without a problem after which it has ended; more for slow poll loops, which come round now and then."""
_KEY = ["kind", "cluster", "group_id", "client_id", "of_topic"]
_TOLD = ("partitions", "severity", "summary", "evidence", "advice")


def findings(problems: DataFrame, told: DataFrame, before: DataFrame) -> DataFrame:
    """The rows of `findings` that some snapshots make or change, by finding_id.

    `problems` are those of the snapshots. `told` has a row for each client that told anything in one of them, or in the
    SLOW_RESOLVED_AFTER just before (cluster, snapshot_id, client_id). `before` are the rows that are open, or were
    last seen after the first of the snapshots.

    A problem is resolved at the first of RESOLVED_AFTER snapshots in which its client told something and had it no
    more; while nobody tells of the client it stays as it is. A snapshot before the last_seen of a finding changes
    nothing of it and makes no other. A problem that comes back after it was resolved is a new finding.
    """
    of_topic = F.when(F.col("kind").isin(*OF_A_TOPIC), F.col("topic"))
    at = F.timestamp_millis("snapshot_id").alias("at")
    seen = problems.withColumns({"of_topic": of_topic, "at": at, "first_seen": at, "is_known": F.lit(False)})
    known = before.withColumns({"of_topic": of_topic, "at": F.col("last_seen"), "is_known": F.lit(True)})
    rows = known.unionByName(seen, allowMissingColumns=True)
    # Windows and groupBy take NULL for a value, as the group of a client may be; joins would not.
    of_key = Window.partitionBy(*_KEY)
    newest_known = F.max(F.when(F.col("is_known"), F.greatest("last_seen", "resolved_at"))).over(of_key)
    rows = rows.withColumn("newest_known", newest_known).where(
        F.col("is_known") | F.col("newest_known").isNull() | (F.col("at") > F.col("newest_known"))
    )
    heard = told.groupBy("cluster", "client_id").agg(F.collect_set(at).alias("heard"))
    rows = rows.join(heard, ["cluster", "client_id"], how="left")
    # The snapshots of the client in which it does not have the problem.
    absent = F.array_sort(F.array_except(F.col("heard"), F.collect_set("at").over(of_key)))
    series = Window.partitionBy(*_KEY).orderBy("at")
    last_at, last_resolved = F.lag("at").over(series), F.lag("resolved_at").over(series)
    is_over = last_resolved.isNotNull() | (_between("absent", F.col("last_at"), F.col("at")) >= _patience())
    begun = F.coalesce(F.col("is_over"), F.lit(True)) | F.col("last_at").isNull()
    runs = (
        rows.withColumn("absent", F.coalesce(absent, F.array().cast("array<timestamp>")))
        .withColumn("last_at", last_at)
        .withColumn("is_over", is_over)
        .withColumn("run", F.sum(begun.cast("int")).over(series))
    )
    found = runs.groupBy(*_KEY, "run").agg(
        F.max_by("topic", F.when(F.col("topic").isNotNull(), F.col("at"))).alias("topic"),
        *(F.max_by(name, F.col("at")).alias(name) for name in _TOLD),
        F.min("first_seen").alias("first_seen"),
        F.max("at").alias("last_seen"),
        F.max("resolved_at").alias("known_resolved_at"),
        F.some(~F.col("is_known")).alias("is_seen"),
        F.first("absent").alias("absent"),
        F.max("owner").alias("owner"),
    )
    after = F.filter("absent", lambda t: t > F.col("last_seen"))
    ended = F.when(F.col("known_resolved_at").isNull() & (F.size(after) >= _patience()), after[0])
    identity = F.to_json(F.struct(*_KEY, F.unix_millis("first_seen").alias("first_seen")))
    return (
        found.withColumns({"ended": ended, "finding_id": F.sha2(identity, 256)})
        .where(F.col("is_seen") | F.col("ended").isNotNull())
        .withColumn("resolved_at", F.coalesce("known_resolved_at", "ended"))
        .select(*(F.col(f.name).cast(f.dataType) for f in FINDINGS.schema))
    )


def _patience() -> Column:
    return F.when(F.col("kind") == "slow_consumer", SLOW_RESOLVED_AFTER).otherwise(RESOLVED_AFTER)


def _between(instants: str, after: Column, before: Column) -> Column:
    return F.size(F.filter(instants, lambda t: (t > after) & (t < before)))
