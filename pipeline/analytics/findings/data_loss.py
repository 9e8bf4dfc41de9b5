"""When retention will delete what a group needs: records that it has not read, and its committed offsets."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipeline.analytics.findings.commits_expire import commit_expires_in_ms
from pipeline.analytics.findings.rates import compared_with
from pipeline.analytics.keys import PARTITION_AT, READER
from pipeline.analytics.lag.ladder import HAS_UNREAD, READ_UP_TO
from pipeline.analytics.series import read_ms
from pipeline.analytics.status.rules import FALLING_BEHIND, WAITS

TRANSACTION = ("transaction_producer_id", "transaction_start_offset", "transaction_timestamp_ms")
"""The columns of WATERMARKS about the transaction that holds back a partition's last stable offset."""
_RETENTION = ("cleanup_policy", "retention_ms", "retention_bytes")
_STATE = ("topic_id", "log_start_offset", "committed_offset", "consumed_offset", "high_watermark")


def with_time_left(
    rows: DataFrame, watermarks: DataFrame, earlier: DataFrame, before: Mapping[int, int], within_ms: int
) -> DataFrame:
    """Adds `deleted_in_ms` to readers: how long until unread records are deleted, if less than `within_ms`; else NULL.

    Also adds `expires_in_ms`, the same for their commits, with `offsets_retention_ms`; and `records_per_s`, the speed
    at which records are written to the partition, NULL if it is not known.

    `deleted_in_ms` is the shorter of two times. The first is what is left of `retention.ms` for the oldest unread
    record, for a reader that has waited too long, falls behind, or whose group has no members. Kafka deletes whole
    segments, and therefore later than that, but not before. The second is what is left of the headroom while log start
    moves faster than the group reads, whatever the reason for which it moves. It moves by whole segments, so its speed
    counts at most as that at which records are written: a segment that is deleted at once says nothing about the next
    ones. An application that deletes what it has read, as Kafka Streams does, endangers nothing: see `_by_log_start`.
    Records that are already deleted are not a danger, but a loss. The columns TRANSACTION of `watermarks` are added,
    too.

    `rows` have the columns of `lag`, and those of PARTITION_STATUS about the status, the wait and the members. Rows of
    readers that have read everything may be missing.
    `watermarks` are those of the same snapshots. `earlier` are rows of `lag`; `before` maps a snapshot to the one among
    them with which it is compared.
    """
    names = (*_RETENTION, "offsets_retention_ms", *TRANSACTION)
    topics = watermarks.select(*PARTITION_AT, *names).where(F.col("topic").isNotNull())
    state = F.struct(*_STATE, read_ms().alias("ends_ms"), read_ms("committed_captured_at").alias("commits_ms"))
    then = earlier.select(*READER, F.col("snapshot_id").alias("then_id"), state.alias("then"))
    left_ms = F.least(_by_age(), _by_log_start())
    return (
        rows.withColumn("then_id", compared_with(before))
        .join(topics, PARTITION_AT, how="left")
        .join(then.where(F.col("topic").isNotNull()), [*READER, "then_id"], how="left")
        .withColumns(
            {
                "deleted_in_ms": F.when(left_ms <= within_ms, left_ms).cast("bigint"),
                "expires_in_ms": commit_expires_in_ms(within_ms),
                "records_per_s": _records_per_s(),
            }
        )
        .drop("then_id", "then", *_RETENTION)
    )


def _is_unread() -> Column:
    """Whether the next record to read still exists, in the log that the commit belongs to. A marker is not a record."""
    is_same_log = F.col("offset_status").isin("ok", "deleted_uncommitted")
    is_behind = F.coalesce(F.expr(HAS_UNREAD), F.lit(True)) & (F.expr(READ_UP_TO) < F.col("high_watermark"))
    return is_same_log & is_behind & (F.expr(READ_UP_TO) >= F.col("log_start_offset"))


def _by_age() -> Column:
    """By the age of the oldest unread record. Timestamps in the future, which are set aside, say nothing about it."""
    has_limit = F.col("cleanup_policy").contains("delete") & (F.col("retention_ms") >= 0)
    does_not_keep_up = F.col("status").isin(*WAITS, FALLING_BEHIND) | F.col("reason").eqNullSafe("no_members")
    is_known = ~F.col("time_method").eqNullSafe("arrival")
    left_ms = F.try_subtract("retention_ms", "consumer_age_ms")
    not_before_now = F.when(left_ms < 0, 0).otherwise(left_ms)  # NULL if the age is not known
    return F.when(_is_unread() & has_limit & does_not_keep_up & is_known, not_before_now)


def _by_log_start() -> Column:
    """By the headroom, which shrinks while log start moves faster than the group reads.

    If log start has reached what the group had read by then, and retention cannot be the reason, an application deletes
    what it has read with DeleteRecords. Kafka Streams does that in repartition topics every 30 seconds
    (`repartition.purge.interval.ms`); their headroom is always small.

    If a commit went back, the speed of the group is taken as 0, because this does not show how fast it reads.
    """
    then = F.col("then")
    is_same_log = then["topic_id"].eqNullSafe(F.col("topic_id"))
    is_reported = F.col("consumed_offset").isNotNull() & then["consumed_offset"].isNotNull()
    now_at = F.greatest("committed_offset", F.when(is_reported, F.col("consumed_offset")))
    then_at = F.greatest(then["committed_offset"], F.when(is_reported, then["consumed_offset"]))
    # Offsets per ms.
    passed = _passed(read_ms(), then["ends_ms"])
    deleted, written = ((F.col(of) - then[of]) / passed for of in ("log_start_offset", "high_watermark"))
    read = (now_at - then_at) / _passed(read_ms("committed_captured_at"), then["commits_ms"])
    nearer = F.least(deleted, written) - F.when(read > 0, read).when(read <= 0, 0)
    headroom = now_at - F.col("log_start_offset")
    # An application that deletes what it has read moves log start to a commit, so to that of `then` or a later one.
    is_apart = F.coalesce(F.col("log_start_offset") < then_at, F.lit(True))
    is_near = _is_unread() & is_same_log & (headroom >= 0) & (deleted > 0) & (nearer > 0)
    return F.when(is_near & (is_apart | _may_be_retention()), F.round(headroom / nearer))


def _may_be_retention() -> Column:
    """Whether retention may delete the next records that the group reads, because of their age or of the log's size.

    What is younger than half of `retention.ms` will not be deleted soon because of its age. What is not known may be.
    """
    age_ms = F.when(~F.col("time_method").eqNullSafe("arrival"), F.col("consumer_age_ms"))
    is_old = (F.col("retention_ms") >= 0) & F.coalesce(age_ms >= F.col("retention_ms") / 2, F.lit(True))
    may_delete = F.coalesce(F.col("cleanup_policy").contains("delete"), F.lit(True))
    return may_delete & (F.coalesce(is_old, F.lit(True)) | F.coalesce(F.col("retention_bytes") >= 0, F.lit(True)))


def _records_per_s() -> Column:
    then = F.col("then")
    written = F.col("high_watermark").cast("double") - then["high_watermark"]
    is_same_log = then["topic_id"].eqNullSafe(F.col("topic_id"))
    return F.when(is_same_log & (written >= 0), written * 1_000 / _passed(read_ms(), then["ends_ms"]))


def _passed(now_ms: Column, then_ms: Column) -> Column:
    """The ms between the two reads; NULL if the later snapshot was not read later."""
    return F.when(now_ms > then_ms, now_ms - then_ms)
