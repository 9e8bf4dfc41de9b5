"""`Position`: how far a client has read by its own report, the same for every kind of client and report."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

from pipeline.client_positions.consumer_metrics import Metric
from pipeline.client_positions.key_properties import LONGEST_NAME
from pipeline.common.epoch import MINUTE_MS


class Position(NamedTuple):
    """A row of `client_positions` about one client, or one of its fetchers, topics or partitions; the rest is NULL.

    fetcher: the broker that is fetched from, or the old consumer's thread. The offsets are the next to be fetched, and
    the next to be handed to the application. reported_lag is the client's own metric, reported_lead its distance from
    log start; reported_end and reported_stable_end are the high watermark and the last stable offset that the client
    knows. host: the address that the client connects from. The counters count answered fetches. If partitions share one
    queue, only the client's row has buffered_bytes. Without as_of_ms, all values are as of when they were reported.
    """

    client_id: str
    fetcher: str | None = None
    topic: str | None = None
    partition: int | None = None
    fetched_offset: int | None = None
    consumed_offset: int | None = None
    reported_lag: int | None = None
    reported_lead: int | None = None
    reported_end: int | None = None
    queue_chunks: int | None = None
    buffered_bytes: int | None = None
    requests_total: int | None = None
    bytes_total: int | None = None
    is_paused: bool | None = None
    group_id: str | None = None
    as_of_ms: int | None = None
    reported_stable_end: int | None = None
    host: str | None = None


TOO_LARGE = 2**60
"""No log has this many records or bytes. An offset of the cluster plus two smaller numbers than this is a bigint."""

FUTURE_MS = 5 * MINUTE_MS
"""A report whose time is further in the future than this comes from a wrong clock."""
LATEST_MS = 253_402_300_800_000
"""The end of the year 9999, epoch ms: a timestamp of Python or Spark cannot be later."""


def stored_name(value: Any) -> str:
    """The name, if a table can store it. Raises TypeError if it is not valid Unicode text, or is too long.

    The limit is LONGEST_NAME characters, because each row of a client repeats its name.
    """
    if not isinstance(value, str) or value.encode(errors="replace").decode() != value:
        raise TypeError(f"{type(value).__name__} instead of a text")
    if len(value) > LONGEST_NAME:
        raise TypeError(f"a name of {len(value)} characters, more than {LONGEST_NAME}")
    return value


def integer(number: Any, below: int = 2**62) -> int:
    """An integer from JSON. Raises TypeError if it is another value, or not less than `below`."""
    if not isinstance(number, int) or isinstance(number, bool):
        raise TypeError(f"{type(number).__name__} instead of a whole number")
    if abs(number) >= below:
        raise TypeError("a number that is too large")
    return number


def count(number: Any, below: int = 2**62) -> int:
    """An integer from JSON that is 0 or more. Raises TypeError if it is another value, or not less than `below`."""
    if integer(number, below) < 0:
        raise TypeError("a number below 0")
    return int(number)


def time_ms(number: Any) -> int:
    """An instant from JSON, epoch ms. Raises TypeError if it is another value, or after the year 9999."""
    return count(number, below=LATEST_MS)


TEXTS = ("client_id", "fetcher", "topic", "group_id", "host")
SIGNED = ("reported_lag", "reported_lead")
"""Numbers that may be negative; all others are offsets, counts and sizes."""


def refused(position: Position) -> str | None:
    """Why a position cannot be stored in the table; None if it can."""
    for name, value in position._asdict().items():
        if value is None or name == "is_paused":
            continue
        try:
            if name in TEXTS:
                stored_name(value)
            else:
                (integer if name in SIGNED else count)(value, below=2**31 if name == "partition" else TOO_LARGE)
        except TypeError as error:
            return f"{name}: {error}"
    return None


_COLUMNS = {
    "records_lag": "reported_lag",
    "records_lead": "reported_lead",
    "max_lag": "reported_lag",
    "fetcher_lag": "reported_lag",
}


SCRAPES_MS = MINUTE_MS
"""Two processes that are both alive may have been scraped this long after each other."""
_Identity = tuple[str, str | None, str | None, int | None]


def of_metrics(metrics: Collection[Metric]) -> list[Position]:
    """A position for each client, fetcher, topic and partition that has metrics.

    A metric with several different values is NULL: which of them is true is not known (`contradictions`). If values
    have times of their own, the position is as of the oldest of those that count (`_in_force`).
    """
    as_of: dict[_Identity, int] = {}
    for metric in _in_force(metrics):
        if metric.as_of_ms is not None:
            identity = _identity(metric)
            as_of[identity] = min(metric.as_of_ms, as_of.get(identity, metric.as_of_ms))
    positions = []
    for identity, reported in _reported_values(metrics).items():
        known: dict[str, Any] = {}
        for name, values in reported.items():
            if len(values) == 1:
                known[_COLUMNS.get(name, name)] = next(iter(values))
        positions.append(Position(*identity, as_of_ms=as_of.get(identity), **known))
    return positions


def contradictions(metrics: Collection[Metric]) -> Iterator[str]:
    """A sentence for each metric that has several different values in a series.

    An agent's rule may match `records-lag-avg` and `records-lag-max`, too, and give them the name of `records-lag`.
    """
    contradicted: Counter[str] = Counter()
    for reported in _reported_values(metrics).values():
        contradicted.update(name for name, values in reported.items() if len(values) > 1)
    for name, series in sorted(contradicted.items()):
        yield (
            f"{name} has several different values in {series} series, so they are not used: make the agent's rules "
            "give each metric a name of its own"
        )


def _reported_values(metrics: Collection[Metric]) -> dict[_Identity, dict[str, set[int]]]:
    """The different values of each metric, by client, fetcher, topic and partition."""
    found: dict[_Identity, dict[str, set[int]]] = {}
    for metric in _in_force(metrics):
        found.setdefault(_identity(metric), {}).setdefault(metric.name, set()).add(round(metric.value))
    return found


def _in_force(metrics: Collection[Metric]) -> Collection[Metric]:
    """The metrics without values that are older, by SCRAPES_MS, than the newest of the same metric and series.

    A value without a time of its own is as of the scrape, so that none is newer. What collects the metrics of several
    pods may also show the last value of one that ended hours ago: it once hid the value of the live one.
    """
    if all(metric.as_of_ms is None for metric in metrics):
        return metrics
    newest: dict[tuple[_Identity, str], float] = {}
    for metric in metrics:
        series = _identity(metric), metric.name
        newest[series] = max(_true_at_ms(metric), newest.get(series, -math.inf))
    return [m for m in metrics if _true_at_ms(m) >= newest[_identity(m), m.name] - SCRAPES_MS]


def _true_at_ms(metric: Metric) -> float:
    return math.inf if metric.as_of_ms is None else metric.as_of_ms


def _identity(metric: Metric) -> _Identity:
    # A lag belongs to the partition and not to the broker it is fetched from, because that may change.
    fetcher = metric.thread or (metric.broker if metric.partition is None else None)
    return metric.client_id, fetcher, metric.topic, metric.partition
