"""How much memory a consumer's fetches may take, and how much they likely take. Plain Python, for notebooks and frames.

Three kinds of consumers bound what they have fetched and not yet handed out, each by settings of its own:

- `java`: it does not ask again for a partition, nor (4.1) a broker, of which it still has records. So it has at most
  one answer of each broker: min(brokers × fetch.max.bytes, partitions × max.partition.fetch.bytes).
- `scala`, the old one: threads × queued.max.message.chunks × fetch.message.max.bytes, and what is in flight.
- `librdkafka`: it asks while its queue is below queued.max.messages.kbytes, so the queue exceeds this by at most one
  answer of each broker.

A batch is given whole (KIP-74): where the largest batch is above a limit, it takes the limit's place. The bounds leave
out what `FetchMemory.notes` gives: a decompressed batch and records as objects (max.poll.records of them), and what
older versions, paused partitions and the old consumer's chunks keep whole.

The bounds are derived, no document states them. From KIP-74 and KIP-81; AbstractFetch of Kafka 4.1; ConsumerConfig,
ConsumerFetcherThread, FetchResponse and ConsumerIterator of Kafka 0.8.2 and 1.1; librdkafka's CONFIGURATION.md,
rdkafka_fetcher.c and rdkafka_conf.c.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from numbers import Integral
from typing import Any, Literal, NamedTuple

Kind = Literal["java", "scala", "librdkafka"]

LIKELY_PERCENT = 95
"""The part of what was observed that does not exceed `FetchMemory.likely_bytes`."""

_FETCH_MAX_BYTES = 50 * 2**20
# With their defaults; None where there is none.
_SETTINGS: dict[Kind, dict[str, int | None]] = {
    "java": {"fetch.max.bytes": _FETCH_MAX_BYTES, "max.partition.fetch.bytes": 2**20, "max.poll.records": 500},
    "scala": {"threads": None, "queued.max.message.chunks": 2, "fetch.message.max.bytes": 2**20},
    "librdkafka": {
        "queued.max.messages.kbytes": 65_536,
        "queued.min.messages": 100_000,
        "fetch.max.bytes": None,
        "fetch.message.max.bytes": 2**20,
        "message.max.bytes": 1_000_000,
    },
}
_LIBRDKAFKA_ALIASES = {"max.partition.fetch.bytes": "fetch.message.max.bytes"}
# What lowers the bound, in the order of advice where several are part of it.
_LOWERING: dict[Kind, tuple[str, ...]] = {
    "java": ("max.partition.fetch.bytes", "fetch.max.bytes"),
    "scala": ("fetch.message.max.bytes", "queued.max.message.chunks"),
    "librdkafka": ("queued.max.messages.kbytes", "fetch.message.max.bytes", "fetch.max.bytes"),
}
# Kafka keeps them in 32 bits.
_LARGEST_SETTING = 2**31 - 1


class Bound(NamedTuple):
    """The most bytes that a consumer has buffered."""

    bound_bytes: int
    bound_by: str
    """The term that gives it."""
    in_flight_bytes: int = 0
    """What answers on their way may take beyond it; 0 where the bound counts them."""


class Advice(NamedTuple):
    """The setting to lower for a wanted bound, and the largest value that is low enough.

    Both are None where nothing need be lowered, and where no setting alone is enough; the text says which.
    """

    setting: str | None
    value: int | None
    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class FetchMemory:
    """What `fetch_memory` finds; `print` shows it to people."""

    kind: Kind
    settings: Mapping[str, int]
    """Those that matter here, with defaults."""
    partitions: int
    brokers: int
    bound_bytes: int
    """The most that is buffered."""
    bound_by: str
    """The term that gives the bound."""
    in_flight_bytes: int
    """What answers on their way may take beyond the bound; 0 where the bound counts them."""
    likely_bytes: int | None
    """The least observed value that `LIKELY_PERCENT` of all do not exceed; None where nothing was observed."""
    heap_share: float | None
    """The bound and what is in flight, as a part of the heap; None where the heap is not given."""
    kip81_fetches: int | None
    """The fetches that KIP-81 would let a consumer start; None where its buffer.memory is not given."""
    advice: Advice | None
    """None where no bound is wanted."""
    notes: tuple[str, ...]
    """What the figures leave out, and what they rest on."""

    def __str__(self) -> str:
        lines = [
            f"{self.kind} consumer, partitions: {self.partitions}, brokers: {self.brokers}",
            f"buffered at most: {_shown(self.bound_bytes)} = {self.bound_by}",
        ]
        if self.in_flight_bytes:
            lines.append(f"in flight beyond that, at most: {_shown(self.in_flight_bytes)}")
        if self.heap_share is not None:
            lines.append(f"of the heap: {self.heap_share:.1%}")
        lines.append(f"likely: {'not observed' if self.likely_bytes is None else _shown(self.likely_bytes)}")
        if self.kip81_fetches is not None:
            lines.append(f"fetches that KIP-81 would allow: {self.kip81_fetches}")
        if self.advice is not None:
            lines.append(f"advice: {self.advice}")
        return "\n".join([*lines, *(f"- {note}" for note in self.notes)])


def fetch_memory(
    config: Mapping[str, Any],
    partitions: int,
    brokers: int,
    *,
    kind: Kind = "java",
    threads: int | None = None,
    observed: Iterable[float | None] = (),
    largest_batch_bytes: int | None = None,
    heap_bytes: int | None = None,
    wanted_bytes: int | None = None,
    buffer_memory: int | None = None,
) -> FetchMemory:
    """How much memory the fetches of one consumer may take, and how much they likely take.

    `config` has its settings as in consumer.properties, text or numbers; those that do not matter here are ignored.
    `partitions` are those assigned to it, `brokers` those that it fetches them from. `threads`, or the setting of this
    name, are an old consumer's streams, of all topics. `observed` are the bytes that it had buffered, at one instant
    each; unknown ones, and negative ones as after a seek, are left out. `largest_batch_bytes` is the largest batch of
    its topics, as stored. `heap_bytes` is the memory that it has, `wanted_bytes` the bound that advice is asked for.
    Of `buffer_memory`, KIP-81's setting, `likely_bytes` are taken as used, nothing where nothing was observed.

    Raises ValueError naming a setting or an argument that is no whole number or too low, where an old consumer's
    threads are not given, and for a buffer_memory of a consumer that KIP-81 is not about.
    """
    settings = consumer_settings(config if threads is None else {**config, "threads": threads}, kind)
    partitions, brokers = _whole("partitions", partitions), _whole("brokers", brokers)
    largest = 0 if largest_batch_bytes is None else _whole("largest_batch_bytes", largest_batch_bytes)
    bound = buffer_bound(kind, settings, partitions, brokers, largest)
    likely = _likely(observed)
    heap_share = kip81_fetches = advice = None
    if heap_bytes is not None:
        heap_share = (bound.bound_bytes + bound.in_flight_bytes) / _whole("heap_bytes", heap_bytes, least=1)
    if buffer_memory is not None:
        if kind != "java":
            raise ValueError(f"buffer_memory is proposed for the java consumer (KIP-81), not for {kind}")
        kip81_fetches = allowed_fetches(
            _whole("buffer_memory", buffer_memory), likely or 0, settings["fetch.max.bytes"]
        )
    if wanted_bytes is not None:
        advice = _advice(_whole("wanted_bytes", wanted_bytes), kind, settings, partitions, brokers, largest)
    notes = [
        *_kind_notes(kind, settings, partitions, largest),
        f"A batch is given whole (KIP-74): a limit below the largest one, {_shown(largest)}, does not lower the bound."
        if largest
        else "The largest batch is not given. One above a limit is given whole (KIP-74) and raises the bound.",
    ]
    if likely is not None and likely > bound.bound_bytes:
        notes.append("More was observed than the bound: the settings were others, or it was counted decompressed.")
    if buffer_memory is not None:
        notes.append("buffer.memory is a proposal (KIP-81): no released Kafka has it in the consumer.")
    return FetchMemory(
        kind=kind,
        settings=settings,
        partitions=partitions,
        brokers=brokers,
        bound_bytes=bound.bound_bytes,
        bound_by=bound.bound_by,
        in_flight_bytes=bound.in_flight_bytes,
        likely_bytes=likely,
        heap_share=heap_share,
        kip81_fetches=kip81_fetches,
        advice=advice,
        notes=tuple(notes),
    )


def consumer_settings(config: Mapping[str, Any], kind: Kind = "java") -> dict[str, int]:
    """Those of a consumer's settings that bound the memory of its fetches, with defaults.

    librdkafka's fetch.max.bytes is there only if it is set, as it else follows other settings. Of its two names for one
    setting the last counts, as there. Raises ValueError for a setting that is no whole number or is negative, and
    where an old consumer has no `threads`.
    """
    if kind not in _SETTINGS:
        raise ValueError(f"kind must be one of {', '.join(_SETTINGS)}, not {kind!r}")
    aliases = _LIBRDKAFKA_ALIASES if kind == "librdkafka" else {}
    settings = {name: value for name, value in _SETTINGS[kind].items() if value is not None}
    for written, value in config.items():
        name = aliases.get(written, written)
        if name in _SETTINGS[kind]:
            settings[name] = _whole(written, value)
    if kind == "scala" and "threads" not in settings:
        raise ValueError("threads must be given for an old consumer: how many streams it has, of all topics")
    return settings


def buffer_bound(
    kind: Kind, settings: Mapping[str, int], partitions: int, brokers: int, largest_batch_bytes: int = 0
) -> Bound:
    """The bound of a consumer with the settings that `consumer_settings` gives."""
    if kind == "scala":
        limit = settings["fetch.message.max.bytes"]
        chunks = settings["threads"] * settings["queued.max.message.chunks"]
        term = _term("threads × queued.max.message.chunks", "fetch.message.max.bytes", limit, largest_batch_bytes)
        # A partition has one fetcher, which asks again only once it has put all of an answer into queues.
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
    """The most bytes of one answer of each broker, limited as a whole and by partition."""
    return min(
        limited_bytes(brokers, fetch_max_bytes, largest_batch_bytes),
        limited_bytes(partitions, partition_max_bytes, largest_batch_bytes),
    )


def limited_bytes(count: int, limit_bytes: int, largest_batch_bytes: int = 0) -> int:
    """The most bytes of so many answers, partitions or chunks: their limit each, or one batch that is larger."""
    return count * max(limit_bytes, largest_batch_bytes)


def allowed_fetches(buffer_memory: int, used_bytes: int, fetch_max_bytes: int) -> int | None:
    """The fetches that KIP-81 would let a consumer start: (buffer.memory − used) / max.fetch.bytes, rounded down.

    None where fetch.max.bytes is 0, of which the proposal says nothing.
    """
    return max(0, buffer_memory - used_bytes) // fetch_max_bytes if fetch_max_bytes else None


def _advice(
    wanted_bytes: int, kind: Kind, settings: Mapping[str, int], partitions: int, brokers: int, largest: int
) -> Advice:
    def bound_with(name: str, value: int) -> int:
        return buffer_bound(kind, {**settings, name: value}, partitions, brokers, largest).bound_bytes

    bound = buffer_bound(kind, settings, partitions, brokers, largest)
    if bound.bound_bytes <= wanted_bytes:
        return Advice(None, None, f"nothing need be lowered for {_shown(wanted_bytes)}")
    least = bound.bound_bytes
    for name in sorted(_LOWERING[kind], key=lambda name: name not in bound.bound_by):
        if name not in settings:
            continue
        # librdkafka refuses a fetch.max.bytes below its message.max.bytes.
        lowest = settings.get("message.max.bytes", 1) if name == "fetch.max.bytes" else 1
        values = range(lowest, min(settings[name], _LARGEST_SETTING + 1))
        low_enough = bisect_right(values, wanted_bytes, key=partial(bound_with, name))
        if low_enough:
            value = values[low_enough - 1]
            bytes_then = _shown(bound_with(name, value))
            return Advice(
                name, value, f"lower {name} from {settings[name]:,} to {value:,} to buffer at most {bytes_then}"
            )
        if values:
            least = min(least, bound_with(name, lowest))
    return Advice(
        None, None, f"no setting alone gives {_shown(wanted_bytes)}: the least that one gives is {_shown(least)}"
    )


def _kind_notes(kind: Kind, settings: Mapping[str, int], partitions: int, largest: int) -> tuple[str, ...]:
    if kind == "java":
        by_partition = _shown(limited_bytes(partitions, settings["max.partition.fetch.bytes"], largest))
        return (
            "Bytes are as received, compressed; one decompressed batch comes on top.",
            f"So do the records of a poll as objects, at most {settings['max.poll.records']:,} (max.poll.records).",
            "Versions before 4.1, and paused partitions, can keep several partly read answers of a broker whole.",
            f"For them partitions × max.partition.fetch.bytes, {by_partition}, is an estimate and no bound.",
            "A broker may give less: its own fetch.max.bytes, by default 55 MiB, limits each answer too.",
        )
    if kind == "scala":
        return (
            "Bytes are as received, compressed; the chunk that each thread is reading comes on top.",
            "So do one decompressed batch a thread, and its records as objects.",
            "A chunk keeps the whole answer that it came in, until the last chunk of that answer is read.",
            "Before Kafka 0.10.1 a batch above fetch.message.max.bytes is not given whole: it stops the thread.",
        )
    return (
        "The queue counts the values of records, decompressed; answers are counted as sent: compressed ones add more.",
        "Keys, and what is kept with each record, come on top.",
        f"It also stops to ask while {settings['queued.min.messages']:,} records are queued (queued.min.messages).",
        "All partitions share one queue; one that is given a queue of its own has such a bound by itself.",
    )


def _likely(observed: Iterable[float | None]) -> int | None:
    values = sorted(value for value in observed if value is not None and value >= 0)
    # The last of the least so many percent, rounded up: numpy's `inverted_cdf`.
    return int(values[-(-len(values) * LIKELY_PERCENT // 100) - 1]) if values else None


def _term(counted: str, name: str, limit_bytes: int, largest_batch_bytes: int) -> str:
    return f"{counted} × {name if limit_bytes >= largest_batch_bytes else 'the largest batch'}"


def _whole(name: str, value: Any, least: int = 0) -> int:
    if isinstance(value, str):
        is_whole = re.fullmatch(r"\s*[+-]?[0-9]{1,18}\s*", value) is not None
    else:
        is_whole = not isinstance(value, bool) and isinstance(value, Integral | float) and value == value // 1
    if not is_whole or int(value) < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, not {value!r}")
    return int(value)


def _shown(size_bytes: int) -> str:
    return f"{size_bytes:,} bytes ({size_bytes / 2**20:,.1f} MiB)"
