"""A broker's log directories: which partitions they have, and the byte position of an offset in a partition's log.

A log directory is a local folder, or a URI, for example in an object store. Sizes are those at the moment when a
partition was listed, so the values of one `PartitionLog` are consistent, however much is written meanwhile.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

from pyarrow import fs

from pipeline.common.errors import ConfigError
from pipeline.common.files import FAILURES, entries, open_file, open_filesystem, redacted
from pipeline.log_segments.segment_files import CORRUPT, STORAGE, Segment

PARTITION_NAME = re.compile(r"(?P<topic>[A-Za-z0-9._-]{1,249})-(?P<partition>0|[1-9][0-9]{0,9})")
"""Directories that end with -delete, -future or -stray do not match, because they do not end with a number."""
SEGMENT_NAME = re.compile(r"([0-9]{20})\.log")
TOPIC_ID = re.compile(r"^topic_id: ([A-Za-z0-9_-]{22})$", re.MULTILINE)
NO_TOPIC_ID = "A" * 22
OUT_OF_RANGE = "OFFSET_OUT_OF_RANGE"


class LogEnd(NamedTuple):
    """The log end offset, and how many bytes of complete batches there are from the first local segment on.

    Both are NULL if the newest segment cannot be read. If they have a value and there is an error, the error says what
    follows the intact part.
    """

    offset: int | None
    position_bytes: int | None
    error: str | None


class OffsetLocation(NamedTuple):
    """Where an offset is: at the batch that has it, or at the next one if compaction has removed it.

    position_bytes: from the first byte of the first local segment to the first byte of the batch.
    bytes_to_end: from the first byte of the batch to the log's end (KIP-532's byte lag); 0 at the log end.
    timestamp_ms: the batch's greatest timestamp; NULL at the log end.
    If there is an error, all are NULL.
    """

    position_bytes: int | None = None
    bytes_to_end: int | None = None
    timestamp_ms: int | None = None
    error: str | None = None


@dataclass(frozen=True)
class PartitionLog:
    """A partition's local segments as they were listed, or the error if they could not be listed."""

    files: fs.FileSystem
    path: str
    segments: tuple[Segment, ...]
    error: str | None = None

    @property
    def first_local_offset(self) -> int | None:
        """Where the first local segment begins: after DeleteRecords, up to a segment below log start."""
        return self.segments[0].base_offset if self.segments else None

    @property
    def size_bytes(self) -> int:
        """The length of all files, as DescribeLogDirs reports it."""
        return sum(s.size for s in self.segments)

    @cached_property
    def positions(self) -> list[int]:
        """How many bytes lie before each segment."""
        return list(accumulate((s.size for s in self.segments[:-1]), initial=0))

    @cached_property
    def topic_id(self) -> str | None:
        """The topic's id, 22 characters of base64url; NULL before Kafka 2.8."""
        try:
            with open_file(self.files, f"{self.path}/partition.metadata", self.path) as file:
                found = TOPIC_ID.search(file.read(1_024).decode(errors="replace"))
        except FAILURES:
            return None
        return found[1] if found and found[1] != NO_TOPIC_ID else None

    @cached_property
    def end(self) -> LogEnd:
        """The log's end: where the intact part of the newest segment ends."""
        if not self.segments:
            return LogEnd(None, None, self.error or f"{STORAGE}: no segment")
        tail = self.segments[-1].tail
        if tail.error is not None and not tail.error.startswith(CORRUPT):
            return LogEnd(None, None, tail.error)
        return LogEnd(tail.next_offset, self.positions[-1] + tail.end, tail.error)

    @cached_property
    def newest(self) -> tuple[int | None, str | None]:
        """The greatest timestamp in the active segment (KIP-532's time lag counts from it), or the error of reading it.

        Control batches count, too. If the active segment is empty, it is the timestamp of the newest segment that is
        not. It is NULL if all segments are empty, or no producer set a timestamp. If there is a timestamp and an error,
        the timestamp is that of the intact part.
        """
        for segment in reversed(self.segments):
            newest, error = segment.newest_timestamp_ms()
            if newest is not None or error is not None:
                return newest, error
        return None, self.error

    def at(self, offset: int) -> OffsetLocation:
        """Where an offset is; an error if it is below the first local offset, beyond the end, or in a damaged part."""
        end, first = self.end, self.first_local_offset
        if end.offset is None or end.position_bytes is None or first is None:
            return OffsetLocation(error=end.error)
        if not first <= offset <= end.offset:
            return OffsetLocation(error=f"{OUT_OF_RANGE}: local offsets go from {first} to {end.offset}")
        if offset == end.offset:
            return OffsetLocation(end.position_bytes, 0)
        begin = bisect_right(self.segments, offset, key=lambda s: s.base_offset) - 1
        for segment, before in zip(self.segments[begin:], self.positions[begin:], strict=True):
            batch, error = segment.find(offset)
            if error is not None:
                return OffsetLocation(error=error)
            if batch is not None:
                position = before + batch.position
                return OffsetLocation(position, end.position_bytes - position, batch.max_timestamp_ms)
        return OffsetLocation(error=f"{STORAGE}: the log was truncated while it was read")

    def markers_from(self, position_bytes: int) -> list[int] | None:
        """The offsets of the control batches from the first byte of a batch to the log's end, in order.

        None if these batches cannot all be read: some are damaged, or were cut off or deleted meanwhile. Each control
        batch has one record. Compaction may have removed it and kept the batch; no reader gets its offset either way.
        """
        found: list[int] = []
        first = bisect_right(self.positions, position_bytes) - 1
        for segment, before in zip(self.segments[first:], self.positions[first:], strict=True):
            scan = segment.scan(max(position_bytes - before, 0))
            found.extend(batch.base_offset for batch in scan if batch.is_control)
            end = segment.tail.end if segment is self.segments[-1] else segment.size
            if scan.end < end:
                return None
        return found


class PartitionDir(NamedTuple):
    """A partition's directory. `log_dir` is the path or URI of its log directory, as it was given."""

    log_dir: str
    topic: str
    partition: int


def list_partitions(log_dir: str) -> list[PartitionDir]:
    """The partitions in a log directory, sorted, without those that are being deleted or moved, or are stray.

    Raises ConfigError if the directory does not exist.
    """
    files, path = open_filesystem(log_dir)
    try:
        names = entries(files.get_file_info(fs.FileSelector(path)), fs.FileType.Directory)
    except FAILURES as exc:
        raise ConfigError(f"log directory {redacted(log_dir)!r} cannot be listed: {exc}") from None
    matches = filter(None, map(PARTITION_NAME.fullmatch, names))
    return sorted(PartitionDir(log_dir, m["topic"], int(m["partition"])) for m in matches if _is_int32(m["partition"]))


def open_log(where: PartitionDir) -> PartitionLog | None:
    """A partition's segments as they are now; None if the partition is not in the log directory.

    Raises ConfigError for a URI that pyarrow does not know.
    """
    name = f"{where.topic}-{where.partition}"
    if not PARTITION_NAME.fullmatch(name):  # a name from outside might lead out of the directory
        return None
    files, root = open_filesystem(where.log_dir)
    path = f"{root.rstrip('/')}/{name}"
    try:
        found = entries(files.get_file_info(fs.FileSelector(path)), fs.FileType.File)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except FAILURES as exc:
        return PartitionLog(files, path, (), f"{STORAGE}: {exc}")
    bases = {int(m[1]): info.size for name, info in found.items() if (m := SEGMENT_NAME.fullmatch(name))}
    segments = (Segment(files, f"{path}/{base:020}.log", base, bases[base]) for base in sorted(bases) if base < 1 << 63)
    return PartitionLog(files, path, tuple(segments))


def _is_int32(digits: str) -> bool:
    return int(digits) < 1 << 31
