"""The table `log_index`: the ruler of every partition, extended from snapshot to snapshot."""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pipeline.analytics.keys import PARTITION
from pipeline.analytics.log_index.polyline import TOLERANCE
from pipeline.analytics.log_index.ruler import FUTURE_MS
from pipeline.analytics.log_index.ruler_lookup import KNOWN, READINGS, read_rulers, what_is_known
from pipeline.analytics.log_index.ruler_update import OBSERVATION, RULERS, SAMPLE, rulers_after
from pipeline.analytics.log_index.time_search import FINEST_MS
from pipeline.common.arrow_udf import with_arrow_column
from pipeline.common.epoch import DAY_MS
from pipeline.tables import LOG_INDEX

FORGOTTEN_MS = 7 * DAY_MS
"""A partition that no snapshot has seen for this long is removed from the index."""


def rulers(log_index: DataFrame, watermarks: DataFrame, log_samples: DataFrame, asked_from: int) -> DataFrame:
    """The ruler as of each snapshot since `asked_from`: PARTITION, snapshot_id, ruler.

    `log_index` are the rulers so far; `watermarks` and `log_samples` are what later snapshots have seen. A snapshot
    that could not read a partition has no row for it. The newest snapshot that saw a partition always has a row, even
    if it is older than `asked_from`.
    """
    carried_on = _carried_on(log_index, watermarks, log_samples, asked_from)
    return carried_on.select(*PARTITION, F.inline("series"))


def _carried_on(log_index: DataFrame, watermarks: DataFrame, log_samples: DataFrame, asked_from: int) -> DataFrame:
    """PARTITION, ruler (the one in the index, or NULL), series (RULERS: the ones after it)."""
    partitions = (
        _by_partition(_observations(watermarks, asked_from), OBSERVATION.names, "observations")
        .join(_by_partition(log_samples, SAMPLE.names, "samples"), PARTITION, how="left")
        .join(log_index.select(*PARTITION, "ruler"), PARTITION, how="full")
    )
    arguments = (F.col("ruler"), F.col("observations"), F.col("samples"))
    carried_on = with_arrow_column(partitions, "series", rulers_after, RULERS, *arguments)
    return carried_on.select(*PARTITION, "ruler", "series")


def known_rulers(log_index: DataFrame, watermarks: DataFrame) -> DataFrame:
    """The rulers in the index for snapshots that it already includes: PARTITION, snapshot_id, ruler.

    A newer ruler also has the values of an older snapshot's offsets, within its error, unless the topic was recreated
    since. Then the snapshot's row in `watermarks` has another topic id, and there is no ruler.
    """
    rulers = log_index.select(*PARTITION, F.col("topic_id").alias("newer_topic_id"), "ruler")
    observed = watermarks.select(*PARTITION, "snapshot_id", "topic_id").join(rulers, PARTITION)
    return observed.where(F.col("topic_id").eqNullSafe(F.col("newer_topic_id"))).select(
        *PARTITION, "snapshot_id", "ruler"
    )


def index_rows(
    log_index: DataFrame, watermarks: DataFrame, log_samples: DataFrame, through_snapshot_id: int
) -> DataFrame:
    """The rows of LOG_INDEX after a snapshot, including partitions last seen less than FORGOTTEN_MS before."""
    carried_on = _carried_on(log_index, watermarks, log_samples, asked_from=through_snapshot_id + 1)
    rows = carried_on.select(*PARTITION, F.coalesce(F.get("series", F.lit(0))["ruler"], "ruler").alias("ruler"))
    through = F.lit(through_snapshot_id).cast("bigint")
    return (
        with_arrow_column(rows, "known", what_is_known, KNOWN, F.col("ruler"))
        .select(*PARTITION, "ruler", "known.*", through.alias("through_snapshot_id"))
        .where(F.col("seen_ms") >= through_snapshot_id - FORGOTTEN_MS)
        .withColumn("seen_at", F.timestamp_millis("seen_ms"))
        .select(*LOG_INDEX.columns)
    )


def wanted_times(
    rulers: DataFrame, watermarks: DataFrame, committed_offsets: DataFrame, *, most: int, with_tiered: bool
) -> DataFrame:
    """The partitions in which look-ups by time would help: leader, topic, partition, ruler, rungs.

    The rungs are the offsets whose times are wanted, in one snapshot: log start, the committed offsets that have
    records after them (as read before and after the ends of the logs), and the last record before each of these ends.
    The latter is needed if a log grew in between, because then the newest timestamp is that of a later record. At most
    `most` partitions of a leader are returned, those whose times are least exact. A partition with tiered storage is
    left out unless `with_tiered`, because an old record would be fetched from there. A partition whose newest timestamp
    is in the future is left out, because that record would be the answer to every look-up; so is one in which no record
    has a time.
    """
    partitions = (
        _searchable(watermarks, with_tiered)
        .join(_committed(committed_offsets), PARTITION, how="inner")
        .transform(_with_rungs)
        .where(F.size("rungs") > 0)
        .join(rulers, PARTITION, how="inner")
        .transform(with_readings_at, "read", F.concat("rungs", F.array("log_end_offset")))
        .withColumn("excess_ms", _excess_ms())
        .where(F.col("excess_ms") > 0)
    )
    by_excess = Window.partitionBy("leader").orderBy(F.col("excess_ms").desc(), *PARTITION)
    ranked = partitions.withColumn("rank", F.row_number().over(by_excess)).where(F.col("rank") <= most)
    return ranked.select("leader", "topic", "partition", "ruler", "rungs")


def _committed(committed_offsets: DataFrame) -> DataFrame:
    """The commits in each partition: PARTITION, committed (offsets), ends (high watermarks read with them)."""
    offsets = F.array_union(F.collect_set("committed_offset"), F.collect_set("earlier_offset"))
    return (
        committed_offsets.where(F.col("committed_offset").isNotNull())
        .groupBy(*PARTITION)
        .agg(F.sort_array(offsets).alias("committed"), F.collect_set("high_watermark").alias("ends"))
    )


def _searchable(watermarks: DataFrame, with_tiered: bool) -> DataFrame:
    """The partitions whose leaders can be asked.

    The columns are PARTITION, leader, log_start_offset, high_watermark, log_end_offset, and newest_end: an end of the
    log that comes after the record with the newest timestamp, NULL if that timestamp is not known.
    """
    is_local = F.coalesce(F.col("local_log_start_offset") <= F.col("log_start_offset"), F.lit(True))
    is_blind = F.coalesce(F.col("max_timestamp_ms") > F.unix_millis("captured_at") + FUTURE_MS, F.lit(False))
    has_no_times = F.col("max_timestamp_ms").isNull() & F.col("max_timestamp_offset").isNotNull()
    is_usable = F.col("error").isNull() & F.col("leader").isNotNull() & ~is_blind & ~has_no_times
    # The newest timestamp is read after the log's end, so its record may have been written in between.
    newest_end = F.greatest(known_end(), F.col("max_timestamp_offset") + 1)
    return watermarks.where(is_usable & (is_local | F.lit(with_tiered))).select(
        *PARTITION,
        "leader",
        "log_start_offset",
        "high_watermark",
        known_end().alias("log_end_offset"),
        F.when(F.col("max_timestamp_ms").isNotNull(), newest_end).alias("newest_end"),
    )


def _with_rungs(partitions: DataFrame) -> DataFrame:
    """Adds rungs: log start, committed offsets in the log, and the last records before the ends that were read."""
    has_records = F.col("log_start_offset") < F.col("high_watermark")
    in_log = F.filter(
        "committed", lambda offset: (offset >= F.col("log_start_offset")) & (offset < F.col("high_watermark"))
    )
    is_unknown = F.col("newest_end").isNull() & has_records

    def is_older(end: Column) -> Column:
        return F.coalesce(end < F.col("newest_end"), F.lit(True))

    last_read = F.transform(
        F.filter(
            F.array_union("ends", F.array("high_watermark")),
            lambda end: is_older(end) & (is_unknown | (F.size(in_log) > 0)),
        ),
        lambda end: end - 1,
    )
    first = F.coalesce(F.when(has_records, F.array("log_start_offset")), F.array().cast("array<bigint>"))
    return partitions.withColumn("rungs", F.array_union(F.array_union(first, in_log), last_read))


def _excess_ms() -> Column:
    """By how much the largest time error of the rungs exceeds the tolerance; the last reading is the log end's."""
    newest_ms = F.element_at("read", -1)["newest_before_ms"]

    def excess(reading: Column) -> Column:
        tolerated = F.greatest(F.lit(FINEST_MS), TOLERANCE * (newest_ms - reading["timestamp_ms"]))
        is_known = reading["timestamp_ms"].isNotNull() & ~reading["is_arrival"]
        return F.when(is_known, reading["timestamp_error_ms"] - tolerated).otherwise(F.lit(float("inf")))

    return F.array_max(F.transform(F.slice("read", F.lit(1), F.size("rungs")), excess))


def known_end() -> Column:
    """The log end; the high watermark if the broker does not report the log end, like Redpanda."""
    return F.coalesce("log_end_offset", "high_watermark")


def with_readings_at(rows: DataFrame, name: str, offsets: Column) -> DataFrame:
    """Adds column `name`: an array of READING, the row's `ruler` read at each of `offsets`."""
    return with_arrow_column(rows, name, read_rulers, READINGS, F.col("ruler"), offsets)


def _observations(watermarks: DataFrame, asked_from: int) -> DataFrame:
    seen: dict[str, Column] = {
        "is_asked": F.col("snapshot_id") >= asked_from,
        "captured_ms": F.unix_millis("captured_at"),
        "is_compacted": F.coalesce(F.col("cleanup_policy").contains("compact"), F.lit(False)),
        "log_end_offset": known_end(),
    }
    needed = (F.col("captured_at"), F.col("log_start_offset"), known_end())
    is_seen = reduce(Column.__and__, (column.isNotNull() for column in needed), F.col("error").isNull())
    return watermarks.where(is_seen).select(
        *PARTITION, *(seen.get(name, F.col(name)).alias(name) for name in OBSERVATION.names)
    )


def _by_partition(rows: DataFrame, names: list[str], alias: str) -> DataFrame:
    return rows.groupBy(*PARTITION).agg(F.sort_array(F.collect_list(F.struct(*names))).alias(alias))
