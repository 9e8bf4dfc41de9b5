"""The table `partition_status`: the status of each row of `lag`, from that row and the memory of earlier rows."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, LongType, StringType, StructField, StructType

from pipeline.analytics.keys import GROUP_AT, READER
from pipeline.analytics.series import read_ms
from pipeline.analytics.status.judge import judging
from pipeline.config.status import StatusConfig
from pipeline.tables import LAG, PARTITION_STATUS

ROWS_A_BUCKET = 50_000
"""Rows that are judged together. More rows need more memory, fewer rows need more calls."""
WITHOUT_MEMBERS = ("Empty", "Dead")
_NAMED = [*READER, "snapshot_id", "snapshot_date"]
_TIMES = ("since", "waiting_since", "commit_since")
_NUMBERS = ("at_ms", "has_members", "consumer_lag", "consumer_age_ms")
_KEPT = [*_NAMED, *_NUMBERS, "why"]
_JUDGED = StructType(
    [
        *(LAG.schema[name] for name in _NAMED),
        *(StructField(name, LongType()) for name in _NUMBERS),
        *(StructField(name, StringType()) for name in ("why", "status", "reason")),
        *(StructField(name, LongType()) for name in (*(f"{of}_ms" for of in _TIMES), "members_seen_ms")),
        StructField("memory", ArrayType(LongType())),
    ]
)


def partition_status(
    lag: DataFrame,
    known: DataFrame,
    settings: StatusConfig,
    most: int,
    reach: Mapping[int, int] = MappingProxyType({}),
    plain: DataFrame | None = None,
) -> DataFrame:
    """The rows of PARTITION_STATUS for the rows of `lag`; `most` is about how many these are.

    `known` are rows of PARTITION_STATUS of earlier snapshots; the judgement of each reader continues from its newest
    row. `reach` maps a snapshot to the newest complete one before it: a reader in no snapshot since then counts as new.
    `plain` are the `plain_commits` of the same snapshots.
    """
    rows = _observations(lag).unionByName(_judged_before(known), allowMissingColumns=True)
    if plain is not None:
        flags = {"is_observation": F.lit(False), "is_plain": F.lit(True)}
        rows = rows.unionByName(plain.withColumns(flags), allowMissingColumns=True)
    bucket = F.pmod(F.xxhash64(*READER), F.lit(1 + most // ROWS_A_BUCKET)).alias("bucket")
    judged = rows.groupBy(bucket).applyInArrow(judging(settings, _KEPT, dict(reach)), _JUDGED)
    return judged.withColumns(
        {
            "captured_at": F.timestamp_millis("at_ms"),
            "has_members": F.col("has_members") == 1,
            "reason": F.coalesce("reason", F.when(F.col("status") == "unknown", F.col("why"))),
            **{name: F.timestamp_millis(f"{name}_ms") for name in _TIMES},
            "members_seen_at": F.timestamp_millis("members_seen_ms"),
        }
    ).select(*PARTITION_STATUS.columns)


def plain_commits(committed_offsets: DataFrame, group_members: DataFrame) -> DataFrame:
    """The commits of groups without members with which no leader epoch is stored: READER, snapshot_id.

    In other groups they prove nothing, and there may be very many.
    """
    empty = group_members.where(F.col("state").isin(*WITHOUT_MEMBERS)).select(*GROUP_AT).distinct()
    plain = committed_offsets.where(F.col("committed_offset").isNotNull() & F.col("leader_epoch").isNull())
    return plain.join(F.broadcast(empty), GROUP_AT, how="left_semi").select(*READER, "snapshot_id")


def _observations(lag: DataFrame) -> DataFrame:
    """The rows of `lag` with the columns that `judge` needs for the rules."""
    status = F.col("offset_status")
    is_empty = F.col("group_state").isin(*WITHOUT_MEMBERS)

    def if_empty(value: Column) -> Column:
        return F.when(is_empty, value)

    drift = F.col("high_watermark_error_bytes")
    return lag.select(
        *_NAMED,
        F.lit(True).alias("is_observation"),
        F.lit(False).alias("is_plain"),
        read_ms("committed_captured_at").alias("at_ms"),
        F.when(F.col("topic_id").isNotNull(), F.xxhash64("topic_id")).alias("topic_hash"),
        F.col("committed_offset").alias("committed"),
        F.col("high_watermark").alias("end"),
        "consumer_lag",
        F.col("consumer_lag_stable").alias("stable_lag"),
        "consumer_age_ms",
        _has_members().alias("has_members"),
        F.unix_millis("committed_at").alias("committed_at_ms"),
        status.isin("recreated", "truncated", "beyond_end").alias("is_new"),
        (status == "no_commit").alias("is_not_committed"),
        F.coalesce("error", "offset_status").alias("why"),
        F.col("verified_epoch").cast("bigint").alias("verified_epoch"),
        F.col("log_start_offset").alias("log_start"),
        if_empty(F.col("high_watermark_bytes") - F.col("consumer_lag_bytes")).alias("position_bytes"),
        if_empty(F.col("bytes_error") - drift).alias("error_since"),
        if_empty(F.col("bytes_error") + drift).alias("error_until"),
    )


def _judged_before(known: DataFrame) -> DataFrame:
    return known.select(
        *_NAMED,
        F.lit(False).alias("is_observation"),
        F.col("snapshot_id").alias("at_ms"),
        "status",
        F.unix_millis("since").alias("since_ms"),
        F.unix_millis("members_seen_at").alias("members_seen_ms"),
        "memory",
    )


def _has_members() -> Column:
    """1 or 0; NULL if the state of the group is not known."""
    return (~F.col("group_state").isin(*WITHOUT_MEMBERS)).cast("bigint")
