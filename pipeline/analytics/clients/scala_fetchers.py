"""Whether the old consumer's fetchers fetch, and which topic keeps one from it.

A connector's topics share one fetcher thread a broker. It puts what it has fetched into the queue of each topic's
thread, and waits where one is full: then all topics of the connector stand still. MaxLag and every ConsumerLag keep
their last value meanwhile, as they change only when a fetch is answered. What shows it are counters of fetches that
stand still (a fetcher with nothing to fetch asks again each fetch.wait.max.ms) while logs grow.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from pipeline.analytics.clients.instances import INSTANCE
from pipeline.analytics.clients.scala_fetched_offset import is_read_anew
from pipeline.analytics.clients.settings import with_settings
from pipeline.config.consumers import ConsumerSettings

QUEUED_MAX_MESSAGE_CHUNKS = 2
"""Chunks that the queue of a thread holds, by default."""


def fetcher_states(reported: DataFrame, log_ends: DataFrame, settings: Mapping[str, ConsumerSettings]) -> DataFrame:
    """The state of each fetcher at each snapshot but the first, and the topics that explain it.

    INSTANCE, fetcher; state: `fetching`; `idle`, where it asks and gets nothing; `blocked`,
    where it does not ask though a log grows, and a queue is full or no fetcher of its process asks; NULL where that is
    not so, or what is known of it was read before already; since_snapshot_id: the first
    snapshot of all in this state; culprits: topics with a queue that is full, threads: those of these queues; victims:
    topics with empty queues whose logs grow. A blocked fetcher with both is a blocked connector; one without victims is
    a slow consumer of its own. has_fetched: it has ever got a whole message.

    `reported` are `observed` rows of successive snapshots, `log_ends` those of watermarks (cluster,
    snapshot_id, topic, high_watermark), `settings` those of consumers.
    """
    by_topic = Window.partitionBy("cluster", "topic").orderBy("snapshot_id")
    ends = log_ends.groupBy("cluster", "snapshot_id", "topic").agg(F.try_sum("high_watermark").alias("end"))
    growing = ends.withColumn("is_growing", F.col("end") > F.lag("end").over(by_topic)).drop("end")
    most_chunks = F.coalesce(F.col("settings")["queued_max_message_chunks"], F.lit(QUEUED_MAX_MESSAGE_CHUNKS))
    thread = F.when(F.col("queue_chunks") >= most_chunks, F.col("fetcher"))
    topic = F.col("topic")
    queues = (
        with_settings(reported.where(F.col("queue_chunks").isNotNull()), settings, "client_id")
        .groupBy(*INSTANCE, "topic")
        .agg(F.max("queue_chunks").alias("chunks"), F.array_sort(F.collect_set(thread)).alias("threads"))
        .join(growing, ["cluster", "snapshot_id", "topic"], how="left")
        .groupBy(*INSTANCE)
        .agg(
            F.max("is_growing").alias("is_growing"),
            F.array_sort(F.collect_set(F.when(F.size("threads") > 0, topic))).alias("culprits"),
            F.array_sort(F.array_distinct(F.flatten(F.collect_list("threads")))).alias("threads"),
            F.array_sort(F.collect_set(F.when((F.col("chunks") == 0) & F.col("is_growing"), topic))).alias("victims"),
        )
    )
    series = Window.partitionBy("cluster", "client_id", "instance", "fetcher").orderBy("snapshot_id")
    moved = {
        new: F.when(is_read_anew(series), F.col(name) != F.lag(name).over(series))
        for new, name in (("asked", "requests_total"), ("got", "bytes_total"))
    }
    # Some versions keep the counters of a fetcher that has ended (KAFKA-3632): others of the process move on.
    waits = (F.size("culprits") > 0) | ~F.max("asked").over(Window.partitionBy(*INSTANCE))
    asked, got = F.col("asked"), F.col("got")
    state = F.when(asked & got, "fetching").when(asked, "idle")
    state = state.when(~asked & F.col("is_growing") & waits, "blocked")
    is_counted = topic.isNull() & F.col("fetcher").isNotNull() & F.col("requests_total").isNotNull()
    # Two agents may report one fetcher.
    counted = (
        reported.where(is_counted)
        .groupBy(*INSTANCE, "fetcher")
        .agg(*(F.max(name).alias(name) for name in ("requests_total", "bytes_total", "captured_at")))
    )
    is_new = F.coalesce(~F.col("state").eqNullSafe(F.lag("state").over(series)), F.lit(True))
    run = Window.partitionBy("cluster", "client_id", "instance", "fetcher", "run")
    return (
        counted.join(queues, INSTANCE)
        .withColumns({**moved, "is_first": F.lag("requests_total").over(series).isNull()})
        .where(~F.col("is_first"))
        .withColumn("state", state)
        .withColumns({"run": F.sum(is_new.cast("int")).over(series), "has_fetched": F.col("bytes_total") > 0})
        .withColumn("since_snapshot_id", F.min("snapshot_id").over(run))
        .select(*INSTANCE, "fetcher", "state", "since_snapshot_id", "culprits", "threads", "victims", "has_fetched")
    )
