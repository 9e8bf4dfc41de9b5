"""The positions and times of the rungs, for lag in bytes and time: from the partition's ruler or its log files."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipeline.analytics.lag.bytes_and_time import Rung
from pipeline.analytics.log_index.index import known_end, with_readings_at
from pipeline.analytics.log_index.ruler_lookup import READING

SHARED_RUNGS = {"log_start": "log_start_offset", "high_watermark": "high_watermark", "log_end": "log_end_offset"}
READER_RUNGS = {"committed": "valid_offset", "consumed": "consumed_offset", "fetched": "fetched_offset"}
"""The rungs of a partition (SHARED_RUNGS), and those of one reader: name → column."""
MOVED_RUNGS = ("earlier", "end")
"""The earlier commit and the high watermark that were read with a commit. They are looked up on the ruler only if they
differ from the other rungs, so never on a quiet cluster."""

Locate = Callable[[DataFrame], DataFrame]
"""Finds offsets in log files: rows of (topic, partition, offset) → rows of `log_segments.source.OFFSET_LOCATIONS`."""


def gathered(readers: DataFrame, by: list[str]) -> DataFrame:
    """Collects the readers of each partition in an array `readers`, so that its ruler is read once for all of them."""
    reader = F.struct(*(name for name in readers.columns if name not in by))
    return readers.groupBy(*by).agg(F.collect_list(reader).alias("readers"))


def with_readings(partitions: DataFrame, locate: Locate | None = None) -> DataFrame:
    """A row for each of a partition's `readers`, with the READING of every rung: `<rung>_reading`.

    `partitions` have readers, ruler and the rungs of SHARED_RUNGS. If `locate` is given, the exact values that it finds
    replace those of the ruler. What the ruler says of the ends of the log stays: high_watermark_on_ruler, end_on_ruler.
    unread_markers is that of `lag`.
    """
    keep = [c for c in partitions.columns if c not in ("readers", "ruler")]
    read = with_readings_at(partitions, "all_readings", _offsets()).withColumn("on_ruler", F.col("all_readings"))
    markers = F.array().cast("array<bigint>")
    if locate is not None:
        pairs = F.arrays_zip(_offsets().alias("offset"), F.col("all_readings").alias("reading"))
        located = read.join(_in_files(partitions, locate), ["topic", "partition"], how="left")
        # If the topic was recreated before its files were read, they do not show the log that the snapshot saw.
        is_another = F.coalesce(F.col("files_topic_id") != F.col("topic_id"), F.lit(False))
        known = located.withColumn("in_files", F.when(~is_another, F.col("in_files")))
        read = known.withColumn("all_readings", F.transform(pairs, _surest))
        markers = F.transform("readers", _unread_markers)
    own_names = (*READER_RUNGS, *MOVED_RUNGS)
    readings = [_own(i).alias(f"{name}_reading") for i, name in enumerate(own_names)]
    end_on_ruler = _own(own_names.index("end"), "on_ruler").alias("end_on_ruler")
    own = F.arrays_zip("readers", *readings, end_on_ruler, markers.alias("unread_markers"))
    rows = read.select(*keep, "all_readings", "on_ruler", F.explode(own).alias("own"))
    return rows.select(
        *keep,
        *(F.col("all_readings")[i].alias(f"{name}_reading") for i, name in enumerate(SHARED_RUNGS)),
        *(F.col("own")[f"{name}_reading"].alias(f"{name}_reading") for name in own_names),
        F.coalesce("own.fetched_reading", "own.committed_reading").alias("kip532_reading"),
        F.col("on_ruler")[[*SHARED_RUNGS].index("high_watermark")].alias("high_watermark_on_ruler"),
        "own.end_on_ruler",
        "own.unread_markers",
        "own.readers.*",
    )


def _offsets() -> Column:
    """All offsets of a partition's rungs: the shared ones, then each rung of all readers."""
    readers = F.col("readers")
    moved = {
        "earlier": lambda r: F.when(r["earlier_offset"] != r["valid_offset"], r["earlier_offset"]),
        "end": lambda r: _unless_shared(r["end_offset"]),
    }
    own = [*(readers[c] for c in READER_RUNGS.values()), *(F.transform(readers, moved[name]) for name in MOVED_RUNGS)]
    return F.concat(F.array(*SHARED_RUNGS.values()), *own)


def _unless_shared(end: Column) -> Column:
    """The end that was read with a commit, but at most the end of the ruler; NULL if it is the high watermark."""
    reached = F.when(end > known_end(), known_end()).otherwise(end)
    return F.when(reached != F.col("high_watermark"), reached)


def _own(number: int, of: str = "all_readings") -> Column:
    """The readings of one rung (its number) for all readers."""
    first = F.lit(len(SHARED_RUNGS) + 1) + F.lit(number) * F.size("readers")
    return F.slice(of, first, F.size("readers"))


def _first_unread(reader: Column) -> Column:
    """The commit, or the log start that was read with it, if the records in between are deleted."""
    return F.greatest(reader["valid_offset"], F.coalesce(reader["start_offset"], F.col("log_start_offset")))


def _end(reader: Column) -> Column:
    """The high watermark up to which the reader's lag counts."""
    return F.coalesce(reader["end_offset"], F.col("high_watermark"))


def _unread_markers(reader: Column) -> Column:
    """How many markers are unread: those up to the log's end, without those from the high watermark on.

    The end of the files is later than the high watermark. NULL if one of the two numbers is not known.
    """
    first, end = (F.element_at("in_files", of(reader))["markers_to_end"] for of in (_first_unread, _end))
    unread = F.when(first < end, 0).otherwise(first - end)
    return F.when(reader["valid_offset"].isNotNull(), unread)


def _in_files(partitions: DataFrame, locate: Locate) -> DataFrame:
    """What the log files have at each offset and at the one before it.

    The columns are topic, partition, in_files (a map: offset → what was found), files_topic_id.
    """
    ends = F.array(*(F.col(name) - 1 for name in ("high_watermark", "log_end_offset")))
    unread = (F.transform("readers", of) for of in (_first_unread, _end))
    asked = partitions.select("topic", "partition", F.explode(F.concat(_offsets(), ends, *unread)).alias("offset"))
    found = locate(asked.where(F.col("offset") >= 0).distinct()).where(F.col("position_bytes").isNotNull())
    value = F.struct("position_bytes", "timestamp_ms", "log_end_offset", "newest_timestamp_ms", "markers_to_end")
    in_files = F.map_from_entries(F.collect_list(F.struct("offset", value))).alias("in_files")
    return found.groupBy("topic", "partition", F.col("topic_id").alias("files_topic_id")).agg(in_files)


def _surest(item: Column) -> Column:
    """The exact reading of an offset if it is known, else the ruler's."""
    found = F.element_at("in_files", item["offset"])
    before = F.element_at("in_files", item["offset"] - 1)["timestamp_ms"]
    is_end = item["offset"] == found["log_end_offset"]
    # KIP-532 counts from the newest timestamp of the active segment.
    newest_ms = F.when(is_end, found["newest_timestamp_ms"]).otherwise(before)
    zero = F.lit(0).cast("bigint")
    values = {
        "position_bytes": found["position_bytes"],
        "timestamp_ms": F.coalesce(found["timestamp_ms"], newest_ms),
        "newest_before_ms": newest_ms,
        "is_arrival": F.lit(False),
        "is_local": F.lit(True),
        "is_exact": F.lit(True),
    }
    exact = F.struct(*(values.get(name, zero).alias(name) for name in READING.names))
    return F.when(found.isNotNull(), exact).otherwise(item["reading"])


def rungs() -> dict[str, Rung]:
    """All rungs of a row from `with_readings`, in which `lag` has set the high watermark read with the commit."""
    found = {name: Rung(F.col(c), F.col(f"{name}_reading")) for name, c in (SHARED_RUNGS | READER_RUNGS).items()}
    found["unread"] = _readable(found["committed"], found["log_start"])
    found["earlier"] = _readable(Rung(F.col("earlier_offset"), F.col("earlier_reading")), found["log_start"])
    return found | {"kip532": Rung(F.coalesce("fetched_offset", "valid_offset"), F.col("kip532_reading"))}


def _readable(rung: Rung, log_start: Rung) -> Rung:
    """The rung, or log start if the rung is below it: the records in between are deleted and cannot be read any more.

    If log start was another offset when the commit was read, it has no reading, and the rung itself is returned.
    """
    is_deleted = (rung.offset < log_start.offset) & log_start.reading.isNotNull()
    return Rung(
        F.when(is_deleted, log_start.offset).otherwise(rung.offset),
        F.when(is_deleted, log_start.reading).otherwise(rung.reading),
    )


def kip532_from() -> Column:
    """The rung that KIP-532's lag is measured from: `fetched` if that offset is known, else `committed`."""
    return F.when(F.col("fetched_offset").isNotNull(), "fetched").when(
        F.col("committed_offset").isNotNull(), "committed"
    )
