"""A recording of clients made elsewhere: a folder of scrapes, statistics or request logs, and the brokers' offsets.

This module, in plain Python, finds the files of each round of samples, the true offsets, the members of groups and the
settings of clients.
"""

from __future__ import annotations

import bisect
import csv
import gzip
import json
import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from pipeline.client_positions.endpoints import EPOCH_MS
from pipeline.client_positions.position import Position, count, integer
from pipeline.client_positions.request_log import REFUSED, Refused, RequestLog
from pipeline.common.epoch import utc
from pipeline.common.errors import ConfigError
from pipeline.config.consumers import ConsumerSettings
from pipeline.config.toml_file import mistakes_of
from pipeline.replay.members import Member, members_of

AGENTS = ("jolokia", "prom")
STATISTICS = ("statistics.jsonl", "statistics.jsonl.gz")
REQUEST_LOGS = ("request.log", "request.log.gz")
_MEMBERS = re.compile(r"consumer_groups_members_(\d{13})\.txt")
_RUNGS = {
    "log_start": "log_start_offset",
    "last_stable_offset": "last_stable_offset",
    "high_watermark": "high_watermark",
    "log_end": "log_end_offset",
}
"""Columns of truth.csv, and their names in `watermarks`."""


class Logged(NamedTuple):
    """The positions from a request log as of a round. `error` says which lines were refused since the round before.

    Without positions, it says why there are none; else it is None.
    """

    positions: list[Position]
    error: str | None

    @classmethod
    def of(cls, log: RequestLog, refused: Refused) -> Logged:
        """What is known of the log now."""
        return cls(log.positions(), str(refused) if refused.count else log.why_no_position())


@dataclass(frozen=True)
class Recording:
    """The contents of a folder. Times are epoch ms; ends, commits and members are in the order of their times.

    rounds: when each round of sampling began, and its files; statistics have no files, because each line is a round.
    ends: the rungs of partitions, by column. commits: by (group, topic, partition), NULL if there is no commit.
    """

    folder: Path
    rounds: Mapping[int, list[Path]]
    statistics: Path | None = None
    request_log: Path | None = None
    ends: Mapping[int, dict[tuple[str, int], dict[str, int | None]]] = field(default_factory=dict)
    commits: Mapping[int, dict[tuple[str, str, int], int | None]] = field(default_factory=dict)
    members: Mapping[int, list[Member]] = field(default_factory=dict)
    settings: Mapping[str, ConsumerSettings] = field(default_factory=dict)

    @classmethod
    def of(cls, folder: Path) -> Recording:
        """Reads a folder. Raises ConfigError if it has no recording, or if a table or a setting is wrong."""
        if not folder.is_dir():
            raise ConfigError(f"{folder}: is not a folder")
        statistics, request_log = _first(folder, STATISTICS), _first(folder, REQUEST_LOGS)
        ends, commits = _truth(folder / "truth.csv")
        rounds = _rounds(folder)
        if not rounds and statistics:
            rounds = {at_ms: [] for at_ms in _line_times(statistics)}
        elif not rounds and request_log:
            rounds = {at_ms: [] for at_ms in ends}
        if not rounds:
            raise ConfigError(
                f"{folder}: holds no recording: no jolokia/ or prom/ with files that have epoch ms in their names, "
                "here or one level down, statistics.jsonl, or request.log beside truth.csv"
            )
        members = {int(m[1]): _members(file) for file in sorted(folder.iterdir()) if (m := _MEMBERS.match(file.name))}
        return cls(folder, rounds, statistics, request_log, ends, commits, members, _settings(folder))

    def logged(self) -> Iterator[tuple[int, Logged]]:
        """What the request log has as of each round, in order; nothing if there is no request log."""
        if self.request_log is None:
            return
        log = RequestLog(_topics(self.folder / "topic_ids.csv"))
        due, refused = sorted(self.rounds), Refused()
        for number, text in enumerate(_lines(self.request_log), 1):
            try:
                line = log.unwrap(text)
            except REFUSED as error:
                refused.add(number, error)
                continue
            if line is None:
                continue
            while due and line.times and line.times[0] > due[0]:
                yield due.pop(0), Logged.of(log, refused)
                refused = Refused()
            try:
                log.read_unwrapped(line)
            except REFUSED as error:
                refused.add(number, error)
        for at_ms in due:
            yield at_ms, Logged.of(log, refused)
            refused = Refused()


def nearest(times: list[int], at_ms: int, most_ms: int) -> int | None:
    """The one of the sorted `times` that is nearest to an instant; None if none is within `most_ms`."""
    after = bisect.bisect(times, at_ms)
    found = min(times[max(after - 1, 0) : after + 1], key=lambda t: abs(t - at_ms), default=None)
    return found if found is not None and abs(found - at_ms) <= most_ms else None


def _rounds(folder: Path) -> dict[int, list[Path]]:
    """The files of agents, by the time of their round.

    The rounds are those of the agent with the most files: each of its files begins a round, which includes the files of
    the other agents up to the next round.
    """
    agents = [below / agent for below in (folder, *sorted(folder.iterdir())) for agent in AGENTS]
    series = [sorted(found) for agent in agents if agent.is_dir() and (found := list(_timed(agent)))]
    if not series:
        return {}
    begins = [at_ms for at_ms, _ in max(series, key=lambda files: (len(files), -files[0][0]))]
    rounds: dict[int, list[Path]] = {at_ms: [] for at_ms in begins}
    for at_ms, file in sorted(item for files in series for item in files):
        rounds[begins[max(bisect.bisect(begins, at_ms) - 1, 0)]].append(file)
    return rounds


def _timed(folder: Path) -> Iterator[tuple[int, Path]]:
    for file in folder.iterdir():
        if found := EPOCH_MS.search(file.name):
            yield int(found[1]), file


def _line_times(statistics: Path) -> list[int]:
    times = []
    for line in _lines(statistics):
        try:
            times.append(_instant(json.loads(line)["ts"]))
        except (KeyError, OverflowError, RecursionError, TypeError, ValueError):
            continue  # the data source reports it
    return sorted(times)


def _truth(file: Path) -> tuple[dict[int, Any], dict[int, Any]]:
    """The rungs by time and partition, and the commits by time and reader."""
    ends: dict[int, dict[tuple[str, int], dict[str, int | None]]] = {}
    commits: dict[int, dict[tuple[str, str, int], int | None]] = {}
    for number, row in enumerate(_table(file) if file.exists() else (), 2):
        try:
            at_ms, topic, partition = _instant(row["ts"]), row["topic"], count(int(row["partition"]), below=2**31)
            found = {name: _offset(row.get(column)) for column, name in _RUNGS.items()}
            ends.setdefault(at_ms, {})[topic, partition] = found
            if row.get("group"):
                commits.setdefault(at_ms, {})[row["group"], topic, partition] = _offset(row["committed"])
        except (KeyError, OverflowError, TypeError, ValueError) as error:
            raise ConfigError(f"{file}: line {number}: {error!r} is missing or wrong") from None
    return dict(sorted(ends.items())), dict(sorted(commits.items()))


def _instant(value: Any) -> int:
    """Epoch ms. Raises OverflowError or ValueError if it is not a valid time."""
    at_ms = int(value)
    utc(at_ms)
    return at_ms


def _offset(text: str | None) -> int | None:
    return integer(int(text)) if text else None


def _topics(file: Path) -> dict[str, str]:
    """Names of topics by id."""
    try:
        return {row["topic_id"]: row["topic"] for row in _table(file)} if file.exists() else {}
    except KeyError as error:
        raise ConfigError(f"{file}: {error!r} is missing or wrong") from None


def _members(file: Path) -> list[Member]:
    try:
        return members_of(_lines(file))
    except ValueError as error:
        raise ConfigError(f"{file}: {error}") from None


def _settings(folder: Path) -> dict[str, ConsumerSettings]:
    """The settings of clients by client id; for the old consumer, the client id is the group's id by default."""
    found: dict[str, ConsumerSettings] = {}
    for below in (folder, *sorted(p for p in folder.iterdir() if p.is_dir())):
        for file in (below / "consumer.properties", below / "consumer.json"):
            for properties in _clients_of(file) if file.exists() else ():
                try:
                    settings = ConsumerSettings.of_properties(properties)
                except ValidationError as error:
                    raise ConfigError(f"{file}: {mistakes_of(error, ConsumerSettings)[0]}") from None
                name = properties.get("client.id") or properties.get("group.id")
                if name and isinstance(name, str):
                    found[name] = settings
    return found


def _clients_of(file: Path) -> Iterator[dict[str, Any]]:
    """The configuration of each client in a file. With `clients=a,b`, the names of settings begin with the client's."""
    if file.suffix == ".json":
        try:
            yield dict(json.loads("".join(_lines(file))))
        except (RecursionError, TypeError, ValueError):
            raise ConfigError(f"{file}: is not a JSON object") from None
        return
    pairs = (line.partition("=") for line in _lines(file) if not line.lstrip().startswith(("#", "!")))
    properties = {name.strip(): value.strip() for name, _, value in pairs if name.strip()}
    prefixes = [f"{client.strip()}." for client in properties.get("clients", "").split(",") if client.strip()]
    for prefix in prefixes or [""]:
        yield {name.removeprefix(prefix): v for name, v in properties.items() if name.startswith(prefix)}


def _first(folder: Path, names: tuple[str, ...]) -> Path | None:
    return next((folder / name for name in names if (folder / name).exists()), None)


def _table(file: Path) -> list[dict[str, str]]:
    try:
        return list(csv.DictReader(_lines(file)))
    except csv.Error as error:
        raise ConfigError(f"{file}: cannot be read: {error}") from None


def _lines(file: Path) -> Iterator[str]:
    """The lines of a file, unpacked if its name says so. Raises ConfigError if it cannot be read completely."""
    try:
        opened: Any = gzip.open if file.suffix == ".gz" else Path.open
        with opened(file, "rt", encoding="utf-8", errors="replace") as lines:
            yield from lines
    except (EOFError, OSError, zlib.error) as error:
        raise ConfigError(f"{file}: cannot be read: {type(error).__name__}") from None
