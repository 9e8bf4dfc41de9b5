"""The problems of clients at each snapshot, a row for each problem with the columns of `findings.problem`.

The summary names the process.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipeline.analytics.clients.instances import HERE
from pipeline.analytics.findings.problem import counted, number, problem, size
from pipeline.analytics.keys import MEMBER_AT, PROCESS_AT

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
        summary=F.when(is_blocked, _waits_for_a_queue()).otherwise(_waits_for_a_large_batch()),
        evidence={
            "culprit_topic": F.col("culprit"),
            "culprit_topics": F.col("culprits"),
            "culprit_threads": F.col("threads"),
            "victim_topics": F.col("victims"),
            "fetchers": F.col("fetchers"),
            "records_waiting": F.col("sum_fetcher_lag"),
            "bytes_waiting": F.col("sum_fetcher_lag") * F.col("record_bytes"),
            "max_lag": F.col("max_lag"),
        },
        advice=F.when(
            is_blocked,
            "Give the topic a connector of its own, or let its thread hand records to workers: one fetcher serves "
            "all topics of a connector, and waits where one queue is full.",
        ).otherwise("Set fetch.message.max.bytes to the brokers' message.max.bytes or more, and restart the client."),
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


def _waits_for_a_queue() -> Column:
    """The summary of a blocked connector."""
    others = F.concat(F.lit("; nothing comes for "), F.array_join("victims", ", "), F.lit(" meanwhile"))
    return F.format_string(
        "The fetcher of %s waits for %s, whose queue is full%s.",
        _process(),
        F.when(F.size("culprits") > 0, F.array_join("culprits", ", ")).otherwise("a thread"),
        F.coalesce(F.when(F.size("victims") > 0, others), F.lit("")),
    )


def _waits_for_a_large_batch() -> Column:
    """The summary of a message that is too large."""
    return F.format_string(
        "%s asks for records and gets none: a batch is larger than its fetch.message.max.bytes, so MaxLag stays at %s.",
        _process(),
        number(F.col("max_lag")),
    )


def _slow_clients(polls: DataFrame) -> DataFrame:
    """Poll loops that hardly send requests. The topic is the one that moves while all partitions of another wait."""
    topic = F.when((F.size("moving") == 1) & (F.size("waiting") > 0), F.col("moving")[0])
    summary = F.format_string(
        "%s hardly asks for records any more and has %s unread: its application is slow%s.",
        _process(),
        counted(F.col("unread"), "record"),
        F.coalesce(F.concat(F.lit(" with "), topic, F.lit(", and others wait")), F.lit("")),
    )
    return _of_client(
        _slow(polls),
        kind=F.lit("slow_consumer"),
        topic=topic,
        partitions=F.col("of_topic")[topic],
        severity=F.lit("warning"),
        magnitude=F.col("unread"),
        summary=summary,
        evidence={
            "culprit_topic": topic,
            "victim_topics": F.col("waiting"),
            "records_waiting": F.col("unread"),
            "hosts": F.col("hosts"),
        },
        advice=F.lit(
            "Hand records to workers, or read the slow topic with a consumer of its own: a poll loop serves all topics."
        ),
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
            F.try_sum("unread").alias("unread"),
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
            F.try_sum("unread").alias("unread"),
            _named(F.collect_set("host")).alias("hosts"),
        )
    )
    summary = F.format_string(
        "%s reads nothing from %s, partitions %s, though it reads others: these are paused, with %s unread.",
        _process(),
        "topic",
        F.array_join(F.transform("partitions", lambda p: p.cast("string")), ", "),
        counted(F.col("unread"), "record"),
    )
    return _of_client(
        topics,
        kind=F.lit("paused_partition"),
        topic=F.col("topic"),
        partitions=F.col("partitions"),
        severity=F.lit("warning"),
        magnitude=F.col("unread"),
        summary=summary,
        evidence={"records_waiting": F.col("unread"), "hosts": F.col("hosts")},
        advice=F.lit("Call resume, or let another consumer read it; records-lag stays at its last value while paused."),
    )


def _gauges(divergence: DataFrame) -> DataFrame:
    """Gauges that cannot be trusted."""
    is_stale = F.col("verdict") == "stale"
    why = (
        F.when(is_stale, "its fetches are no longer answered")
        .when(F.col("queue_records").isNotNull(), "it does not count what waits in the client's queues")
        .otherwise("it is updated only when records arrive")
    )
    summary = F.format_string(
        "The lag gauge of %s reads %s while consumer lag is %s: %s.",
        _process(),
        F.coalesce(number(F.col("max_lag")), F.lit("nothing")),
        F.coalesce(number(F.col("max_consumer_lag")), F.lit("unknown")),
        why,
    )
    lags = ("max_lag", "max_fetcher_lag", "max_consumer_lag", "max_divergence", "hidden_lag")
    hidden = F.format_string(
        "A full queue hides %s records from MaxLag: alarm on consumer_lag instead, or lower the alarm's threshold by "
        "as many.",
        "queue_records",
    )
    return _of_client(
        divergence.where(F.col("verdict").isin("blind", "stale")),
        kind=F.lit("blind_gauge"),
        severity=F.lit("warning"),
        magnitude=F.col("hidden_lag"),
        summary=summary,
        evidence={name: F.col(name) for name in ("verdict", *lags, "queue_records")},
        advice=F.when(F.col("queue_records").isNotNull(), hidden).otherwise(
            "Alarm on consumer_lag, or on fetch counters that stand still, instead of the client's own gauge."
        ),
    )


def _buffers(divergence: DataFrame) -> DataFrame:
    """Clients whose heap is too small for their buffers."""
    summary = F.format_string(
        "%s may buffer %s, %s %% of its heap.",
        _process(),
        size(F.col("buffer_bound_bytes")),
        F.round(F.col("heap_share") * 100).cast("bigint"),
    )
    return _of_client(
        divergence.where(F.col("heap_share") > LARGEST_HEAP_SHARE),
        kind=F.lit("buffer_too_large"),
        severity=F.lit("warning"),
        magnitude=F.col("heap_share"),
        summary=summary,
        evidence={name: F.col(name) for name in ("buffered_bytes", "buffer_bound_bytes", "heap_share")},
        advice=F.lit("Lower the fetch sizes or the queue; laglake.fetch_memory says which, and to what."),
    )


def _process() -> Column:
    """The client, and where it reports, so that it can be found among others with the same client.id."""
    is_named = F.col("instance").isNotNull() & (F.col("instance") != HERE)
    return F.when(is_named, F.concat("client_id", F.lit(" at "), "instance")).otherwise(F.col("client_id"))


def _named(hosts: Column) -> Column:
    """The addresses of the members concerned; NULL if none is known."""
    return F.when(F.size(hosts) > 0, F.array_sort(F.array_distinct(hosts)))


def _of_client(rows: DataFrame, **values: Any) -> DataFrame:
    return problem(rows, group=F.col("group_id"), client=F.col("client_id"), instance=F.col("instance"), **values)
