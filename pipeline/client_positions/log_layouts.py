"""Takes a line of a broker's log out of what surrounds it: a layout in JSON, or the lines of a container's log.

Docker's json-file has an object for each line, and CRI (containerd, CRI-O) writes a time, a stream and a mark before
it. Both divide a line of more than 16 KiB into several, which are joined here. Collectors (fluentd, fluent-bit) store
such lines in objects of their own, without the newlines.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime, tzinfo
from functools import lru_cache
from io import StringIO
from typing import Any, NamedTuple

from pipeline.client_positions.position import LATEST_MS
from pipeline.common.epoch import MINUTE_MS, to_epoch_ms

REQUEST = "Completed request:"
"""What Kafka writes before each request, in all versions."""
LONGEST_JOINED = 16 * 1024**2
"""The most characters that the parts of a line may have together; the rest is dropped, so that the line is refused."""
STREAMS = ("stdout", "stderr")
"""A container has no others. An object with another name in `stream` has it for something else."""
DOCKERS_BYTES = 16 * 1024
"""A part of a line has this size in Docker's json-file, and no newline at its end."""
Times = tuple[int, int]
"""When a line was written, epoch ms. The two differ in the hour that occurs twice when summer time ends."""
_TIME = re.compile(r"\[?(20\d\d-\d\d-\d\d)[ T](\d\d:\d\d):(\d\d)(?:[,.](\d{1,9}))?(?:(Z)|([+-])(\d\d):?(\d\d))?")
_CRI = re.compile(r"(20\d\d-\d\d-\d\dT\S{1,30}) (stdout|stderr) ([FP])(?::\S*)? ")
_MARKS = ("logtag", "_p")
"""The fields that fluentd and fluent-bit have CRI's mark in: P for a part of a line, F for a whole line or its end."""
_TIMES = ("@timestamp", "timestamp", "time", "timeMillis", "ts", "instant")
"""The fields that layouts have the time in: logstash and ECS, GELF, log4j2."""
_LEAST_MS = 10**11
"""A smaller number is in seconds: this one is in the year 1973 as milliseconds, and in 5138 as seconds."""
_NO_TIME = 10**18
"""No time is this large in any unit. JSON may have whole numbers that are larger than any float: one of 400 digits once
stopped all reading."""


class Line(NamedTuple):
    """A line as the broker wrote it; `times` is None if neither the line nor what surrounds it has a time."""

    text: str
    times: Times | None


class _Written(NamedTuple):
    """What a container has written: a whole line, or a part of one; the last part of a line is no part here."""

    stream: str
    text: str
    is_part: bool


class Unwrapper:
    """Gets the lines of one log one after the other, and keeps the parts of lines that have no end yet, by stream."""

    def __init__(self, parts: Mapping[str, Any] | None = None) -> None:
        """Continues with the `parts` of a state. Raises AttributeError or TypeError if they are not valid."""
        self._begun: dict[str, StringIO] = {}
        for stream, part in (parts or {}).items():
            if not isinstance(part, str):
                raise TypeError(f"{type(part).__name__} instead of a text")
            if stream not in STREAMS:
                raise TypeError("parts of an unknown stream")
            self._keep(stream, part)

    @property
    def parts(self) -> dict[str, str]:
        """The parts that were kept, joined, by stream."""
        return {stream: begun.getvalue() for stream, begun in self._begun.items()}

    @property
    def kept(self) -> int:
        """How many characters of lines without an end were kept."""
        return sum(begun.tell() for begun in self._begun.values())

    def unwrap(self, line: str, zone: tzinfo) -> Line | None:
        """The line in a line; None if its rest is in a later one. `zone` is that of times without one.

        The broker's own time counts; if it wrote none, that of its layout, or of the container.
        """
        if cri := _CRI.match(line):
            whole = self._joined(_Written(cri[2], line[cri.end() :], cri[3] == "P"))
            return None if whole is None else _inner(whole, times_ms(cri[1], zone), zone)
        said = _object(line)
        if said is None:
            return Line(line, times_ms(line, zone))
        if written := _written(said):
            whole = self._joined(written)
            return None if whole is None else _inner(whole, _times_of(said, zone), zone)
        return _of_layout(said, line, zone)

    def _joined(self, written: _Written) -> str | None:
        """The whole line, without a newline; None if its end has not come."""
        stream, text = written.stream, written.text.rstrip("\r\n")
        if written.is_part or stream in self._begun:
            self._keep(stream, text)
        if written.is_part:
            return None
        begun = self._begun.pop(stream, None)
        return begun.getvalue() if begun else text

    def _keep(self, stream: str, text: str) -> None:
        # Without a copy of what was kept: with one for each part, the time grew with the square of their number.
        begun = self._begun.setdefault(stream, StringIO())
        left = LONGEST_JOINED - begun.tell()
        if left > 0:
            begun.write(text[:left])


def _written(said: Mapping[str, Any]) -> _Written | None:
    """What a container has written, if an object is such a line of Docker or of a collector; else None.

    fluent-bit's parser of CRI has the text in `message`. Other collectors have whole lines there, however long.
    """
    marks = [said[name] for name in _MARKS if isinstance(said.get(name), str)]
    text, stream = said.get("log", said.get("message") if marks else None), said.get("stream")
    if not isinstance(text, str) or stream not in STREAMS:
        return None
    if marks:
        return _Written(stream, text, is_part="P" in marks[0].split(":"))
    is_cut = not text.endswith("\n") and len(text.encode(errors="replace")) >= DOCKERS_BYTES
    return _Written(stream, text, is_cut)


def times_ms(text: str, zone: tzinfo) -> Times | None:
    """The time that a text begins with, epoch ms; None if it begins with none. `zone` counts if the text has none."""
    return _times_of_parts(_TIME.match(text), zone)


def first_time_ms(text: str, zone: tzinfo) -> int | None:
    """The first time anywhere in the beginning of a log, whatever its layout; epoch ms."""
    times = _times_of_parts(_TIME.search(text), zone)
    return times[0] if times else None


def _times_of_parts(parts: re.Match[str] | None, zone: tzinfo) -> Times | None:
    if not parts:
        return None
    has_offset = bool(parts[5] or parts[6])
    minutes = _minute_ms(f"{parts[1]} {parts[2]}", UTC if has_offset else zone)
    if minutes is None:
        return None
    ahead_ms = (int(parts[7]) * 60 + int(parts[8])) * MINUTE_MS if parts[6] else 0
    rest_ms = int(parts[3]) * 1_000 + int((parts[4] or "").ljust(3, "0")[:3])
    rest_ms += ahead_ms if parts[6] == "-" else -ahead_ms
    return minutes[0] + rest_ms, minutes[1] + rest_ms


@lru_cache(4_096)
def _minute_ms(minutes: str, zone: tzinfo) -> Times | None:
    try:
        minute = datetime.strptime(minutes, "%Y-%m-%d %H:%M").replace(tzinfo=zone)
    except ValueError:
        return None
    first, second = (to_epoch_ms(minute.replace(fold=fold)) for fold in (0, 1))
    # In the hour that does not exist when summer time begins, fold counts backwards; then there is no second result.
    return first, max(first, second)


def _inner(text: str, times: Times | None, zone: tzinfo) -> Line:
    """The line of a container's log, which may itself have a layout in JSON."""
    said = _object(text)
    line = Line(text, times_ms(text, zone)) if said is None else _of_layout(said, text, zone)
    return Line(line.text, line.times or times)


def _object(text: str) -> dict[str, Any] | None:
    """The JSON object in a text; None if the text is something else."""
    if not text.startswith("{"):
        return None
    try:
        said = json.loads(text)
    except (RecursionError, ValueError):
        return None
    return said if isinstance(said, dict) else None


def _of_layout(said: Mapping[str, Any], whole: str, zone: tzinfo) -> Line:
    """The line in the object of a layout, whatever the name of its field; without a request, the `whole` object."""
    texts = [value for value in said.values() if isinstance(value, str) and REQUEST in value]
    text = texts[0] if texts else whole
    return Line(text, times_ms(text, zone) or _times_of(said, zone))


def _times_of(said: Mapping[str, Any], zone: tzinfo) -> Times | None:
    for name in _TIMES:
        if name in said and (times := _times_of_value(said[name], zone)):
            return times
    return None


def _times_of_value(value: Any, zone: tzinfo) -> Times | None:
    """The instant that a field has: as a text, as a number of seconds or milliseconds, or as log4j2's `instant`."""
    if isinstance(value, str):
        return times_ms(value, zone)
    if isinstance(value, dict):
        seconds, ns = value.get("epochSecond"), value.get("nanoOfSecond")
        value = seconds * 1_000 + ns // 1_000_000 if type(seconds) is type(ns) is int else None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < _NO_TIME:
        return None  # NaN is not less than a number, either
    at_ms = round(value if value >= _LEAST_MS else value * 1_000)
    return (at_ms, at_ms) if 0 <= at_ms < LATEST_MS else None
