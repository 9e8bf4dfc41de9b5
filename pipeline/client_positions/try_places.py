"""Tries, without Spark, whether the configured endpoints and files can be read, and which clients they report."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from pipeline.client_positions.endpoints import files_in
from pipeline.client_positions.metrics_source import ClientMetricsSource, Places, PositionsReader, StatisticsSource
from pipeline.client_positions.reasons import reason_of
from pipeline.common.epoch import now_ms
from pipeline.common.errors import ConfigError
from pipeline.common.files import FAILURES, NotAFileError, is_uri, open_filesystem, open_unpacked, redacted

PLACES_TRIED = 16
"""The most endpoints of a source that are asked, and files of a path that are read (the last by name). Others are only
counted."""
TIMEOUT_MS = 3_000
MOST_BYTES = 16 * 1024 * 1024
"""The most that is read of an endpoint or a file. If a path's files are larger together, they are only opened."""
_TOO_LONG = f"longer than {MOST_BYTES} bytes"
_SOURCES = {source.name(): source for source in (ClientMetricsSource, StatisticsSource)}


class Tried(NamedTuple):
    """The result for a place. `is_right` is None if a problem may be intended, or if it cannot be known.

    `todo` says what to do.
    """

    is_right: bool | None
    what: str
    todo: str | None = None


def try_places(source: str, options: Mapping[str, str]) -> Iterator[Tried]:
    """Tries each place of a data source of positions. It writes nothing but an empty file, which it removes again."""
    if source not in _SOURCES:
        for path in options.get("path", "").split(","):
            yield _try_path(path, None)
        for name in ("state", "topics_file"):
            if name in options:
                yield _try_folder(options[name]) if name == "state" else _try_path(options[name], None)
        return
    bounds = {"timeout_ms": TIMEOUT_MS, "most_bytes": MOST_BYTES, "read_timeout_ms": 2 * TIMEOUT_MS}
    bounded = {name: str(min(int(options.get(name, most)), most)) for name, most in bounds.items()}
    reader = _SOURCES[source]({**options, **bounded}).reader(_SOURCES[source]({}).schema())
    endpoints = reader.options.endpoints
    with ThreadPoolExecutor(PLACES_TRIED) as pool:
        yield from pool.map(lambda endpoint: _try_endpoint(endpoint, reader), endpoints[:PLACES_TRIED])
    if len(endpoints) > PLACES_TRIED:
        yield Tried(None, f"{len(endpoints) - PLACES_TRIED:,} more endpoints are not tried")
    for path in reader.options.paths:
        yield _try_path(path, reader)


def _try_endpoint(endpoint: str, reader: PositionsReader) -> Tried:
    place, error, clients = redacted(endpoint), *_read(endpoint, None, reader)
    if error == _TOO_LONG:
        return Tried(None, f"{place}: answers, but more than {MOST_BYTES} bytes are not read here")
    if error and not clients:
        return Tried(False, f"{place}: {error}", "does the agent run there, and may this machine connect to it?")
    if error:
        return Tried(None, f"{place}: {_number(clients, 'client')}, but some of it cannot be read: {error}")
    return _found(place, clients)


def _try_path(path: str, reader: PositionsReader | None) -> Tried:
    """Tries whether a file or a folder's files exist and can be opened; with a `reader`, also reads the last ones."""
    place = redacted(path)
    try:
        files, inside = open_filesystem(path)
        folder = Path(inside)
        if not is_uri(path) and folder.is_dir() and not os.access(folder, os.R_OK | os.X_OK):
            return Tried(
                False, f"{place}: {os.strerror(errno.EACCES)}", "give the user of laglake the right to read the folder"
            )
        found = files_in(path)
        if not found:
            return Tried(None, f"{place}: no files are there yet")
        sizes: list[int] = []
        for name in found[-PLACES_TRIED:]:
            files, inside = open_filesystem(name)
            with open_unpacked(files, inside, None if name == path else str(folder)) as stream:
                stream.read(1)
            sizes.append(files.get_file_info(inside).size)
    except FileNotFoundError:
        return Tried(False, f"{place}: no such file or folder", "all executors must find it under this name")
    except (ConfigError, *FAILURES) as error:
        reason = str(error) if isinstance(error, (ConfigError, NotAFileError)) else reason_of(error)
        return Tried(False, f"{place}: {reason}", "may the user of laglake read it?")
    named = place if found == [path] else f"{place}, {_number(len(found), 'file')}"
    if reader is None or sum(sizes) > MOST_BYTES:
        return Tried(True, f"{named}: can be read")
    read = [_read(name, None if name == path else path, reader) for name in found[-PLACES_TRIED:]]
    clients = max(clients for _, clients in read)
    errors = [error for error, _ in read if error]
    if _TOO_LONG in errors:
        return Tried(True, f"{named}: can be read")
    return Tried(None, f"{named}: {errors[0]}") if errors else _found(named, clients)


def _try_folder(path: str) -> Tried:
    """Tries the folder that keeps how far a request log was read."""
    place = redacted(path)
    if is_uri(path):
        return Tried(None, f"{place}: only a run shows whether it can be written")
    try:
        there = next(f for f in (Path(path).absolute(), *Path(path).absolute().parents) if f.exists())
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        return Tried(False, f"{place}: cannot be written: {reason_of(error)}", "all executors must write there")
    return Tried(True, f"{place}: can be written")


def _read(place: str, folder: str | None, reader: PositionsReader) -> tuple[str | None, int]:
    """The first error of a place, and how many clients it reports."""
    task = Places([(place, folder)], now_ms() + (reader.options.read_timeout_ms or 0))
    rows: Sequence[dict[str, object]] = [row for batch in reader.read(task) for row in batch.to_pylist()]
    errors = [str(row["error"]) for row in rows if row["error"]]
    return (errors[0] if errors else None), len({row["client_id"] for row in rows if row["client_id"]})


def _found(place: str, clients: int) -> Tried:
    if clients:
        return Tried(True, f"{place}: {_number(clients, 'client')}")
    todo = "does it have a consumer's metrics, under the names of docs/positions.md? Else set `names`"
    return Tried(None, f"{place}: answers, but reports no client", todo)


def _number(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"
