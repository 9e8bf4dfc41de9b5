"""The sums over the partitions of each group and topic, from which `forecasts` are computed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipeline.analytics.forecasts.memory import IN_BYTES, OF_RETENTION
from pipeline.analytics.keys import GROUP_AT
from pipeline.analytics.lag.ladder import HAS_UNREAD, counted_lag
from pipeline.analytics.series import read_ms

_NAMED = [*GROUP_AT, "topic"]


def sums(lag: DataFrame) -> DataFrame:
    """A row for each snapshot, group and topic in `lag`, and one with topic NULL for the group: `partitions` and SUMS.

    Partitions without a commit are left out, because they have no lag. A sum is NULL if one of its values is not known,
    or belongs to another log than the commit, and if there is no partition.
    """
    is_counted = ~F.col("offset_status").eqNullSafe("no_commit")
    is_same_log = ~F.coalesce(F.col("offset_status").isin("recreated", "truncated", "beyond_end"), F.lit(False))
    is_known = is_same_log & F.col("partition").isNotNull()
    for name in _IN_RECORDS.values():
        is_known &= F.col(name).isNotNull()
    late = {"ends_ms": read_ms(), "commits_ms": read_ms("committed_captured_at")}
    in_bytes = _in_bytes()
    by_topic = (
        lag.where(is_counted | F.col("topic").isNotNull())
        .groupBy(*_NAMED)
        .agg(
            F.count_if(is_counted).alias("partitions"),
            F.count_if(is_counted & ~is_known).alias("unknown"),
            *(F.try_sum(F.when(is_counted, of)).alias(name) for name, of in _in_records().items()),
            *(F.try_sum(F.when(is_counted, of)).alias(name) for name, of in in_bytes.items()),
            *(F.count_if(is_counted & of.isNull()).alias(f"unknown_{name}") for name, of in in_bytes.items()),
            *(F.sum(F.when(is_counted, at - F.col("snapshot_id"))).alias(name) for name, at in late.items()),
            F.max(F.when(is_counted, F.col("consumer_lag"))).alias("worst_lag"),
            *(column.alias(name) for name, column in _of_retention(is_counted).items()),
            F.bit_xor(F.when(is_counted, F.xxhash64("topic", "topic_id", "partition"))).alias("identity"),
        )
    )
    return _of_topics_and_groups(by_topic, [*late])


_IN_RECORDS = {"log_ends": "high_watermark", "commits": "committed_offset", "consumer_lag": "consumer_lag"}


def _in_records() -> dict[str, Column]:
    """The values in records of a row of `lag`, for sums."""
    return {name: F.col(of) for name, of in _IN_RECORDS.items()} | {"consumer_lag": F.expr(counted_lag("consumer_lag"))}


def _in_bytes() -> dict[str, Column]:
    """The values in bytes of a row of `lag`. Below log start, the position of a commit is not known."""
    is_in_log = F.coalesce(F.col("committed_offset") >= F.col("log_start_offset"), F.lit(False))
    commit_bytes = F.when(is_in_log, F.col("high_watermark_bytes") - F.col("consumer_lag_bytes"))
    return {
        "log_end_bytes": F.col("high_watermark_bytes"),
        "log_end_error_bytes": F.col("high_watermark_error_bytes"),
        "commit_bytes": commit_bytes,
        "commit_error_bytes": F.when(commit_bytes.isNotNull(), F.col("bytes_error")),
    }


def _of_retention(is_counted: Column) -> dict[str, Column]:
    """OF_RETENTION of one topic: of the partition in which retention is nearest to the commit, in time.

    A partition with unread records comes before one without. NULL if this is not known for all that have unread ones.
    """
    is_unread = F.expr(HAS_UNREAD)
    is_in_log = F.coalesce(F.col("committed_offset") >= F.col("log_start_offset"), F.lit(False))
    is_known = F.col("headroom_ms").isNotNull() & F.col("consumer_age_ms").isNotNull() & is_in_log
    is_known &= ~F.col("time_method").eqNullSafe("arrival")
    start_ms = F.unix_millis("captured_at") - F.col("consumer_age_ms") - F.col("headroom_ms")
    names = {"is_read": ~is_unread, "headroom_ms": F.col("headroom_ms"), "oldest_ms": F.col("consumer_age_ms")}
    nearest = F.struct(*(value.alias(name) for name, value in (names | {"start_ms": start_ms}).items()))
    is_whole = F.count_if(is_counted & F.coalesce(is_unread, F.lit(True)) & ~is_known) == 0
    found = F.min(F.when(is_counted & is_known, nearest))
    has_starts = F.count_if(is_counted & F.col("log_start_offset").isNull()) == 0
    return {
        "oldest_ms": F.when(is_whole, found["oldest_ms"]),
        "log_starts": F.when(has_starts, F.try_sum(F.when(is_counted, F.col("log_start_offset")))),
        "start_ms": F.when(is_whole, found["start_ms"]),
    }


def _of_topics_and_groups(by_topic: DataFrame, late: Sequence[str]) -> DataFrame:
    """The rows of topics and, with topic NULL, of groups. `late` are sums of the ms from the snapshot to its reads."""
    # A sum may be NULL although all of its values are known, if it is too large.
    unknown = F.col("unknown") + F.when((F.col("partitions") > 0) & _is_lacking(_IN_RECORDS), 1).otherwise(0)
    both = F.explode(F.array_distinct(F.array("topic", F.lit(None).cast("string"))))
    counts = ("partitions", "unknown", *(f"unknown_{name}" for name in IN_BYTES))
    summed = (
        by_topic.withColumn("unknown", unknown)
        .withColumn("topic", both)
        .groupBy(*_NAMED)
        .agg(
            *(F.sum(name).alias(name) for name in (*counts, *late)),
            *(F.try_sum(name).alias(name) for name in (*_IN_RECORDS, *IN_BYTES)),
            F.max("worst_lag").alias("worst_lag"),
            # For a group, the forecasts of its topics are compared instead.
            *(F.when(F.col("topic").isNotNull(), F.max(name)).alias(name) for name in OF_RETENTION),
            F.bit_xor("identity").alias("identity"),
        )
    )
    is_whole = (F.col("partitions") > 0) & (F.col("unknown") == 0)
    mean = {n: F.col("snapshot_id") + F.round(F.col(n) / F.col("partitions")).cast("bigint") for n in late}
    values = mean | {name: F.col(name) for name in (*_IN_RECORDS, "worst_lag", *OF_RETENTION)}
    values |= {name: F.when(F.col(f"unknown_{name}") == 0, F.col(name)) for name in IN_BYTES}
    return summed.withColumns({name: F.when(is_whole, value) for name, value in values.items()})


def _is_lacking(names: Iterable[str]) -> Column:
    found = F.lit(False)
    for name in names:
        found |= F.col(name).isNull()
    return found
