"""The most bytes that a consumer can have buffered, from its settings.

Three kinds of consumers limit the records that they have fetched and not yet handed out, each by its own settings:

- `java`: while it still has records of a partition (since 4.1: of a broker), it does not fetch from there again. So it
  has at most one answer of each broker: min(brokers × fetch.max.bytes, partitions × max.partition.fetch.bytes).
- `scala`, the old consumer: threads × queued.max.message.chunks × fetch.message.max.bytes, plus answers in flight.
- `librdkafka`: it fetches while its queue is below queued.max.messages.kbytes, so the queue exceeds this by at most one
  answer of each broker.

A batch is always returned whole (KIP-74): if the largest batch is above a limit, its size replaces the limit.

No document states these bounds; they are derived from KIP-74 and KIP-81; AbstractFetch of Kafka 4.1; ConsumerConfig,
ConsumerFetcherThread, FetchResponse and ConsumerIterator of Kafka 0.8.2 and 1.1; librdkafka's CONFIGURATION.md,
rdkafka_fetcher.c and rdkafka_conf.c.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from numbers import Integral
from typing import Any, Literal, NamedTuple

Kind = Literal["java", "scala", "librdkafka"]

QUEUED_MAX_MESSAGE_CHUNKS = 2
"""Chunks that the queue of one thread of an old consumer holds, by default."""
FETCH_MESSAGE_MAX_BYTES = 2**20
"""The largest chunk of an old consumer, by default."""
_FETCH_MAX_BYTES = 50 * 2**20
# The settings that matter, with their defaults; None if there is no default.
_SETTINGS: dict[Kind, dict[str, int | None]] = {
    "java": {"fetch.max.bytes": _FETCH_MAX_BYTES, "max.partition.fetch.bytes": 2**20, "max.poll.records": 500},
    "scala": {
        "threads": None,
        "queued.max.message.chunks": QUEUED_MAX_MESSAGE_CHUNKS,
        "fetch.message.max.bytes": FETCH_MESSAGE_MAX_BYTES,
    },
    "librdkafka": {
        "queued.max.messages.kbytes": 65_536,
        "queued.min.messages": 100_000,
        "fetch.max.bytes": None,
        "fetch.message.max.bytes": 2**20,
        "message.max.bytes": 1_000_000,
    },
}
_LIBRDKAFKA_ALIASES = {"max.partition.fetch.bytes": "fetch.message.max.bytes"}


class Bound(NamedTuple):
    """The most bytes that a consumer has buffered."""

    bound_bytes: int
    bound_by: str
    """The term of the formula that gives the bound."""
    in_flight_bytes: int = 0
    """What answers in flight may take in addition; 0 if the bound already includes them."""


def consumer_settings(config: Mapping[str, Any], kind: Kind = "java") -> dict[str, int]:
    """The settings of a consumer that bound the memory of its fetches, with defaults.

    librdkafka's fetch.max.bytes is included only if it is set, because it otherwise follows from other settings. If a
    setting is given by both of its librdkafka names, the last one counts, as in librdkafka. Raises ValueError for a
    setting that is not a whole number or is negative, and for an old consumer without `threads`.
    """
    if kind not in _SETTINGS:
        raise ValueError(f"kind must be one of {', '.join(_SETTINGS)}, not {kind!r}")
    aliases = _LIBRDKAFKA_ALIASES if kind == "librdkafka" else {}
    settings = {name: value for name, value in _SETTINGS[kind].items() if value is not None}
    for written, value in config.items():
        name = aliases.get(written, written)
        if name in _SETTINGS[kind]:
            settings[name] = whole_number(written, value)
    if kind == "scala" and "threads" not in settings:
        raise ValueError("threads must be given for an old consumer: the number of its streams, over all topics")
    return settings


def buffer_bound(
    kind: Kind, settings: Mapping[str, int], partitions: int, brokers: int, largest_batch_bytes: int = 0
) -> Bound:
    """The bound for a consumer with settings from `consumer_settings`."""
    if kind == "scala":
        limit = settings["fetch.message.max.bytes"]
        chunks = settings["threads"] * settings["queued.max.message.chunks"]
        term = _term("threads × queued.max.message.chunks", "fetch.message.max.bytes", limit, largest_batch_bytes)
        # A partition has one fetcher, which fetches again only after it has put all of an answer into the queues.
        in_flight = limited_bytes(partitions, limit, largest_batch_bytes)
        return Bound(limited_bytes(chunks, limit, largest_batch_bytes), term, in_flight)
    if kind == "java":
        queue, of_queue, partition_limit = 0, "", "max.partition.fetch.bytes"
        whole = settings["fetch.max.bytes"]
    else:
        queue = settings["queued.max.messages.kbytes"] * 1024
        of_queue, partition_limit = "queued.max.messages.kbytes + ", "fetch.message.max.bytes"
        whole = settings.get("fetch.max.bytes", max(min(_FETCH_MAX_BYTES, queue), settings["message.max.bytes"]))
    limit = settings[partition_limit]
    answers = answers_bytes(partitions, brokers, whole, limit, largest_batch_bytes)
    if answers < limited_bytes(partitions, limit, largest_batch_bytes):
        term = _term("brokers", "fetch.max.bytes", whole, largest_batch_bytes)
    else:
        term = _term("partitions", partition_limit, limit, largest_batch_bytes)
    return Bound(queue + answers, of_queue + term)


def answers_bytes(
    partitions: int, brokers: int, fetch_max_bytes: int, partition_max_bytes: int, largest_batch_bytes: int = 0
) -> int:
    """The most bytes of one answer from each broker, limited both as a whole and by partition."""
    return min(
        limited_bytes(brokers, fetch_max_bytes, largest_batch_bytes),
        limited_bytes(partitions, partition_max_bytes, largest_batch_bytes),
    )


def limited_bytes(count: int, limit_bytes: int, largest_batch_bytes: int = 0) -> int:
    """The most bytes of `count` answers, partitions or chunks: each has the limit, or one batch that is larger."""
    return count * max(limit_bytes, largest_batch_bytes)


def whole_number(name: str, value: Any, least: int = 0) -> int:
    """A whole number, given as text or number. Raises ValueError with its name if it is not whole or below `least`."""
    if isinstance(value, str):
        is_whole = re.fullmatch(r"\s*[+-]?[0-9]{1,18}\s*", value) is not None
    else:
        is_whole = not isinstance(value, bool) and isinstance(value, Integral | float) and value == value // 1
    if not is_whole or int(value) < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, not {value!r}")
    return int(value)


def _term(counted: str, name: str, limit_bytes: int, largest_batch_bytes: int) -> str:
    return f"{counted} × {name if limit_bytes >= largest_batch_bytes else 'the largest batch'}"
