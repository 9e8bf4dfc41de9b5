"""The data source `kafka_request_log`: brokers' request logs, each read on from where the batch before ended."""

from __future__ import annotations

import csv
import gzip
import hashlib
import json
import sys
import time
import uuid
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, tzinfo
from itertools import islice
from pathlib import Path
from typing import Any, cast
from zoneinfo import ZoneInfo

import pyarrow as pa
from pyarrow import fs
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from pipeline.client_positions.metrics_source import POSITIONS, instant, one_line, positive, row_of
from pipeline.client_positions.position import refused
from pipeline.client_positions.request_log import MOST_CLIENTS, SILENT_MS, RequestLog, times_ms
from pipeline.data_source import refuse_unknown, several
from pipeline.errors import ConfigError
from pipeline.files import FAILURES, entries, open_filesystem, redacted

NAMED = "request"
"""What is in the names of a folder's files that are read: Kafka writes its other logs beside them."""
MOST_BYTES = 2 * 1024**3
BLOCK_BYTES = 1024**2
LINE_BYTES = 16 * 1024**2
"""The longest line that is read, that of a client with 30,000 partitions. Damaged files may have lines without end."""
HEAD_BYTES = 1_024
ROWS_PER_BATCH = 10_000
_DAMAGED = (AttributeError, EOFError, KeyError, OSError, TypeError, ValueError, zlib.error)


@dataclass(frozen=True)
class RequestLogOptions:
    """Where to read; URIs may hold passwords and are not shown. `zone` is the brokers', of the times in their logs.

    `state` is a folder or URI that all executors reach; without it each path is read from its beginning.
    """

    paths: tuple[str, ...] = field(repr=False)
    state: str | None = field(default=None, repr=False)
    batch: str | None = None
    topics_file: str | None = field(default=None, repr=False)
    most_bytes: int = MOST_BYTES
    zone: tzinfo = UTC

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> RequestLogOptions:
        """Options from strings, by lower-case name. Raises ConfigError naming an option that is unknown or wrong."""
        refuse_unknown(options, ("path", "state", "batch", "topics_file", "most_bytes", "timezone"))
        paths, state, batch = several(options.get("path")), options.get("state"), options.get("batch")
        if not paths:
            raise ConfigError("option 'path' is needed: a file or folder for each broker, several with commas")
        if len({_name(path) for path in paths}) < len(paths):
            raise ConfigError("option 'path' names a place twice")
        for place in (*paths, *filter(None, (state,))):
            open_filesystem(place)
        if bool(state) != bool(batch):
            raise ConfigError("options 'state' and 'batch' need each other")
        most_bytes = positive("most_bytes", options.get("most_bytes", str(MOST_BYTES)))
        return cls(paths, state, batch, options.get("topics_file"), most_bytes, _zone(options.get("timezone")))


class RequestLogSource(DataSource):
    """Options: `path`, a file or folder for each broker, several with commas. Of a folder it reads request logs.

    `state` and `batch`: where it is kept how far was read, and what is read now. The same batch begins again where it
    began, another one where the last one ended. `most_bytes` bounds what a batch reads of a broker's log. `timezone`
    is the brokers' (UTC). `topics_file`: CSV of topic and topic_id, for topics of which the log has no metadata.
    """

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "kafka_request_log"

    def schema(self) -> StructType:
        """POSITIONS."""
        return POSITIONS

    def reader(self, schema: StructType) -> RequestLogReader:
        """The reader that Spark sends to the executors."""
        options = RequestLogOptions.parse(dict(self.options))
        return RequestLogReader(self.name(), options, _topics(options.topics_file) if options.topics_file else {})


@dataclass
class Broker(InputPartition):
    """What one executor task reads: the log of one broker."""

    path: str


class RequestLogReader(DataSourceReader):
    """Reads each broker's log, and keeps how far it has read before it hands on what that gave."""

    def __init__(self, source: str, options: RequestLogOptions, topics: Mapping[str, str]) -> None:
        self.source = source
        self.options = options
        self.topics = topics

    def partitions(self) -> Sequence[Broker]:
        """One for each broker."""
        return [Broker(path) for path in self.options.paths]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Arrow batches of rows."""
        rows = self._rows(cast(Broker, partition).path)
        schema = to_arrow_schema(POSITIONS, timezone="UTC")
        while some := list(islice(rows, ROWS_PER_BATCH)):
            yield pa.RecordBatch.from_pylist(some, schema=schema)

    def _rows(self, path: str) -> Iterator[dict[str, object]]:
        log = self._read(path)
        # By the log's clock, so that a batch that is read again gives the same.
        at_ms = _now_ms() if log.log.at_ms is None else log.log.at_ms
        row = {"source": self.source, "captured_at": instant(at_ms)}
        for position in log.log.positions():
            error = refused(position)
            reported = {"error": error} if error else row_of(position, at_ms)
            yield row | {"endpoint": _name(path)} | reported
        for endpoint, error in log.errors:
            yield row | {"endpoint": endpoint, "error": one_line(error)}

    def _read(self, path: str) -> _BrokerLog:
        options = self.options
        log = _BrokerLog(path, RequestLog(self.topics, options.zone), options.most_bytes)
        if options.state is None or options.batch is None:
            log.read()
            return log
        progress = _Progress(options.state, path)
        try:
            begun = progress.begun(options.batch)
            if begun:
                log.go_on(begun, RequestLog.from_state(begun["log"], self.topics, options.zone))
        except _UnreachableError as error:
            # Beginning anew, what is known would be lost.
            log.errors.append((progress.name, f"the state cannot be read, nor therefore the log: {error}"))
            return log
        except _DAMAGED as error:
            begun = {}
            log.errors.append((progress.name, f"the state is damaged, the log is read anew: {type(error).__name__}"))
        log.read()
        try:
            progress.keep(options.batch, begun, log.state())
        except FAILURES as error:
            log.errors.append((progress.name, f"the state cannot be written: {type(error).__name__}"))
        return log


class _UnreachableError(Exception):
    """A state that may exist and cannot be read now."""


class _Progress:
    """How far a broker's log had been read when the last batch began, and when it ended: one file, replaced whole."""

    def __init__(self, folder: str, path: str) -> None:
        self._files, inside = open_filesystem(folder)
        self._folder = inside.rstrip("/")
        name = f"{hashlib.sha256(_name(path).encode()).hexdigest()[:32]}.json.gz"
        self._file = f"{self._folder}/{name}"
        self.name = f"{_name(folder)}/{name}"

    def begun(self, batch: str) -> dict[str, Any]:
        """Where a batch begins; empty at the first. Raises _UnreachableError, or one of _DAMAGED."""
        try:
            if self._files.get_file_info(self._file).type == fs.FileType.NotFound:
                return {}
            with self._files.open_input_file(self._file) as file:
                content = file.read()
        except FAILURES as error:
            raise _UnreachableError(type(error).__name__) from error
        kept = json.loads(gzip.decompress(content))
        return cast(dict[str, Any], kept["begun"] if kept["batch"] == batch else kept["ended"])

    def keep(self, batch: str, begun: Mapping[str, Any], ended: Mapping[str, Any]) -> None:
        """Replace what is kept."""
        content = json.dumps({"batch": batch, "begun": begun, "ended": ended}).encode()
        self._files.create_dir(self._folder, recursive=True)
        written = f"{self._file}.{uuid.uuid4().hex}"
        with self._files.open_output_stream(written, compression=None) as file:
            file.write(gzip.compress(content, 5))
        self._files.move(written, self._file)


@dataclass
class _Known:
    """How far a file has been read, unpacked. It is known by its first bytes, as it may be renamed and packed."""

    head_bytes: int = 0
    head: str = ""
    position: int = 0
    lines: int = 0
    listed_ms: int = 0
    whole: list[Any] | None = None
    """Its name, size and time of change when all of it had been read."""


@dataclass
class _File:
    """A file as it was listed, and its first bytes."""

    name: str
    info: fs.FileInfo
    head: bytes
    known: _Known
    refused: int = 0
    first_refused: str = ""

    @property
    def is_packed(self) -> bool:
        """Whether its name says so, which is what pyarrow goes by."""
        return str(self.info.extension) in ("gz", "bz2", "lz4", "zst")


class _BrokerLog:
    """One broker's log, in one file or, as it is rolled over, in several."""

    def __init__(self, path: str, log: RequestLog, most_bytes: int) -> None:
        self.log = log
        self.errors: list[tuple[str, str]] = []  # where, and what
        self._path = path
        self._known: list[_Known] = []
        self._most_bytes = self._left_bytes = most_bytes

    def go_on(self, state: Mapping[str, Any], log: RequestLog) -> None:
        """Begin where a `state` ended. Raises KeyError or TypeError where it is none."""
        self._known, self.log = [_Known(**known) for known in state["files"]], log

    def state(self) -> dict[str, Any]:
        """How far it has been read, in what JSON has."""
        return {"files": [asdict(known) for known in self._known], "log": self.log.state()}

    def read(self) -> None:
        """Read what is new, oldest file first. What cannot be read is among `errors`."""
        files, unchanged = self._listed()
        for file in files:
            if not self._read_on(file):
                self.errors.append((_name(self._path), f"more than {self._most_bytes} bytes are new: not all was read"))
                break
        self.log.forget()
        if self.log.dropped:
            self.errors.append(
                (
                    _name(self._path),
                    f"more than {MOST_CLIENTS} clients: {self.log.dropped} that were silent are forgotten",
                )
            )
        now_ms = self.log.at_ms or 0
        read = [file.known for file in files if file.known.position]
        for known in unchanged + read:
            known.listed_ms = now_ms
        self._known += [known for known in read if known not in self._known]
        # A file may be missed while it is renamed; one that is begun anew is not known until a line of it has ended.
        self._known = [k for k in self._known if k.position and k.listed_ms >= now_ms - SILENT_MS]

    def _files(self) -> dict[str, fs.FileInfo]:
        """Its files, by the names that errors have."""
        files, inside = open_filesystem(self._path)
        try:
            info = files.get_file_info(inside)
            if info.type == fs.FileType.File:
                return {_name(self._path): info}
            found = entries(files.get_file_info(fs.FileSelector(inside)), fs.FileType.File)
        except FAILURES as error:
            self.errors.append((_name(self._path), f"is not a file or folder that can be read: {type(error).__name__}"))
            return {}
        is_local = isinstance(files, fs.LocalFileSystem)  # in which links are not followed
        named = {
            f"{_name(self._path)}/{name}": info
            for name, info in found.items()
            if NAMED in name and not (is_local and Path(info.path).is_symlink())
        }
        if not named:
            self.errors.append((_name(self._path), f"no file in the folder has {NAMED!r} in its name"))
        return named

    def _listed(self) -> tuple[list[_File], list[_Known]]:
        """Files that may have something new, in the order of time, and what is known of those that have not changed.

        Of copies the longest counts.
        """
        listed, read_whole = self._files(), {tuple(k.whole): k for k in self._known if k.whole}
        unchanged = [read_whole[key] for key in map(_seen, listed.values()) if key in read_whole]
        found: dict[str, _File] = {}
        for name, info in listed.items():
            if _seen(info) in read_whole:
                continue
            try:
                with open_filesystem(self._path)[0].open_input_stream(info.path) as stream:
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
        times = times_ms(file.head.decode(errors="replace"), self.log.zone)
        return (times[0] if times else changed_ns // 1_000_000), changed_ns

    def _read_on(self, file: _File) -> bool:
        """Read what is new of a file, but for a line that has not ended. False where that is more than may be read."""
        known, rest, is_bounded = file.known, b"", False
        try:
            for block in self._blocks(file):
                is_bounded = self._left_bytes <= 0
                if is_bounded:
                    break
                lines, end, rest = (rest + block).rpartition(b"\n")
                if len(rest) > LINE_BYTES:
                    lines, end, rest = lines + end + rest, b"", b""
                if lines or end:
                    self._take(file, lines, len(lines) + len(end))
            else:
                known.whole = [*_seen(file.info)]
        except FAILURES as error:
            self.errors.append((file.name, f"cannot be read from byte {known.position} on: {type(error).__name__}"))
        known.head_bytes = min(HEAD_BYTES, known.position)
        known.head = _hash(file.head[: known.head_bytes])
        if file.refused:
            lines_refused = f"{file.refused} line{'s' if file.refused > 1 else ''} refused"
            self.errors.append((file.name, f"{lines_refused}, the first: {file.first_refused}"))
        return not is_bounded

    def _take(self, file: _File, lines: bytes, size: int) -> None:
        texts = lines.decode(errors="replace").split("\n")
        for number, text in enumerate(texts, file.known.lines + 1):
            try:
                self.log.read(text)
            except ValueError as error:
                file.refused += 1
                file.first_refused = file.first_refused or f"line {number}: {error}"
        file.known.lines += len(texts)
        file.known.position += size
        self._left_bytes -= size

    def _blocks(self, file: _File) -> Iterator[bytes]:
        """What is new of a file, as it was listed; all of it where it is shorter than what was read."""
        files, known = open_filesystem(self._path)[0], file.known
        end = sys.maxsize if file.is_packed else file.info.size
        if end < known.position:
            known.position = known.lines = 0
        begin = known.position
        opened = files.open_input_stream if file.is_packed else files.open_input_file
        with opened(file.info.path) as stream:
            head = stream.read(HEAD_BYTES)
            if not head.startswith(file.head):
                raise FileNotFoundError(file.name)  # it has been rolled over since
            at = len(head)
            while file.is_packed and at < begin and (block := stream.read(min(BLOCK_BYTES, begin - at))):
                at += len(block)
            at = at if file.is_packed else stream.seek(max(at, begin))
            if at < begin:
                known.position = known.lines = 0
                yield from self._blocks(file)
                return
            if head[begin:end]:
                yield head[begin:end]
            while block := stream.read(min(BLOCK_BYTES, self._most_bytes, max(0, end - at))):
                at += len(block)
                yield block


def _name(path: str) -> str:
    return redacted(path).rstrip("/")


def _seen(info: fs.FileInfo) -> tuple[Any, ...]:
    return info.base_name, info.size, info.mtime_ns


def _length(file: _File) -> tuple[bool, int]:
    return not file.is_packed, file.info.size


def _hash(head: bytes) -> str:
    return hashlib.sha256(head).hexdigest()[:32]


def _topics(path: str) -> dict[str, str]:
    """Names of topics by id. Raises ConfigError where a file has none."""
    try:
        files, inside = open_filesystem(path)
        with files.open_input_stream(inside) as stream:
            header, *rows = csv.reader(stream.read().decode().splitlines())
        topic, topic_id = header.index("topic"), header.index("topic_id")
        return {row[topic_id]: row[topic] for row in rows if row}
    except (*FAILURES, IndexError, ValueError, csv.Error):
        name = redacted(path)
        raise ConfigError(f"option 'topics_file': {name!r} is not a CSV file of topic and topic_id") from None


def _zone(name: str | None) -> tzinfo:
    try:
        return ZoneInfo(name) if name else UTC
    except (KeyError, OSError, ValueError):
        raise ConfigError(f"option 'timezone': {name!r} is not the name of a time zone") from None


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
