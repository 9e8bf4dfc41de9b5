"""Parses consumers' metrics, and gives them one set of names, whichever agent and naming rules they come from.

It reads Prometheus text and OpenMetrics (jmx_exporter), and Jolokia's JSON, for the Java consumer and the old Scala
consumer: 0.8.1, whose MBeans have everything in one flat, quoted name, and 0.8.2 and later. A broker has the same
MBeans for its replica fetchers; these are left out.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import islice
from types import MappingProxyType
from typing import Any, NamedTuple

from prometheus_client import Metric as PrometheusMetric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as prometheus_text

from pipeline.client_positions.key_properties import (
    LONGEST_BEAN,
    LONGEST_NAME,
    Sample,
    key_properties,
    of_own_attributes,
    parsed_bean,
)


class Metric(NamedTuple):
    """One value of a consumer, with its name in NAMES. Labels that the metric does not have are NULL.

    as_of_ms is the value's own time, as of a federated or pushed value; without it, the value is as of the scrape.
    """

    name: str
    client_id: str
    topic: str | None
    partition: int | None
    thread: str | None
    broker: str | None
    value: float
    as_of_ms: int | None = None


_JAVA = "(consumerfetchmanager(metrics)?|kafkaconsumer)"
"""What agents call the Java consumer's metrics about fetches. The shorter name is OpenTelemetry's, that of Strimzi's
bridge, and that of Micrometer before 1.4, which also adds the unit."""
NAMES = {
    "records_lag": f"{_JAVA}recordslag(records)?",
    "records_lead": f"{_JAVA}recordslead(records)?",
    "max_lag": f"{_JAVA}recordslagmax(records)?|consumerfetchermanager.*maxlag(value)?",
    "fetcher_lag": "fetcherlagmetrics.*consumerlag(value)?",
    "queue_chunks": "zookeeperconsumerconnector.*fetchqueuesize.*",
    "requests_total": f"{_JAVA}fetch(total)?(requeststotal)?|fetcherstats.*requests(persec)?(total|count)",
    "bytes_total": f"{_JAVA}bytesconsumed(total)?(bytestotal)?|fetcherstats.*bytes(persec)?(total|count)",
}
"""Our name of each metric, and how the names that agents use for it end; only letters and digits are compared.

records_lag, records_lead: the Java consumer's, by partition; to the end of what it may read, and from log start.
fetcher_lag: the old consumer's ConsumerLag, by partition. max_lag: the largest lag of a client, as its gauge shows it.
queue_chunks: the old consumer's FetchQueueSize, by topic and thread. requests_total, bytes_total: counters of fetches.
"""
LABELS = ("client_id", "topic", "partition", "thread_id", "broker")
"""The labels that a metric may have."""
Names = Mapping[str, str]
"""The names of metrics and labels by an agent's own rules → our names, in NAMES or LABELS."""
_AGENTS_NAMES = {
    **{name: f"kafka_consumer_consumer_fetch_manager_metrics_{name}" for name in ("records_lag", "records_lead")},
    "max_lag": "kafka_consumer_consumerfetchermanager_maxlag",
    "fetcher_lag": "kafka_server_fetcherlagmetrics_consumerlag",
    "queue_chunks": "kafka_consumer_zookeeperconsumerconnector_fetchqueuesize",
    "requests_total": "kafka_consumer_consumer_fetch_manager_metrics_fetch_total",
    "bytes_total": "kafka_consumer_consumer_fetch_manager_metrics_bytes_consumed_total",
}
# A torn line makes the parser raise one of these, depending on where the line ends.
_PARSERS_OWN = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
_OF_A_CLIENT = ("max_lag", "requests_total", "bytes_total")
_WHAT = {name: re.compile(f".*?({ends})") for name, ends in NAMES.items()}
_REPLICA = re.compile("replica_?(fetcher|alter_?log_?dirs)", re.IGNORECASE)
# Some rules make a name of what precedes a value: …_clientid_<client>, clientId_<client>_brokerHost="…".
_MANGLED = re.compile("(?:^|_)clientid_(.+?)(?:_brokerhost)?$", re.IGNORECASE)
# 0.8.1: <client>-ConsumerFetcherThread-<consumer>-<fetcher>-<broker>-host_<host>-port_<port>[-<topic>-<partition>]
_FLAT = re.compile(
    r"(?P<client>.+)-ConsumerFetcherThread-(?P<consumer>.+)-(?P<fetcher>\d+)-\d+-host_(?P<host>.+?)-port_(?P<port>\d+)"
    r"(-(?P<topic>.+)-(?P<partition>\d+))?(-[A-Za-z]+)?"
)
LONGEST_LINE = 64 * 1024
MOST_TORN = 100
_PARTS_OF_FLAT = ("-ConsumerFetcherThread-", "-host_", "-port_")
_OLD_BEAN = re.compile(".*(consumerfetchermanager|zookeeperconsumerconnector|fetcherstats)")
_METRIC = re.compile(r"[ \t]*(?:#[ \t]+TYPE[ \t]+)?([^\s{#\"]*)(?=[\s{\"])")
READ, NOT_FOUND = 200, 404
"""Jolokia's status of a read with values, and that of a pattern that no MBean has."""
_PARTITION = re.compile("[0-9]{1,9}")
_QUEUE = re.compile("(.*)fetchqueuesize(?:value)?")
MOST_READERS = 100_000
MOST_ALIKE = 100
MOST_DIGITS = 9
_LEAST_MS = 10**11
Readers = dict[str, list[tuple[str, str]]]


def of_prometheus(text: str, names: Names = MappingProxyType({})) -> list[Metric]:
    """The consumers' metrics in a scrape. Raises ValueError if the text is not in Prometheus or OpenMetrics format."""
    if text.rstrip().endswith("# EOF"):
        return metrics(_parsed(open_metrics, text, names))
    # Most lines are about the JVM, and the parser is slow: it gets only the other lines, or all if there are no others.
    ours = metrics(_parsed(prometheus_text, _lines_of_consumers(text, names), names))
    return ours or metrics(_parsed(prometheus_text, text, names))


def of_torn_prometheus(text: str, names: Names = MappingProxyType({})) -> tuple[list[Metric], list[int]]:
    """The consumers' metrics of the lines that can be parsed, and the numbers of the lines that cannot.

    If none of the first MOST_TORN lines can be parsed, the text is of another kind, and parsing stops.
    """
    whole: list[Sample] = []
    torn = []
    for number, line in enumerate(text.split("\n"), 1):
        try:
            whole += _parsed(prometheus_text, line + "\n", names)
        except ValueError:
            torn.append(number)
            if number == len(torn) == MOST_TORN:
                break
    return metrics(whole), torn


def _lines_of_consumers(text: str, names: Names) -> str:
    """The lines of metrics that may be in NAMES; and the last line, which shows whether the text is complete."""
    *lines, last = text.rstrip("\n").split("\n")
    named = ((line, _METRIC.match(line)) for line in lines)
    return "\n".join([*(line for line, found in named if found and _may_be_ours(found[1], names)), last, ""])


def _may_be_ours(metric: str, names: Names) -> bool:
    # A name in quotes is among the labels. The parser adds _total to the name of a counter.
    return not metric or any(n in names or (len(n) <= LONGEST_NAME and _ours(n)) for n in (metric, f"{metric}_total"))


@lru_cache(10_000)  # of short names only, as they stay in memory
def _ours(metric: str) -> list[str]:
    return [name for name, pattern in _WHAT.items() if pattern.fullmatch(_squashed(metric))]


def _parsed(parse: Callable[[str], Iterable[PrometheusMetric]], text: str, names: Names) -> list[Sample]:
    if any(len(line) > LONGEST_LINE for line in text.split("\n")):
        raise ValueError(f"a line is longer than {LONGEST_LINE // 1024} KiB")
    try:
        return list(_prometheus_samples(parse(text), names))
    except _PARSERS_OWN as error:
        raise ValueError("is not Prometheus text") from error


def is_jolokia(text: str) -> bool:
    """Whether a text in JSON is from Jolokia; a read that failed may have no request in its answer."""
    return '"mbean"' in text or '"error_type"' in text


def of_jolokia(text: str) -> list[Metric]:
    """The consumers' metrics in an answer. Raises ValueError for any other text."""
    found, _ = read_answer(text)
    return found


def read_answer(text: str) -> tuple[list[Metric], list[str]]:
    """The consumers' metrics in an answer, and an error for each status other than 200 that its reads have.

    HTTP's own status is 200 even if all reads have failed. That no MBean is found is an error only if nothing else is
    there: an old Scala consumer has other MBeans than a Java consumer. Raises ValueError for any other text.
    """
    try:
        answers = json.loads(text)
        answers = answers if isinstance(answers, list) else [answers]
        found = metrics([s for answer in answers if answer["status"] == READ for s in _jolokia_samples(answer)])
        statuses = Counter(answer["status"] for answer in answers)
        return found, [*_jolokia_errors(statuses, is_nothing=not found)]
    except (AttributeError, KeyError, OverflowError, RecursionError, TypeError) as error:
        raise ValueError(f"not an answer of Jolokia: {error!r} is missing or wrong") from error


def metrics(samples: Iterable[Sample]) -> list[Metric]:
    """The metrics of consumers that are in NAMES and have a value; each topic occurs once."""
    named = of_own_attributes([(name, sample) for sample in samples for name in _names(sample)], _ours)
    named = [(name, sample) for name, sample in named if math.isfinite(sample.value)]
    # Names may be intact in one part of an answer and mangled in another; the intact ones show what the others mean.
    consumers: dict[str, set[str]] = defaultdict(set)
    for flat in (_flat(value) for _, sample in named for value in sample.labels.values()):
        if flat:
            consumers[flat["client"]].add(flat["consumer"])
    reported = {v for _, r in named for key, v in r.labels.items() if _squashed(key) == "clientid"} | consumers.keys()
    clients = {_squashed(client): client for client in sorted(reported, reverse=True) if len(client) <= LONGEST_NAME}
    found = [metric for name, sample in named if (metric := _metric(name, sample, clients))]
    topics = {(m.client_id, m.topic) for m in found if m.topic and m.client_id in consumers}
    if topics:
        readers = _readers_of(topics, consumers)
        lengths = {len(reader) for reader in readers}
        found += (m for name, r in named if name == "queue_chunks" and (m := _flat_queue(r, readers, lengths)))
    # The Java consumer reports a topic with dots twice, also with underscores. In Kafka, topics must differ in more.
    twins = {(m.client_id, m.topic.replace(".", "_")) for m in found if m.topic and "." in m.topic}
    return [m for m in found if (m.client_id, m.topic) not in twins]


def _jolokia_errors(statuses: Counter[Any], *, is_nothing: bool) -> Iterator[str]:
    for status, count in statuses.items():
        # A status of another kind is not shown, because an error quotes nothing of what was read.
        code = status if type(status) is int and 0 < status < 1_000 else "of another kind"
        if status == NOT_FOUND and is_nothing:
            yield f"Jolokia finds no MBean for {count} of {statuses.total()} reads (status {code})"
        elif status not in (READ, NOT_FOUND):
            yield f"Jolokia refuses {count} of {statuses.total()} reads (status {code}): see its access policy"


def _jolokia_samples(answer: Mapping[str, Any]) -> Iterator[Sample]:
    """The numbers in an answer of Jolokia to a read of a pattern, of one MBean, or of one attribute."""
    value, mbean, attribute = answer["value"], answer["request"]["mbean"], answer["request"].get("attribute")
    if not isinstance(value, dict):
        value = {attribute or "Value": value}
    beans = value if all(isinstance(v, dict) for v in value.values()) else {mbean: value}
    for bean, attributes in beans.items():
        if len(bean) > LONGEST_BEAN:
            continue
        kind, properties = parsed_bean(bean)
        for name, number in attributes.items():
            if isinstance(number, (int, float)) and not isinstance(number, bool):
                yield Sample(kind + name, properties, float(number))


def _prometheus_samples(families: Iterable[PrometheusMetric], names: Names) -> Iterator[Sample]:
    for sample in (sample for family in families for sample in family.samples):
        what = _AGENTS_NAMES.get(names.get(sample.name, ""), sample.name)
        labels = {names.get(label, label): value for label, value in sample.labels.items()} if names else sample.labels
        as_of_ms = None if sample.timestamp is None else _as_of_ms(float(sample.timestamp))
        yield Sample(what, key_properties(labels), float(sample.value), as_of_ms)


def _as_of_ms(timestamp_s: float) -> int:
    """A value's own time. The parsers return seconds, but Prometheus text has milliseconds, and OpenMetrics seconds."""
    at_ms = timestamp_s * 1_000
    # Lines of OpenMetrics are parsed as Prometheus text if one of them is torn: then this is the year 1970.
    return round(at_ms * 1_000 if 0 < at_ms < _LEAST_MS else at_ms)


def _flat(value: str) -> re.Match[str] | None:
    return _flat_parts(value) if len(value) <= LONGEST_NAME else None


@lru_cache(10_000)
def _flat_parts(value: str) -> re.Match[str] | None:
    # Each part may occur only once: to find out which of several is meant would take more than linear time.
    return _FLAT.fullmatch(value) if all(value.count(part) == 1 for part in _PARTS_OF_FLAT) else None


def _names(sample: Sample) -> list[str]:
    is_short = all(len(name) <= LONGEST_NAME for name in (sample.what, *sample.labels))
    return _ours(sample.what) if is_short else []


def _metric(name: str, sample: Sample, clients: Mapping[str, str]) -> Metric | None:
    labels = {_squashed(_MANGLED.sub("brokerhost", key)): value for key, value in sample.labels.items()}
    flat = next((m for value in labels.values() if (m := _flat(value))), None)
    if flat:
        labels |= {"clientid": flat["client"], "brokerhost": flat["host"], "brokerport": flat["port"]}
        labels |= {key: flat[key] for key in ("topic", "partition") if flat[key]}
        if not flat["topic"]:
            labels.pop("topic", None)  # a rule put the whole name there
    client, topic, partition = labels.get("clientid"), labels.get("topic"), labels.get("partition")
    client = client or _mangled_client(sample, clients)
    if not client or _REPLICA.match(client) or (topic is None) != (name in _OF_A_CLIENT):
        return None
    host, port = labels.get("brokerhost"), labels.get("brokerport")
    broker = labels.get("broker") or (f"{host}:{port}" if host and port else host)
    if partition is not None and not _PARTITION.fullmatch(partition):
        return None
    if broker and flat and flat["fetcher"] != "0":
        broker += f"/{flat['fetcher']}"  # num.consumer.fetchers
    number = int(partition) if partition is not None else None
    return Metric(name, client, topic, number, labels.get("threadid"), broker, sample.value, sample.as_of_ms)


def _mangled_client(sample: Sample, clients: Mapping[str, str]) -> str | None:
    """The client that is part of a name; in its original spelling if another metric has it (`clients`)."""
    for text in (sample.what, *sample.labels):
        if mangled := _MANGLED.search(text):
            return clients.get(_squashed(mangled[1]), mangled[1])
    # 0.8.1: right after the bean's own name. One client's name may be the beginning of another's: the longest is meant.
    rest = _OLD_BEAN.sub("", _squashed(sample.what), count=1)
    return next((clients[rest[:end]] for end in range(len(rest), 0, -1) if rest[:end] in clients), None)


def _readers_of(topics: Collection[tuple[str, str]], consumers: Mapping[str, Collection[str]]) -> Readers:
    """Topic and consumer in one word, as in the names of queues → the clients and topics that it may stand for."""
    pairs = ((client, topic, consumer) for client, topic in sorted(topics) for consumer in consumers[client])
    found: Readers = defaultdict(list)
    for client, topic, consumer in islice(pairs, MOST_READERS):
        alike = found[_squashed(topic + consumer)]
        if len(alike) < MOST_ALIKE:
            alike.append((client, topic))
    return found


def _flat_queue(queue: Sample, readers: Readers, lengths: Collection[int]) -> Metric | None:
    """0.8.1: <client>-<group>-<topic>-<consumer>-<thread>-FetchQueueSize, for a topic that has lags.

    If one topic's name is the end of another's, the longest is meant.
    """
    what = _squashed(queue.what)
    named = _QUEUE.fullmatch(what)
    if not named:
        return None
    found = []
    for end, thread in _threads(named[1]):
        for length in lengths:
            alike = readers.get(what[end - length : end], ()) if length <= end else ()
            found += [(client, topic, thread) for client, topic in alike if _squashed(client) in what]
    if not found:
        return None
    client, topic, thread = max(found, key=lambda one: (len(one[1]), len(one[0])))
    return Metric("queue_chunks", client, topic, None, thread, None, queue.value, queue.as_of_ms)


def _threads(name: str) -> Iterator[tuple[int, str]]:
    """Where the thread's number at the end of a name may begin, and the number: the name before may end in digits."""
    for end in range(len(name) - 1, max(0, len(name) - 1 - MOST_DIGITS), -1):
        if not name[end].isdigit():
            return
        yield end, name[end:]


def _squashed(text: str) -> str:
    return re.sub("[^a-z0-9]", "", text.lower())
