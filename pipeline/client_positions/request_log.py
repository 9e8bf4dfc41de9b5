"""The fetched offset of each client, from a broker's request log (the lines of kafka.request.logger at DEBUG).

A FETCH request contains the offset that its client fetches next: the fetched rung itself. With incremental fetch
sessions (KIP-227) it lists only what has changed since the previous request, so the rest is remembered by session.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, tzinfo
from typing import Any

from pipeline.client_positions.log_layouts import Line, Times, Unwrapper
from pipeline.client_positions.nothing_found import NO_READER
from pipeline.client_positions.position import Position, stored_name, time_ms
from pipeline.client_positions.request_lines import READ, api_of, fetch_of, remote_address, replica_id, request_in
from pipeline.client_positions.request_memory import Memory
from pipeline.common.epoch import MINUTE_MS, utc_text
from pipeline.common.words import counted

BYTES_BETWEEN_CHECKS = 16 * 1024**2
"""The limits of Memory are applied each time that this many characters of requests were read, which takes up to a
second."""
REFUSED = (OverflowError, ValueError)
"""What a line raises that is refused. No line may stop the reading of a log: it would do so again in each batch."""


@dataclass
class Refused:
    """How many lines of a log were refused, and why the first of them was."""

    count: int = 0
    first: str = ""

    def add(self, number: int, error: Exception) -> None:
        """Counts the line with this number."""
        self.count += 1
        self.first = self.first or f"line {number}: {error}"

    def __str__(self) -> str:
        """The error of a row."""
        return f"{counted(self.count, 'line')} refused, the first: {self.first}"


class RequestLog:
    """The positions of all clients of one broker, from its request log, which is read line by line.

    A topic is known only by its id until a METADATA line has its name; `topics` are the names that are already known,
    by id. `zone` is the broker's time zone, in which the log's times are. `at_ms` is the time of the last line of any
    kind. If `latest_ms` is set, later lines are refused: otherwise, such a line would stay the newest of its client
    until that time.
    """

    def __init__(self, topics: Mapping[str, str] | None = None, zone: tzinfo = UTC) -> None:
        self.memory = Memory(topics)
        self.at_ms: int | None = None
        self.zone = zone
        self.latest_ms: int | None = None
        self.lines = self.requests = 0  # that were read, but for those that the state is about
        self._unwrapper = Unwrapper()
        self._unchecked = 0

    def read(self, line: str) -> None:
        """Processes one line. Raises ValueError if it is a request's line, but not in a form that Kafka gives it."""
        found = self.unwrap(line)
        if found is not None:
            self.read_unwrapped(found)

    def unwrap(self, line: str) -> Line | None:
        """The line as the broker wrote it, for `read_unwrapped`; None if its rest is in a later line."""
        return self._unwrapper.unwrap(line, self.zone)

    def read_unwrapped(self, line: Line) -> None:
        """Processes what `unwrap` has returned. Raises ValueError as `read` does."""
        self.lines += bool(line.text.strip())
        at_ms = self._at_ms(line.times)
        is_late = at_ms is not None and self.latest_ms is not None and at_ms > self.latest_ms
        self.at_ms = self.at_ms if at_ms is None or is_late else at_ms
        api = api_of(line.text)
        self.requests += api is not None
        if api not in READ:
            return
        if at_ms is None:
            raise ValueError("not a line of Kafka's request log: it has no date and time")
        if is_late:
            raise ValueError(f"its time, {utc_text(at_ms)}, is in the future: check the option timezone")
        self._unchecked += len(line.text)
        if self._unchecked > BYTES_BETWEEN_CHECKS:
            self.forget()
        self._read_request(line.text, at_ms)

    def _read_request(self, text: str, at_ms: int) -> None:
        try:
            request = request_in(text)
            header = request["requestHeader"]
            instance = stored_name(header["clientId"] or ""), remote_address(request.get("connection"))
            if header["requestApiKeyName"] == "FETCH":
                if replica_id(request["request"]) < 0:  # a follower's request has its broker's id
                    self.memory.fetched(instance, fetch_of(request, at_ms), at_ms)
            elif header["requestApiKeyName"] == "OFFSET_COMMIT":
                self.memory.committed(instance, stored_name(request["request"]["groupId"]), at_ms)
            else:
                known = (t for t in request["response"]["topics"] if t.get("name") and t.get("topicId"))
                for topic in known:
                    self.memory.name(stored_name(topic["topicId"]), stored_name(topic["name"]))
        except json.JSONDecodeError:
            raise ValueError("not a line of Kafka's request log: its request is incomplete") from None
        except (AttributeError, KeyError, OverflowError, RecursionError, TypeError, ValueError) as error:
            raise ValueError(f"not a line of Kafka's request log: {error!r} is missing or wrong") from error

    def why_no_position(self) -> str | None:
        """Why there is no position after what was read; None if there are positions."""
        if self.memory.has_positions:
            return None
        if (kept := self._unwrapper.kept) and not self.requests:
            return f"only the beginning of a line has come, {counted(kept, 'character')}, and not its end"
        if not self.lines:
            return "has no new line, and no consumer's FETCH is known from earlier ones"
        if not self.requests:
            return (
                "no new line has a request: the level of kafka.request.logger must be DEBUG, "
                "with an appender to this file"
            )
        return NO_READER

    def positions(self) -> list[Position]:
        """The positions of every client, see Memory."""
        return self.memory.positions()

    def forget(self) -> None:
        """Forgets clients and sessions without requests for a day, and applies the limits of Memory."""
        self.memory.forget_silent(self.at_ms or 0)
        self.memory.forget_excess()
        self._unchecked = 0

    def state(self) -> dict[str, Any]:
        """All that is known, as values that JSON can hold; `from_state` is the inverse."""
        return {"at_ms": self.at_ms, "parts": self._unwrapper.parts, **self.memory.state()}

    @classmethod
    def from_state(
        cls, state: Mapping[str, Any], topics: Mapping[str, str] | None = None, zone: tzinfo = UTC
    ) -> RequestLog:
        """A log that continues from a `state`.

        Raises AttributeError, KeyError, TypeError or ValueError if the state is not valid.
        """
        log = cls(zone=zone)
        log.memory = Memory.from_state(state, topics)
        log._unwrapper = Unwrapper(state.get("parts"))
        log.at_ms = None if state["at_ms"] is None else time_ms(state["at_ms"])
        return log

    def _at_ms(self, times: Times | None) -> int | None:
        """When a line was written. If the hour occurs twice (end of summer time), the previous line decides which."""
        if times is None:
            return None
        first, second = times
        return first if first >= (self.at_ms or 0) - MINUTE_MS else second
