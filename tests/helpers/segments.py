"""A broker's log directories made by hand: batches, indexes and the folders of partitions."""

import struct
from collections.abc import Mapping
from pathlib import Path

from pipeline.log_segments.log_dirs import PartitionDir, PartitionLog, open_log


def opened(folder: Path, name: str = "t-0") -> PartitionLog:
    """The log of a partition in a log directory, opened."""
    topic, _, partition = name.rpartition("-")
    log = open_log(PartitionDir(str(folder), topic, int(partition)))
    assert log is not None
    return log


def batch(base: int, last: int, stamp_ms: int = 5_000, size: int = 100, attributes: int = 0, magic: int = 2) -> bytes:
    """A record batch in the format of DefaultRecordBatch, with 0xff in place of its records."""
    data = bytearray(b"\xff" * size)
    data[:61] = bytes(61)
    fields = {0: (8, base), 8: (4, size - 12), 16: (1, magic), 17: (4, 77), 21: (2, attributes), 23: (4, last - base)}
    fields |= {27: (8, stamp_ms), 35: (8, stamp_ms), 57: (4, last - base + 1)}
    for at, (width, value) in fields.items():
        data[at : at + width] = value.to_bytes(width, "big", signed=True)
    return bytes(data)


def old_message(magic: int, offset: int = 0) -> bytes:
    """A message in a format before 0.11: offset, size, CRC, magic, attributes, [timestamp,] key and value."""
    body = struct.pack(">IBb", 0xCAFE_F00D, magic, 0) + bytes(8 * magic) + struct.pack(">ii5s", -1, 5, b"hello")
    return struct.pack(">qi", offset, len(body)) + body


def write(folder: Path, files: Mapping[str, bytes], name: str = "t-0") -> Path:
    """Writes the files of a partition; the number of a segment is padded to 20 digits."""
    path = folder / name
    path.mkdir(parents=True, exist_ok=True)
    for file, data in files.items():
        base, _, suffix = file.partition(".")
        (path / f"{base:0>20}.{suffix}").write_bytes(data)
    return path


def index(*entries: tuple[int, int]) -> bytes:
    """An offset index with entries of (relative offset, position)."""
    return b"".join(struct.pack(">ii", *entry) for entry in entries)


def time_index(*entries: tuple[int, int]) -> bytes:
    """A time index with entries of (timestamp, relative offset)."""
    return b"".join(struct.pack(">qi", *entry) for entry in entries)


WHOLE = batch(0, 3, 900) + batch(4, 9, 700)
"""Batches with the offsets 0 to 9."""
