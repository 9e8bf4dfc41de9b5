"""The files of a Kafka log, read without Kafka: its batches, to the byte and the millisecond.

A broker may be writing them, or may have left them in a crash. Only the headers of record batches are read, never
records. Layout: LogFileUtils, DefaultRecordBatch, OffsetIndex, TimeIndex. No content of a file raises an exception:
`error` is Kafka's name of the error and, after a colon, what is wrong.
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
from numpy.typing import NDArray
from pyarrow import fs

from pipeline.files import FAILURES

HEADER = struct.Struct(">qiibIhiqqqhii")
BEFORE_LENGTH = 12
"""Bytes of a batch that its own length field does not count: base offset and length."""
LEAST_LENGTH = HEADER.size - BEFORE_LENGTH
MAGIC, CRC = 16, slice(12, 16)
MOST_OFFSET = 2**62
"""No log has so many records; the offset after a batch, and the distance of any two, is a bigint."""
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

FIRST_BLOCK, LAST_BLOCK = 64 * 1024, 4 * 1024 * 1024
INDEX_BLOCK = 256 * 1024
INDEX = np.dtype([("offset", ">i4"), ("position", ">i4")])
TIME_INDEX = np.dtype([("timestamp_ms", ">i8"), ("offset", ">i4")])


CORRUPT = "CORRUPT_MESSAGE"
OLD_FORMAT = "UNSUPPORTED_FOR_MESSAGE_FORMAT"
STORAGE = "KAFKA_STORAGE_ERROR"


class Batch(NamedTuple):
    """A record batch as its header gives it. `position` is that of its first byte in its file.

    `max_timestamp_ms` is NULL where the producer gave none. A batch of which compaction left no record has count 0.
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
        """How the records are compressed; NULL for one that is not known."""
        number = self.attributes & 0b111
        return CODECS[number] if number < len(CODECS) else None

    @property
    def timestamp_type(self) -> str:
        """Whose clock the timestamps are of."""
        return "LogAppendTime" if self.attributes & 0b1000 else "CreateTime"

    @property
    def is_transactional(self) -> bool:
        """Part of a transaction: its records, or its marker."""
        return bool(self.attributes & 0b1_0000)

    @property
    def is_control(self) -> bool:
        """A marker of the broker's; it takes an offset and is no record."""
        return bool(self.attributes & 0b10_0000)


class Ending(Enum):
    """Why a file holds no further batch, before its size is reached."""

    PREALLOCATED = "zeros"
    CUT = "a batch that goes on beyond the end"
    DAMAGED = "no header of a batch"
    OLD = "a message set of an old format"


def parse_header(head: bytes, position: int, room: int, least_offset: int) -> Batch | Ending:
    """The batch that begins with these bytes: a header's, or all that are left.

    `room` is how many bytes there were up to the end of the file; no offset of the batch is below `least_offset`.
    """
    if not any(head[8:12]) and not any(head):
        return Ending.PREALLOCATED
    # A header that was written in part reads as magic 0 too, but old messages have their CRC where that has zeros.
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
    return Batch(base, base + delta, position, size, count, newest if newest >= 0 else None, attributes)


def parse_index(data: bytes, kind: np.dtype[np.void]) -> NDArray[np.void]:
    """The entries of an index as far as both fields rise: preallocated zeros do not. Offsets are relative."""
    entries = np.frombuffer(data, kind, len(data) // kind.itemsize)
    first, second = (entries[name].astype(np.int64) for name in kind.names or ())
    rises = (np.diff(first, prepend=0) > 0) & (np.diff(second, prepend=-1) > 0)
    return entries if rises.all() else entries[: rises.argmin()]


class Blocks:
    """A file's bytes, in blocks that double: a look-up reads little, and a scan seldom asks an object store."""

    def __init__(self, file: Any, size: int) -> None:
        self._file, self._size = file, size
        self._data, self._start = b"", 0
        self._block = FIRST_BLOCK

    def at(self, position: int, length: int) -> bytes:
        """So many bytes, or as many as there are."""
        if not self._start <= position <= self._start + len(self._data) - length:
            self._data = self._file.read_at(min(self._block, self._size - position), position)
            self._start = position
            self._block = min(2 * self._block, LAST_BLOCK)
        return self._data[position - self._start : position - self._start + length]


class Scan:
    """The batches of a segment from a position on, which must be the first byte of one. To be iterated once.

    After that `end` is where the last whole batch ends, and `error` why that is not the end of the file: NULL if it is,
    or if what follows is preallocated, just being written or just cut off.
    """

    def __init__(self, segment: Segment, start: int) -> None:
        self.segment = segment
        self.end = start
        self.error: str | None = None

    def __iter__(self) -> Iterator[Batch]:
        segment, least_offset = self.segment, self.segment.base_offset
        try:
            with segment.files.open_input_file(segment.path) as file:
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
    """What a segment ends with: the offset after its last record, the byte after it. `error` as of a scan."""

    next_offset: int
    end: int
    error: str | None


@dataclass(frozen=True)
class Segment:
    """A `.log` file and its index. Its size is that of when it was listed."""

    files: fs.FileSystem
    path: str
    base_offset: int
    size: int

    @property
    def name(self) -> str:
        """The file's own name."""
        return self.path.rpartition("/")[2]

    def has_changed(self) -> bool:
        """Whether it has another size than when it was listed.

        It is appended to, and when it is full its preallocated rest is cut off (LogSegment.onBecomeInactiveSegment).
        """
        size = self.files.get_file_info(self.path).size
        return size is not None and size != self.size

    def scan(self, start: int = 0) -> Scan:
        """Its batches."""
        return Scan(self, start)

    def find(self, offset: int) -> tuple[Batch | None, str | None]:
        """The first batch whose last offset is not below `offset` (LogSegment.read), or why it is not known.

        Neither where all batches end below it. The index may lie: it is believed where it leads to a header, and that
        to batches that begin at or below the offset; no batch before them can reach it.
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
        """Its end, from the last batch that the index knows."""
        start = int(self._index["position"][-1]) if len(self._index) else 0
        tail = self._tail(start)
        return self._tail(0) if start and (tail.end == start or tail.error is not None) else tail

    def newest_timestamp_ms(self) -> tuple[int | None, str | None]:
        """The greatest timestamp of all batches, or why they cannot be read to the end.

        An entry of the time index is the greatest timestamp up to then and the offset that has it, so only what follows
        needs a scan (LogSegment.readLargestTimestamp). It is believed where that batch has that timestamp.
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
        # Entries that were written after the file was listed lead to batches beyond its end.
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
        """What an index has; nothing where there is none."""
        data = b""
        try:
            with self.files.open_input_file(f"{self.path.removesuffix('log')}{suffix}") as file:
                while len(parse_index(data, kind)) == len(data) // kind.itemsize:  # else the rest is preallocated
                    block = file.read_at(INDEX_BLOCK, len(data))
                    data += block
                    if len(block) < INDEX_BLOCK:
                        break
        except FAILURES:
            data = b""
        return parse_index(data, kind)


def _reaching(batches: Iterable[Batch], offset: int) -> Batch | None:
    return next((b for b in batches if b.last_offset >= offset), None)
