"""The offsets of each client that were read from one broker's request log, within a limit in bytes."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, TypeVar

from pipeline.client_positions.position import Position, count, integer, stored_name, time_ms
from pipeline.client_positions.request_lines import Fetch, Instance, Partition
from pipeline.common.epoch import DAY_MS

SILENT_MS = DAY_MS
"""How long, by the log's own clock, a client or a session without requests is remembered."""
MOST_BYTES = 128 * 1024**2
"""The most that is remembered, because clients decide which names, partitions and sessions a log contains.

Names count with their length in UTF-8; each client, session, offset and topic counts ENTRY_BYTES more. So there is room
for 400,000 offsets.
"""
MOST_SHARE = MOST_BYTES // 8
"""The largest share of one client, and of all topic names together, so that none of them displaces the others."""
ENTRY_BYTES = 300
SEVERAL = 2
"""How many groups of a client are remembered: if a client commits for several, its group is not known."""

Item = TypeVar("Item")


@dataclass
class _Client:
    """What one client has asked for outside of sessions, and the totals of all its requests."""

    offsets: dict[Partition, tuple[int, int]] = field(default_factory=dict)  # next offset to fetch, and as of when
    groups: set[str] = field(default_factory=set)
    requests: int = 0
    bytes: int | None = 0  # None if a line did not have them
    heard_ms: int = 0

    def keep(self, session: _Session) -> None:
        """Takes over the offsets that a session had at its last request."""
        for partition, offset in session.offsets.items():
            if partition not in self.offsets or self.offsets[partition][1] <= session.asked_ms:
                self.offsets[partition] = (offset, session.asked_ms)

    def state(self) -> dict[str, Any]:
        """The client as values that JSON can hold."""
        return {
            "groups": sorted(self.groups),
            "requests": self.requests,
            "bytes": self.bytes,
            "heard_ms": self.heard_ms,
            "offsets": [[*partition, *asked] for partition, asked in self.offsets.items()],
        }


@dataclass
class _Session:
    """A fetch session of a client: the next offset of all its partitions, as of the request with this epoch."""

    instance: Instance
    epoch: int
    asked_ms: int
    offsets: dict[Partition, int]

    def state(self) -> list[Any]:
        """The session as values that JSON can hold."""
        offsets = [[*partition, offset] for partition, offset in self.offsets.items()]
        return [[*self.instance], self.epoch, self.asked_ms, offsets]


class Memory:
    """The clients of one broker, their fetch sessions (KIP-227), and the names of topics by their ids.

    `given` are names of topics that each batch is given anew: they are not part of the state, and take no share.
    `forgotten` counts, by kind, what was forgotten because MOST_BYTES or MOST_SHARE was exceeded.
    """

    def __init__(self, given: Mapping[str, str] | None = None) -> None:
        self.topics: dict[str, str] = {}
        self._given = given or {}
        self.forgotten: Counter[str] = Counter()
        self._clients: dict[Instance, _Client] = defaultdict(_Client)
        self._sessions: dict[int, _Session] = {}

    @property
    def has_positions(self) -> bool:
        """Whether a client has fetched something. A client that has only committed has no position."""
        return any(client.requests for client in self._clients.values())

    def name(self, topic_id: str, name: str) -> None:
        """Remembers a topic's name."""
        self.topics.pop(topic_id, None)  # to the end: the oldest names are forgotten first
        if self._given.get(topic_id) != name:
            self.topics[topic_id] = name

    def committed(self, instance: Instance, group: str, at_ms: int) -> None:
        """Remembers that a client has committed for a group."""
        client = self._heard(instance, at_ms)
        if len(client.groups) < SEVERAL:
            client.groups.add(group)

    def fetched(self, instance: Instance, fetch: Fetch, at_ms: int) -> None:
        """Remembers what a client has asked for. With a session, a request lists only what has changed."""
        client = self._heard(instance, at_ms)
        client.requests += 1
        client.bytes = None if client.bytes is None or fetch.bytes is None else client.bytes + fetch.bytes
        session = self._sessions.get(fetch.session)
        if session and session.instance == instance:
            # Files may arrive late or be read again; then the session already has a newer request.
            if fetch.sent_ms < session.asked_ms if fetch.is_full else fetch.epoch <= session.epoch:
                return
            # If a line was lost, it may have changed partitions that this request does not list.
            if fetch.epoch == session.epoch + 1:
                _continue_session(client, session, fetch)
                return
        self._end(fetch.ends)
        self._end(fetch.session)
        if fetch.session:
            self._sessions[fetch.session] = _Session(instance, fetch.epoch, fetch.sent_ms, fetch.offsets)
        else:
            client.offsets |= {partition: (offset, fetch.sent_ms) for partition, offset in fetch.offsets.items()}

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
            asked = [(partition, offset, as_of_ms) for partition, (offset, as_of_ms) in client.offsets.items()]
            for session in (self._sessions[key] for key in sessions[client_id, host]):
                asked += [(partition, offset, session.asked_ms) for partition, offset in session.offsets.items()]
            # A recreated topic has two ids with the same name; the last request counts.
            latest: dict[Partition, tuple[int, int]] = {}
            for (topic, partition), offset, as_of_ms in sorted(asked, key=lambda one: one[2]):
                name = self.topics.get(topic) or self._given.get(topic, topic)
                latest[name, partition] = (offset, as_of_ms)
            found += [
                Position(client_id, None, topic, partition, offset, group_id=group, as_of_ms=as_of_ms, host=host)
                for (topic, partition), (offset, as_of_ms) in latest.items()
            ]
        return found

    def forget_silent(self, at_ms: int) -> None:
        """Forgets clients and sessions without requests for SILENT_MS before `at_ms`."""
        since_ms = at_ms - SILENT_MS
        for session_id in [key for key, session in self._sessions.items() if session.asked_ms < since_ms]:
            self._end(session_id)
        for instance in [key for key, client in self._clients.items() if client.heard_ms < since_ms]:
            del self._clients[instance]

    def forget_excess(self) -> None:
        """Forgets the oldest topic names and the oldest offsets of a client that are beyond MOST_SHARE.

        If all together are still more than MOST_BYTES, it forgets the clients whose last request is the oldest.
        """
        # A forgotten topic is known by its id until a line has its name again.
        names = _fitting(reversed(self.topics.items()), lambda topic: _bytes(*topic))
        self.forgotten["topic names"] += len(self.topics) - len(names)
        self.topics = dict(names)
        sessions = self._sessions_by_client()
        sizes = {instance: self._shrunk(instance, sessions[instance]) for instance in self._clients}
        total = sum(sizes.values())
        for instance in sorted(self._clients, key=lambda instance: self._clients[instance].heard_ms):
            if total <= MOST_BYTES:
                break
            total -= sizes[instance]
            del self._clients[instance]
            self.forgotten["clients"] += 1
        self._sessions = {key: session for key, session in self._sessions.items() if session.instance in self._clients}

    def _shrunk(self, instance: Instance, sessions: list[int]) -> int:
        """Reduces a client with these sessions to its share, and returns its size in bytes."""
        # What was asked for in an ended session is kept, so several sessions with the same partitions become smaller.
        for ending in (sessions[:-1], sessions[-1:]):
            if (size := self._size(instance, sessions)) <= MOST_SHARE:
                return size
            for session_id in ending:
                self._end(session_id)
        client = self._clients[instance]
        by_age = sorted(client.offsets.items(), key=lambda one: one[1][1], reverse=True)
        kept = _fitting(by_age, lambda one: _bytes(one[0][0]))
        self.forgotten["offsets"] += len(by_age) - len(kept)
        client.offsets = dict(kept)
        return self._size(instance, ())

    def _size(self, instance: Instance, sessions: Iterable[int]) -> int:
        client = self._clients[instance]
        asked: list[Iterable[Partition]] = [self._sessions[key].offsets for key in sessions if key in self._sessions]
        offset_bytes = sum(_bytes(topic) for offsets in (client.offsets, *asked) for topic, _ in offsets)
        name = _bytes(instance[0], instance[1] or "")  # which each session repeats in the state
        return name * (1 + len(asked)) + sum(len(group.encode()) for group in client.groups) + offset_bytes

    def state(self) -> dict[str, Any]:
        """All that is remembered, as values that JSON can hold; `from_state` is the inverse."""
        return {
            "topics": self.topics,
            "clients": [{"who": [*instance], **client.state()} for instance, client in self._clients.items()],
            "sessions": [[key, *session.state()] for key, session in self._sessions.items()],
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any], given: Mapping[str, str] | None = None) -> Memory:
        """What a `state` has. Raises AttributeError, KeyError, TypeError or ValueError if it is not valid."""
        memory = cls(given)
        for topic_id, name in state["topics"].items():
            memory.name(stored_name(topic_id), stored_name(name))
        for client in state["clients"]:
            memory._clients[_instance(client["who"])] = _Client(
                {
                    _partition(*partition): (count(offset), time_ms(as_of_ms))
                    for *partition, offset, as_of_ms in client["offsets"]
                },
                {stored_name(group) for group in client["groups"]},
                count(client["requests"]),
                None if client["bytes"] is None else count(client["bytes"]),
                time_ms(client["heard_ms"]),
            )
        for key, instance, epoch, asked_ms, partitions in state["sessions"]:
            offsets = {_partition(*partition): count(offset) for *partition, offset in partitions}
            memory._sessions[integer(key)] = _Session(_instance(instance), integer(epoch), time_ms(asked_ms), offsets)
        return memory

    def _sessions_by_client(self) -> dict[Instance, list[int]]:
        """The ids of each client's sessions, the one with the oldest request first."""
        found: dict[Instance, list[int]] = defaultdict(list)
        for session_id in sorted(self._sessions, key=lambda key: self._sessions[key].asked_ms):
            found[self._sessions[session_id].instance].append(session_id)
        return found

    def _heard(self, instance: Instance, at_ms: int) -> _Client:
        client = self._clients[instance]
        client.heard_ms = at_ms
        return client

    def _end(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session:
            self._clients[session.instance].keep(session)


def _continue_session(client: _Client, session: _Session, fetch: Fetch) -> None:
    """Applies the next request of a session. Partitions that it does not list keep their offsets."""
    for partition in fetch.forgotten:
        if partition in session.offsets:
            client.offsets[partition] = (session.offsets.pop(partition), session.asked_ms)
    session.offsets |= fetch.offsets
    session.epoch, session.asked_ms = fetch.epoch, fetch.sent_ms


def _bytes(*names: str) -> int:
    return ENTRY_BYTES + sum(len(name.encode()) for name in names)


def _fitting(items: Iterable[Item], size: Callable[[Item], int]) -> list[Item]:
    """The items up to the last that fits into MOST_SHARE, in reverse order."""
    items = list(items)
    fitting = bisect_right([*accumulate(map(size, items))], MOST_SHARE)
    return items[:fitting][::-1]


def _instance(kept: list[Any]) -> Instance:
    client_id, host = kept
    return stored_name(client_id), None if host is None else stored_name(host)


def _partition(topic: Any, partition: Any) -> Partition:
    return stored_name(topic), count(partition, below=2**31)
