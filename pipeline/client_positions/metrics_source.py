"""Data sources of clients' positions: `kafka_client_metrics` and `librdkafka_statistics`, live or from files."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import cast

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import IntegerType, LongType, StructType

from pipeline.client_positions import reporter_lines
from pipeline.client_positions.consumer_metrics import (
    LABELS,
    NAMES,
    Names,
    of_jolokia,
    of_prometheus,
    of_torn_prometheus,
)
from pipeline.client_positions.endpoints import Access, Text, files_in, from_endpoint, from_file
from pipeline.client_positions.librdkafka_statistics import of_parsed, parsed
from pipeline.client_positions.position import SIGNED, TOO_LARGE, Position, of_metrics, refused, whole
from pipeline.data_source import refuse_unknown, several
from pipeline.errors import ConfigError
from pipeline.files import redacted
from pipeline.tables import CLIENT_POSITIONS

POSITIONS = CLIENT_POSITIONS.observed
"""A row for each Position, and one with an error for each place or line that could not be read."""

_ARROW = to_arrow_schema(POSITIONS, timezone="UTC")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = pa.timestamp("ms", "UTC")
UNFIT = (pa.ArrowException, OverflowError, TypeError, ValueError)
_NUMBERS = tuple(f.name for f in POSITIONS if isinstance(f.dataType, (IntegerType, LongType)))
_NOTHING = Position(client_id=cast(str, None))
"""Of a row that has an error alone."""
LATEST_MS = 253_402_300_800_000
"""The end of the year 9999, the last that a timestamp may have."""
FUTURE_MS = 5 * 60_000
"""A report that is dated further ahead than this comes from a wrong clock."""
LATE_MS = 2_000
"""A callback that is later than that was late; less may be what seconds are rounded by."""
PLACES_PER_TASK = 16
THREADS = 8
DEADLINE_MS = 120_000
"""After which no more endpoints are asked. Thousands that do not answer must not keep the snapshot."""
MOST_ERRORS = 100
"""Errors of one place that have a row each; the others are counted."""
Told = tuple[int, list[Position]]
"""Positions, and the epoch ms at which they were reported."""


@dataclass(frozen=True)
class PositionsOptions:
    """Where to read: `endpoints` now, or files below each `path`; URIs may hold passwords and are not shown."""

    endpoints: tuple[str, ...] = field(default=(), repr=False)
    paths: tuple[str, ...] = field(default=(), repr=False)
    access: Access = field(default_factory=Access)
    names: Names = field(default_factory=dict)

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> PositionsOptions:
        """Options from strings, by lower-case name. Raises ConfigError naming an option that is unknown or wrong."""
        known = ("endpoints", "path", "user", "password", "ca_file", "timeout_ms", "most_bytes", "names")
        refuse_unknown(options, known)
        endpoints, paths = several(options.get("endpoints")), several(options.get("path"))
        if bool(endpoints) == bool(paths):
            raise ConfigError("one of the options 'endpoints' and 'path' is needed, several places with commas")
        numbers = {name: positive(name, options[name]) for name in ("timeout_ms", "most_bytes") if name in options}
        access = Access(options.get("user"), options.get("password"), options.get("ca_file"), **numbers)
        return cls(endpoints, paths, access, _names(options.get("names", "{}")))


@dataclass
class Places(InputPartition):
    """What one executor task reads."""

    places: Sequence[str]
    until_ms: int


class PositionsSource(DataSource):
    """Options: `endpoints` (URLs) or `path` (files, folders, URIs), several with commas.

    `user`, `password` and `ca_file` for endpoints; `timeout_ms` and `most_bytes` bound what one place may take.
    `names`, a JSON object: what Prometheus text calls metrics and labels by rules of its own, and NAMES or LABELS.
    """

    @staticmethod
    def reported(text: Text, names: Names) -> Iterator[Told | str]:
        """The positions in a text, and in words what of it cannot be read."""
        raise NotImplementedError

    def schema(self) -> StructType:
        """POSITIONS."""
        return POSITIONS

    def reader(self, schema: StructType) -> PositionsReader:
        """The reader that Spark sends to the executors."""
        return PositionsReader(self.name(), type(self).reported, PositionsOptions.parse(dict(self.options)))


class ClientMetricsSource(PositionsSource):
    """Consumers' metrics: Prometheus text, OpenMetrics or Jolokia's JSON, one answer a place; lines of a reporter."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "kafka_client_metrics"

    @staticmethod
    def reported(text: Text, names: Names) -> Iterator[Told | str]:
        """The positions of one scrape or answer. Of a torn scrape the lines that are whole count."""
        is_json = text.text.lstrip()[:1] in ("{", "[")
        if is_json and '"mbean"' not in text.text:
            yield from _of_lines(text, reporter_lines.of_line)
            return
        try:
            yield text.captured_ms, of_metrics(of_jolokia(text.text) if is_json else of_prometheus(text.text, names))
        except ValueError as error:
            found, torn = ([], []) if is_json else of_torn_prometheus(text.text, names)
            if torn or not found:
                yield f"{len(torn)} lines are torn, the first is line {torn[0]}" if found else str(error)
            yield text.captured_ms, of_metrics(found)


class StatisticsSource(PositionsSource):
    """librdkafka's statistics, an object a line: as the callback gets it, or `{"ts": epoch ms, "statistics": it}`."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "librdkafka_statistics"

    @staticmethod
    def reported(text: Text, names: Names) -> Iterator[Told | str]:  # noqa: ARG004 - librdkafka's are its own
        """The positions of each line."""
        return _of_lines(text, partial(_of_statistics, captured_ms=text.captured_ms))


class PositionsReader(DataSourceReader):
    """Lists files on the driver, reads places on executors, some at a time."""

    def __init__(
        self, source: str, reported: Callable[[Text, Names], Iterator[Told | str]], options: PositionsOptions
    ) -> None:
        self.source = source
        self.reported = reported
        self.options = options

    def partitions(self) -> Sequence[Places]:
        """Files are listed now; a path where nothing is stays a place, which says so when it is read."""
        places = self.options.endpoints or [file for path in self.options.paths for file in files_in(path)]
        until_ms = _now_ms() + DEADLINE_MS
        begins = range(0, max(1, len(places)), PLACES_PER_TASK)
        return [Places(places[i : i + PLACES_PER_TASK], until_ms) for i in begins]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Arrow batches, one for each place."""
        task = cast(Places, partition)

        def read(place: str) -> Text:
            if self.options.endpoints and _now_ms() > task.until_ms:
                return Text(redacted(place), _now_ms(), "", f"not read: {DEADLINE_MS} ms had passed")
            if self.options.endpoints:
                return from_endpoint(place, self.options.access)
            return from_file(place, self.options.access, is_listed=place not in self.options.paths)

        with ThreadPoolExecutor(THREADS) as pool:
            for text in pool.map(read, task.places):
                yield self._batch(text)

    def _batch(self, text: Text) -> pa.RecordBatch:
        """By columns: a dict for each row would take longer than reading the text does."""
        rows = _Rows(self.source, plain(text.place))
        for one in [text.error] if text.error else self._reported(text):
            if isinstance(one, str):
                rows.refuse(min(text.captured_ms, _now_ms()), one)
            elif one[0] > _now_ms() + FUTURE_MS:
                # It would be the newest of its client for ever.
                rows.refuse(_now_ms(), f"is of {instant(one[0]).isoformat()}, which is in the future")
            else:
                rows.add(*one)
        rows.add_rest()
        try:
            return rows.batch()
        except UNFIT:
            rows.refuse_what_is_unfit()
            return rows.batch()

    def _reported(self, text: Text) -> Iterator[Told | str]:
        try:
            yield from self.reported(text, self.options.names)
        except Exception as error:  # noqa: BLE001 - what nobody foresaw costs its own place alone
            yield f"cannot be read: {type(error).__name__}"


class _Rows:
    """The rows of one place, by columns."""

    def __init__(self, source: str, place: str) -> None:
        self._source, self._place = source, place
        self._positions: list[Position] = []
        self._reported_ms: list[int] = []
        self._as_of_ms: list[int | None] = []
        self._errors: list[str | None] = []
        self._refused = 0

    def add(self, at_ms: int, positions: list[Position]) -> None:
        """Positions that were reported at that time."""
        self._positions += positions
        self._reported_ms += [at_ms] * len(positions)
        self._as_of_ms += [at_ms if p.as_of_ms is None else p.as_of_ms for p in positions]
        self._errors += [None] * len(positions)

    def refuse(self, at_ms: int, error: str) -> None:
        """A row with an error; only the first MOST_ERRORS have one each."""
        self._refused += 1
        if self._refused > MOST_ERRORS:
            return
        self._positions.append(_NOTHING)
        self._reported_ms.append(at_ms)
        self._as_of_ms.append(None)
        self._errors.append(one_line(error))

    def add_rest(self) -> None:
        """A row with the number of errors that have none of their own."""
        if self._refused > MOST_ERRORS:
            rest, self._refused = self._refused - MOST_ERRORS, 0
            self.refuse(_now_ms(), f"and {rest} more")

    def refuse_what_is_unfit(self) -> None:
        """In the place of positions that the table cannot have: why."""
        for i, position in enumerate(self._positions):
            error = None if self._errors[i] else refused(position)
            if error:
                self._positions[i], self._as_of_ms[i], self._errors[i] = _NOTHING, None, error

    def batch(self) -> pa.RecordBatch:
        """Raises one of UNFIT where a row is none that the table can have."""
        count = len(self._positions)
        columns = dict(zip(Position._fields, zip(*self._positions, strict=True), strict=True)) if count else {}
        arrays = {
            "captured_at": pa.array(self._reported_ms, _MS),
            "as_of": pa.array(self._as_of_ms, _MS),
            "source": pa.array([self._source] * count),
            "endpoint": pa.array([self._place] * count),
            "error": self._errors,
        }
        made = (arrays.get(f.name, columns.get(f.name, ())) for f in _ARROW)
        batch = pa.record_batch(
            [
                values.cast(f.type) if isinstance(values, pa.Array) else pa.array(values, f.type)
                for f, values in zip(_ARROW, made, strict=True)
            ],
            schema=_ARROW,
        )
        for name in _NUMBERS:
            least, most = (number or 0 for number in pc.min_max(batch[name]).as_py().values())
            if not (-TOO_LARGE if name in SIGNED else -1) < least <= most < TOO_LARGE:
                raise ValueError(name)
        return batch


def row_of(position: Position, at_ms: int) -> dict[str, object]:
    """The columns of POSITIONS that a position has, when it was reported."""
    values = position._asdict()
    as_of_ms = values.pop("as_of_ms")
    return values | {"captured_at": instant(at_ms), "as_of": instant(at_ms if as_of_ms is None else as_of_ms)}


def _of_lines(text: Text, reported: Callable[[str], Told]) -> Iterator[Told | str]:
    """The positions of each line. One that is torn costs only itself."""
    for number, line in enumerate(filter(str.strip, text.text.split("\n")), 1):
        try:
            yield reported(line)
        except ValueError as error:
            yield f"line {number}: {error}"


def _of_statistics(line: str, captured_ms: int) -> Told:
    """When a line was written, and its positions. librdkafka itself gives the time in seconds.

    The callback runs in poll alone: an application that polls late gets late what was true before.
    """
    statistics = said = parsed(line)
    at_ms = captured_ms
    try:
        if isinstance(said, dict) and "statistics" in said:
            statistics, at_ms = said["statistics"], whole(said.get("ts", captured_ms))
        elif isinstance(said, dict) and "time" in said:
            at_ms = whole(said["time"]) * 1000
        positions = of_parsed(statistics)
        made_ms = whole(statistics.get("time", 0)) * 1000
    except TypeError as error:
        raise ValueError(f"its time: {error}") from None
    if not 0 <= at_ms < LATEST_MS:
        raise ValueError("its time is not one in epoch ms")
    if 0 < made_ms < at_ms - LATE_MS:
        positions = [p._replace(as_of_ms=made_ms) for p in positions]
    return at_ms, positions


def instant(epoch_ms: int) -> datetime:
    """Epoch ms in UTC."""
    return EPOCH + timedelta(milliseconds=epoch_ms)


def one_line(text: str) -> str:
    """What an error says, as a row may have it."""
    return plain(" ".join(text.split())[:500])


def plain(text: str) -> str:
    """A text that a table can have: the name of a file may be no UTF-8."""
    return text.encode(errors="replace").decode()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _names(text: str) -> Names:
    try:
        names = parsed(text)
        unknown = [ours for ours in names.values() if ours not in (*NAMES, *LABELS)]
    except (AttributeError, ValueError):
        raise ConfigError(f"option 'names' must be a JSON object of names: {text[:80]!r}") from None
    if unknown:
        raise ConfigError(f"option 'names': {unknown[0]!r} is none of {', '.join((*NAMES, *LABELS))}")
    return dict(names)


def positive(name: str, value: str) -> int:
    """The number that an option is. Raises ConfigError."""
    if not value.isdigit() or not int(value):
        raise ConfigError(f"option {name!r} must be a whole number above 0: {value!r}")
    return int(value)
