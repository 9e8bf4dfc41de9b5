"""The groups of the clients in a snapshot, and their rungs, which no broker knows.

Different clients report different rungs (docs/design.md, "Clients' positions"); a rung that is not reported is NULL.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipeline.analytics.clients.instances import CLIENT, INSTANCE
from pipeline.analytics.clients.java_consumed_offset import consumed_by_lead
from pipeline.analytics.clients.scala_fetched_offset import COUNTERS, fetched_by_lag, with_moved
from pipeline.analytics.clients.settings import with_settings
from pipeline.analytics.instants import read_ms
from pipeline.analytics.keys import PARTITION, PARTITION_AT, PROCESS_PARTITION, READER_AT
from pipeline.analytics.runs import in_stretches
from pipeline.config.consumers import ConsumerSettings

_PLACE = ["topic", "partition"]
_ENDS = ["log_start_offset", "last_stable_offset", "high_watermark"]
_REPORTED = ("reported_lag", "reported_lead", "reported_end", "reported_stable_end")


def reader_positions(
    reported: DataFrame,
    watermarks: DataFrame,
    committed_offsets: DataFrame,
    group_members: DataFrame,
    previous: DataFrame,
    settings: Mapping[str, ConsumerSettings],
) -> DataFrame:
    """What clients report of each READER_AT of the snapshots that `watermarks` has; of several clients the newest.

    READER_AT, snapshot_date, reported_client_id, reported_instance, consumed_offset, fetched_offset, stale_lag (to the
    last stable offset for a client of read_committed). A client whose group is not known is left out, as is a partition
    that `watermarks` does not have.

    `reported` are `observed` rows. `previous` are the rows of `lag` of the snapshot just before, of which `reported`
    has rows too: what was known then stays known while a client stands still. `settings` are those of consumers.
    """
    groups = _groups(group_members, committed_offsets, previous)
    rows = with_settings(client_partitions(reported), settings, "client_id")
    rows = _with_group(rows, groups, reported)
    rows = _with_known(rows, watermarks, committed_offsets, previous)
    rows = in_stretches(rows, PROCESS_PARTITION)
    # Of the snapshot before `lag` is written, though more may be known of it by now.
    new = F.broadcast(watermarks.select("cluster", "snapshot_id").distinct())
    rows = fetched_by_lag(consumed_by_lead(rows)).join(new, ["cluster", "snapshot_id"], how="left_semi")
    # Clients may report what the cluster does not have, or what the configuration leaves out.
    rows = rows.where("is_listed")
    rows = with_settings(rows.drop("settings"), settings, "client_id", "group_id").withColumns(
        {
            "consumed_offset": F.coalesce("reported_consumed", "consumed_offset"),
            "fetched_offset": F.coalesce("reported_fetched", F.when(F.col("is_old"), F.col("fetched_offset"))),
            "instance_key": F.xxhash64("client_id", "instance"),
        }
    )
    # Where a rebalance leaves a partition with two processes, the one that was heard of last.
    order = _newest("client_id", "instance")
    values = {name: F.col(name) for name in ("consumed_offset", "fetched_offset", "instance_key")}
    values |= {"stale_lag": stale_lag()}
    readers = rows.groupBy(*READER_AT).agg(
        F.max("snapshot_date").alias("reported_date"),
        *(F.max_by(value, F.when(value.isNotNull(), order)).alias(name) for name, value in values.items()),
    )
    names = reported.select(
        F.col("client_id").alias("reported_client_id"), F.col("instance").alias("reported_instance")
    ).distinct()
    named = names.withColumn("instance_key", F.xxhash64("reported_client_id", "reported_instance"))
    return readers.join(F.broadcast(named), "instance_key", how="left").drop("instance_key")


def _newest(*of: str) -> Column:
    """What is greatest for the last that was reported; of several at one instant it is always the same.

    A number: Spark has to sort all rows for a greatest struct or text, and not for that.
    """
    return F.unix_micros("as_of") * 1_000 + F.pmod(F.xxhash64(*of), F.lit(1_000))


def client_counters(reported: DataFrame) -> DataFrame:
    """By INSTANCE: is_old (the Scala consumer); whether all, or any, of its fetchers' counters have moved.

    NULL at the first snapshot of a fetcher, and for clients without counters. is_read_anew: none of them is of a text
    that the snapshot before has read already. `reported` are `observed` rows.
    """
    rows = reported.where(F.col("partition").isNull())
    # Only the old consumer has queues by topic, and counters by fetcher; librdkafka's are of another source.
    has_fetcher = F.col("fetcher").isNotNull() & F.col("requests_total").isNotNull()
    is_scraped = F.col("source") == "kafka_client_metrics"
    is_old = is_scraped & (F.col("queue_chunks").isNotNull() | has_fetcher)
    identity = ["cluster", "client_id", "instance", "agent", "place", "fetcher"]
    totals = rows.groupBy(*identity, "snapshot_id").agg(
        F.some(is_old).alias("is_old"), *(F.max(name).alias(name) for name in (*COUNTERS, "captured_at", "nth"))
    )
    return (
        with_moved(totals, identity)
        .groupBy(*INSTANCE)
        .agg(
            F.some("is_old").alias("is_old"),
            F.every("has_moved").alias("all_moved"),
            F.some("has_moved").alias("any_moved"),
            F.every("is_read_anew").alias("is_read_anew"),
        )
    )


def totals(reported: DataFrame) -> DataFrame:
    """The counters of each process, summed over what it fetches from: INSTANCE, requests, bytes, read_ms.

    Of several agents that report a process the one counts that reports most. `reported` are `observed` rows; of one
    address the request log of each broker has some.
    """
    rows = reported.where(F.col("partition").isNull() & F.col("topic").isNull())
    agent = [*INSTANCE, "agent", "source"]
    newest = F.max("read_ms").alias("read_ms")
    return (
        rows.withColumn("read_ms", read_ms())
        .groupBy(*agent, "place", "fetcher")
        .agg(F.max("requests_total").alias("requests"), F.max("bytes_total").alias("bytes"), newest)
        .groupBy(*agent)
        .agg(F.try_sum("requests").alias("requests"), F.try_sum("bytes").alias("bytes"), newest)
        .groupBy(*INSTANCE)
        # A counter goes with the clock of the agent that reports it.
        .agg(
            F.max("requests").alias("requests"),
            F.max("bytes").alias("bytes"),
            F.max_by("read_ms", F.coalesce("requests", F.lit(-1))).alias("read_ms"),
        )
    )


def client_partitions(reported: DataFrame) -> DataFrame:
    """A row for each partition that a process reports in a snapshot, whichever of its agents reported what.

    INSTANCE, topic, partition, snapshot_date, nth, as_of, reported_consumed, reported_fetched, what was reported,
    is_librdkafka; and of `client_counters` is_old, all_moved, any_moved. `reported` are `observed` rows.
    """
    order = _newest("source", "endpoint")
    # Together: a lag and a lead that were reported at different times would not add up.
    is_reported = F.coalesce(*_REPORTED).isNotNull()
    offsets = {"reported_consumed": "consumed_offset", "reported_fetched": "fetched_offset"}
    return (
        reported.where(F.col("partition").isNotNull())
        # All steps of `reader_positions` go by keys that contain this one: rows are exchanged once.
        .repartition(*PARTITION)
        .join(F.broadcast(client_counters(reported)), INSTANCE, how="left")
        .groupBy(*INSTANCE, *_PLACE)
        .agg(
            F.max("snapshot_date").alias("snapshot_date"),
            F.max("as_of").alias("as_of"),
            F.max("nth").alias("nth"),
            F.some(F.col("source") == "librdkafka_statistics").alias("is_librdkafka"),
            F.coalesce(F.some("is_old"), F.lit(False)).alias("is_old"),
            F.every("all_moved").alias("all_moved"),
            F.some("any_moved").alias("any_moved"),
            *(F.max_by(c, F.when(F.col(c).isNotNull(), order)).alias(name) for name, c in offsets.items()),
            *(F.max_by(c, F.when(is_reported, order)).alias(c) for c in _REPORTED),
        )
    )


def stale_lag() -> Column:
    """What a client's own lag metric does not see: from the log end that it counts to, to the one there is.

    By default librdkafka reads committed records only, the Java consumer all. librdkafka reports both ends that it
    knows; its lag is of no use here, as before version 1.7 it counts from another offset.
    """
    default = F.when(F.col("is_librdkafka"), "read_committed").otherwise("read_uncommitted")
    level = F.coalesce(F.col("settings")["isolation_level"], default)
    is_stable = level == "read_committed"
    end = F.when(is_stable, F.col("last_stable_offset")).otherwise(F.col("high_watermark"))
    position = F.when(F.col("is_old"), F.col("fetched_offset")).otherwise(F.col("consumed_offset"))
    by_lag = F.when(~F.col("is_librdkafka"), position + F.col("reported_lag"))
    return end - F.coalesce(F.when(is_stable, F.col("reported_stable_end")), F.col("reported_end"), by_lag)


def _groups(group_members: DataFrame, committed_offsets: DataFrame, previous: DataFrame) -> DataFrame:
    """Who is known to be in which group: cluster, snapshot_id, group_id, and of members client_id, topic, partition."""
    names = ["cluster", "snapshot_id", "group_id"]
    members = group_members.where(F.col("client_id").isNotNull()).select(*names, "client_id", *_PLACE)
    before = previous.select(*names, "client_id", *_PLACE)
    committed = committed_offsets.select(*names).distinct()
    return members.unionByName(before).unionByName(committed, allowMissingColumns=True)


def _reported_groups(reported: DataFrame, by: list[str], name: str) -> DataFrame:
    """The group that a process or client itself reports, or its source, as `name`; NULL where that is not one."""
    return _only(reported.where(F.col("group_id").isNotNull()).select(*by, "group_id").distinct(), by, name)


def _with_group(rows: DataFrame, groups: DataFrame, reported: DataFrame) -> DataFrame:
    """`rows` with `group_id`: what the process reports, what the configuration says, what brokers know of its members.

    A client id may be used in several groups: then only an assigned partition says which. A process that reports none,
    and is of no member that brokers know, is in the group of the others with its client id, if that is one. An old
    consumer, which no broker knows, is its group's namesake by default. Ambiguous is NULL.
    """
    members = groups.where(F.col("client_id").isNotNull())
    of_client = _only(members.select(*CLIENT, "group_id").distinct(), CLIENT, "members_group")
    shared = of_client.where(F.col("members_group").isNull()).select(*CLIENT)
    assigned = (
        members.join(F.broadcast(shared), CLIENT, how="left_semi").select(*CLIENT, *_PLACE, "group_id").distinct()
    )
    namesakes = groups.select("cluster", "snapshot_id", F.col("group_id").alias("client_id")).distinct()
    by_partition = _only(assigned, [*CLIENT, *_PLACE], "assigned_group")
    return (
        rows.join(F.broadcast(_reported_groups(reported, INSTANCE, "own_group")), INSTANCE, how="left")
        .join(F.broadcast(_reported_groups(reported, CLIENT, "reported_group")), CLIENT, how="left")
        .join(by_partition.hint("shuffle_hash"), [*CLIENT, *_PLACE], how="left")
        .join(F.broadcast(of_client), CLIENT, how="left")
        .join(F.broadcast(namesakes.withColumn("is_namesake", F.lit(True))), CLIENT, how="left")
        .withColumn(
            "group_id",
            F.coalesce(
                F.col("own_group"),
                F.col("settings")["group_id"],
                F.col("assigned_group"),
                F.col("members_group"),
                F.col("reported_group"),
                F.when(F.col("is_old") & F.col("is_namesake"), F.col("client_id")),
            ),
        )
        .where(F.col("group_id").isNotNull())
        .drop("own_group", "reported_group", "assigned_group", "members_group", "is_namesake")
    )


def _only(groups: DataFrame, by: list[str], name: str) -> DataFrame:
    """Of distinct groups the one of those that have one; NULL for the others."""
    return groups.groupBy(*by).agg(F.when(F.count(F.lit(1)) == 1, F.min("group_id")).alias(name))


def _with_known(rows: DataFrame, watermarks: DataFrame, committed_offsets: DataFrame, previous: DataFrame) -> DataFrame:
    """`rows` beside the ends of their logs and the commits of their groups, and what is known of the snapshot before.

    The ends are those that were read with the commit, where there are such, as in `lag`: a snapshot that is computed
    with the next one gives it the same as one whose `lag` was written before. known_consumed and known_fetched are what
    `lag` has of the same process in the snapshot before. is_listed: `watermarks` has the partition.
    """
    listed = watermarks.where(F.col("topic").isNotNull())
    ends = listed.select(*PARTITION_AT, *_ENDS, F.lit(True).alias("is_listed"))
    own = {name: F.col(name).alias(f"own_{name}") for name in _ENDS}
    commits = committed_offsets.where(F.col("topic").isNotNull()).select(*READER_AT, "committed_offset", *own.values())
    known = previous.select(
        *READER_AT,
        *(F.col(name).alias(f"known_{name}") for name in (*_ENDS, "committed_offset")),
        F.col("instance").alias("known_instance"),
        F.col("consumed_offset").alias("known_consumed"),
        F.col("fetched_offset").alias("known_fetched"),
    )
    is_its_own = F.col("known_instance") == F.col("instance")
    joined = (
        rows.join(ends.hint("shuffle_hash"), PARTITION_AT, how="left")
        .join(commits.hint("shuffle_hash"), READER_AT, how="left")
        .join(known.hint("shuffle_hash"), READER_AT, how="left")
        .withColumns({name: F.coalesce(f"own_{name}", name) for name in _ENDS})
        .withColumns({name: F.when(is_its_own, F.col(name)) for name in ("known_consumed", "known_fetched")})
        .drop(*(f"own_{name}" for name in _ENDS), "known_instance")
    )
    either = {name: F.coalesce(f"known_{name}", name) for name in (*_ENDS, "committed_offset")}
    return joined.withColumns(either).drop(*(f"known_{name}" for name in either))
