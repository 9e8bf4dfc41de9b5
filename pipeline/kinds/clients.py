"""The kinds of findings about clients. Each summary names the process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from pipeline.kinds.command_lines import CommandContext
from pipeline.kinds.group_commands import Commands, show_lag
from pipeline.kinds.kind import Clock, Facts, Finding, Headline, Kind, SubjectType, Words
from pipeline.kinds.text import counted, figure, number, part, rounded, sentence, size

SLOW_RESOLVED_AFTER = 5
"""Slow poll loops still poll from time to time."""


class ClientFacts(Facts):
    """The client, and where it reports, so that it can be found among others with the same client.id."""

    client_id: str
    instance: str | None = None

    def process(self) -> str:
        """Such as "app-1 at 10.0.0.1:9102"."""
        return sentence(self.client_id, part(" at ", self.instance))


C = TypeVar("C", bound=ClientFacts)


class _OfClient(Kind[C]):
    """A kind whose card shows the lag of the client's group, if that is known."""

    subject = SubjectType.CLIENT

    def commands(self, finding: Finding, around: CommandContext) -> Commands:
        if finding.group_id is not None:
            yield from show_lag(finding, around)


class FetcherFacts(ClientFacts):
    """An old consumer (0.8): the topics and threads whose queues are full, and the topics that wait (`victims`)."""

    culprit: str | None = None
    culprits: Sequence[str] = ()
    threads: Sequence[str] | None = None
    victims: Sequence[str] = ()
    fetchers: Sequence[str] = ()
    sum_fetcher_lag: int | None = None
    record_bytes: int | None = None
    max_lag: int | None = None

    def evidence(self) -> dict[str, object]:
        """What both kinds of fetchers show."""
        waiting, record_bytes = self.sum_fetcher_lag, self.record_bytes
        return {
            "culprit_topic": self.culprit,
            "culprit_topics": self.culprits,
            "culprit_threads": self.threads,
            "victim_topics": self.victims,
            "fetchers": self.fetchers,
            "records_waiting": waiting,
            "bytes_waiting": None if waiting is None or record_bytes is None else waiting * record_bytes,
            "max_lag": self.max_lag,
        }


_KEYS_OF_FETCHERS = (
    "`culprit_topic`, all `culprit_topics` and `culprit_threads` whose queues are full; `victim_topics` that wait; "
    "`fetchers`; `records_waiting`, `bytes_waiting`; `max_lag` as the client reports it"
)


class BlockedConnector(_OfClient[FetcherFacts]):
    """An old consumer's fetcher waits for a topic whose queue is full; the other topics get nothing."""

    name = "blocked_connector"
    severity = "critical, or warning if nothing waits"
    magnitude = "records that wait on the broker"
    keys = _KEYS_OF_FETCHERS
    facts = FetcherFacts

    def words(self, facts: FetcherFacts) -> Words:
        queue = ", ".join(facts.culprits) if facts.culprits else "a thread"
        others = f"; nothing comes for {', '.join(facts.victims)} meanwhile" if facts.victims else ""
        return Words(
            f"The fetcher of {facts.process()} waits for {queue}, whose queue is full{others}.",
            facts.evidence(),
            "Give the topic a connector of its own, or let its thread hand records to workers: one fetcher serves all "
            "topics of a connector, and waits where one queue is full.",
        )

    def headline(self, finding: Finding, clock: Clock) -> Headline:
        topics = ", ".join(map(str, finding.newest_evidence.get("culprit_topics") or ())) or "a thread"
        since = clock(finding.first_seen_ms)
        return Headline("blocked client", f"{_client(finding)} waits for {topics}, whose queue is full, since {since}")


class TooLargeMessage(_OfClient[FetcherFacts]):
    """Fetches are answered without one whole message; MaxLag stays at a high value for ever."""

    name = "too_large_message"
    severity = "critical"
    magnitude = "MaxLag"
    keys = _KEYS_OF_FETCHERS
    facts = FetcherFacts

    def words(self, facts: FetcherFacts) -> Words:
        return Words(
            f"{facts.process()} asks for records and gets none: a batch is larger than its fetch.message.max.bytes, so "
            f"MaxLag stays at {number(facts.max_lag)}.",
            facts.evidence(),
            "Set fetch.message.max.bytes to the brokers' message.max.bytes or more, and restart the client.",
        )

    def headline(self, finding: Finding, clock: Clock) -> Headline:
        text = _said(finding, "gets no records: a batch exceeds its fetch size", clock)
        return Headline("too large message", text)


class PollFacts(ClientFacts):
    """A poll loop that hardly fetches: the topic that is processed, those that wait, and what is unread."""

    culprit: str | None = None
    waiting: Sequence[str] = ()
    unread: int | None = None
    hosts: Sequence[str] | None = None


class SlowConsumer(_OfClient[PollFacts]):
    """A poll loop that fetches rarely and falls behind.

    The finding names the topic that is processed while others wait.
    """

    name = "slow_consumer"
    severity = "warning"
    magnitude = "unread records"
    keys = "`culprit_topic`, `victim_topics`, `records_waiting`, `hosts`"
    facts = PollFacts
    resolved_after = SLOW_RESOLVED_AFTER

    def words(self, facts: PollFacts) -> Words:
        return Words(
            sentence(
                f"{facts.process()} hardly asks for records any more",
                part(" and has ", counted(facts.unread, "record"), " unread"),
                ": its application is slow",
                part(" with ", facts.culprit, ", and others wait"),
                ".",
            ),
            {
                "culprit_topic": facts.culprit,
                "victim_topics": facts.waiting,
                "records_waiting": facts.unread,
                "hosts": facts.hosts,
            },
            "Hand records to workers, or read the slow topic with a consumer of its own: a poll loop serves all "
            "topics.",
        )

    def headline(self, finding: Finding, clock: Clock) -> Headline:
        return Headline("slow client", _said(finding, "hardly asks for records", clock))


class PausedFacts(ClientFacts):
    """The partitions of a topic that a client has paused."""

    topic: str
    partitions: Sequence[int] = ()
    unread: int | None = None
    hosts: Sequence[str] | None = None


class PausedPartition(_OfClient[PausedFacts]):
    """A partition whose consumed offset stands still while its client still fetches others."""

    name = "paused_partition"
    subject = SubjectType.TOPIC_OF_CLIENT
    severity = "warning"
    magnitude = "unread records"
    keys = "`records_waiting`, `hosts`"
    facts = PausedFacts

    def words(self, facts: PausedFacts) -> Words:
        partitions = ", ".join(map(str, facts.partitions))
        return Words(
            sentence(
                f"{facts.process()} reads nothing from {facts.topic}, partitions {partitions}, though it reads others: "
                "these are paused",
                part(", with ", counted(facts.unread, "record"), " unread"),
                ".",
            ),
            {"records_waiting": facts.unread, "hosts": facts.hosts},
            "Call resume, or let another consumer read it; records-lag stays at its last value while paused.",
        )

    def headline(self, finding: Finding, clock: Clock) -> Headline:
        return Headline("paused", _said(finding, "reads nothing from some partitions", clock))


class GaugeFacts(ClientFacts):
    """What the lag gauge of a client reports, and its lag: columns of `client_divergence`."""

    verdict: str | None = None
    max_lag: int | None = None
    max_fetcher_lag: int | None = None
    max_consumer_lag: int | None = None
    max_divergence: int | None = None
    hidden_lag: int | None = None
    queue_records: int | None = None


class BlindGauge(_OfClient[GaugeFacts]):
    """The verdict [`blind` or `stale`](positions.md#can-the-maxlag-alarm-be-trusted)."""

    name = "blind_gauge"
    severity = "warning"
    magnitude = "`hidden_lag`"
    keys = (
        "`verdict`, `max_lag`, `max_fetcher_lag`, `max_consumer_lag`, `max_divergence`, `hidden_lag`, as in "
        "[client_divergence](tables.md); `queue_records`"
    )
    facts = GaugeFacts
    doubts_gauge = True

    def words(self, facts: GaugeFacts) -> Words:
        queued = facts.queue_records
        why = "it is updated only when records arrive"
        if facts.verdict == "stale":
            why = "its fetches are no longer answered"
        elif queued is not None:
            why = "it does not count what waits in the client's queues"
        shown, lag = number(facts.max_lag) or "nothing", number(facts.max_consumer_lag) or "unknown"
        advice = "Alarm on consumer_lag, or on fetch counters that stand still, instead of the client's own gauge."
        if queued is not None:
            advice = (
                f"A full queue hides {queued} records from MaxLag: alarm on consumer_lag instead, or lower the alarm's "
                "threshold by as many."
            )
        return Words(
            f"The lag gauge of {facts.process()} reads {shown} while consumer lag is {lag}: {why}.",
            facts.model_dump(exclude={"client_id", "instance"}),
            advice,
        )

    def headline(self, finding: Finding, clock: Clock) -> Headline:
        shown, lag = (finding.newest_evidence.get(name) for name in ("max_lag", "max_consumer_lag"))
        reported = "no lag" if shown is None else f"a lag of {figure(shown)}"
        true = "not known" if lag is None else figure(lag)
        since = clock(finding.first_seen_ms)
        return Headline("gauge wrong", f"{_client(finding)} reports {reported}, its lag is {true}; seen since {since}")


class BufferFacts(ClientFacts):
    """How much a client may buffer, and which share of its heap that is: columns of `client_divergence`."""

    buffered_bytes: int | None = None
    buffer_bound_bytes: int | None = None
    heap_share: float


class BufferTooLarge(_OfClient[BufferFacts]):
    """A client's settings let it buffer more than half of its heap."""

    name = "buffer_too_large"
    severity = "warning"
    magnitude = "the share of the heap"
    keys = "`buffered_bytes`, `buffer_bound_bytes`, `heap_share`"
    facts = BufferFacts

    def words(self, facts: BufferFacts) -> Words:
        share = rounded(facts.heap_share * 100, 0)
        return Words(
            f"{facts.process()} may buffer {size(facts.buffer_bound_bytes)}, {share:.0f} % of its heap.",
            facts.model_dump(exclude={"client_id", "instance"}),
            "Lower the fetch sizes or the queue; laglake.fetch_memory says which, and to what.",
        )

    def headline(self, finding: Finding, clock: Clock) -> Headline:
        return Headline("large buffer", _said(finding, "may buffer more than half of its heap", clock))


def _client(finding: Finding) -> str:
    return finding.client_id or "a client"


def _said(finding: Finding, what: str, clock: Clock) -> str:
    topic = f" ({finding.topic})" if finding.topic else ""
    return f"{_client(finding)} {what}{topic}, seen since {clock(finding.first_seen_ms)}"
