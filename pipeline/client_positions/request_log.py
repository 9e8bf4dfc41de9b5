"""The fetched offset of each client, from a broker's request log (the lines of kafka.request.logger at DEBUG).

A FETCH request contains the offset that its client fetches next: the fetched rung itself. With incremental fetch
sessions (KIP-227) it lists only what has changed since the previous request, so the rest is remembered by session.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, tzinfo
from typing import Any

from pipeline.client_positions.position import Position, count, text, time_ms, whole
from pipeline.client_positions.request_lines import (
    API,
    LINE,
    READ,
    Fetch,
    Place,
    Who,
    fetch_of,
    remote_address,
    replica_id,
    times_ms,
)
from pipeline.epoch import DAY_MS, utc_text

SILENT_MS = DAY_MS
"""How long, by the log's own clock, a client or a session without requests is remembered."""
MOST_CLIENTS = 100_000
MOST_SESSIONS = 100_000
MOST_TOPICS = 100_000
"""The most that are remembered, because a client may use another name, or begin another session, in each request."""
SEVERAL = 2
"""How many groups of a client are remembered: if a client commits for several, its group is not known."""
_MINUTE_MS = 60_000


@dataclass
class _Client:
    """What one client has asked for outside of sessions, and the totals of all its requests."""

    offsets: dict[Place, tuple[int, int]] = field(default_factory=dict)  # next offset to fetch, and as of when
    groups: set[str] = field(default_factory=set)
    requests: int = 0
    bytes: int = 0
    heard_ms: int = 0

    def commits_in(self, group: str) -> None:
        """Remembers that the client has committed for a group."""
        if len(self.groups) < SEVERAL:
            self.groups.add(group)

    def keep(self, session: _Session) -> None:
        """Takes over the offsets that a session had at its last request."""
        for place, offset in session.offsets.items():
            if place not in self.offsets or self.offsets[place][1] <= session.asked_ms:
                self.offsets[place] = (offset, session.asked_ms)


@dataclass
class _Session:
    """A fetch session of a client: the next offset of all its partitions, as of the request with this epoch."""

    who: Who
    epoch: int
    asked_ms: int
    offsets: dict[Place, int]


class RequestLog:
    """The positions of all clients of one broker, from its request log, which is read line by line.

    A topic is known only by its id until a METADATA line has its name; `topics` are the names that are already known,
    by id. `zone` is the broker's time zone, in which the log's times are. `at_ms` is the time of the last line of any
    kind. `dropped` counts the clients that were forgotten because there were too many. Lines of after `latest_ms` are
    refused, if that is set: such a line would be the newest of its client for ever.
    """

    def __init__(self, topics: Mapping[str, str] | None = None, zone: tzinfo = UTC) -> None:
        self.topics = dict(topics or {})
        self.at_ms: int | None = None
        self.zone = zone
        self.dropped = 0
        self.latest_ms: int | None = None
        self._clients: dict[Who, _Client] = defaultdict(_Client)
        self._sessions: dict[int, _Session] = {}

    def read(self, line: str) -> None:
        """Processes one line. Raises ValueError if it is a request's line, but not in Kafka's format."""
        at_ms = self._at_ms(line)
        is_request = line.startswith(READ, line.find(API))
        if at_ms is not None and self.latest_ms is not None and at_ms > self.latest_ms:
            if is_request:
                raise ValueError(f"is of {utc_text(at_ms)}, which is in the future: is the timezone right?")
            return
        self.at_ms = self.at_ms if at_ms is None else at_ms
        if is_request:
            self._read_request(line, at_ms)

    def _read_request(self, line: str, at_ms: int | None) -> None:
        parts = LINE.fullmatch(line)
        if not parts or at_ms is None:
            raise ValueError("not a line of Kafka's request log")
        try:
            request = json.loads(parts[1])
            header = request["requestHeader"]
            who = text(header["clientId"] or ""), remote_address(request.get("connection"))
            if header["requestApiKeyName"] == "FETCH":
                if replica_id(request["request"]) < 0:  # a follower's request has its broker's id
                    self._take(who, fetch_of(request, at_ms))
            elif header["requestApiKeyName"] == "OFFSET_COMMIT":
                group = text(request["request"]["groupId"])
                self._heard(who).commits_in(group)
            else:
                known = (t for t in request["response"]["topics"] if t.get("name") and t.get("topicId"))
                for topic in known:
                    topic_id, name = text(topic["topicId"]), text(topic["name"])
                    self.topics.pop(topic_id, None)  # to the end: `forget` removes the oldest names first
                    self.topics[topic_id] = name
        except (AttributeError, KeyError, OverflowError, RecursionError, TypeError, ValueError) as error:
            raise ValueError(f"not a line of Kafka's request log: {error!r} is missing or wrong") from error

    def positions(self) -> list[Position]:
        """The positions of every client: one with its counters, and one for each partition that it has fetched.

        Processes with the same client.id are distinguished by their addresses. The group is NULL if a client has not
        committed, or has committed for several groups.
        """
        sessions: dict[Who, list[_Session]] = defaultdict(list)
        for session in self._sessions.values():
            sessions[session.who].append(session)
        found = []
        for (client_id, host), client in self._clients.items():
            group = next(iter(client.groups)) if len(client.groups) == 1 else None
            if client.requests:
                found.append(
                    Position(
                        client_id,
                        group_id=group,
                        requests_total=client.requests,
                        bytes_total=client.bytes,
                        as_of_ms=client.heard_ms,
                        host=host,
                    )
                )
            asked = [(place, offset, as_of_ms) for place, (offset, as_of_ms) in client.offsets.items()]
            asked += [(place, o, s.asked_ms) for s in sessions[client_id, host] for place, o in s.offsets.items()]
            # A recreated topic has two ids with the same name; the last request counts.
            places: dict[Place, tuple[int, int]] = {}
            for (topic, partition), offset, as_of_ms in sorted(asked, key=lambda one: one[2]):
                places[self.topics.get(topic, topic), partition] = (offset, as_of_ms)
            found += [
                Position(client_id, None, topic, partition, offset, group_id=group, as_of_ms=as_of_ms, host=host)
                for (topic, partition), (offset, as_of_ms) in places.items()
            ]
        return found

    def forget(self) -> None:
        """Forgets clients and sessions without requests for SILENT_MS, and the oldest ones if there are too many."""
        since_ms = (self.at_ms or 0) - SILENT_MS
        for session_id in [key for key, session in self._sessions.items() if session.asked_ms < since_ms]:
            self._end(session_id)
        for who in [key for key, client in self._clients.items() if client.heard_ms < since_ms]:
            del self._clients[who]
        self._drop(len(self._clients) - MOST_CLIENTS)
        self._end_oldest(len(self._sessions) - MOST_SESSIONS)
        # The topics named last are in use. A forgotten topic is known by its id until a line has its name again.
        self.topics = dict([*self.topics.items()][-MOST_TOPICS:])

    def _drop(self, number: int) -> None:
        """Forgets `number` clients, those first whose last request is the oldest."""
        if number <= 0:
            return
        silent = set(sorted(self._clients, key=lambda who: self._clients[who].heard_ms)[:number])
        self._sessions = {key: session for key, session in self._sessions.items() if session.who not in silent}
        for who in silent:
            del self._clients[who]
        self.dropped += number

    def state(self) -> dict[str, Any]:
        """All that is known, as values that JSON can hold; `from_state` is the inverse."""
        return {
            "at_ms": self.at_ms,
            "topics": self.topics,
            "clients": [
                {
                    "who": [*who],
                    "groups": sorted(client.groups),
                    "requests": client.requests,
                    "bytes": client.bytes,
                    "heard_ms": client.heard_ms,
                    "offsets": [[*place, *asked] for place, asked in client.offsets.items()],
                }
                for who, client in self._clients.items()
            ],
            "sessions": [
                [key, [*s.who], s.epoch, s.asked_ms, [[*place, offset] for place, offset in s.offsets.items()]]
                for key, s in self._sessions.items()
            ],
        }

    @classmethod
    def from_state(
        cls, state: Mapping[str, Any], topics: Mapping[str, str] | None = None, zone: tzinfo = UTC
    ) -> RequestLog:
        """A log that continues from a `state`.

        Raises AttributeError, KeyError, TypeError or ValueError if the state is not valid.
        """
        known = {text(topic_id): text(name) for topic_id, name in state["topics"].items()}
        log = cls({**(topics or {}), **known}, zone)
        log.at_ms = None if state["at_ms"] is None else time_ms(state["at_ms"])
        for client in state["clients"]:
            log._clients[_who(client["who"])] = _Client(
                {_place(*place): (count(offset), time_ms(as_of_ms)) for *place, offset, as_of_ms in client["offsets"]},
                {text(group) for group in client["groups"]},
                count(client["requests"]),
                count(client["bytes"]),
                time_ms(client["heard_ms"]),
            )
        for key, who, epoch, asked_ms, partitions in state["sessions"]:
            offsets = {_place(*place): count(offset) for *place, offset in partitions}
            log._sessions[whole(key)] = _Session(_who(who), whole(epoch), time_ms(asked_ms), offsets)
        return log

    def _at_ms(self, line: str) -> int | None:
        """When a line was written. If the hour occurs twice (end of summer time), the previous line decides which."""
        times = times_ms(line, self.zone)
        if times is None:
            return None
        first, second = times
        return first if first >= (self.at_ms or 0) - _MINUTE_MS else second

    def _heard(self, who: Who) -> _Client:
        client = self._clients[who]
        client.heard_ms = self.at_ms or 0
        if len(self._clients) > 2 * MOST_CLIENTS:
            self._drop(MOST_CLIENTS)
        return client

    def _take(self, who: Who, fetch: Fetch) -> None:
        client = self._heard(who)
        client.requests += 1
        client.bytes += fetch.bytes
        session = self._sessions.get(fetch.session)
        if session and session.who == who:
            # Files may arrive late or be read again; then the session already has a newer request.
            if fetch.sent_ms < session.asked_ms if fetch.is_full else fetch.epoch <= session.epoch:
                return
            # If a line was lost, it may have changed partitions that this request does not list.
            if fetch.epoch == session.epoch + 1:
                self._go_on(client, session, fetch)
                return
        self._end(fetch.ends)
        self._end(fetch.session)
        if fetch.session:
            self._sessions[fetch.session] = _Session(who, fetch.epoch, fetch.sent_ms, fetch.offsets)
            if len(self._sessions) > 2 * MOST_SESSIONS:
                self._end_oldest(MOST_SESSIONS)
        else:
            client.offsets |= {place: (offset, fetch.sent_ms) for place, offset in fetch.offsets.items()}

    def _go_on(self, client: _Client, session: _Session, fetch: Fetch) -> None:
        """Applies the next request of a session. Partitions that it does not list keep their offsets."""
        for place in fetch.forgotten:
            if place in session.offsets:
                client.offsets[place] = (session.offsets.pop(place), session.asked_ms)
        session.offsets |= fetch.offsets
        session.epoch, session.asked_ms = fetch.epoch, fetch.sent_ms

    def _end_oldest(self, number: int) -> None:
        """Ends `number` sessions, those first whose last request is the oldest. Their clients keep the offsets."""
        if number > 0:
            for session_id in sorted(self._sessions, key=lambda key: self._sessions[key].asked_ms)[:number]:
                self._end(session_id)

    def _end(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session:
            self._clients[session.who].keep(session)


def _who(kept: list[Any]) -> Who:
    client_id, host = kept
    return text(client_id), None if host is None else text(host)


def _place(topic: Any, partition: Any) -> Place:
    return text(topic), count(partition, below=2**31)
