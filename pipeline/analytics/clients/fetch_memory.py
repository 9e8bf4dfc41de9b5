"""The memory that a consumer's fetches may take at most, and will likely take. Plain Python, for notebooks and frames.

The bounds are in `buffer_bound`. They do not include what `FetchMemory.notes` lists: a decompressed batch, up to
max.poll.records records as objects, and whole answers that older versions, paused partitions and chunks keep in memory.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from pipeline.analytics.clients.buffer_bound import (
    Bound,
    Kind,
    buffer_bound,
    consumer_settings,
    limited_bytes,
    whole_number,
)

LIKELY_PERCENT = 95
"""The percentage of the observed values that do not exceed `FetchMemory.likely_bytes`."""

# The settings that lower the bound. If several are part of it, the first one is advised.
_LOWERING: dict[Kind, tuple[str, ...]] = {
    "java": ("max.partition.fetch.bytes", "fetch.max.bytes"),
    "scala": ("fetch.message.max.bytes", "queued.max.message.chunks"),
    "librdkafka": ("queued.max.messages.kbytes", "fetch.message.max.bytes", "fetch.max.bytes"),
}
# Kafka stores these settings in 32 bits.
_LARGEST_SETTING = 2**31 - 1


class Advice(NamedTuple):
    """The setting to lower for a wanted bound, and the largest value that is low enough.

    Both are None if nothing needs to be lowered, or if no single setting is enough; the text says which.
    """

    setting: str | None
    value: int | None
    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class FetchMemory:
    """The result of `fetch_memory`; `print` shows it as text."""

    kind: Kind
    settings: Mapping[str, int]
    """The settings that matter here, with defaults."""
    partitions: int
    brokers: int
    bound_bytes: int
    """The most bytes that are buffered."""
    bound_by: str
    """The term that gives the bound."""
    in_flight_bytes: int
    """What answers in flight may take in addition; 0 if the bound already includes them."""
    likely_bytes: int | None
    """The smallest observed value that `LIKELY_PERCENT` % of all do not exceed; None if nothing was observed."""
    heap_share: float | None
    """The bound plus what is in flight, as a part of the heap; None if the heap is not given."""
    kip81_fetches: int | None
    """How many fetches KIP-81 would let a consumer start; None if its buffer.memory is not given."""
    advice: Advice | None
    """None if no bound is wanted."""
    notes: tuple[str, ...]
    """What the figures leave out, and what they assume."""

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

    `config` has its settings as in consumer.properties, as text or numbers; settings that do not matter are ignored.
    `partitions` is how many partitions it is assigned, `brokers` from how many brokers it fetches them. `threads`, or
    the setting of this name, is the number of an old consumer's streams for all topics. `observed` are the bytes that
    it had buffered at different instants; unknown values, and negative ones (as after a seek), are ignored.
    `largest_batch_bytes` is the largest batch of its topics, as stored. `heap_bytes` is the size of its heap.
    `wanted_bytes` is the bound that the advice is to reach. `buffer_memory` is KIP-81's setting; of it, `likely_bytes`
    count as used, 0 if nothing was observed.

    Raises ValueError with the name of a setting or argument that is not a whole number or is too low, and also if an
    old consumer's threads are not given, or if buffer_memory is given for a consumer that KIP-81 does not cover.
    """
    settings = consumer_settings(config if threads is None else {**config, "threads": threads}, kind)
    partitions, brokers = whole_number("partitions", partitions), whole_number("brokers", brokers)
    largest = 0 if largest_batch_bytes is None else whole_number("largest_batch_bytes", largest_batch_bytes)
    bound = buffer_bound(kind, settings, partitions, brokers, largest)
    likely = _likely(observed)
    return FetchMemory(
        kind=kind,
        settings=settings,
        partitions=partitions,
        brokers=brokers,
        bound_bytes=bound.bound_bytes,
        bound_by=bound.bound_by,
        in_flight_bytes=bound.in_flight_bytes,
        likely_bytes=likely,
        heap_share=None if heap_bytes is None else _heap_share(bound, heap_bytes),
        kip81_fetches=None if buffer_memory is None else _kip81_fetches(kind, settings, buffer_memory, likely),
        advice=None
        if wanted_bytes is None
        else _advice(whole_number("wanted_bytes", wanted_bytes), kind, settings, partitions, brokers, largest),
        notes=(
            *_kind_notes(kind, settings, partitions, largest),
            *_notes(bound, largest, likely, has_buffer_memory=buffer_memory is not None),
        ),
    )


def _heap_share(bound: Bound, heap_bytes: int) -> float:
    return (bound.bound_bytes + bound.in_flight_bytes) / whole_number("heap_bytes", heap_bytes, least=1)


def _kip81_fetches(kind: Kind, settings: Mapping[str, int], buffer_memory: int, likely: int | None) -> int | None:
    if kind != "java":
        raise ValueError(f"buffer_memory is proposed for the java consumer (KIP-81), not for {kind}")
    return allowed_fetches(whole_number("buffer_memory", buffer_memory), likely or 0, settings["fetch.max.bytes"])


def _notes(bound: Bound, largest: int, likely: int | None, *, has_buffer_memory: bool) -> Iterator[str]:
    """Sentences on what the figures leave out, for all kinds of consumers."""
    if largest:
        yield (
            f"A batch is always returned whole (KIP-74): a limit below the largest one, {_shown(largest)}, does not "
            "lower the bound."
        )
    else:
        yield "The largest batch is not given. A batch above a limit is returned whole (KIP-74) and raises the bound."
    if likely is not None and likely > bound.bound_bytes:
        yield "More was observed than the bound allows: settings were different, or decompressed bytes counted."
    if has_buffer_memory:
        yield "buffer.memory is a proposal (KIP-81): no released Kafka has it in the consumer."


def allowed_fetches(buffer_memory: int, used_bytes: int, fetch_max_bytes: int) -> int | None:
    """How many fetches KIP-81 would let a consumer start: (buffer.memory − used) / fetch.max.bytes, rounded down.

    None if fetch.max.bytes is 0, a case that the proposal does not mention.
    """
    return max(0, buffer_memory - used_bytes) // fetch_max_bytes if fetch_max_bytes else None


def _advice(
    wanted_bytes: int, kind: Kind, settings: Mapping[str, int], partitions: int, brokers: int, largest: int
) -> Advice:
    def bound_with(name: str, value: int) -> int:
        return buffer_bound(kind, {**settings, name: value}, partitions, brokers, largest).bound_bytes

    bound = buffer_bound(kind, settings, partitions, brokers, largest)
    if bound.bound_bytes <= wanted_bytes:
        return Advice(None, None, f"nothing needs to be lowered for {_shown(wanted_bytes)}")
    least = bound.bound_bytes
    for name in sorted(_LOWERING[kind], key=lambda name: name not in bound.bound_by):
        if name not in settings:
            continue
        # librdkafka rejects a fetch.max.bytes below its message.max.bytes.
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
        f"It also stops fetching while {settings['queued.min.messages']:,} records are queued (queued.min.messages).",
        "All partitions share one queue; one that is given a queue of its own has such a bound by itself.",
    )


def _likely(observed: Iterable[float | None]) -> int | None:
    values = sorted(value for value in observed if value is not None and value >= 0)
    # The same definition of a percentile as numpy's `inverted_cdf`.
    return int(values[-(-len(values) * LIKELY_PERCENT // 100) - 1]) if values else None


def _shown(size_bytes: int) -> str:
    return f"{size_bytes:,} bytes ({size_bytes / 2**20:,.1f} MiB)"
