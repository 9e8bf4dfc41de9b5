"""Data sources of clients' positions: `kafka_client_metrics` and `librdkafka_statistics`, live or from files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import cast

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from pipeline.errors import ConfigError
from pipeline.kafka.options import refuse_unknown, several
from pipeline.positions import reported
from pipeline.positions.librdkafka import of_parsed, parsed
from pipeline.positions.metrics import LABELS, NAMES, Names, of_jolokia, of_prometheus, of_torn_prometheus
from pipeline.positions.position import Position, of_metrics, whole
from pipeline.positions.texts import Access, Text, files_in, from_endpoint, from_file
from pipeline.tables import FETCH_POSITIONS

POSITIONS = FETCH_POSITIONS.observed
"""What the sources observe: a row for each Position; and one with an error for each place or line that told nothing."""

_ARROW = to_arrow_schema(POSITIONS, timezone="UTC")
_MS = pa.timestamp("ms", "UTC")
_NOTHING = Position(client_id=cast(str, None))
"""Of a row that has an error alone."""
LATEST_MS = 253_402_300_800_000
"""The end of the year 9999, the last that a timestamp may have."""
LATE_MS = 2_000
"""A callback that is later than that was late; less may be what seconds are rounded by."""
PLACES_PER_TASK = 16
THREADS = 4
Told = tuple[int, list[Position]]
"""Positions, and the epoch ms at which they were told."""


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


class PositionsSource(DataSource):
    """Options: `endpoints` (URLs) or `path` (files, folders, URIs), several with commas.

    `user`, `password` and `ca_file` for endpoints; `timeout_ms` and `most_bytes` bound what one place may take.
    `names`, a JSON object: what Prometheus text calls metrics and labels by rules of its own, and NAMES or LABELS.
    """

    @staticmethod
    def told(text: Text, names: Names) -> Iterator[Told | str]:
        """What a text tells, and in words what of it tells nothing."""
        raise NotImplementedError

    def schema(self) -> StructType:
        """POSITIONS."""
        return POSITIONS

    def reader(self, schema: StructType) -> PositionsReader:
        """The reader that Spark sends to the executors."""
        return PositionsReader(self.name(), type(self).told, PositionsOptions.parse(dict(self.options)))


class ClientMetricsSource(PositionsSource):
    """Consumers' metrics: Prometheus text, OpenMetrics or Jolokia's JSON, one answer a place; lines of a reporter."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "kafka_client_metrics"

    @staticmethod
    def told(text: Text, names: Names) -> Iterator[Told | str]:
        """The positions of one scrape or answer. Of a torn scrape the lines that are whole count."""
        is_json = text.text.lstrip()[:1] in ("{", "[")
        if is_json and '"mbean"' not in text.text:
            yield from _of_lines(text, reported.of_line)
            return
        try:
            yield text.captured_ms, of_metrics(of_jolokia(text.text) if is_json else of_prometheus(text.text, names))
        except ValueError as error:
            found, torn = ([], []) if is_json else of_torn_prometheus(text.text, names)
            yield f"{len(torn)} lines are torn, the first: {torn[0]!r}" if found else str(error)
            yield text.captured_ms, of_metrics(found)


class StatisticsSource(PositionsSource):
    """librdkafka's statistics, an object a line: as the callback gets it, or `{"ts": epoch ms, "statistics": it}`."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "librdkafka_statistics"

    @staticmethod
    def told(text: Text, names: Names) -> Iterator[Told | str]:  # noqa: ARG004 - librdkafka's are its own
        """The positions of each line."""
        return _of_lines(text, partial(_of_statistics, captured_ms=text.captured_ms))


class PositionsReader(DataSourceReader):
    """Lists files on the driver, reads places on executors, some at a time."""

    def __init__(
        self, source: str, told: Callable[[Text, Names], Iterator[Told | str]], options: PositionsOptions
    ) -> None:
        self.source = source
        self.told = told
        self.options = options

    def partitions(self) -> Sequence[Places]:
        """Files are listed now; a path where nothing is stays a place, which says so when it is read."""
        places = self.options.endpoints or [file for path in self.options.paths for file in files_in(path)]
        return [Places(places[i : i + PLACES_PER_TASK]) for i in range(0, len(places), PLACES_PER_TASK)] or [Places(())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Arrow batches, one for each place."""
        read = from_endpoint if self.options.endpoints else from_file
        with ThreadPoolExecutor(THREADS) as pool:
            for text in pool.map(lambda place: read(place, self.options.access), cast(Places, partition).places):
                yield self._batch(text)

    def _batch(self, text: Text) -> pa.RecordBatch:
        """By columns: a dict for each row would take longer than reading the text does."""
        found: Iterator[Told | str] = iter([text.error]) if text.error else self.told(text, self.options.names)
        rows: list[Position] = []
        told_ms: list[int] = []
        as_of_ms: list[int | None] = []
        errors: list[str | None] = []
        for one in found:
            if isinstance(one, str):
                rows.append(_NOTHING)
                told_ms.append(text.captured_ms)
                as_of_ms.append(None)
                errors.append(one_line(one))
                continue
            at_ms, positions = one
            rows += positions
            told_ms += [at_ms] * len(positions)
            as_of_ms += [at_ms if p.as_of_ms is None else p.as_of_ms for p in positions]
            errors += [None] * len(positions)
        columns = dict(zip(Position._fields, zip(*rows, strict=True), strict=True)) if rows else {}
        arrays = {
            "captured_at": pa.array(told_ms, _MS),
            "as_of": pa.array(as_of_ms, _MS),
            "source": pa.array([self.source] * len(rows)),
            "endpoint": pa.array([text.place] * len(rows)),
            "error": errors,
        }
        made = (arrays.get(f.name, columns.get(f.name, ())) for f in _ARROW)
        return pa.record_batch(
            [
                values.cast(f.type) if isinstance(values, pa.Array) else pa.array(values, f.type)
                for f, values in zip(_ARROW, made, strict=True)
            ],
            schema=_ARROW,
        )


def row_of(position: Position, at_ms: int) -> dict[str, object]:
    """The columns of POSITIONS that a position has, when it was told."""
    values = position._asdict()
    as_of_ms = values.pop("as_of_ms")
    return values | {"captured_at": instant(at_ms), "as_of": instant(at_ms if as_of_ms is None else as_of_ms)}


def _of_lines(text: Text, told: Callable[[str], Told]) -> Iterator[Told | str]:
    """What each line tells. One that is torn costs only itself."""
    for number, line in enumerate(filter(str.strip, text.text.splitlines()), 1):
        try:
            yield told(line)
        except ValueError as error:
            yield f"line {number}: {error}"


def _of_statistics(line: str, captured_ms: int) -> Told:
    """When a line was told, and what. What librdkafka itself tells of the time is in seconds.

    The callback runs in poll alone: an application that polls late is told late what was true before.
    """
    statistics = said = parsed(line)
    at_ms = captured_ms
    if isinstance(said, dict) and "statistics" in said:
        statistics, at_ms = said["statistics"], said.get("ts", captured_ms)
    elif isinstance(said, dict) and isinstance(said.get("time"), int):
        at_ms = said["time"] * 1000
    if not isinstance(at_ms, int) or not 0 <= at_ms < LATEST_MS:
        raise ValueError(f"{str(at_ms)[:40]!r} is no time in epoch ms")
    positions = of_parsed(statistics)
    made_ms = whole(statistics.get("time", 0)) * 1000
    if 0 < made_ms < at_ms - LATE_MS:
        positions = [p._replace(as_of_ms=made_ms) for p in positions]
    return at_ms, positions


def instant(epoch_ms: int) -> datetime:
    """Epoch ms in UTC."""
    return datetime.fromtimestamp(epoch_ms / 1000, UTC)


def one_line(text: str) -> str:
    """What an error says, as a row may have it."""
    return " ".join(text.split())[:500]


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
