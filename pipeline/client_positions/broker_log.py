"""Reads the files of one broker's request log. Each batch continues where the previous one ended."""

from __future__ import annotations

import hashlib
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import fs

from pipeline.client_positions.log_layouts import first_time_ms
from pipeline.client_positions.position import FUTURE_MS, count, integer, stored_name, time_ms
from pipeline.client_positions.request_log import REFUSED, Refused, RequestLog
from pipeline.client_positions.request_memory import SILENT_MS
from pipeline.common.epoch import now_ms
from pipeline.common.files import FAILURES, PACKED, entries, open_file, open_filesystem, open_unpacked, redacted

NAMED = "request"
"""In a folder, only files with this in their names are read, because Kafka writes its other logs there, too."""
BLOCK_BYTES = 1024**2
LINE_BYTES = 16 * 1024**2
"""The longest line that is read: that of a client with 30,000 partitions. Damaged files may have endless lines."""
HEAD_BYTES = 1_024


@dataclass
class _Known:
    """How far a file has been read, counted in unpacked bytes.

    The file is identified by a hash of its first bytes, because it may be renamed and compressed.
    """

    head_bytes: int = 0
    head: str = ""
    position: int = 0
    lines: int = 0
    listed_ms: int = 0
    whole: list[Any] | None = None
    """The file's name, size and modification time when all of it had been read."""

    @classmethod
    def of(cls, kept: Mapping[str, Any]) -> _Known:
        """The object from JSON. Raises KeyError, TypeError or ValueError if it is not valid."""
        known = cls(**kept)
        count(known.head_bytes, below=HEAD_BYTES + 1)
        stored_name(known.head)
        for number in (known.position, known.lines):
            count(number)
        time_ms(known.listed_ms)
        if known.whole is not None:
            name, size, changed_ns = known.whole
            known.whole = [stored_name(name), count(size), integer(changed_ns)]
        return known


@dataclass
class _File:
    """A file as it was listed, and its first bytes."""

    name: str
    info: fs.FileInfo
    head: bytes
    known: _Known
    refused: Refused = field(default_factory=Refused)

    @property
    def is_packed(self) -> bool:
        """Whether it is compressed, by its name."""
        return str(self.info.extension) in PACKED


class BrokerLog:
    """One broker's log, in one file, or in several if it is rolled over.

    A batch reads at most `most_bytes`, and after `until_ms` (epoch ms) only one block. So each batch reads a part of
    each log, however long its task had to wait. The next batch continues there.
    """

    def __init__(self, path: str, log: RequestLog, most_bytes: int, until_ms: float = math.inf) -> None:
        self.log = log
        self.errors: list[tuple[str, str]] = []  # where, and what
        self._path = path
        self._known: list[_Known] = []
        self._most_bytes = self._left_bytes = most_bytes
        self._until_ms = until_ms

    def resume(self, state: Mapping[str, Any], log: RequestLog) -> None:
        """Continues from a `state`. Raises KeyError, TypeError or ValueError if it is not valid."""
        self._known, self.log = [_Known.of(kept) for kept in state["files"]], log

    def state(self) -> dict[str, Any]:
        """How far the log has been read, as values that JSON can hold."""
        return {"files": [asdict(known) for known in self._known], "log": self.log.state()}

    def read(self) -> None:
        """Reads the new lines, the oldest file first. Adds to `errors` each file that cannot be read, and why."""
        self.log.latest_ms = now_ms() + FUTURE_MS
        files, unchanged = self._listed()
        for file in files:
            if bound := self._read_new_lines(file):
                self.errors.append((location_name(self._path), f"{bound}: some lines were not read"))
                break
        self.log.forget()
        if forgotten := [f"{number} {what}" for what, number in self.log.memory.forgotten.items() if number]:
            what = f"too much to remember, so the oldest were forgotten ({', '.join(forgotten)})"
            self.errors.append((location_name(self._path), what))
        self._say_why_there_is_no_position()
        at_ms = self.log.at_ms or 0
        read = [file.known for file in files if file.known.position]
        for known in unchanged + read:
            known.listed_ms = at_ms
        self._known += [known for known in read if known not in self._known]
        # Files are remembered for a while, as one may be missing while it is renamed. A new one needs a complete line.
        self._known = [k for k in self._known if k.position and k.listed_ms >= at_ms - SILENT_MS]

    def read_newest(self) -> None:
        """Reads the newest file alone, up to the limits, as a check. Nothing is forgotten, and no limit is an error."""
        self.log.latest_ms = now_ms() + FUTURE_MS
        files, _ = self._listed()
        for file in files[-1:]:
            self._read_new_lines(file)
        self._say_why_there_is_no_position()

    def _say_why_there_is_no_position(self) -> None:
        if not self.errors and (why := self.log.why_no_position()):
            self.errors.append((location_name(self._path), why))

    def _files(self) -> dict[str, fs.FileInfo]:
        """The files of the log, by the name that is used in errors."""
        files, inside = open_filesystem(self._path)
        try:
            info = files.get_file_info(inside)
            if info.type == fs.FileType.File:
                return {location_name(self._path): info}
            found = entries(files.get_file_info(fs.FileSelector(inside)), fs.FileType.File)
        except FAILURES as error:
            self.errors.append(
                (location_name(self._path), f"is not a file or folder that can be read: {type(error).__name__}")
            )
            return {}
        is_local = isinstance(files, fs.LocalFileSystem)  # there, links are not followed
        named = {
            f"{location_name(self._path)}/{name}": info
            for name, info in found.items()
            if NAMED in name and not (is_local and Path(info.path).is_symlink())
        }
        if not named:
            self.errors.append((location_name(self._path), f"no file in the folder has {NAMED!r} in its name"))
        return named

    def _listed(self) -> tuple[list[_File], list[_Known]]:
        """Files that may have new lines, the oldest first, and what is known of the files that have not changed.

        If there are several copies of a file, only the longest is read.
        """
        listed, read_whole = self._files(), {tuple(k.whole): k for k in self._known if k.whole}
        unchanged = [read_whole[key] for key in map(_seen, listed.values()) if key in read_whole]
        found: dict[str, _File] = {}
        for name, info in listed.items():
            if _seen(info) in read_whole:
                continue
            try:
                with self._opened(info, open_unpacked) as stream:
                    head = stream.read(HEAD_BYTES)
            except FAILURES as error:
                self.errors.append((name, f"cannot be read: {type(error).__name__}"))
                continue
            file = _File(name, info, head, self._known_by(head))
            key = file.known.head or _hash(head)
            is_copy = file.known in unchanged or (key in found and _length(found[key]) >= _length(file))
            if head and not is_copy:
                found[key] = file
        return sorted(found.values(), key=self._begun), unchanged

    def _known_by(self, head: bytes) -> _Known:
        known = [k for k in self._known if _hash(head[: k.head_bytes]) == k.head]
        return max(known, key=lambda k: k.head_bytes, default=_Known())

    def _begun(self, file: _File) -> tuple[int, int]:
        changed_ns = file.info.mtime_ns or 0
        begun_ms = first_time_ms(file.head.decode(errors="replace"), self.log.zone)
        return (changed_ns // 1_000_000 if begun_ms is None else begun_ms), changed_ns

    def _read_new_lines(self, file: _File) -> str | None:
        """Reads the new lines of a file, except an incomplete last one. Returns which limit ended this, if one did."""
        known, rest, bound = file.known, b"", None
        try:
            for block in self._blocks(file):
                bound = self._bound()
                if bound:
                    break
                lines, end, rest = (rest + block).rpartition(b"\n")
                if len(rest) > LINE_BYTES:
                    lines, end, rest = lines + end + rest, b"", b""
                if lines or end:
                    self._parse_lines(file, lines, len(lines) + len(end))
            else:
                known.whole = [*_seen(file.info)]
        except FAILURES as error:
            self.errors.append((file.name, f"cannot be read from byte {known.position} on: {type(error).__name__}"))
        known.head_bytes = min(HEAD_BYTES, known.position)
        known.head = _hash(file.head[: known.head_bytes])
        if file.refused.count:
            self.errors.append((file.name, str(file.refused)))
        return bound

    def _bound(self) -> str | None:
        """Which limit was reached; None if none was."""
        if self._left_bytes <= 0:
            return f"more than {self._most_bytes} bytes are new"
        is_begun = self._left_bytes < self._most_bytes
        return "the read timeout was over" if is_begun and now_ms() > self._until_ms else None

    def _parse_lines(self, file: _File, lines: bytes, size: int) -> None:
        found = lines.decode(errors="replace").split("\n")
        for number, line in enumerate(found, file.known.lines + 1):
            try:
                self.log.read(line)
            except REFUSED as error:
                file.refused.add(number, error)
        file.known.lines += len(found)
        file.known.position += size
        self._left_bytes -= size

    def _blocks(self, file: _File) -> Iterator[bytes]:
        """The new bytes of a file, up to its listed size. A file that has become shorter is read from its beginning."""
        known = file.known
        end = sys.maxsize if file.is_packed else file.info.size
        if end < known.position:
            known.position = known.lines = 0
        begin = known.position
        with self._opened(file.info, open_unpacked if file.is_packed else open_file) as stream:
            head = stream.read(HEAD_BYTES)
            if not head.startswith(file.head):
                raise FileNotFoundError(file.name)  # the file was rolled over after it was listed
            at = len(head)
            while file.is_packed and at < begin and (block := stream.read(min(BLOCK_BYTES, begin - at))):
                at += len(block)
            at = at if file.is_packed else stream.seek(max(at, begin))
            if at < begin:
                known.position = known.lines = 0
                yield from self._blocks(file)
                return
            head = head[begin:end]
            while block := head + (more := stream.read(min(BLOCK_BYTES, self._most_bytes, max(0, end - at)))):
                at, head = at + len(more), b""
                yield block

    def _opened(self, info: fs.FileInfo, opened: Callable[..., pa.NativeFile]) -> pa.NativeFile:
        files, inside = open_filesystem(self._path)
        return opened(files, info.path, None if info.path == inside else inside)


def location_name(path: str) -> str:
    """A path or URI as it may be shown: without passwords, and without a slash at its end."""
    return redacted(path).rstrip("/")


def _seen(info: fs.FileInfo) -> tuple[Any, ...]:
    return info.base_name, info.size, info.mtime_ns


def _length(file: _File) -> tuple[bool, int]:
    return not file.is_packed, file.info.size


def _hash(head: bytes) -> str:
    return hashlib.sha256(head).hexdigest()[:32]
