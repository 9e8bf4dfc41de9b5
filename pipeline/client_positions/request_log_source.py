"""The data source `kafka_request_log`: brokers' request logs, each read from where the previous batch ended."""

from __future__ import annotations

import csv
import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, tzinfo
from itertools import islice
from typing import cast
from zoneinfo import ZoneInfo

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from pipeline.client_positions.broker_log import BrokerLog, location_name
from pipeline.client_positions.nothing_found import nothing_newer
from pipeline.client_positions.position import refused, stored_name
from pipeline.client_positions.position_rows import POSITIONS, one_line, row_of
from pipeline.client_positions.progress import Progress, UnreachableError
from pipeline.client_positions.request_log import RequestLog
from pipeline.common.data_source import arrow_schema, positive_option, refuse_unknown, several
from pipeline.common.epoch import now_ms, utc
from pipeline.common.errors import ConfigError
from pipeline.common.files import FAILURES, NotAFileError, open_filesystem, open_unpacked, redacted

MOST_BYTES = 2 * 1024**3
MOST_TOPICS_BYTES = 16 * 1024**2
"""The largest file of topics, unpacked: there is room for the names that are remembered of a log."""
ROWS_PER_BATCH = 10_000
_DAMAGED = (AttributeError, EOFError, KeyError, OSError, RecursionError, TypeError, ValueError, zlib.error)


@dataclass(frozen=True)
class RequestLogOptions:
    """What to read. URIs may have passwords and are not shown by `repr`. `zone` is the time zone of the brokers' logs.

    After `read_timeout_ms` only one more block of each log is read; None if there is no such limit.
    `state` is a folder or URI that all executors can reach; without it, each path is read from its beginning. If all
    positions of a log are older than `max_age_ms`, this is an error; None if they may have any age.
    """

    paths: tuple[str, ...] = field(repr=False)
    state: str | None = field(default=None, repr=False)
    batch: str | None = None
    topics_file: str | None = field(default=None, repr=False)
    most_bytes: int = MOST_BYTES
    read_timeout_ms: int | None = None
    max_age_ms: int | None = None
    zone: tzinfo = UTC

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> RequestLogOptions:
        """Options from strings, by lower-case name. Raises ConfigError naming an option that is unknown or wrong."""
        bounds = ("most_bytes", "read_timeout_ms", "max_age_ms")
        refuse_unknown(options, ("path", "state", "batch", "topics_file", *bounds, "timezone"))
        paths, state, batch = several(options.get("path")), options.get("state"), options.get("batch")
        if not paths:
            raise ConfigError("option 'path' is needed: a file or folder for each broker, separated by commas")
        if len({location_name(path) for path in paths}) < len(paths):
            raise ConfigError("option 'path' names the same path twice")
        for location in (*paths, *filter(None, (state,))):
            open_filesystem(location)
        if bool(state) != bool(batch):
            raise ConfigError("options 'state' and 'batch' must be given together")
        numbers = {name: positive_option(name, options[name]) for name in bounds if name in options}
        zone = _zone(options.get("timezone"))
        return cls(paths, state, batch, options.get("topics_file"), zone=zone, **numbers)


class RequestLogSource(DataSource):
    """Options: `path`, a file or folder for each broker, separated by commas. In a folder, it reads the request logs.

    `state` is a folder that keeps how far each log was read; `batch` is the name of what is read now. If a batch is
    read again, it begins where it began before; a new batch begins where the last one ended. `most_bytes` limits what a
    batch reads from a broker's log, and `read_timeout_ms` how long this may take; the next batch goes on there.
    If all positions of a log are older than `max_age_ms`, there is an error beside them.
    `timezone` is that of the brokers (default: UTC). `topics_file` is a CSV file of topic and topic_id, for topics that
    have no metadata in the log.
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
    until_ms: float


class RequestLogReader(DataSourceReader):
    """Reads each broker's log, and stores how far it has read before it returns the rows."""

    def __init__(self, source: str, options: RequestLogOptions, topics: Mapping[str, str]) -> None:
        self.source = source
        self.options = options
        self.topics = topics

    def partitions(self) -> Sequence[Broker]:
        """One for each broker. Each batch begins with another one, so that none is always the last to have time."""
        until_ms = now_ms() + (self.options.read_timeout_ms or math.inf)
        paths = self.options.paths
        first = zlib.crc32((self.options.batch or "").encode()) % len(paths)
        return [Broker(path, until_ms) for path in paths[first:] + paths[:first]]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Arrow batches of rows."""
        rows = self._rows(cast(Broker, partition))
        schema = arrow_schema(POSITIONS)
        while some := list(islice(rows, ROWS_PER_BATCH)):
            yield pa.RecordBatch.from_pylist(some, schema=schema)

    def _rows(self, broker: Broker) -> Iterator[dict[str, object]]:
        log = self._read(broker)
        # By the log's clock, so that reading a batch again gives the same rows.
        at_ms = now_ms() if log.log.at_ms is None else log.log.at_ms
        row = {"source": self.source, "captured_at": utc(at_ms)}
        positions = log.log.positions()
        for position in positions:
            error = refused(position)
            reported = {"error": error} if error else row_of(position, at_ms)
            yield row | {"endpoint": location_name(broker.path)} | reported
        newest_ms = max((position.as_of_ms or 0 for position in positions), default=0)
        max_age_ms = self.options.max_age_ms
        if newest_ms and max_age_ms is not None and newest_ms < now_ms() - max_age_ms:
            log.errors.append((location_name(broker.path), nothing_newer(newest_ms)))
        for endpoint, error in log.errors:
            yield row | {"endpoint": endpoint, "error": one_line(error)}

    def _read(self, broker: Broker) -> BrokerLog:
        options = self.options
        log = BrokerLog(broker.path, RequestLog(self.topics, options.zone), options.most_bytes, broker.until_ms)
        if options.state is None or options.batch is None:
            log.read()
            return log
        progress = Progress(options.state, broker.path)
        try:
            begun = progress.begun(options.batch)
            if begun:
                log.resume(begun, RequestLog.from_state(begun["log"], self.topics, options.zone))
        except UnreachableError as error:
            # Reading from the beginning would replace the stored state.
            log.errors.append((progress.name, f"the state cannot be read, so the log was not read: {error}"))
            return log
        except _DAMAGED as error:
            begun = {}
            log.errors.append(
                (progress.name, f"the state is damaged, so the log was read from its beginning: {type(error).__name__}")
            )
        log.read()
        try:
            progress.keep(options.batch, begun, log.state())
        except FAILURES as error:
            log.errors.append((progress.name, f"the state cannot be written: {type(error).__name__}"))
        return log


def _topics(path: str) -> dict[str, str]:
    """Names of topics by id. Raises ConfigError if there is no such file, or it is too large or not valid."""
    try:
        with open_unpacked(*open_filesystem(path)) as stream:
            content = stream.read(MOST_TOPICS_BYTES + 1)
        if len(content) > MOST_TOPICS_BYTES:
            raise NotAFileError(f"larger than {MOST_TOPICS_BYTES} bytes")
        header, *rows = csv.reader(content.decode().splitlines())
        topic, topic_id = header.index("topic"), header.index("topic_id")
        return {stored_name(row[topic_id]): stored_name(row[topic]) for row in rows if row}
    except (*FAILURES, IndexError, TypeError, ValueError, csv.Error) as error:
        reason = error if isinstance(error, (NotAFileError, TypeError)) else type(error).__name__
        name = redacted(path)
        raise ConfigError(f"option 'topics_file': {name!r} is not a CSV file of topic and topic_id: {reason}") from None


def _zone(name: str | None) -> tzinfo:
    try:
        return ZoneInfo(name) if name else UTC
    except (KeyError, OSError, ValueError):
        raise ConfigError(f"option 'timezone': {name!r} is not the name of a time zone") from None
