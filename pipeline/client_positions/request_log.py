"""The fetched offset of each client, from a broker's request log (the lines of kafka.request.logger at DEBUG).

A FETCH request contains the offset that its client fetches next: the fetched rung itself. With incremental fetch
sessions (KIP-227) it lists only what has changed since the previous request, so the rest is remembered by session.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, tzinfo
from typing import Any

from pipeline.client_positions.position import Position, stored_name, time_ms
from pipeline.client_positions.request_lines import (
    API,
    LINE,
    READ,
    fetch_of,
    remote_address,
    replica_id,
    times_ms,
)
from pipeline.client_positions.request_memory import Memory
from pipeline.common.epoch import MINUTE_MS, utc_text

BYTES_BETWEEN_CHECKS = 16 * 1024**2
"""The limits of Memory are applied each time that this many characters of requests were read, which takes up to a
second."""


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
        self._unchecked = 0

    def read(self, line: str) -> None:
        """Processes one line. Raises ValueError if it is a request's line, but not in Kafka's format."""
        at_ms = self._at_ms(line)
        is_request = line.startswith(READ, line.find(API))
        if at_ms is not None and self.latest_ms is not None and at_ms > self.latest_ms:
            if is_request:
                raise ValueError(f"its time, {utc_text(at_ms)}, is in the future: check the option timezone")
            return
        self.at_ms = self.at_ms if at_ms is None else at_ms
        if is_request:
            self._unchecked += len(line)
            if self._unchecked > BYTES_BETWEEN_CHECKS:
                self.forget()
            self._read_request(line, at_ms)

    def _read_request(self, line: str, at_ms: int | None) -> None:
        parts = LINE.fullmatch(line)
        if not parts or at_ms is None:
            raise ValueError("not a line of Kafka's request log")
        try:
            request = json.loads(parts[1])
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
        except (AttributeError, KeyError, OverflowError, RecursionError, TypeError, ValueError) as error:
            raise ValueError(f"not a line of Kafka's request log: {error!r} is missing or wrong") from error

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
        return {"at_ms": self.at_ms, **self.memory.state()}

    @classmethod
    def from_state(
        cls, state: Mapping[str, Any], topics: Mapping[str, str] | None = None, zone: tzinfo = UTC
    ) -> RequestLog:
        """A log that continues from a `state`.

        Raises AttributeError, KeyError, TypeError or ValueError if the state is not valid.
        """
        log = cls(zone=zone)
        log.memory = Memory.from_state(state, topics)
        log.at_ms = None if state["at_ms"] is None else time_ms(state["at_ms"])
        return log

    def _at_ms(self, line: str) -> int | None:
        """When a line was written. If the hour occurs twice (end of summer time), the previous line decides which."""
        times = times_ms(line, self.zone)
        if times is None:
            return None
        first, second = times
        return first if first >= (self.at_ms or 0) - MINUTE_MS else second
