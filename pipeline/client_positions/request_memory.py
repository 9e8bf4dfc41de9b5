"""What is remembered of one broker's request log: the offsets of each client, within a bound in bytes."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, TypeVar

from pipeline.client_positions.position import Position, count, text, time_ms, whole
from pipeline.client_positions.request_lines import Fetch, Place, Who
from pipeline.common.epoch import DAY_MS

SILENT_MS = DAY_MS
"""How long, by the log's own clock, a client or a session without requests is remembered."""
MOST_BYTES = 128 * 1024**2
"""The most that is remembered, because clients decide which names, partitions and sessions a log contains.

Names count with their length in UTF-8; each client, session, offset and topic counts ENTRY_BYTES more. So there is room
for 400,000 offsets.
"""
MOST_SHARE = MOST_BYTES // 8
"""The most of it that one client may take, and all names of topics in the log: so none displaces all others."""
ENTRY_BYTES = 300
SEVERAL = 2
"""How many groups of a client are remembered: if a client commits for several, its group is not known."""

Item = TypeVar("Item")


@dataclass
class _Client:
    """What one client has asked for outside of sessions, and the totals of all its requests."""

    offsets: dict[Place, tuple[int, int]] = field(default_factory=dict)  # next offset to fetch, and as of when
    groups: set[str] = field(default_factory=set)
    requests: int = 0
    bytes: int = 0
    heard_ms: int = 0

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


class Memory:
    """The clients of one broker, their fetch sessions (KIP-227), and the names of topics by their ids.

    `given` are names of topics that each batch is given anew: they are not part of the state, and take no share.
    `forgotten` counts, by kind, what was forgotten because MOST_BYTES or MOST_SHARE was exceeded.
    """

    def __init__(self, given: Mapping[str, str] | None = None) -> None:
        self.topics: dict[str, str] = {}
        self._given = given or {}
        self.forgotten: Counter[str] = Counter()
        self._clients: dict[Who, _Client] = defaultdict(_Client)
        self._sessions: dict[int, _Session] = {}

    def name(self, topic_id: str, name: str) -> None:
        """Remembers a topic's name."""
        self.topics.pop(topic_id, None)  # to the end: the oldest names are forgotten first
        if self._given.get(topic_id) != name:
            self.topics[topic_id] = name

    def committed(self, who: Who, group: str, at_ms: int) -> None:
        """Remembers that a client has committed for a group."""
        client = self._heard(who, at_ms)
        if len(client.groups) < SEVERAL:
            client.groups.add(group)

    def fetched(self, who: Who, fetch: Fetch, at_ms: int) -> None:
        """Remembers what a client has asked for. With a session, a request lists only what has changed."""
        client = self._heard(who, at_ms)
        client.requests += 1
        client.bytes += fetch.bytes
        session = self._sessions.get(fetch.session)
        if session and session.who == who:
            # Files may arrive late or be read again; then the session already has a newer request.
            if fetch.sent_ms < session.asked_ms if fetch.is_full else fetch.epoch <= session.epoch:
                return
            # If a line was lost, it may have changed partitions that this request does not list.
            if fetch.epoch == session.epoch + 1:
                _go_on(client, session, fetch)
                return
        self._end(fetch.ends)
        self._end(fetch.session)
        if fetch.session:
            self._sessions[fetch.session] = _Session(who, fetch.epoch, fetch.sent_ms, fetch.offsets)
        else:
            client.offsets |= {place: (offset, fetch.sent_ms) for place, offset in fetch.offsets.items()}

    def positions(self) -> list[Position]:
        """The positions of every client: one with its counters, and one for each partition that it has fetched.

        Processes with the same client.id are distinguished by their addresses. The group is NULL if a client has not
        committed, or has committed for several groups.
        """
        sessions, found = self._sessions_by_client(), []
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
            for session in (self._sessions[key] for key in sessions[client_id, host]):
                asked += [(place, offset, session.asked_ms) for place, offset in session.offsets.items()]
            # A recreated topic has two ids with the same name; the last request counts.
            places: dict[Place, tuple[int, int]] = {}
            for (topic, partition), offset, as_of_ms in sorted(asked, key=lambda one: one[2]):
                name = self.topics.get(topic) or self._given.get(topic, topic)
                places[name, partition] = (offset, as_of_ms)
            found += [
                Position(client_id, None, topic, partition, offset, group_id=group, as_of_ms=as_of_ms, host=host)
                for (topic, partition), (offset, as_of_ms) in places.items()
            ]
        return found

    def forget_silent(self, at_ms: int) -> None:
        """Forgets clients and sessions without requests for SILENT_MS before `at_ms`."""
        since_ms = at_ms - SILENT_MS
        for session_id in [key for key, session in self._sessions.items() if session.asked_ms < since_ms]:
            self._end(session_id)
        for who in [key for key, client in self._clients.items() if client.heard_ms < since_ms]:
            del self._clients[who]

    def forget_excess(self) -> None:
        """Forgets the oldest topic names and the oldest offsets of a client that are beyond MOST_SHARE.

        If all together are still more than MOST_BYTES, it forgets the clients whose last request is the oldest.
        """
        # A forgotten topic is known by its id until a line has its name again.
        names = _fitting(reversed(self.topics.items()), lambda topic: _bytes(*topic))
        self.forgotten["topic names"] += len(self.topics) - len(names)
        self.topics = dict(names)
        sessions = self._sessions_by_client()
        sizes = {who: self._shrunk(who, sessions[who]) for who in self._clients}
        total = sum(sizes.values())
        for who in sorted(self._clients, key=lambda who: self._clients[who].heard_ms):
            if total <= MOST_BYTES:
                break
            total -= sizes[who]
            del self._clients[who]
            self.forgotten["clients"] += 1
        self._sessions = {key: session for key, session in self._sessions.items() if session.who in self._clients}

    def _shrunk(self, who: Who, sessions: list[int]) -> int:
        """Reduces a client with these sessions to its share, and returns its size in bytes."""
        # What was asked for in an ended session is kept, so several sessions with the same partitions become smaller.
        for ending in (sessions[:-1], sessions[-1:]):
            if (size := self._size(who, sessions)) <= MOST_SHARE:
                return size
            for session_id in ending:
                self._end(session_id)
        client = self._clients[who]
        by_age = sorted(client.offsets.items(), key=lambda one: one[1][1], reverse=True)
        kept = _fitting(by_age, lambda one: _bytes(one[0][0]))
        self.forgotten["offsets"] += len(by_age) - len(kept)
        client.offsets = dict(kept)
        return self._size(who, ())

    def _size(self, who: Who, sessions: Iterable[int]) -> int:
        client = self._clients[who]
        asked: list[Iterable[Place]] = [self._sessions[key].offsets for key in sessions if key in self._sessions]
        places = sum(_bytes(topic) for offsets in (client.offsets, *asked) for topic, _ in offsets)
        name = _bytes(who[0], who[1] or "")  # which each session repeats in the state
        return name * (1 + len(asked)) + sum(len(group.encode()) for group in client.groups) + places

    def state(self) -> dict[str, Any]:
        """All that is remembered, as values that JSON can hold; `from_state` is the inverse."""
        return {
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
    def from_state(cls, state: Mapping[str, Any], given: Mapping[str, str] | None = None) -> Memory:
        """What a `state` has. Raises AttributeError, KeyError, TypeError or ValueError if it is not valid."""
        memory = cls(given)
        for topic_id, name in state["topics"].items():
            memory.name(text(topic_id), text(name))
        for client in state["clients"]:
            memory._clients[_who(client["who"])] = _Client(
                {_place(*place): (count(offset), time_ms(as_of_ms)) for *place, offset, as_of_ms in client["offsets"]},
                {text(group) for group in client["groups"]},
                count(client["requests"]),
                count(client["bytes"]),
                time_ms(client["heard_ms"]),
            )
        for key, who, epoch, asked_ms, partitions in state["sessions"]:
            offsets = {_place(*place): count(offset) for *place, offset in partitions}
            memory._sessions[whole(key)] = _Session(_who(who), whole(epoch), time_ms(asked_ms), offsets)
        return memory

    def _sessions_by_client(self) -> dict[Who, list[int]]:
        """The ids of each client's sessions, the one with the oldest request first."""
        found: dict[Who, list[int]] = defaultdict(list)
        for session_id in sorted(self._sessions, key=lambda key: self._sessions[key].asked_ms):
            found[self._sessions[session_id].who].append(session_id)
        return found

    def _heard(self, who: Who, at_ms: int) -> _Client:
        client = self._clients[who]
        client.heard_ms = at_ms
        return client

    def _end(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session:
            self._clients[session.who].keep(session)


def _go_on(client: _Client, session: _Session, fetch: Fetch) -> None:
    """Applies the next request of a session. Partitions that it does not list keep their offsets."""
    for place in fetch.forgotten:
        if place in session.offsets:
            client.offsets[place] = (session.offsets.pop(place), session.asked_ms)
    session.offsets |= fetch.offsets
    session.epoch, session.asked_ms = fetch.epoch, fetch.sent_ms


def _bytes(*names: str) -> int:
    return ENTRY_BYTES + sum(len(name.encode()) for name in names)


def _fitting(items: Iterable[Item], size: Callable[[Item], int]) -> list[Item]:
    """The items up to the last that fits into MOST_SHARE, in reverse order."""
    items = list(items)
    fitting = bisect_right([*accumulate(map(size, items))], MOST_SHARE)
    return items[:fitting][::-1]


def _who(kept: list[Any]) -> Who:
    client_id, host = kept
    return text(client_id), None if host is None else text(host)


def _place(topic: Any, partition: Any) -> Place:
    return text(topic), count(partition, below=2**31)
