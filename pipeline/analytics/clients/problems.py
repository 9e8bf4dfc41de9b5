"""The problems of clients at each snapshot, a row for each problem with the columns of `findings.problem`.

Their words are in `findings.words.clients`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipeline.analytics.clients.instances import HERE
from pipeline.analytics.findings.problem import problem
from pipeline.analytics.keys import MEMBER_AT, PROCESS_AT
from pipeline.analytics.lag.ladder import counted_lag

LARGEST_HEAP_SHARE = 0.5
"""The part of its heap that a client may buffer before this counts as a problem."""


def problems(divergence: DataFrame, fetchers: DataFrame, polls: DataFrame, lag: DataFrame) -> DataFrame:
    """All problems in some snapshots, from rows of `client_divergence`, `fetcher_states`, `poll_states` and `lag`."""
    clients = divergence.select(*MEMBER_AT, "max_lag", "sum_fetcher_lag", "sum_consumer_lag", "record_bytes")
    found = (
        _blocked_fetchers(fetchers.join(clients, PROCESS_AT, how="left"), lag),
        _slow_clients(polls),
        _paused_partitions(polls),
        _gauges(divergence),
        _buffers(divergence),
    )
    return reduce(DataFrame.unionByName, found)


def _blocked_fetchers(fetchers: DataFrame, lag: DataFrame) -> DataFrame:
    """Old consumers whose fetcher waits for a topic's thread, or whose buffer is too small for a message."""
    partitions = lag.groupBy(*PROCESS_AT, F.col("topic").alias("culprit")).agg(
        F.sort_array(F.collect_set("partition")).alias("partitions")
    )
    is_blocked = F.col("kind") == "blocked_connector"
    return _of_client(
        _blocked(fetchers).join(partitions, [*PROCESS_AT, "culprit"], how="left"),
        kind=F.col("kind"),
        topic=F.col("culprit"),
        partitions=F.col("partitions"),
        severity=F.when((F.size("victims") > 0) | ~is_blocked, "critical").otherwise("warning"),
        magnitude=F.when(is_blocked, F.col("sum_fetcher_lag")).otherwise(F.col("max_lag")),
        facts=(
            "culprit",
            "culprits",
            "threads",
            "victims",
            "fetchers",
            "sum_fetcher_lag",
            "record_bytes",
            "max_lag",
        ),
    )


def _blocked(fetchers: DataFrame) -> DataFrame:
    """A row for each process with blocked fetchers: adds `kind`, and `culprit`, the first topic with a full queue."""
    is_too_large = ~F.col("has_fetched") & (F.col("max_lag") > 0)
    kind = F.when(is_too_large, "too_large_message").otherwise("blocked_connector")
    of_process = ("culprits", "threads", "victims", "sum_fetcher_lag", "max_lag", "record_bytes")
    has_culprit = (F.col("kind") == "blocked_connector") & (F.size("culprits") > 0)
    return (
        fetchers.where(F.col("state") == "blocked")
        .groupBy(*MEMBER_AT, kind.alias("kind"))
        .agg(
            F.sort_array(F.collect_set("fetcher")).alias("fetchers"),
            *(F.first(name).alias(name) for name in of_process),
        )
        .withColumn("culprit", F.when(has_culprit, F.col("culprits")[0]))
    )


def _slow_clients(polls: DataFrame) -> DataFrame:
    """Poll loops that hardly send requests. The topic is the one that moves while all partitions of another wait."""
    culprit = F.when((F.size("moving") == 1) & (F.size("waiting") > 0), F.col("moving")[0])
    return _of_client(
        _slow(polls).withColumn("culprit", culprit),
        kind=F.lit("slow_consumer"),
        topic=F.col("culprit"),
        partitions=F.col("of_topic")[F.col("culprit")],
        severity=F.lit("warning"),
        magnitude=F.col("unread"),
        facts=("culprit", "waiting", "unread", "hosts"),
    )


def _slow(polls: DataFrame) -> DataFrame:
    """Processes with a slow poll loop: PROCESS_AT, group_id, moving and waiting topics, of_topic, unread, hosts.

    of_topic has the partitions of each topic.
    """
    by_topic = (
        polls.where("is_slow")
        .groupBy(*MEMBER_AT, "topic")
        .agg(
            F.some(F.col("moved") > 0).alias("moves"),
            F.every(F.col("is_waiting") & ~F.col("is_paused")).alias("waits"),
            F.sort_array(F.collect_set("partition")).alias("partitions"),
            F.try_sum(F.expr(counted_lag("unread"))).alias("unread"),
            F.collect_set("host").alias("hosts"),
        )
    )
    return by_topic.groupBy(*MEMBER_AT).agg(
        F.sort_array(F.collect_set(F.when(F.col("moves"), F.col("topic")))).alias("moving"),
        F.sort_array(F.collect_set(F.when(F.col("waits"), F.col("topic")))).alias("waiting"),
        F.map_from_entries(F.collect_list(F.struct("topic", "partitions"))).alias("of_topic"),
        F.try_sum("unread").alias("unread"),
        _named(F.flatten(F.collect_list("hosts"))).alias("hosts"),
    )


def _paused_partitions(polls: DataFrame) -> DataFrame:
    topics = (
        polls.where("is_paused")
        .groupBy(*MEMBER_AT, "topic")
        .agg(
            F.sort_array(F.collect_set("partition")).alias("partitions"),
            F.try_sum(F.expr(counted_lag("unread"))).alias("unread"),
            _named(F.collect_set("host")).alias("hosts"),
        )
    )
    return _of_client(
        topics,
        kind=F.lit("paused_partition"),
        topic=F.col("topic"),
        partitions=F.col("partitions"),
        severity=F.lit("warning"),
        magnitude=F.col("unread"),
        facts=("topic", "partitions", "unread", "hosts"),
    )


def _gauges(divergence: DataFrame) -> DataFrame:
    """Gauges that cannot be trusted."""
    return _of_client(
        divergence.where(F.col("verdict").isin("blind", "stale")),
        kind=F.lit("blind_gauge"),
        severity=F.lit("warning"),
        magnitude=F.col("hidden_lag"),
        facts=(
            "verdict",
            "max_lag",
            "max_fetcher_lag",
            "max_consumer_lag",
            "max_divergence",
            "hidden_lag",
            "queue_records",
        ),
    )


def _buffers(divergence: DataFrame) -> DataFrame:
    """Clients whose heap is too small for their buffers."""
    return _of_client(
        divergence.where(F.col("heap_share") > LARGEST_HEAP_SHARE),
        kind=F.lit("buffer_too_large"),
        severity=F.lit("warning"),
        magnitude=F.col("heap_share"),
        facts=("buffered_bytes", "buffer_bound_bytes", "heap_share"),
    )


def _named(hosts: Column) -> Column:
    """The addresses of the members concerned; NULL if none is known."""
    return F.when(F.size(hosts) > 0, F.array_sort(F.array_distinct(hosts)))


def _of_client(rows: DataFrame, *, facts: Sequence[str], **values: Any) -> DataFrame:
    where = F.nullif("instance", F.lit(HERE)).alias("instance")  # so that the words name it only if it says more
    return problem(
        rows,
        group=F.col("group_id"),
        client=F.col("client_id"),
        instance=F.col("instance"),
        facts=("client_id", where, *facts),
        **values,
    )
