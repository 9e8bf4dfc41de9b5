"""Data source `kafka_log_segments`: every record batch in brokers' log directories; and `locate`, which finds offsets.

Both read the files that `log_dirs` lists, on executors: headers only, and without asking a broker. If a row has values
and an `error`, the values are right, and the error says what follows the intact part of the log.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, cast

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BooleanType, StructType

from pipeline.common.data_source import MAX_BATCH_ROWS, NameFilter, refuse_unknown, several
from pipeline.common.errors import ConfigError
from pipeline.common.files import redacted
from pipeline.lake.few_rows import own_setting
from pipeline.log_segments.log_dirs import OffsetLocation, PartitionDir, PartitionLog, list_partitions, open_log
from pipeline.log_segments.segment_files import Batch, Segment
from pipeline.tables.columns import INT, LONG, STRING

BOOLEAN = BooleanType()

BATCHES = (
    StructType()
    .add("topic", STRING)
    .add("topic_id", STRING)
    .add("partition", INT)
    .add("log_dir", STRING)
    .add("segment_base_offset", LONG)
    .add("base_offset", LONG)
    .add("last_offset", LONG)
    .add("position_bytes", LONG)
    .add("batch_bytes", LONG)
    .add("record_count", INT)
    .add("max_timestamp_ms", LONG)
    .add("timestamp_type", STRING)
    .add("codec", STRING)
    .add("is_transactional", BOOLEAN)
    .add("is_control", BOOLEAN)
    .add("error", STRING)
)
OFFSET_LOCATIONS = (
    StructType()
    .add("topic", STRING)
    .add("partition", INT)
    .add("offset", LONG)
    .add("position_bytes", LONG)
    .add("bytes_to_end", LONG)
    .add("timestamp_ms", LONG)
    .add("log_end_offset", LONG)
    .add("newest_timestamp_ms", LONG)
    .add("log_dir", STRING)
    .add("error", STRING)
    .add("topic_id", STRING)
    .add("markers_to_end", LONG)
)
NOT_FOUND = "UNKNOWN_TOPIC_OR_PARTITION"

TASK_BYTES = 256 * 1024 * 1024
TASK_PARTITIONS = 100
"""A task reads one partition, or several small ones, up to this number and this many bytes."""
MARKERS_WITHIN_BYTES = 1024 * 1024
"""Transaction markers are counted only that far from the log's end, so that little is read. A marker has 78 bytes, so
13,000 of them are counted. Where more is unread, it is hardly ever markers alone."""
LISTING_THREADS = 16
LOCATE_TASKS = 200

Row = tuple[Any, ...]


@dataclass(frozen=True)
class LogSegmentsOptions:
    """What to read. URIs may contain passwords, so `repr` does not show them."""

    log_dirs: tuple[str, ...] = field(repr=False)
    topics: NameFilter

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> LogSegmentsOptions:
        """Options from strings, by lower-case name. Raises ConfigError naming an option that is unknown or wrong."""
        refuse_unknown(options, ("log_dirs", "topics_allow", "topics_deny"))
        log_dirs = several(options.get("log_dirs"))
        if not log_dirs:
            raise ConfigError("option 'log_dirs' is missing: give a path or URI, or several separated by commas")
        return cls(log_dirs, NameFilter(options.get("topics_allow"), options.get("topics_deny")))


@dataclass
class PartitionDirs(InputPartition):
    """What one executor task reads."""

    items: Sequence[PartitionDir]


class LogSegmentsSource(DataSource):
    """Options: `log_dirs`, paths or URIs separated by commas; `topics_allow`, `topics_deny`, regular expressions."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "kafka_log_segments"

    def schema(self) -> StructType:
        """A row for each batch; `position_bytes` counts from the partition's first local segment to the batch.

        What cannot be read is a row with an error and without a batch, at the position from which on it is missing.
        """
        return BATCHES

    def reader(self, schema: StructType) -> LogSegmentsReader:
        """The reader that Spark sends to the executors."""
        return LogSegmentsReader(LogSegmentsOptions.parse(dict(self.options)))


class LogSegmentsReader(DataSourceReader):
    """Lists directories on the driver, reads files on executors."""

    def __init__(self, options: LogSegmentsOptions) -> None:
        self.options = options

    def partitions(self) -> Sequence[PartitionDirs]:
        """Raises ConfigError for a log directory that cannot be listed."""
        passes = self.options.topics.matcher()
        found = [item for log_dir in self.options.log_dirs for item in list_partitions(log_dir) if passes(item.topic)]
        with ThreadPoolExecutor(LISTING_THREADS) as pool:  # an object store is slow, but answers many requests at once
            logs = list(pool.map(open_log, found))
        sizes = [log.size_bytes if log else 0 for log in logs]
        return [PartitionDirs(items) for items in bunches(found, sizes)] or [PartitionDirs(())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Arrow batches of one task's partitions."""
        schema = to_arrow_schema(BATCHES)
        rows = (row for item in cast(PartitionDirs, partition).items for row in batch_rows(item))
        while chunk := list(islice(rows, MAX_BATCH_ROWS)):
            columns = zip(*chunk, strict=True)
            arrays = [pa.array(values, f.type) for f, values in zip(schema, columns, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def bunches(items: Sequence[PartitionDir], sizes: Sequence[int]) -> list[list[PartitionDir]]:
    """The items in order, grouped into what one task reads; sizes are in bytes."""
    bunched: list[list[PartitionDir]] = []
    room = 0
    for item, size in zip(items, sizes, strict=True):
        if not bunched or size > room or len(bunched[-1]) == TASK_PARTITIONS:
            bunched.append([])
            room = TASK_BYTES
        bunched[-1].append(item)
        room -= size
    return bunched


def batch_rows(item: PartitionDir) -> Iterator[Row]:
    """The rows of one partition, in the order of the log."""
    log = open_log(item)
    topic_id = log.topic_id if log else None
    known = (item.topic, topic_id, item.partition, redacted(item.log_dir))
    if log is None or not log.segments:
        reason = log.end.error if log else f"{NOT_FOUND}: it was deleted while the log directory was read"
        yield (*known, *[None] * 11, reason)
        return
    for segment, before in zip(log.segments, log.positions, strict=True):
        yield from (known + row for row in _segment_rows(segment, before))


def _segment_rows(segment: Segment, before: int) -> Iterator[Row]:
    scan = segment.scan()
    for batch in scan:
        yield (segment.base_offset, *_batch_columns(batch, before))
    if scan.error is not None:
        yield (segment.base_offset, None, None, before + scan.end, *[None] * 7, scan.error)


def _batch_columns(batch: Batch, before: int) -> Row:
    return (
        batch.base_offset,
        batch.last_offset,
        before + batch.position,
        batch.size,
        batch.record_count,
        batch.max_timestamp_ms,
        batch.timestamp_type,
        batch.codec,
        batch.is_transactional,
        batch.is_control,
        None,
    )


def locate(offsets: DataFrame, log_dirs: Sequence[str]) -> DataFrame:
    """Where offsets are: a row of OFFSET_LOCATIONS for each row of `offsets` (topic, partition, offset).

    position_bytes, bytes_to_end (KIP-532's byte lag) and timestamp_ms are those of the batch that holds the offset, see
    `OffsetLocation`. They are NULL, with an error, for an offset that is not in a local segment or is in a damaged
    part, and for a partition that is in none of the directories. topic_id is read from the files, NULL before Kafka
    2.8. newest_timestamp_ms is that of the active segment (KIP-532's time lag counts from it). markers_to_end is how
    many transaction markers there are from the offset on; it is NULL if more than MARKERS_WITHIN_BYTES follow.

    If a partition is in several directories, for example of two brokers, the one with the greatest log end offset is
    taken, or the first of equal ones; log_dir says which. Only executors read the files. Raises ConfigError if no
    directory is given.
    """
    dirs = tuple(log_dirs)
    if not dirs:
        raise ConfigError("no log directory is given")

    def locate_in_partition(key: tuple[Any, ...], group: pa.Table) -> pa.Table:
        topic, partition = (value.as_py() for value in key)
        columns = zip(*location_rows(topic, partition, group.column("offset").to_pylist(), dirs), strict=True)
        schema = to_arrow_schema(OFFSET_LOCATIONS)
        return pa.Table.from_arrays([pa.array(v, f.type) for f, v in zip(schema, columns, strict=True)], schema=schema)

    types = {"topic": "string", "partition": "int", "offset": "bigint"}
    asked = offsets.select([F.col(name).cast(kind).alias(name) for name, kind in types.items()])
    # By default, Spark would put these few rows into one task, however long it takes to read the logs.
    spread = asked.repartition(_tasks(offsets), "topic", "partition")
    return spread.groupBy("topic", "partition").applyInArrow(locate_in_partition, OFFSET_LOCATIONS)


def location_rows(
    topic: str | None, partition: int | None, offsets: Sequence[int | None], log_dirs: Sequence[str]
) -> Iterator[Row]:
    """The rows of OFFSET_LOCATIONS for offsets of one partition."""
    log_dir, log = _longest(topic, partition, log_dirs)
    if log is None:
        reason = f"{NOT_FOUND}: not in {', '.join(map(redacted, log_dirs))}"
        yield from ((topic, partition, offset, *[None] * 6, reason, None, None) for offset in offsets)
        return
    newest, damage = log.newest
    locations = [OffsetLocation(error="no offset") if offset is None else log.at(offset) for offset in offsets]
    counts = _markers_to_end(log, offsets, locations)
    for offset, at, markers in zip(offsets, locations, counts, strict=True):
        error = at.error or log.end.error or damage
        values = (at.position_bytes, at.bytes_to_end, at.timestamp_ms, log.end.offset, newest)
        yield (topic, partition, offset, *values, redacted(log_dir), error, log.topic_id, markers)


def _markers_to_end(
    log: PartitionLog, offsets: Sequence[int | None], locations: Sequence[OffsetLocation]
) -> list[int | None]:
    """The column markers_to_end of offsets with these locations, counted in one scan."""
    is_near = [at.bytes_to_end is not None and at.bytes_to_end <= MARKERS_WITHIN_BYTES for at in locations]
    starts = [
        at.position_bytes for at, near in zip(locations, is_near, strict=True) if near and at.position_bytes is not None
    ]
    markers = log.markers_from(min(starts)) if starts else None
    if markers is None:
        return [None] * len(offsets)
    return [
        len(markers) - bisect_left(markers, offset) if near and offset is not None else None
        for offset, near in zip(offsets, is_near, strict=True)
    ]


def _longest(
    topic: str | None, partition: int | None, log_dirs: Sequence[str]
) -> tuple[str, PartitionLog] | tuple[str, None]:
    """The directory and the log with the greatest log end offset; a log that cannot be read counts as the shortest."""
    if topic is None or partition is None:
        return "", None
    found = [(d, log) for d in log_dirs if (log := open_log(PartitionDir(d, topic, partition)))]
    return max(found, key=lambda item: -1 if item[1].end.offset is None else item[1].end.offset, default=("", None))


def _tasks(frame: DataFrame) -> int:
    setting = own_setting(frame.sparkSession, "spark.sql.shuffle.partitions")
    return int(setting) if setting.isdigit() else LOCATE_TASKS
