"""Checks, without Spark, whether the configured endpoints and files can be read, and how many clients they report."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import tzinfo
from pathlib import Path

from pipeline.client_positions.broker_log import BrokerLog
from pipeline.client_positions.endpoints import files_in
from pipeline.client_positions.metrics_source import ClientMetricsSource, Locations, PositionsReader, StatisticsSource
from pipeline.client_positions.nothing_found import REASONS
from pipeline.client_positions.request_log import RequestLog
from pipeline.client_positions.request_log_source import RequestLogOptions
from pipeline.common.check import Check, write_into
from pipeline.common.epoch import now_ms
from pipeline.common.errors import ConfigError, remedy_of
from pipeline.common.files import FAILURES, NotAFileError, is_uri, open_filesystem, open_unpacked, redacted
from pipeline.common.reasons import why_unreadable
from pipeline.common.words import counted

LOCATIONS_CHECKED = 16
"""The most endpoints of a data source that are asked, and files of a path that are read (the last by name). The others
are only counted."""
TIMEOUT_MS = 3_000
MOST_BYTES = 16 * 1024 * 1024
"""The most that is read of an endpoint or a file. If a path's files are larger together, they are only opened."""
_TOO_LONG = f"longer than {MOST_BYTES} bytes"
_NOTHING = "docs/positions.md says what laglake reads"
_SOURCES = {source.name(): source for source in (ClientMetricsSource, StatisticsSource)}


def check_locations(source: str, options: Mapping[str, str]) -> Iterator[Check]:
    """Checks each endpoint or file of a data source. Writes nothing but an empty file, which it removes again."""
    if source not in _SOURCES:
        log = {name: options[name] for name in ("path", "timezone", "topics_file") if name in options}
        found = RequestLogOptions.parse(log)
        for path in found.paths:
            yield _check_request_log(path, found.zone)
        for name in ("state", "topics_file"):
            if name in options:
                yield _check_state_folder(options[name]) if name == "state" else _check_path(options[name], None)
        return
    bounds = {"timeout_ms": TIMEOUT_MS, "most_bytes": MOST_BYTES, "read_timeout_ms": 2 * TIMEOUT_MS}
    limited = {name: str(min(int(options.get(name, most)), most)) for name, most in bounds.items()}
    reader = _SOURCES[source]({**options, **limited}).reader(_SOURCES[source]({}).schema())
    endpoints = reader.options.endpoints
    with ThreadPoolExecutor(LOCATIONS_CHECKED) as pool:
        yield from pool.map(lambda endpoint: _check_endpoint(endpoint, reader), endpoints[:LOCATIONS_CHECKED])
    if len(endpoints) > LOCATIONS_CHECKED:
        yield Check(None, f"{len(endpoints) - LOCATIONS_CHECKED:,} more endpoints are not checked")
    for path in reader.options.paths:
        yield _check_path(path, reader)


def _check_endpoint(endpoint: str, reader: PositionsReader) -> Check:
    location, error, clients = redacted(endpoint), *_read(endpoint, None, reader)
    if error == _TOO_LONG:
        return Check(None, f"{location}: answers, but more than {MOST_BYTES} bytes are not read here")
    if error in REASONS:
        return Check(None, f"{location}: {error}", _NOTHING)
    if error and not clients:
        return Check(
            False, f"{location}: {error}", "check that the agent runs there, and that this machine may connect to it"
        )
    if error:
        return Check(None, f"{location}: {counted(clients, 'client')}, but some of it cannot be read: {error}")
    return _found(location, clients)


def _check_path(path: str, reader: PositionsReader | None) -> Check:
    """Tries whether a file or a folder's files exist and can be opened; with a `reader`, also reads the last ones."""
    location = redacted(path)
    try:
        files, inside = open_filesystem(path)
        folder = Path(inside)
        if not is_uri(path) and folder.is_dir() and not os.access(folder, os.R_OK | os.X_OK):
            return Check(
                False,
                f"{location}: {os.strerror(errno.EACCES)}",
                "give the user of laglake the right to read it",
            )
        found = files_in(path)
        if not found:
            return Check(None, f"{location}: has no files yet")
        sizes: list[int] = []
        for name in found[-LOCATIONS_CHECKED:]:
            files, inside = open_filesystem(name)
            with open_unpacked(files, inside, None if name == path else str(folder)) as stream:
                stream.read(1)
            sizes.append(files.get_file_info(inside).size)
    except FileNotFoundError:
        return Check(False, f"{location}: no such file or folder", "all executors must find it under this name")
    except (ConfigError, *FAILURES) as error:
        reason = str(error) if isinstance(error, (ConfigError, NotAFileError)) else why_unreadable(error)
        return Check(False, f"{location}: {reason}", "give the user of laglake the right to read it")
    named = location if found == [path] else f"{location}, {counted(len(found), 'file')}"
    if reader is None or sum(sizes) > MOST_BYTES:
        return Check(True, f"{named}: can be read")
    return _check_files(found[-LOCATIONS_CHECKED:], path, named, reader)


def _check_files(files: Sequence[str], path: str, named: str, reader: PositionsReader) -> Check:
    """Reads some files of a path."""
    read = [_read(name, None if name == path else path, reader) for name in files]
    clients = max(clients for _, clients in read)
    errors = [error for error, _ in read if error]
    if _TOO_LONG in errors:
        return Check(True, f"{named}: can be read")
    if errors:
        return Check(None, f"{named}: {errors[0]}", _NOTHING if errors[0] in REASONS else None)
    return _found(named, clients)


def _check_request_log(path: str, zone: tzinfo) -> Check:
    """Reads the beginning of a request log's newest file, if it can be opened."""
    check = _check_path(path, None)
    if not check.is_right:
        return check
    log = BrokerLog(path, RequestLog(zone=zone), MOST_BYTES, now_ms() + 2 * TIMEOUT_MS)
    log.read_newest()
    clients = len({position.client_id for position in log.log.positions()})
    if not log.errors:
        return Check(True, f"{redacted(path)}: {counted(clients, 'client')}")
    where, error = log.errors[0]
    read = f"{counted(clients, 'client')}, but some of it cannot be read: " if clients else ""
    return Check(None, f"{where}: {read}{error}", None if clients else _NOTHING)


def _check_state_folder(path: str) -> Check:
    """Tries the folder that keeps how far a request log was read."""
    location = redacted(path)
    if is_uri(path):
        return Check(None, f"{location}: only a run shows whether it can be written")
    try:
        write_into(Path(path).absolute())
    except OSError as error:
        todo = remedy_of(error) or "all executors must write there"
        return Check(False, f"{location}: cannot be written: {why_unreadable(error)}", todo)
    return Check(True, f"{location}: can be written")


def _read(location: str, folder: str | None, reader: PositionsReader) -> tuple[str | None, int]:
    """The first error of an endpoint or file, and how many clients it reports."""
    task = Locations([(location, folder)], now_ms() + (reader.options.read_timeout_ms or 0))
    rows: Sequence[dict[str, object]] = [row for batch in reader.read(task) for row in batch.to_pylist()]
    errors = [str(row["error"]) for row in rows if row["error"]]
    return (errors[0] if errors else None), len({row["client_id"] for row in rows if row["client_id"]})


def _found(location: str, clients: int) -> Check:
    return Check(bool(clients) or None, f"{location}: {counted(clients, 'client')}", None if clients else _NOTHING)
