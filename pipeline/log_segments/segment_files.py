"""Reads the segment files of a Kafka log without asking a broker: each batch with its exact position and timestamp.

A broker may be writing the files, or may have left them after a crash. Only the headers of record batches are read,
never records. The formats are those of LogFileUtils, DefaultRecordBatch, OffsetIndex and TimeIndex. No content of a
file raises an exception: `error` is Kafka's error name and, after a colon, what is wrong.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import fs

from pipeline.common.epoch import record_time
from pipeline.common.files import FAILURES, open_file

HEADER = struct.Struct(">qiibIhiqqqhii")
BEFORE_LENGTH = 12
"""Bytes of a batch that its own length field does not count: base offset and length."""
LEAST_LENGTH = HEADER.size - BEFORE_LENGTH
MAGIC, CRC = 16, slice(12, 16)
MOST_OFFSET = 2**62
"""No log has this many records. Below it, the offset after a batch, and the difference of any two, is a bigint."""
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

FIRST_BLOCK, LAST_BLOCK = 64 * 1024, 4 * 1024 * 1024
INDEX_BLOCK = 256 * 1024
MOST_INDEX = 64 * 1024 * 1024
"""The most that is read of an index, which has 10 MiB by default. Batches after that are found without it."""
INDEX = np.dtype([("offset", ">i4"), ("position", ">i4")])
TIME_INDEX = np.dtype([("timestamp_ms", ">i8"), ("offset", ">i4")])


CORRUPT = "CORRUPT_MESSAGE"
OLD_FORMAT = "UNSUPPORTED_FOR_MESSAGE_FORMAT"
STORAGE = "KAFKA_STORAGE_ERROR"


class Batch(NamedTuple):
    """A record batch, as its header describes it. `position` is that of its first byte in the file.

    `max_timestamp_ms` is NULL if it is no time. If compaction has removed all records of a batch, `count` is 0.
    """

    base_offset: int
    last_offset: int
    position: int
    size: int
    record_count: int
    max_timestamp_ms: int | None
    attributes: int

    @property
    def codec(self) -> str | None:
        """How the records are compressed; NULL for an unknown codec."""
        number = self.attributes & 0b111
        return CODECS[number] if number < len(CODECS) else None

    @property
    def timestamp_type(self) -> str:
        """Whose clock set the timestamps."""
        return "LogAppendTime" if self.attributes & 0b1000 else "CreateTime"

    @property
    def is_transactional(self) -> bool:
        """Whether it is part of a transaction: its records, or its marker."""
        return bool(self.attributes & 0b1_0000)

    @property
    def is_control(self) -> bool:
        """Whether it is a marker of the broker, which takes an offset, but is not a record."""
        return bool(self.attributes & 0b10_0000)


class Ending(Enum):
    """Why a file has no further batch, although its end is not reached."""

    PREALLOCATED = "zeros"
    CUT = "a batch that goes on beyond the end"
    DAMAGED = "no header of a batch"
    OLD = "a message set of an old format"


def parse_header(head: bytes, position: int, room: int, least_offset: int) -> Batch | Ending:
    """The batch that begins with these bytes, which are a header, or all that is left of the file.

    `room` is the number of bytes up to the end of the file. No offset of the batch may be below `least_offset`.
    """
    if not any(head[8:12]) and not any(head):
        return Ending.PREALLOCATED
    # A partly written header also looks like magic 0, but has zeros where old messages have their CRC.
    if position == 0 and len(head) > MAGIC and head[MAGIC] < 2 and any(head[CRC]):
        return Ending.OLD
    if len(head) < HEADER.size:
        return Ending.CUT
    base, length, _, magic, _, attributes, delta, _, newest, _, _, _, count = HEADER.unpack(head)
    is_in_order = least_offset <= base <= MOST_OFFSET and delta >= 0
    if magic != 2 or length < LEAST_LENGTH or not is_in_order or count < 0:
        return Ending.DAMAGED
    size = BEFORE_LENGTH + length
    if size > room:
        return Ending.CUT
    return Batch(base, base + delta, position, size, count, record_time(newest), attributes)


def parse_index(data: bytes, kind: np.dtype[np.void]) -> NDArray[np.void]:
    """The entries of an index, as long as both fields increase; then preallocated zeros begin. Offsets are relative."""
    entries = np.frombuffer(data, kind, len(data) // kind.itemsize)
    first, second = (entries[name].astype(np.int64) for name in kind.names or ())
    rises = (np.diff(first, prepend=0) > 0) & (np.diff(second, prepend=-1) > 0)
    return entries if rises.all() else entries[: rises.argmin()]


class Blocks:
    """A file's bytes, read in blocks of doubling size: look-ups read little, and scans make few requests to a store."""

    def __init__(self, file: Any, size: int) -> None:
        self._file, self._size = file, size
        self._data, self._start = b"", 0
        self._block = FIRST_BLOCK

    def at(self, position: int, length: int) -> bytes:
        """`length` bytes from a position, or fewer if the file ends before."""
        if not self._start <= position <= self._start + len(self._data) - length:
            self._data = self._file.read_at(min(self._block, self._size - position), position)
            self._start = position
            self._block = min(2 * self._block, LAST_BLOCK)
        return self._data[position - self._start : position - self._start + length]


class Scan:
    """The batches of a segment from a position on, which must be the first byte of a batch. It can be iterated once.

    After that, `end` is where the last complete batch ends, and `error` says why this is not the end of the file. It is
    NULL if it is the end, or if what follows is preallocated, is being written, or has just been cut off.
    """

    def __init__(self, segment: Segment, start: int) -> None:
        self.segment = segment
        self.end = start
        self.error: str | None = None

    def __iter__(self) -> Iterator[Batch]:
        segment, least_offset = self.segment, self.segment.base_offset
        try:
            with segment.opened("log") as file:
                blocks = Blocks(file, segment.size)
                while self.end < segment.size:
                    head = blocks.at(self.end, HEADER.size)
                    batch = parse_header(head, self.end, segment.size - self.end, least_offset)
                    if isinstance(batch, Ending):
                        self.error = self._why(batch)
                        return
                    yield batch
                    self.end += batch.size
                    least_offset = batch.last_offset + 1
        except FAILURES as exc:
            self.error = f"{STORAGE}: {segment.name}: {exc}"

    def _why(self, ending: Ending) -> str | None:
        segment = self.segment
        if ending is Ending.PREALLOCATED or (ending is Ending.CUT and segment.has_changed()):
            return None
        if ending is Ending.OLD:
            return f"{OLD_FORMAT}: {segment.name} has messages of before Kafka 0.11 (magic 0 or 1)"
        where = f"byte {self.end} of {segment.size}"
        return f"{CORRUPT}: {segment.name} has {ending.value} at {where}: torn, or being written"


class Tail(NamedTuple):
    """The end of a segment: the offset after its last record, and the byte after it. `error` is as in Scan."""

    next_offset: int
    end: int
    error: str | None


@dataclass(frozen=True)
class Segment:
    """A `.log` file and its indexes. The size is that at the time of listing."""

    files: fs.FileSystem
    path: str
    base_offset: int
    size: int

    @property
    def name(self) -> str:
        """The name of the file."""
        return self.path.rpartition("/")[2]

    def opened(self, suffix: str) -> pa.NativeFile:
        """The segment's file with this suffix, opened. Raises one of FAILURES."""
        return open_file(self.files, f"{self.path.removesuffix('log')}{suffix}", self.path.rpartition("/")[0])

    def has_changed(self) -> bool:
        """Whether its size has changed since it was listed.

        Batches are appended, and when the segment is full, the preallocated rest is cut off
        (LogSegment.onBecomeInactiveSegment).
        """
        size = self.files.get_file_info(self.path).size
        return size is not None and size != self.size

    def scan(self, start: int = 0) -> Scan:
        """The batches from a position on."""
        return Scan(self, start)

    def find(self, offset: int) -> tuple[Batch | None, str | None]:
        """The first batch whose last offset is not below `offset` (LogSegment.read), or an error.

        There is neither if all batches end below the offset. The index may be wrong: it is trusted only if it leads to
        a valid header of a batch that begins at or below the offset, because then no earlier batch can reach it.
        """
        start = self._indexed(offset)
        if start:
            scan = self.scan(start)
            batches = iter(scan)
            first = next(batches, None)
            if first is not None and first.base_offset <= offset:
                found = _reaching(chain([first], batches), offset)
                if found is not None or scan.error is None:
                    return found, None
        scan = self.scan()
        found = _reaching(scan, offset)
        return found, scan.error if found is None else None

    @cached_property
    def tail(self) -> Tail:
        """The end of the segment, found from the last batch in the index."""
        start = int(self._index["position"][-1]) if len(self._index) else 0
        tail = self._tail(start)
        return self._tail(0) if start and (tail.end == start or tail.error is not None) else tail

    def newest_timestamp_ms(self) -> tuple[int | None, str | None]:
        """The greatest timestamp of all batches, and an error if they cannot be read to the end.

        An entry of the time index has the greatest timestamp so far and its offset, so only the batches after it need a
        scan (LogSegment.readLargestTimestamp). The entry is trusted only if that batch has that timestamp.
        """
        known = self._newest_known()
        scan = self.scan(known.position if known else 0)
        stamps = (b.max_timestamp_ms for b in scan if b.max_timestamp_ms is not None)
        return max(stamps, default=None), scan.error

    def _tail(self, start: int) -> Tail:
        next_offset = self.base_offset
        scan = self.scan(start)
        for batch in scan:
            next_offset = batch.last_offset + 1
        return Tail(next_offset, scan.end, scan.error)

    def _newest_known(self) -> Batch | None:
        entries = self._entries("timeindex", TIME_INDEX)
        offsets = self.base_offset + entries["offset"].astype(np.int64)
        # Entries written after the file was listed lead to batches beyond its end.
        last = int(np.searchsorted(offsets, self.tail.next_offset)) - 1
        batch = self.find(int(offsets[last]))[0] if last >= 0 else None
        return batch if batch and batch.max_timestamp_ms == entries["timestamp_ms"][last] else None

    def _indexed(self, offset: int) -> int:
        entry = int(np.searchsorted(self._index["offset"], offset - self.base_offset, side="right")) - 1
        return int(self._index["position"][entry]) if entry >= 0 else 0

    @cached_property
    def _index(self) -> NDArray[np.void]:
        entries = self._entries("index", INDEX)
        return entries[entries["position"] < self.size]

    def _entries(self, suffix: str, kind: np.dtype[np.void]) -> NDArray[np.void]:
        """The entries of an index; none if the index does not exist."""
        data = b""
        try:
            with self.opened(suffix) as file:
                while len(parse_index(data, kind)) == len(data) // kind.itemsize:  # until the preallocated part
                    # Doubled, so that parsing it anew each time is linear work.
                    block = file.read_at(min(max(INDEX_BLOCK, len(data)), MOST_INDEX - len(data)), len(data))
                    data += block
                    if len(block) < INDEX_BLOCK:
                        break
        except FAILURES:
            data = b""
        return parse_index(data, kind)


def _reaching(batches: Iterable[Batch], offset: int) -> Batch | None:
    return next((b for b in batches if b.last_offset >= offset), None)
