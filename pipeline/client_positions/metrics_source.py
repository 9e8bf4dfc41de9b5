"""Data sources of clients' positions: `kafka_client_metrics` and `librdkafka_statistics`, live or from files."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import cast

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from pipeline.client_positions import reporter_lines
from pipeline.client_positions.consumer_metrics import (
    LABELS,
    MOST_TORN,
    NAMES,
    Names,
    is_jolokia,
    of_prometheus,
    of_torn_prometheus,
    read_answer,
)
from pipeline.client_positions.endpoints import Access, Content, endpoint_name, files_in, from_endpoint, from_file
from pipeline.client_positions.librdkafka_statistics import of_parsed, parsed
from pipeline.client_positions.nothing_found import nothing_newer, why_nothing
from pipeline.client_positions.position import FUTURE_MS, LATEST_MS, Position, contradictions, integer, of_metrics
from pipeline.client_positions.position_rows import POSITIONS, UNFIT, Rows, plain
from pipeline.common.data_source import positive_option, refuse_unknown, several
from pipeline.common.epoch import now_ms, utc
from pipeline.common.errors import ConfigError
from pipeline.common.files import redacted

LATE_MS = 2_000
"""A callback that is later than this counts as late. A smaller delay may come from rounding to seconds."""
LOCATIONS_PER_TASK = 16
THREADS = 8
READ_TIMEOUT_MS = 120_000
"""The default limit for all endpoints together, because thousands of them may not answer."""
Reported = tuple[int, list[Position]]
"""Positions, and the epoch ms at which they were reported."""
Location = tuple[str, str | None]
"""An endpoint or a file, and the configured folder that a file was listed in."""


@dataclass(frozen=True)
class PositionsOptions:
    """What to read: `endpoints`, or files below each `path`. URIs may have passwords and are not shown by `repr`.

    After `read_timeout_ms` no further endpoint, file or line is read; None means no limit.
    """

    endpoints: tuple[str, ...] = field(default=(), repr=False)
    paths: tuple[str, ...] = field(default=(), repr=False)
    access: Access = field(default_factory=Access)
    names: Names = field(default_factory=dict)
    read_timeout_ms: int | None = None

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> PositionsOptions:
        """Options from strings, by lower-case name. Raises ConfigError naming an option that is unknown or wrong."""
        bounds = ("timeout_ms", "most_bytes", "max_age_ms", "read_timeout_ms")
        refuse_unknown(options, ("endpoints", "path", "user", "password", "ca_file", *bounds, "names"))
        endpoints, paths = several(options.get("endpoints")), several(options.get("path"))
        if bool(endpoints) == bool(paths):
            raise ConfigError(
                "one of the options 'endpoints' and 'path' is needed, with commas between several entries"
            )
        numbers = {name: positive_option(name, options[name]) for name in bounds if name in options}
        read_timeout_ms = numbers.pop("read_timeout_ms", READ_TIMEOUT_MS if endpoints else None)
        access = Access(options.get("user"), options.get("password"), options.get("ca_file"), **numbers)
        return cls(endpoints, paths, access, _names(options.get("names", "{}")), read_timeout_ms)


@dataclass
class Locations(InputPartition):
    """What one executor task reads."""

    locations: Sequence[Location]
    until_ms: float


class PositionsSource(DataSource):
    """Options: `endpoints` (URLs) or `path` (files, folders, URIs), separated by commas.

    `user`, `password` and `ca_file` are for endpoints. `timeout_ms` and `most_bytes` limit one endpoint or file, and
    `read_timeout_ms` all of them. A file in a folder that has not changed for `max_age_ms` is not read: its clients
    have reported nothing since. `names` is a JSON object that maps the names of metrics and labels in Prometheus text
    to those in NAMES or LABELS.
    """

    @staticmethod
    def reported(content: Content, names: Names) -> Iterator[Reported | str]:
        """The positions in one endpoint's or file's content, and a string for each part of it that cannot be read."""
        raise NotImplementedError

    def schema(self) -> StructType:
        """POSITIONS."""
        return POSITIONS

    def reader(self, schema: StructType) -> PositionsReader:
        """The reader that Spark sends to the executors."""
        return PositionsReader(self.name(), type(self).reported, PositionsOptions.parse(dict(self.options)))


class ClientMetricsSource(PositionsSource):
    """Consumers' metrics: one answer in Prometheus text, OpenMetrics or Jolokia's JSON; or the lines of a reporter."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "kafka_client_metrics"

    @staticmethod
    def reported(content: Content, names: Names) -> Iterator[Reported | str]:
        """The positions in one scrape or answer. If a scrape is incomplete, its complete lines are used."""
        is_json = content.text.lstrip()[:1] in ("{", "[")
        if is_json and not is_jolokia(content.text):
            yield from _of_lines(content, reporter_lines.of_line)
            return
        errors: list[str] = []
        try:
            found, errors = read_answer(content.text) if is_json else (of_prometheus(content.text, names), [])
        except ValueError as error:
            found, torn = ([], []) if is_json else of_torn_prometheus(content.text, names)
            if torn or not found:
                yield f"{len(torn)} lines are torn, the first is line {torn[0]}" if found else str(error)
        yield from errors
        yield from contradictions(found)
        yield content.captured_ms, of_metrics(found)


class StatisticsSource(PositionsSource):
    """librdkafka's statistics, an object per line: as the callback gets it, or `{"ts": epoch ms, "statistics": it}`."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "librdkafka_statistics"

    @staticmethod
    def reported(content: Content, names: Names) -> Iterator[Reported | str]:  # noqa: ARG004 - librdkafka's are its own
        """The positions in each line."""
        return _of_lines(content, partial(_of_statistics, captured_ms=content.captured_ms))


class PositionsReader(DataSourceReader):
    """Lists files on the driver, and reads endpoints and files on executors, several at a time."""

    def __init__(
        self, source: str, reported: Callable[[Content, Names], Iterator[Reported | str]], options: PositionsOptions
    ) -> None:
        self.source = source
        self.reported = reported
        self.options = options

    def partitions(self) -> Sequence[Locations]:
        """Lists the files now. A path that does not exist is also returned, so that reading it gives an error row."""
        until_ms = now_ms() + (self.options.read_timeout_ms or math.inf)
        locations: list[Location] = [(endpoint, None) for endpoint in self.options.endpoints]
        for path in self.options.paths:
            locations += [(file, None if file == path else path) for file in files_in(path)]
        begins = range(0, max(1, len(locations)), LOCATIONS_PER_TASK)
        return [Locations(locations[i : i + LOCATIONS_PER_TASK], until_ms) for i in begins]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Arrow batches, one for each endpoint or file. At most THREADS contents are in memory at once."""
        task = cast(Locations, partition)
        with ThreadPoolExecutor(THREADS) as pool:
            for begin in range(0, len(task.locations), THREADS):
                some = task.locations[begin : begin + THREADS]
                for content in pool.map(lambda location: self._content(location, task), some):
                    yield self._batch(content, task)

    def _content(self, location: Location, task: Locations) -> Content:
        path, folder = location
        try:
            if now_ms() > task.until_ms:
                error = self._late()
            elif self.options.endpoints:
                return from_endpoint(path, self.options.access)
            else:
                return from_file(path, self.options.access, folder)
        except Exception as unforeseen:  # noqa: BLE001 - affects only its own location
            error = _unforeseen(unforeseen)
        return Content(endpoint_name(path) if self.options.endpoints else redacted(path), now_ms(), "", error)

    def _late(self) -> str:
        return f"not read: the read timeout of {self.options.read_timeout_ms} ms was over"

    def _batch(self, content: Content, task: Locations) -> pa.RecordBatch:
        """The rows of one endpoint or file, by columns: a dict for each row would take longer than parsing."""
        rows = Rows(self.source, plain(content.location))
        for one in self._reported(content, task):
            if isinstance(one, str):
                rows.refuse(min(content.captured_ms, now_ms()), one)
            elif one[0] > now_ms() + FUTURE_MS:
                # Otherwise, this report would stay the newest of its client until that time.
                rows.refuse(now_ms(), f"its time, {utc(one[0]).isoformat()}, is in the future")
            else:
                rows.add(*one)
        self._say_what_is_missing(rows, content)
        rows.add_rest()
        try:
            return rows.batch()
        except UNFIT:
            rows.refuse_what_is_unfit()
            return rows.batch()

    def _say_what_is_missing(self, rows: Rows, content: Content) -> None:
        """Adds an error if there is no position, or none that is new enough to be used, although all was understood."""
        if rows.is_empty and (content.text or not content.is_listed):
            rows.refuse(min(content.captured_ms, now_ms()), why_nothing(self.source, content.text))
        max_age_ms, newest_ms = self.options.access.max_age_ms, rows.newest_ms
        if content.is_listed or max_age_ms is None or newest_ms is None:
            return
        if newest_ms < now_ms() - max_age_ms:
            rows.refuse(now_ms(), nothing_newer(newest_ms))

    def _reported(self, content: Content, task: Locations) -> Iterator[Reported | str]:
        if content.error or now_ms() > task.until_ms:
            yield content.error or self._late()
            return
        try:
            for number, one in enumerate(self.reported(content, self.options.names)):
                if number and now_ms() > task.until_ms:
                    yield self._late()
                    return
                yield one
        except Exception as unforeseen:  # noqa: BLE001 - affects only its own location
            yield _unforeseen(unforeseen)


def _unforeseen(error: Exception) -> str:
    return f"cannot be read: {type(error).__name__}"


def _of_lines(content: Content, reported: Callable[[str], Reported]) -> Iterator[Reported | str]:
    """The positions in each line. Invalid lines are skipped; if the first MOST_TORN are invalid, no more are read."""
    is_torn = True
    for number, line in enumerate(filter(str.strip, content.text.split("\n")), 1):
        try:
            yield reported(line)
            is_torn = False
        except ValueError as error:
            if is_torn and number == MOST_TORN:
                yield f"none of the first {number} lines can be read, so the rest is skipped: line {number}: {error}"
                return
            yield f"line {number}: {error}"


def _of_statistics(line: str, captured_ms: int) -> Reported:
    """When a line was written, epoch ms, and its positions. librdkafka itself reports the time in seconds.

    The callback runs only in poll, so an application that polls late gets statistics of an earlier time.
    """
    statistics = said = parsed(line)
    at_ms = captured_ms
    try:
        if isinstance(said, dict) and "statistics" in said:
            statistics, at_ms = said["statistics"], integer(said.get("ts", captured_ms))
        elif isinstance(said, dict) and "time" in said:
            at_ms = integer(said["time"]) * 1000
        positions = of_parsed(statistics)
        made_ms = integer(statistics.get("time", 0)) * 1000
    except TypeError as error:
        raise ValueError(f"its time: {error}") from None
    if not 0 <= at_ms < LATEST_MS:
        raise ValueError("its time is not in epoch ms")
    if 0 < made_ms < at_ms - LATE_MS:
        positions = [p._replace(as_of_ms=made_ms) for p in positions]
    return at_ms, positions


def _names(text: str) -> Names:
    try:
        names = parsed(text)
        unknown = [ours for ours in names.values() if ours not in (*NAMES, *LABELS)]
    except (AttributeError, ValueError):
        raise ConfigError(f"option 'names' must be a JSON object of names: {text[:80]!r}") from None
    if unknown:
        raise ConfigError(f"option 'names': {unknown[0]!r} must be one of {', '.join((*NAMES, *LABELS))}")
    return dict(names)
