"""The table `client_divergence`: a client's own lag gauge beside its true lag.

The old consumer's MaxLag is its fetchers' lag: it does not count records in the queues of its threads, and does not
change while these are full. The Java consumer's records-lag is updated only when records arrive.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame, Row, Window, WindowSpec
from pyspark.sql import functions as F

from pipeline.analytics.clients.buffer_bound import (
    FETCH_MESSAGE_MAX_BYTES,
    QUEUED_MAX_MESSAGE_CHUNKS,
    Kind,
    buffer_bound,
    consumer_settings,
)
from pipeline.analytics.clients.clients import client_counters, totals
from pipeline.analytics.clients.settings import with_settings
from pipeline.analytics.keys import MEMBER, MEMBER_AT, MEMBER_PARTITION, PROCESS_AT
from pipeline.analytics.lag.ladder import counted_lag
from pipeline.analytics.series import change, holds_twice, read_ms, runs_of
from pipeline.common.columns import columns_of
from pipeline.config.consumers import KAFKA_NAMES, ConsumerSettings
from pipeline.tables import CLIENT_DIVERGENCE
from pipeline.tables.columns import LONG

COMMIT_MS = 60_000
"""auto.commit.interval.ms of the old consumer, by default. Commits may be this late without a gauge being wrong."""
FEWEST_RECORDS = 100
"""How many records a client must have fetched before their mean size is used."""
_LAGS = ("fetcher_lag", "consumer_lag", "divergence")


def client_divergence(
    reported: DataFrame, lag: DataFrame, previous: DataFrame, settings: Mapping[str, ConsumerSettings]
) -> DataFrame:
    """The rows of `client_divergence` for the successive snapshots of `reported` and `lag`.

    `reported` are `observed` rows, `lag` are rows from `with_instance`.

    The application's lag counts from consumed_offset if it is known, else from the committed offset; a commit may be
    late by what the log grows in auto.commit.interval.ms. The verdict is `stale` if no fetch was answered for two
    snapshots, although the client's logs have grown; `blind` if the gauge shows less than half of the application's
    lag, and late commits do not explain the difference; else `truthful`. It is NULL if the gauge, the lag or the growth
    is not known, as at the first snapshot. `previous` are rows that are already computed; their verdicts do not change.
    """
    rows = _gauges(reported).join(_lags(lag, settings), PROCESS_AT, how="left")
    rows = rows.join(_known(previous), MEMBER_AT, how="left")
    rows = with_settings(rows, settings, "client_id", "group_id")
    rows = _with_runs(_with_verdict(rows))
    return _with_since(_with_buffers(rows)).select(*columns_of(CLIENT_DIVERGENCE.schema))


def _with_verdict(rows: DataFrame) -> DataFrame:
    """Adds verdict, and size: the mean bytes of a record at this snapshot, NULL if it is not known."""
    is_still = (F.col("grown") > 0) & ~F.col("any_moved") & F.col("is_new_report")
    has_stood_still = holds_twice("is_still", _series())
    verdict = F.coalesce("known_verdict", F.when(has_stood_still, "stale").otherwise(_verdict()))
    size = F.coalesce("known_record_bytes", "log_record_bytes", _own_record_bytes())
    return rows.withColumn("is_still", is_still).withColumns(
        {"verdict": verdict, "size": F.nullif(F.round(size), F.lit(0))}
    )


def _own_record_bytes() -> Column:
    """The mean bytes of the records that a client has fetched since its fetched offsets were first known."""
    is_fetched = F.col("fetched_offsets").isNotNull()
    fetched_bytes, fetched = (
        F.col(c) - F.first(F.when(is_fetched, F.col(c)), ignorenulls=True).over(_series())
        for c in ("bytes", "fetched_offsets")
    )
    return F.when(fetched >= FEWEST_RECORDS, fetched_bytes / fetched)


def _with_runs(rows: DataFrame) -> DataFrame:
    """Adds run (the number of the run of equal verdicts) and record_bytes."""
    return rows.withColumns(
        {
            "run": runs_of("verdict", _series()),
            # While a fetcher is blocked, the last known size is used.
            "record_bytes": F.last("size", ignorenulls=True).over(_series()),
        }
    )


def _with_buffers(rows: DataFrame) -> DataFrame:
    """Adds hidden_lag and the contents of queues and buffers; captured_at is the snapshot's instant if unknown."""
    return rows.withColumns(
        {
            "captured_at": F.coalesce("captured_at", F.timestamp_millis("snapshot_id")),
            "hidden_lag": F.try_subtract("max_app_lag", "max_lag"),
            "queue_records": F.when(F.col("is_old"), F.floor(_queue_bytes() / F.col("record_bytes"))),
            "buffered_bytes": F.coalesce("reported_buffered", "sum_buffered_bytes"),
            "buffer_bound_bytes": _buffer_bound(),
        }
    )


def _with_since(rows: DataFrame) -> DataFrame:
    """Adds since (when the verdict's run began, NULL without a verdict) and heap_share."""
    begun = F.min(F.coalesce("known_since", "captured_at")).over(Window.partitionBy(*MEMBER, "run"))
    return rows.withColumns(
        {
            "since": F.when(F.col("verdict").isNotNull(), begun),
            "heap_share": F.col("buffer_bound_bytes") / F.col("settings")["heap_bytes"],
        }
    )


def _series() -> WindowSpec:
    """A process in a group, from snapshot to snapshot."""
    return Window.partitionBy(*MEMBER).orderBy("snapshot_id")


def _gauges(reported: DataFrame) -> DataFrame:
    """What each process reports: PROCESS_AT, max_lag, is_old, any_moved, requests, bytes, threads, source."""
    of_client = F.col("topic").isNull() & F.col("fetcher").isNull()
    thread = F.when(F.col("queue_chunks").isNotNull(), F.struct("topic", "fetcher"))
    gauges = reported.groupBy(*PROCESS_AT).agg(
        F.max("snapshot_date").alias("snapshot_date"),
        F.coalesce(F.max(F.when(of_client, F.col("reported_lag"))), F.max("reported_lag")).alias("max_lag"),
        F.max("buffered_bytes").alias("reported_buffered"),
        F.nullif(F.count_distinct(thread), F.lit(0)).alias("threads"),
        # A request log does not show which kind of client it is.
        F.max(F.when(F.col("source") != "kafka_request_log", F.col("source"))).alias("source"),
    )
    moved = client_counters(reported).select(*PROCESS_AT, "is_old", "any_moved", "is_new_report")
    return gauges.join(moved, PROCESS_AT, how="left").join(totals(reported), PROCESS_AT, how="left")


def _lags(lag: DataFrame, settings: Mapping[str, ConsumerSettings]) -> DataFrame:
    """The lags of each process and group: those in the table, and those that the verdict needs.

    max_app_lag: the largest lag of the application. judged_lag: the same, for partitions that the process has read
    since the previous snapshot. noise: by how much less a correct gauge may show.
    """
    series = Window.partitionBy(*MEMBER_PARTITION).orderBy("snapshot_id")
    grown = change(F.col("high_watermark"), series)
    interval_ms = change(read_ms(), series)
    # For read_committed clients the log ends at the last stable offset.
    end = F.coalesce("last_stable_offset", "high_watermark")
    is_known = F.col("consumed_offset").isNotNull()
    late_ms = F.coalesce(F.col("settings")["auto_commit_interval_ms"], F.lit(COMMIT_MS))
    rows = with_settings(lag, settings, "client_id", "group_id").withColumns(
        {
            "app_lag": F.when(is_known, end - F.col("consumed_offset")).otherwise(F.col("consumer_lag")),
            "grown": grown,
            "noise": F.when(is_known, grown).otherwise(grown * (1 + late_ms / F.when(interval_ms > 0, interval_ms))),
        }
    )
    by_topic = rows.groupBy(*MEMBER_AT, "topic").agg(
        F.max("captured_at").alias("captured_at"),
        *(F.max(name).alias(f"max_{name}") for name in (*_LAGS, "app_lag")),
        *(_whole_sum(F.expr(counted_lag(name))).alias(f"sum_{name}") for name in _LAGS),
        *(_whole_sum(F.col(name)).alias(f"sum_{name}") for name in ("fetched_offset", "buffered_bytes")),
        F.max("noise").alias("noise"),
        F.max(F.when(F.col("noise").isNotNull(), F.col("app_lag"))).alias("judged_lag"),
        F.try_sum("grown").alias("grown"),
        F.count(F.lit(1)).alias("partitions"),
        F.collect_set("leader").alias("leaders"),
        _mean_record_bytes().alias("record_bytes"),
    )
    return by_topic.groupBy(*MEMBER_AT).agg(
        F.max("captured_at").alias("captured_at"),
        *(F.max(f"max_{name}").alias(f"max_{name}") for name in (*_LAGS, "app_lag")),
        *(_whole_sum(F.col(f"sum_{name}")).alias(f"sum_{name}") for name in _LAGS),
        _whole_sum(F.col("sum_fetched_offset")).alias("fetched_offsets"),
        _whole_sum(F.col("sum_buffered_bytes")).alias("sum_buffered_bytes"),
        F.max("noise").alias("noise"),
        F.max("judged_lag").alias("judged_lag"),
        F.try_sum("grown").alias("grown"),
        F.sum("partitions").alias("partitions"),
        F.size(F.array_distinct(F.flatten(F.collect_list("leaders")))).alias("brokers"),
        F.min("record_bytes").alias("log_record_bytes"),
    )


def _mean_record_bytes() -> Column:
    unread_bytes, unread = (F.try_sum(F.expr(counted_lag(name))) for name in ("consumer_lag_bytes", "consumer_lag"))
    return unread_bytes / F.nullif(unread, F.lit(0))


def _verdict() -> Column:
    gauge, app_lag, noise = F.col("max_lag"), F.col("judged_lag"), F.col("noise")
    return (
        F.when(gauge.isNull() | app_lag.isNull() | noise.isNull(), F.lit(None))
        .when((F.try_subtract(app_lag, gauge) > noise) & (2 * gauge < app_lag), "blind")
        .otherwise("truthful")
    )


def _known(previous: DataFrame) -> DataFrame:
    known = (F.col(name).alias(f"known_{name}") for name in ("verdict", "since", "record_bytes"))
    return previous.select(*MEMBER_AT, *known)


def _whole_sum(value: Column) -> Column:
    """The sum of a column; NULL if one of its values is NULL."""
    return F.when(F.count(value) == F.count(F.lit(1)), F.try_sum(value))


def _queue_bytes() -> Column:
    """The most bytes that the queue of an old consumer's thread holds: by default, two chunks of 1 MiB."""
    settings = F.col("settings")
    chunks = F.coalesce(settings["queued_max_message_chunks"], F.lit(QUEUED_MAX_MESSAGE_CHUNKS))
    return chunks * F.coalesce(settings["fetch_message_max_bytes"], F.lit(FETCH_MESSAGE_MAX_BYTES))


def _buffer_bound() -> Column:
    """`buffer_bound` of a client; NULL if its kind, threads or brokers are not known."""
    kind = (
        F.when(F.col("source") == "librdkafka_statistics", "librdkafka")
        .when(F.col("source").isNull(), F.lit(None))
        .when(F.col("is_old"), "scala")
        .otherwise("java")
    )
    # A lambda, because PySpark would take a function with type hints for a pandas or Arrow UDF.
    bound = F.udf(lambda *values: _bound_of(*values), LONG)  # noqa: PLW0108
    return bound(kind, "settings", "threads", "partitions", F.nullif("brokers", F.lit(0)))


def _bound_of(
    kind: Kind | None, settings: Row, threads: int | None, partitions: int | None, brokers: int | None
) -> int | None:
    configured = {KAFKA_NAMES[name]: value for name, value in settings.asDict().items() if value is not None}
    if kind == "scala":
        configured.setdefault("threads", threads)
    if kind is None or partitions is None or (configured["threads"] if kind == "scala" else brokers) is None:
        return None
    return buffer_bound(kind, consumer_settings(configured, kind), partitions, brokers or 0).bound_bytes
