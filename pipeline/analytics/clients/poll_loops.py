"""Whether the poll loops of Java and librdkafka clients keep up, and which topic delays the others.

Such a client sends no fetch requests for partitions whose records it has buffered. With nothing buffered, it sends each
broker a request at least every fetch.max.wait.ms. With a slow application it sends hardly any requests, and its
records-lag does not show that, because it is updated only when records arrive. A partition whose consumed offset does
not move while its client sends requests is paused. So is one that does not move while all others do, however few
requests a slow client sends, because a client returns the fetched records of its partitions in turn. Each process is
judged by its own counters and partitions, because several may share a client.id.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F

from pipeline.analytics.clients.clients import totals
from pipeline.analytics.clients.settings import with_settings
from pipeline.analytics.keys import MEMBER_AT, MEMBER_PARTITION, PROCESS, PROCESS_AT, TOPIC_PARTITION
from pipeline.analytics.lag.ladder import counted_lag
from pipeline.analytics.series import change, holds_twice, read_ms, run_number
from pipeline.config.consumers import ConsumerSettings

FETCH_MAX_WAIT_MS = 500
"""fetch.max.wait.ms of the Java consumer, and fetch.wait.max.ms of librdkafka, by default."""
ASKING_SHARE = 0.25
"""A client counts as asking if it sends at least this share of the fetches of a client with nothing buffered."""
TURNS = 3
"""A partition is passed over if all others had this many turns, one in each interval between snapshots. Fewer turns
prove nothing: in one the client may return records that it had buffered, and in the next those that it had already
requested, both from the time before the partition had records."""


def asking(reported: DataFrame) -> DataFrame:
    """The fetch requests per second of each process since the previous snapshot: PROCESS_AT, asked_per_s.

    It is NULL at the first snapshot, and 0 if the counter has become smaller, because the process was restarted in
    between. The time is that between the two reports of the counter. `reported` are `observed` rows.
    """
    series = Window.partitionBy(*PROCESS).orderBy("snapshot_id")
    passed_ms = change(F.col("read_ms"), series)
    seconds = F.when(passed_ms > 0, passed_ms) / 1000
    asked = F.greatest(change(F.col("requests"), series), F.lit(0))
    counted = totals(reported).where(F.col("requests").isNotNull())
    return counted.select(*PROCESS_AT, (asked / seconds).alias("asked_per_s"))


def poll_states(
    lag: DataFrame, reported: DataFrame, settings: Mapping[str, ConsumerSettings] = MappingProxyType({})
) -> DataFrame:
    """The progress of each process in each partition whose consumed offset is known, at each snapshot but the first.

    The columns are MEMBER_PARTITION, snapshot_id, host (the member's address), and:

    - unread: records from consumed_offset to last_stable_offset.
    - moved, grown: by how much consumed_offset and last_stable_offset have moved since the previous snapshot.
    - is_waiting: consumed_offset has not moved, although the log has grown.
    - is_slow: for two intervals the process has hardly sent fetch requests, has fallen behind, and has more unread than
      was written since the previous snapshot and in the time that a fetch may wait.
    - is_paused: the client says so; or else, the partition has waited for two intervals while its process sent
      requests, or got nothing while its process got records of other partitions, or has waited for TURNS intervals in
      each of which all others moved.

    `lag` (`with_instance`) and `reported` (`observed`) are rows of successive snapshots. `settings` of the consumers
    have how long a fetch may wait, FETCH_MAX_WAIT_MS by default.
    """
    readers = lag.where(F.col("consumed_offset").isNotNull())
    rows = with_settings(readers, settings, "client_id", "group_id").withColumn("wait_ms", _wait_ms())
    rows = _with_progress(_with_reports(rows, reported))
    rows = _with_passed_over(_with_slow(_with_left_out(_with_behind(rows))))
    return (
        rows.withColumn("is_paused", _is_paused())
        .where(F.col("moved").isNotNull())
        .select(
            *MEMBER_PARTITION, "host", "snapshot_id", "unread", "moved", "grown", "is_waiting", "is_slow", "is_paused"
        )
    )


def _wait_ms() -> Column:
    """How long a broker may hold a fetch; librdkafka has another name for this setting."""
    settings = F.col("settings")
    return F.coalesce(settings["fetch_max_wait_ms"], settings["fetch_wait_max_ms"], F.lit(FETCH_MAX_WAIT_MS))


def _with_reports(rows: DataFrame, reported: DataFrame) -> DataFrame:
    """Adds what the process reports: asked_per_s (`asking`) and reported_paused."""
    return rows.join(F.broadcast(asking(reported)), PROCESS_AT, how="left").join(
        F.broadcast(_reported_paused(reported)), [*PROCESS_AT, *TOPIC_PARTITION], how="left"
    )


def _reported_paused(reported: DataFrame) -> DataFrame:
    """Whether a client itself reports a partition as paused: PROCESS_AT, topic, partition, reported_paused."""
    rows = reported.where(F.col("is_paused").isNotNull() & F.col("partition").isNotNull())
    return rows.groupBy(*PROCESS_AT, *TOPIC_PARTITION).agg(F.max_by("is_paused", "as_of").alias("reported_paused"))


def _with_progress(rows: DataFrame) -> DataFrame:
    """Adds end, unread, is_waiting, and the changes since the previous snapshot.

    The changes are moved, fetched, grown (in records) and interval_ms; each is NULL at the first snapshot.
    """
    # Some clients cannot read beyond an open transaction, so records after it are not counted as unread.
    return (
        rows.withColumn("end", F.coalesce("last_stable_offset", "high_watermark"))
        .withColumns(
            {
                "unread": F.col("end") - F.col("consumed_offset"),
                "moved": change(F.col("consumed_offset"), _series()),
                "fetched": change(F.col("fetched_offset"), _series()),
                "grown": change(F.col("end"), _series()),
                "interval_ms": change(read_ms(), _series()),
            }
        )
        .withColumn("is_waiting", (F.col("moved") == 0) & (F.col("grown") > 0) & (F.col("unread") > 0))
    )


def _with_behind(rows: DataFrame) -> DataFrame:
    """Adds is_behind: the process hardly sends requests, falls behind, and has more unread than was just written."""
    # What was written since the previous snapshot, plus what is written while a fetch waits.
    interval_ms = F.when(F.col("interval_ms") > 0, F.col("interval_ms"))
    allowed = F.col("grown") * (1 + F.col("wait_ms") / interval_ms)
    unread = F.when(F.col("grown").isNotNull(), F.expr(counted_lag("unread")))
    falls_behind = F.try_sum("moved").over(_of_process()) < F.try_sum("grown").over(_of_process())
    has_too_much = F.try_sum(unread).over(_of_process()) > F.sum(allowed).over(_of_process())
    hardly_asks = F.coalesce(~_is_asking(), F.lit(False))
    return rows.withColumn("is_behind", hardly_asks & (falls_behind & has_too_much))


def _with_left_out(rows: DataFrame) -> DataFrame:
    """Adds left_out: the number of intervals, since the partition began to wait, in which only others got records."""
    # librdkafka discards what a paused partition had buffered, and fetches only from the others.
    is_empty = (F.col("fetched_offset") == F.col("consumed_offset")) & (F.col("unread") > 0)
    gets_others = F.max("fetched").over(_of_process()) > 0
    is_left_out = F.col("is_waiting") & is_empty & F.lag(is_empty).over(_series()) & gets_others
    run = Window.partitionBy(*MEMBER_PARTITION, "run").orderBy("snapshot_id")
    # Each row without a wait is a run of its own, together with the wait that follows it.
    does_not_wait = F.coalesce(~F.col("is_waiting"), F.lit(True))
    return rows.withColumn("run", run_number(does_not_wait, _series())).withColumn(
        "left_out", F.sum(F.coalesce(is_left_out, F.lit(False)).cast("int")).over(run)
    )


def _with_slow(rows: DataFrame) -> DataFrame:
    """Adds waits_while_asking, and is_slow: the process was behind for two intervals."""
    waits = F.coalesce(F.col("is_waiting") & _is_asking(), F.lit(False))
    return rows.withColumn("waits_while_asking", waits).withColumn("is_slow", holds_twice("is_behind", _series()))


def _with_passed_over(rows: DataFrame) -> DataFrame:
    """Adds is_passed_over: the partition has waited for TURNS intervals, and all others have moved in each of them.

    The others are all partitions with unread records, except those that have waited for as long and so are passed over,
    too. At least two of them must have moved, because the client may return the records of a single one repeatedly.
    """
    recent = _series().rowsBetween(1 - TURNS, 0)
    has_waited = (F.count_if("is_waiting").over(recent) == TURNS) & (F.lag("unread", TURNS).over(_series()) > 0)
    has_nothing = F.coalesce(F.col("unread") <= 0, F.lit(False))
    moved_or_not_due = F.every(F.col("has_waited") | F.col("has_moved") | has_nothing).over(_of_process())
    several_moved = F.count_if("has_moved").over(_of_process()) >= 2
    return (
        rows.withColumn("has_moved", F.count_if(F.col("moved") > 0).over(recent) == TURNS)
        .withColumn("has_waited", F.coalesce(has_waited, F.lit(False)))
        .withColumn("is_passed_over", F.col("has_waited") & moved_or_not_due & several_moved)
    )


def _is_paused() -> Column:
    """Whether a partition is paused: the client says so, or else it waits while its process makes progress."""
    return F.coalesce(
        F.col("reported_paused") & (F.col("unread") > 0),
        holds_twice("waits_while_asking", _series())
        | (F.col("is_waiting") & (F.col("left_out") > 0))
        | F.col("is_passed_over"),
    )


def _is_asking() -> Column:
    # Even if a fetch may wait only for a short time, a client sends no more than a few requests per second.
    least_per_s = ASKING_SHARE * 1000 / F.greatest(F.col("wait_ms"), F.lit(FETCH_MAX_WAIT_MS))
    return F.col("asked_per_s") >= least_per_s


def _series() -> WindowSpec:
    """A partition of a process, from snapshot to snapshot."""
    return Window.partitionBy(*MEMBER_PARTITION).orderBy("snapshot_id")


def _of_process() -> WindowSpec:
    """All partitions of a process at one snapshot."""
    return Window.partitionBy(*MEMBER_AT)
