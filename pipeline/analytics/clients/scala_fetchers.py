"""Whether the old consumer's fetchers are blocked, and by which topic.

A connector's topics share one fetcher thread for each broker. It puts the fetched records into the queue of each
topic's thread, and waits if a queue is full: then no topic of the connector is read. MaxLag and every ConsumerLag keep
their last value meanwhile, because they change only when a fetch is answered. A fetcher is blocked if its counters of
fetches do not increase although logs grow: one with nothing to fetch sends a request every fetch.wait.max.ms.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F

from pipeline.analytics.clients.buffer_bound import QUEUED_MAX_MESSAGE_CHUNKS
from pipeline.analytics.clients.scala_fetched_offset import is_new_report
from pipeline.analytics.clients.settings import with_settings
from pipeline.analytics.keys import FETCHER, PROCESS_AT, TOPIC, TOPIC_AT
from pipeline.analytics.series import runs_of
from pipeline.config.consumers import ConsumerSettings


def fetcher_states(reported: DataFrame, log_ends: DataFrame, settings: Mapping[str, ConsumerSettings]) -> DataFrame:
    """The state of each fetcher at each snapshot but the first, and the topics that explain it.

    The columns are PROCESS_AT, fetcher, and:

    - state: `fetching`; `idle` if it sends fetch requests and gets nothing; `blocked` if it sends none although a log
      grows, and a queue is full or no fetcher of its process sends any; NULL otherwise, or if its counters are
      not from a new report.
    - since_snapshot_id: the first snapshot of the run in this state.
    - culprits: topics with a full queue. threads: the threads of these queues.
    - victims: topics with empty queues whose logs grow.
    - has_fetched: whether it has ever got a whole message.

    A blocked fetcher with culprits and victims is a blocked connector; without victims it is one slow consumer.

    `reported` are `observed` rows of successive snapshots, `log_ends` are rows of watermarks (cluster, snapshot_id,
    topic, high_watermark), `settings` are those of the consumers.
    """
    queues = _queues(reported, _growing_topics(log_ends), settings)
    rows = _with_moved(_counters(reported).join(queues, PROCESS_AT))
    return (
        rows.withColumn("state", _state())
        .withColumns({"run": runs_of("state", _series()), "has_fetched": F.col("bytes_total") > 0})
        .withColumn("since_snapshot_id", F.min("snapshot_id").over(Window.partitionBy(*FETCHER, "run")))
        .select(*PROCESS_AT, "fetcher", "state", "since_snapshot_id", "culprits", "threads", "victims", "has_fetched")
    )


def _growing_topics(log_ends: DataFrame) -> DataFrame:
    """Whether the log of each topic has grown since the previous snapshot: TOPIC_AT, is_growing."""
    series = Window.partitionBy(*TOPIC).orderBy("snapshot_id")
    ends = log_ends.groupBy(*TOPIC_AT).agg(F.try_sum("high_watermark").alias("end"))
    return ends.withColumn("is_growing", F.col("end") > F.lag("end").over(series)).drop("end")


def _queues(reported: DataFrame, growing: DataFrame, settings: Mapping[str, ConsumerSettings]) -> DataFrame:
    """The queues of each process: PROCESS_AT, is_growing (the log of any of its topics), culprits, threads, victims."""
    most_chunks = F.coalesce(F.col("settings")["queued_max_message_chunks"], F.lit(QUEUED_MAX_MESSAGE_CHUNKS))
    full_thread = F.when(F.col("queue_chunks") >= most_chunks, F.col("fetcher"))
    is_victim = (F.col("chunks") == 0) & F.col("is_growing")
    return (
        with_settings(reported.where(F.col("queue_chunks").isNotNull()), settings, "client_id")
        .groupBy(*PROCESS_AT, "topic")
        .agg(F.max("queue_chunks").alias("chunks"), F.array_sort(F.collect_set(full_thread)).alias("threads"))
        .join(growing, TOPIC_AT, how="left")
        .groupBy(*PROCESS_AT)
        .agg(
            F.max("is_growing").alias("is_growing"),
            F.array_sort(F.collect_set(F.when(F.size("threads") > 0, F.col("topic")))).alias("culprits"),
            F.array_sort(F.array_distinct(F.flatten(F.collect_list("threads")))).alias("threads"),
            F.array_sort(F.collect_set(F.when(is_victim, F.col("topic")))).alias("victims"),
        )
    )


def _counters(reported: DataFrame) -> DataFrame:
    """The counters of each fetcher: PROCESS_AT, fetcher, requests_total, bytes_total, captured_at."""
    is_counted = F.col("topic").isNull() & F.col("fetcher").isNotNull() & F.col("requests_total").isNotNull()
    # Two agents may report the same fetcher.
    newest = (F.max(name).alias(name) for name in ("requests_total", "bytes_total", "captured_at"))
    return reported.where(is_counted).groupBy(*PROCESS_AT, "fetcher").agg(*newest)


def _with_moved(rows: DataFrame) -> DataFrame:
    """Adds asked and got: whether requests and bytes have increased; NULL if they are not from a new report.

    The first snapshot of each fetcher is left out.
    """
    series = _series()
    moved = {
        new: F.when(is_new_report(series), F.col(name) != F.lag(name).over(series))
        for new, name in (("asked", "requests_total"), ("got", "bytes_total"))
    }
    is_first = F.lag("requests_total").over(series).isNull()
    return rows.withColumns({**moved, "is_first": is_first}).where(~F.col("is_first"))


def _state() -> Column:
    """The state of a fetcher, see `fetcher_states`."""
    asked, got = F.col("asked"), F.col("got")
    # Some versions keep the counters of a fetcher that has ended (KAFKA-3632), while others of the process increase.
    waits = (F.size("culprits") > 0) | ~F.max("asked").over(Window.partitionBy(*PROCESS_AT))
    state = F.when(asked & got, "fetching").when(asked, "idle")
    return state.when(~asked & F.col("is_growing") & waits, "blocked")


def _series() -> WindowSpec:
    """A fetcher, from snapshot to snapshot."""
    return Window.partitionBy(*FETCHER).orderBy("snapshot_id")
