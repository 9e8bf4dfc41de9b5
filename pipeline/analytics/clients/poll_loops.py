"""Whether the poll loops of Java and librdkafka clients keep up, and which topic holds the others up.

Such a client asks for no more records of what it has buffered. One that has nothing buffered asks each broker at least
every fetch.max.wait.ms; one that is slow in its application hardly asks at all, and its records-lag, which is as of the
records that came last, says nothing about that. A partition that stands still though its client asks is paused. So is
one that stands still while the others come round again and again, however rarely a slow client asks: what has been
fetched is handed out in turn. Each process is judged by its own counters and partitions, as several may share a
client.id.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pipeline.analytics.clients.clients import totals
from pipeline.analytics.clients.instances import INSTANCE
from pipeline.analytics.clients.settings import with_settings
from pipeline.analytics.instants import read_ms
from pipeline.config.consumers import ConsumerSettings

FETCH_MAX_WAIT_MS = 500
"""fetch.max.wait.ms of the Java consumer, and fetch.wait.max.ms of librdkafka, by default."""
ASKING_SHARE = 0.25
"""A client has asked all the time if it made at least this part of the fetches of one that has nothing buffered."""
SEVERAL = 3
"""A partition has been passed over if the others have had so many turns. One could be what was buffered, one what was
asked for, before it had records."""
PASSED_OVER_IN = (3, 8)
"""In how many intervals: where one is long, all have a turn in each; where it is short, few have."""
CLIENT_PARTITION = ["cluster", "group_id", "client_id", "instance", "topic", "partition"]


def asking(reported: DataFrame) -> DataFrame:
    """How often each process has asked since the snapshot before: INSTANCE, asked_per_s; NULL at the first.

    A counter that has become smaller began anew in between: 0. The time is that between the two readings. `reported`
    are `observed` rows.
    """
    series = Window.partitionBy("cluster", "client_id", "instance").orderBy("snapshot_id")
    passed_ms = F.col("read_ms") - F.lag("read_ms").over(series)
    seconds = F.when(passed_ms > 0, passed_ms) / 1000
    asked = F.greatest(F.col("requests") - F.lag("requests").over(series), F.lit(0))
    counted = totals(reported).where(F.col("requests").isNotNull())
    return counted.select(*INSTANCE, (asked / seconds).alias("asked_per_s"))


def poll_states(
    lag: DataFrame, reported: DataFrame, settings: Mapping[str, ConsumerSettings] = MappingProxyType({})
) -> DataFrame:
    """How each process gets on with each partition whose consumed offset is known, at each snapshot but the first.

    cluster, snapshot_id, CLIENT_PARTITION, host (its member's address); unread: records from consumed_offset to
    last_stable_offset; moved, grown: by how much either has moved since the snapshot before; is_waiting: it has not
    moved though its log has grown; is_slow: its process has hardly asked, has fallen behind, and has more unread than
    came in since the snapshot before and while a fetch may wait, for two intervals; is_paused: it waits while its
    process asks, for two intervals, has gone without while the process got records of others, or has been passed over
    while all others had several turns; or the client says it. `lag` (`with_instance`) and `reported` (`observed`) are
    rows of successive snapshots, `settings` those of consumers: how long a fetch may wait, FETCH_MAX_WAIT_MS if nothing
    is said.
    """
    series = Window.partitionBy(*CLIENT_PARTITION).orderBy("snapshot_id")
    of_process = Window.partitionBy(*INSTANCE, "group_id")

    def twice(name: str) -> Column:
        return F.col(name) & F.coalesce(F.lag(name).over(series), F.lit(False))

    # librdkafka throws away what a paused partition had buffered, and fetches of the others only.
    is_empty = (F.col("fetched_offset") == F.col("consumed_offset")) & (F.col("unread") > 0)
    gets_others = F.max("fetched").over(of_process) > 0
    is_left_out = F.col("is_waiting") & is_empty & F.lag(is_empty).over(series) & gets_others
    run = Window.partitionBy(*CLIENT_PARTITION, "run").orderBy("snapshot_id")
    # A fetch may be set to wait for less, and yet a client asks no more than a few times a second.
    least_per_s = ASKING_SHARE * 1000 / F.greatest(F.col("wait_ms"), F.lit(FETCH_MAX_WAIT_MS))
    is_asking = F.col("asked_per_s") >= least_per_s
    # What came in since the snapshot before, and what comes in while a fetch waits.
    interval_ms = F.when(F.col("interval_ms") > 0, F.col("interval_ms"))
    allowed = F.col("grown") * (1 + F.col("wait_ms") / interval_ms)
    is_behind = (F.try_sum("moved").over(of_process) < F.try_sum("grown").over(of_process)) & (
        F.try_sum(F.when(F.col("grown").isNotNull(), F.col("unread"))).over(of_process)
        > F.sum(allowed).over(of_process)
    )
    readers = lag.where(F.col("consumed_offset").isNotNull())
    states = (
        with_settings(readers, settings, "client_id", "group_id")
        .withColumn("wait_ms", _wait_ms())
        .join(F.broadcast(asking(reported)), INSTANCE, how="left")
        .join(F.broadcast(_reported_paused(reported)), [*INSTANCE, "topic", "partition"], how="left")
        # What is beyond an open transaction some cannot read: it is not what keeps a partition.
        .withColumn("end", F.coalesce("last_stable_offset", "high_watermark"))
        .withColumns(
            {
                "unread": F.col("end") - F.col("consumed_offset"),
                "moved": F.col("consumed_offset") - F.lag("consumed_offset").over(series),
                "fetched": F.col("fetched_offset") - F.lag("fetched_offset").over(series),
                "grown": F.col("end") - F.lag("end").over(series),
                "interval_ms": read_ms() - F.lag(read_ms()).over(series),
            }
        )
        .withColumn("is_waiting", (F.col("moved") == 0) & (F.col("grown") > 0) & (F.col("unread") > 0))
    )
    return (
        _with_passed_over(states)
        .withColumn("is_behind", F.coalesce(~is_asking, F.lit(False)) & is_behind)
        .withColumn("run", F.sum(F.coalesce(~F.col("is_waiting"), F.lit(True)).cast("int")).over(series))
        .withColumn("left_out", F.sum(F.coalesce(is_left_out, F.lit(False)).cast("int")).over(run))
        .withColumn("waits_while_asking", F.coalesce(F.col("is_waiting") & is_asking, F.lit(False)))
        .withColumn("is_slow", twice("is_behind"))
        .withColumn(
            "is_paused",
            F.coalesce(
                F.col("reported_paused") & (F.col("unread") > 0),
                twice("waits_while_asking") | (F.col("is_waiting") & (F.col("left_out") > 0)) | F.col("is_passed_over"),
            ),
        )
        .where(F.col("moved").isNotNull())
        .select(
            *CLIENT_PARTITION, "host", "snapshot_id", "unread", "moved", "grown", "is_waiting", "is_slow", "is_paused"
        )
    )


def _with_passed_over(states: DataFrame) -> DataFrame:
    """`states` with is_passed_over: it has waited, with records to read, while the others had SEVERAL turns.

    A partition has a turn when it moves after another one has. The others are all that have something to read, but for
    those that have waited as long, which are passed over, too; they are two at least.
    """
    series = Window.partitionBy(*CLIENT_PARTITION).orderBy("snapshot_id")
    of_process = Window.partitionBy(*INSTANCE, "group_id")
    has_moved = F.coalesce(F.col("moved") > 0, F.lit(False))
    before = series.rowsBetween(Window.unboundedPreceding, -1)
    rows = (
        states.withColumn("others", F.count_if(has_moved).over(of_process) - has_moved.cast("int"))
        .withColumn("others", F.sum("others").over(series))
        .withColumn("others_then", F.last(F.when(has_moved, F.col("others")), ignorenulls=True).over(before))
        .withColumn("has_turn", has_moved & (F.col("others") > F.coalesce("others_then", F.lit(0))))
    )
    passed_over = F.lit(False)
    for length in PASSED_OVER_IN:
        recent = series.rowsBetween(1 - length, 0)
        stands, turns = f"stands_{length}", f"turns_{length}"
        has_stood = (F.count_if("is_waiting").over(recent) == length) & (F.lag("unread", length).over(series) > 0)
        rows = rows.withColumns(
            {
                stands: F.coalesce(has_stood, F.lit(False)),
                turns: F.count_if("has_turn").over(recent) >= SEVERAL,
            }
        )
        is_no_exception = F.col(stands) | F.col(turns) | F.coalesce(F.col("unread") <= 0, F.lit(False))
        all_others = F.every(is_no_exception).over(of_process) & (F.count_if(turns).over(of_process) >= 2)
        passed_over = passed_over | (F.col(stands) & all_others)
    return rows.withColumn("is_passed_over", passed_over)


def _wait_ms() -> Column:
    """How long a broker may keep a fetch waiting; librdkafka has another name for it."""
    settings = F.col("settings")
    return F.coalesce(settings["fetch_max_wait_ms"], settings["fetch_wait_max_ms"], F.lit(FETCH_MAX_WAIT_MS))


def _reported_paused(reported: DataFrame) -> DataFrame:
    """The partitions that a client itself calls paused or not paused: INSTANCE, topic, partition, reported_paused."""
    rows = reported.where(F.col("is_paused").isNotNull() & F.col("partition").isNotNull())
    return rows.groupBy(*INSTANCE, "topic", "partition").agg(F.max_by("is_paused", "as_of").alias("reported_paused"))
