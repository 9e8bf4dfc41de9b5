"""The groups of the clients in a snapshot, and those rungs of the clients that no broker knows.

Different clients report different rungs (docs/design.md, "Clients' positions"); a rung that is not reported is NULL.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipeline.analytics.clients.holders import of_holders
from pipeline.analytics.clients.java_consumed_offset import consumed_by_lead
from pipeline.analytics.clients.known_names import members_clients, with_known_names
from pipeline.analytics.clients.possible_offsets import possible_offsets
from pipeline.analytics.clients.scala_fetched_offset import COUNTERS, fetched_by_lag, with_moved
from pipeline.analytics.clients.settings import with_settings
from pipeline.analytics.keys import (
    CLIENT_AT,
    GROUP_AT,
    PARTITION,
    PARTITION_AT,
    PROCESS,
    PROCESS_AT,
    PROCESS_PARTITION,
    READER_AT,
    SNAPSHOT,
    TOPIC_AT,
    TOPIC_PARTITION,
)
from pipeline.analytics.series import in_stretches, read_ms
from pipeline.config.consumers import ConsumerSettings

_ENDS = ["log_start_offset", "last_stable_offset", "high_watermark"]
_MORE_THAN_ANY = 2**62
"""More than `_newest` is in this century, and together with it still a bigint."""
_REPORTED = ("reported_lag", "reported_lead", "reported_end", "reported_stable_end")


def reader_positions(
    reported: DataFrame,
    watermarks: DataFrame,
    committed_offsets: DataFrame,
    group_members: DataFrame,
    previous: DataFrame,
    settings: Mapping[str, ConsumerSettings],
    computed: Callable[[DataFrame], DataFrame] = lambda rows: rows,
) -> DataFrame:
    """What clients report about each reader in the snapshots of `watermarks`.

    If there are several reports, it is the newest of the member that has the partition, or else the newest.

    The columns are READER_AT, reported_date, reported_client_id, reported_instance, consumed_offset, fetched_offset and
    stale_lag (to the last stable offset if the client is read_committed). A client whose group is not known is left
    out, and so is a partition that `watermarks` does not have.

    `reported` are `observed` rows. `previous` are the rows of `lag` of the snapshot just before, of which `reported`
    has rows too: an offset that was known then stays known while the client reports no progress. `settings` are those
    of the consumers. `computed` keeps rows that are used several times (`Lake.computed`).
    """
    topics = watermarks.select(*TOPIC_AT).unionByName(previous.select(*TOPIC_AT))
    members = group_members.select(*CLIENT_AT).unionByName(members_clients(previous))
    reported = computed(with_known_names(reported, topics, members))
    groups = _groups(group_members, committed_offsets, previous)
    rows = with_settings(client_partitions(reported), settings, "client_id")
    rows = _with_group(rows, groups, reported)
    rows = _with_known(rows, watermarks, committed_offsets, previous)
    # Computed in two parts, because Spark Connect cannot send a plan of more than some fifty steps.
    rows = computed(possible_offsets(in_stretches(rows, PROCESS_PARTITION)))
    # The `lag` of the previous snapshot is already written, and is not changed even if more is known now.
    new = F.broadcast(watermarks.select(*SNAPSHOT).distinct())
    rows = fetched_by_lag(consumed_by_lead(rows)).join(new, SNAPSHOT, how="left_semi")
    # Clients may report partitions that the cluster does not have, or that the configuration leaves out.
    rows = of_holders(rows.where("is_listed"), group_members)
    rows = with_settings(rows.drop("settings"), settings, "client_id", "group_id").withColumns(
        {
            "consumed_offset": F.coalesce("reported_consumed", "consumed_offset"),
            "fetched_offset": F.coalesce("reported_fetched", F.when(F.col("is_old"), F.col("fetched_offset"))),
            "instance_key": F.xxhash64("client_id", "instance"),
        }
    )
    return _by_reader(rows, reported)


def _by_reader(rows: DataFrame, reported: DataFrame) -> DataFrame:
    """A row for each reader: of several processes, the newest report of the member that has the partition counts."""
    order = _newest("client_id", "instance") + F.when(F.col("is_holder"), _MORE_THAN_ANY).otherwise(0)
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
    """A number that is greatest for the newest report. If several are equally new, a hash of `of` decides.

    It is a number, because Spark sorts all rows to find the greatest struct or string, but not the greatest number.
    """
    return F.unix_micros("as_of") * 1_000 + F.pmod(F.xxhash64(*of), F.lit(1_000))


def client_counters(reported: DataFrame) -> DataFrame:
    """For each PROCESS_AT: is_old (it is a Scala consumer), all_moved and any_moved, is_new_report.

    all_moved and any_moved say whether the counters of all, or of any, of its fetchers have moved. They are NULL at the
    first snapshot of a fetcher, and for clients without counters. is_new_report: no counter comes from a report that
    was already read in the previous snapshot. `reported` are `observed` rows.
    """
    rows = reported.where(F.col("partition").isNull())
    # Among the clients of this source, only the old consumer has queues by topic and counters by fetcher.
    has_fetcher = F.col("fetcher").isNotNull() & F.col("requests_total").isNotNull()
    is_scraped = F.col("source") == "kafka_client_metrics"
    is_old = is_scraped & (F.col("queue_chunks").isNotNull() | has_fetcher)
    identity = [*PROCESS, "agent", "origin", "fetcher"]
    totals = rows.groupBy(*identity, "snapshot_id").agg(
        F.some(is_old).alias("is_old"), *(F.max(name).alias(name) for name in (*COUNTERS, "captured_at", "nth"))
    )
    return (
        with_moved(totals, identity)
        .groupBy(*PROCESS_AT)
        .agg(
            F.some("is_old").alias("is_old"),
            F.every("has_moved").alias("all_moved"),
            F.some("has_moved").alias("any_moved"),
            F.every("is_new_report").alias("is_new_report"),
        )
    )


def totals(reported: DataFrame) -> DataFrame:
    """The counters of each process, summed over the brokers it fetches from: PROCESS_AT, requests, bytes, read_ms.

    If several agents report a process, the greatest counters are taken. `reported` are `observed` rows; for a client
    address, the request log of each broker has some of them.
    """
    rows = reported.where(F.col("partition").isNull() & F.col("topic").isNull())
    agent = [*PROCESS_AT, "agent", "source"]
    newest = F.max("read_ms").alias("read_ms")
    return (
        rows.withColumn("read_ms", read_ms())
        .groupBy(*agent, "origin", "fetcher")
        .agg(F.max("requests_total").alias("requests"), F.max("bytes_total").alias("bytes"), newest)
        .groupBy(*agent)
        .agg(F.try_sum("requests").alias("requests"), F.try_sum("bytes").alias("bytes"), newest)
        .groupBy(*PROCESS_AT)
        # read_ms is from the agent whose counter is taken.
        .agg(
            F.max("requests").alias("requests"),
            F.max("bytes").alias("bytes"),
            F.max_by("read_ms", F.coalesce("requests", F.lit(-1))).alias("read_ms"),
        )
    )


def client_partitions(reported: DataFrame) -> DataFrame:
    """A row for each partition that a process reports in a snapshot, by any of its agents.

    The columns are PROCESS_AT, topic, partition, snapshot_date, nth, as_of, host, reported_consumed, reported_fetched,
    _REPORTED, is_librdkafka; and is_old, all_moved, any_moved of `client_counters`. `reported` are `observed` rows.
    """
    order = _newest("source", "endpoint")
    # All of _REPORTED come from one report, because a lag and a lead from different times do not add up.
    is_reported = F.coalesce(*_REPORTED).isNotNull()
    offsets = {"reported_consumed": "consumed_offset", "reported_fetched": "fetched_offset"}
    return (
        reported.where(F.col("partition").isNotNull())
        # All keys in `reader_positions` contain this one, so rows are shuffled only once.
        .repartition(*PARTITION)
        .join(F.broadcast(client_counters(reported)), PROCESS_AT, how="left")
        .groupBy(*PROCESS_AT, *TOPIC_PARTITION)
        .agg(
            F.max("snapshot_date").alias("snapshot_date"),
            F.max("as_of").alias("as_of"),
            F.max("nth").alias("nth"),
            F.max("host").alias("host"),
            F.some(F.col("source") == "librdkafka_statistics").alias("is_librdkafka"),
            F.coalesce(F.some("is_old"), F.lit(False)).alias("is_old"),
            F.every("all_moved").alias("all_moved"),
            F.some("any_moved").alias("any_moved"),
            *(F.max_by(c, F.when(F.col(c).isNotNull(), order)).alias(name) for name, c in offsets.items()),
            *(F.max_by(c, F.when(is_reported, order)).alias(c) for c in _REPORTED),
        )
    )


def stale_lag() -> Column:
    """The lag that a client's own metric does not show: from the log end that it counts to, to the current log end.

    By default librdkafka reads only committed records, and the Java consumer reads all. librdkafka reports the high
    watermark and the last stable offset that it knows. Its lag is not used, because before version 1.7 it counts from
    another offset.
    """
    default = F.when(F.col("is_librdkafka"), "read_committed").otherwise("read_uncommitted")
    level = F.coalesce(F.col("settings")["isolation_level"], default)
    is_stable = level == "read_committed"
    end = F.when(is_stable, F.col("last_stable_offset")).otherwise(F.col("high_watermark"))
    position = F.when(F.col("is_old"), F.col("fetched_offset")).otherwise(F.col("consumed_offset"))
    by_lag = F.when(~F.col("is_librdkafka"), position + F.col("reported_lag"))
    return end - F.coalesce(F.when(is_stable, F.col("reported_stable_end")), F.col("reported_end"), by_lag)


def _groups(group_members: DataFrame, committed_offsets: DataFrame, previous: DataFrame) -> DataFrame:
    """The known groups and members: cluster, snapshot_id, group_id; for members also client_id, topic, partition."""
    members = group_members.where(F.col("client_id").isNotNull()).select(*GROUP_AT, "client_id", *TOPIC_PARTITION)
    before = previous.select(*GROUP_AT, "client_id", *TOPIC_PARTITION)
    committed = committed_offsets.select(*GROUP_AT).distinct()
    return members.unionByName(before).unionByName(committed, allowMissingColumns=True)


def _reported_groups(reported: DataFrame, by: list[str], name: str) -> DataFrame:
    """Column `name`: the group that a process or client reports, or its source; NULL if they report several groups."""
    return _only(reported.where(F.col("group_id").isNotNull()).select(*by, "group_id").distinct(), by, name)


def _with_group(rows: DataFrame, groups: DataFrame, reported: DataFrame) -> DataFrame:
    """`rows` with `group_id`, and without the rows of processes whose group is not known or is ambiguous.

    It is the first known of: the group that the process reports; the configured group; the group of the member with
    this client id that is assigned the partition, if the client id is used in several groups; the group of the members
    with this client id; the group that other processes with this client id report, if it is one. For an old consumer,
    which no broker knows, it is then the group with the same name as the client id, because that is the default.
    """
    members = groups.where(F.col("client_id").isNotNull())
    of_client = _only(members.select(*CLIENT_AT, "group_id").distinct(), CLIENT_AT, "members_group")
    shared = of_client.where(F.col("members_group").isNull()).select(*CLIENT_AT)
    assigned = (
        members.join(F.broadcast(shared), CLIENT_AT, how="left_semi")
        .select(*CLIENT_AT, *TOPIC_PARTITION, "group_id")
        .distinct()
    )
    namesakes = groups.select(*SNAPSHOT, F.col("group_id").alias("client_id")).distinct()
    by_partition = _only(assigned, [*CLIENT_AT, *TOPIC_PARTITION], "assigned_group")
    return (
        rows.join(F.broadcast(_reported_groups(reported, PROCESS_AT, "own_group")), PROCESS_AT, how="left")
        .join(F.broadcast(_reported_groups(reported, CLIENT_AT, "reported_group")), CLIENT_AT, how="left")
        .join(by_partition.hint("shuffle_hash"), [*CLIENT_AT, *TOPIC_PARTITION], how="left")
        .join(F.broadcast(of_client), CLIENT_AT, how="left")
        .join(F.broadcast(namesakes.withColumn("is_namesake", F.lit(True))), CLIENT_AT, how="left")
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
    """Column `name` for each key in columns `by`: its group if it has exactly one, else NULL. `groups` are distinct."""
    return groups.groupBy(*by).agg(F.when(F.count(F.lit(1)) == 1, F.min("group_id")).alias(name))


def _with_known(rows: DataFrame, watermarks: DataFrame, committed_offsets: DataFrame, previous: DataFrame) -> DataFrame:
    """`rows` with the ends of their logs, their groups' commits, and what is known from the previous snapshot.

    As in `lag`, the ends are those that were read with the commit, if there are any. So the result is the same whether
    the previous snapshot is computed in the same batch or its `lag` was written earlier. known_consumed and
    known_fetched are what `lag` has for the same process in the previous snapshot. is_listed: `watermarks` has the
    partition.
    """
    listed = watermarks.where(F.col("topic").isNotNull())
    ends = listed.select(*PARTITION_AT, *_ENDS, F.lit(True).alias("is_listed"))
    own = {name: F.col(name).alias(f"own_{name}") for name in _ENDS}
    commits = committed_offsets.where(F.col("topic").isNotNull()).select(
        *READER_AT, "committed_offset", F.col("captured_at").alias("committed_captured_at"), *own.values()
    )
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
