"""The table `lag`: one row per snapshot and group, topic, partition that is committed or assigned."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipeline.analytics.incarnation import with_committed_topic_id
from pipeline.analytics.ladder import is_recreated, lags, offset_status
from pipeline.analytics.log_index import readings
from pipeline.analytics.units import Rung, unit_columns
from pipeline.tables import LAG

SNAPSHOT = ["cluster", "snapshot_id", "snapshot_date"]
PARTITION = ["topic", "partition"]
READER = [*SNAPSHOT, "group_id", *PARTITION]

SHARED_RUNGS = {
    "log_start": "log_start_offset",
    "high_watermark": "high_watermark",
    "log_end": "log_end_offset",
}
READER_RUNGS = {"committed": "committed_offset", "consumed": "consumed_offset", "fetched": "fetched_offset"}
"""The rungs that lag in bytes and time is measured between: of the partition, and of one reader."""

NOT_IN_CLUSTER = "UNKNOWN_TOPIC_OR_PARTITION"
"""What Kafka says of a partition that its metadata does not list: deleted, or not to be described."""


def compute_lag(
    committed_offsets: DataFrame,
    watermarks: DataFrame,
    group_members: DataFrame,
    previous: DataFrame,
    rulers: DataFrame,
) -> DataFrame:
    """The rows of `lag` for the snapshots that the bronze frames hold.

    `previous` are rows of `lag` before them, `rulers` (PARTITION, snapshot_id, ruler) their partitions' rulers. The
    columns are those of LAG. Rungs that no source has observed yet, and what needs them, are NULL.
    """
    partitions = (
        _by_partition(_readers(committed_offsets, group_members))
        .join(_rungs(watermarks), [*SNAPSHOT, *PARTITION], how="left")
        .join(rulers, ["cluster", "snapshot_id", *PARTITION], how="left")
    )
    rows = _on_the_ruler(partitions).join(
        _group_facts(committed_offsets, group_members), [*SNAPSHOT, "group_id"], how="left"
    )
    laddered = rows.withColumns(
        {
            "committed_error": F.coalesce("committed_error", "group_error"),
            "watermark_error": F.when(F.col("is_listed"), F.col("watermark_error")).otherwise(NOT_IN_CLUSTER),
            "kip532_from": F.when(F.col("fetched_offset").isNotNull(), "fetched").when(
                F.col("committed_offset").isNotNull(), "committed"
            ),
        }
    )
    complete = with_committed_topic_id(laddered, previous).withColumns(
        {
            **lags(),
            **unit_columns(_rungs_on_the_ruler(), F.unix_millis("captured_at")),
            "offset_status": offset_status(),
            "error": F.coalesce("watermark_error", "committed_error"),
        }
    )
    present = set(complete.columns)
    return complete.select(
        *(
            F.col(f.name).cast(f.dataType) if f.name in present else F.lit(None).cast(f.dataType).alias(f.name)
            for f in LAG.schema
        )
    )


def _by_partition(readers: DataFrame) -> DataFrame:
    """The readers of each partition in one array, so that its ruler is read once for all of them."""
    rungs = {name: F.lit(None).cast("bigint") for name in ("consumed_offset", "fetched_offset")}
    whole = readers.withColumns(rungs)
    reader = F.struct(*(name for name in whole.columns if name not in (*SNAPSHOT, *PARTITION)))
    return whole.groupBy(*SNAPSHOT, *PARTITION).agg(F.collect_list(reader).alias("readers"))


def _on_the_ruler(partitions: DataFrame) -> DataFrame:
    """The readers again, each with the READING of every rung that is on a ruler: `<rung>_reading`."""
    ruler, readers = F.col("ruler"), F.col("readers")
    shared = readings(ruler, F.array(*SHARED_RUNGS.values()))
    own = {name: readings(ruler, readers[offset]) for name, offset in READER_RUNGS.items()}
    read = partitions.withColumns({"shared": shared, **{f"{name}_readings": column for name, column in own.items()}})
    together = F.arrays_zip("readers", *(f"{name}_readings" for name in own))
    keep = [c for c in partitions.columns if c not in ("readers", "ruler")]
    rows = read.select(*keep, "shared", F.explode(together).alias("own"))
    return rows.select(
        *keep,
        *(F.col("shared")[i].alias(f"{name}_reading") for i, name in enumerate(SHARED_RUNGS)),
        *(F.col("own")[f"{name}_readings"].alias(f"{name}_reading") for name in own),
        "own.readers.*",
    )


def _rungs_on_the_ruler() -> dict[str, Rung]:
    """Every rung that lag in bytes and time is measured between. An offset of another incarnation is on no ruler."""

    def own(name: str) -> Rung:
        offset, reading = F.col(READER_RUNGS[name]), F.col(f"{name}_reading")
        is_other = F.coalesce(is_recreated(), F.lit(False)) if name == "committed" else F.lit(False)
        return Rung(F.when(~is_other, offset), F.when(~is_other, reading))

    rungs = {name: own(name) for name in READER_RUNGS}
    rungs |= {name: Rung(F.col(offset), F.col(f"{name}_reading")) for name, offset in SHARED_RUNGS.items()}
    fetched, committed = rungs["fetched"], rungs["committed"]
    is_fetched = F.col("kip532_from") == "fetched"
    return rungs | {
        "kip532": Rung(
            F.when(is_fetched, fetched.offset).otherwise(committed.offset),
            F.when(is_fetched, fetched.reading).otherwise(committed.reading),
        )
    }


def _readers(committed_offsets: DataFrame, group_members: DataFrame) -> DataFrame:
    """Every committed partition with its commit, and every assigned one with its member."""
    committed = committed_offsets.where(F.col("topic").isNotNull()).select(
        *READER,
        "committed_offset",
        "committed_at",
        F.col("captured_at").alias("committed_captured_at"),
        F.col("error").alias("committed_error"),
    )
    # While members hand a partition over, two of them may have it: the first by name stands for both.
    member = F.min(F.struct("member_id", "client_id", "host"))
    assigned = (
        group_members.where(F.col("topic").isNotNull())
        .groupBy(*READER)
        .agg(member.alias("member"))
        .select(*READER, "member.*")
    )
    return committed.join(assigned, READER, how="full")


def _group_facts(committed_offsets: DataFrame, group_members: DataFrame) -> DataFrame:
    """State and type of a group, and the error if its commits could not be read at all.

    With an error the commits of its assigned partitions are unknown, not absent.
    """
    unread = committed_offsets.where(F.col("topic").isNull()).select(*SNAPSHOT, "group_id", "error")
    described = group_members.select(*SNAPSHOT, "group_id", "state", "group_type")
    return (
        described.unionByName(unread, allowMissingColumns=True)
        .where(F.col("group_id").isNotNull())
        .groupBy(*SNAPSHOT, "group_id")
        .agg(
            F.max("state").alias("group_state"),
            F.max("group_type").alias("group_type"),
            F.min("error").alias("group_error"),
        )
    )


def _rungs(watermarks: DataFrame) -> DataFrame:
    return watermarks.where(F.col("topic").isNotNull()).select(
        *SNAPSHOT,
        "topic",
        "partition",
        "captured_at",
        "topic_id",
        "leader",
        "log_start_offset",
        "last_stable_offset",
        "high_watermark",
        "log_end_offset",
        F.col("error").alias("watermark_error"),
        F.lit(True).alias("is_listed"),
    )
