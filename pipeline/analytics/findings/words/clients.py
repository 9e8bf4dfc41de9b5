"""The words about the problems of clients. Each summary names the process."""

from __future__ import annotations

from pipeline.analytics.findings.words.parts import Facts, Words, counted, number, part, rounded, sentence, size


def process(facts: Facts) -> str:
    """The client, and where it reports, so that it can be found among others with the same client.id."""
    return sentence(facts["client_id"], part(" at ", facts["instance"]))


def blocked_connector(facts: Facts) -> Words:
    """An old consumer whose fetcher waits for a topic's thread."""
    victims, culprits = facts["victims"], facts["culprits"]
    queue = ", ".join(culprits) if culprits else "a thread"
    others = f"; nothing comes for {', '.join(victims)} meanwhile" if victims else ""
    return Words(
        f"The fetcher of {process(facts)} waits for {queue}, whose queue is full{others}.",
        _of_fetchers(facts),
        "Give the topic a connector of its own, or let its thread hand records to workers: one fetcher serves all "
        "topics of a connector, and waits where one queue is full.",
    )


def too_large_message(facts: Facts) -> Words:
    """An old consumer whose buffer is too small for a message."""
    return Words(
        f"{process(facts)} asks for records and gets none: a batch is larger than its fetch.message.max.bytes, so "
        f"MaxLag stays at {number(facts['max_lag'])}.",
        _of_fetchers(facts),
        "Set fetch.message.max.bytes to the brokers' message.max.bytes or more, and restart the client.",
    )


def _of_fetchers(facts: Facts) -> dict[str, object]:
    waiting, record_bytes = facts["sum_fetcher_lag"], facts["record_bytes"]
    return {
        "culprit_topic": facts["culprit"],
        "culprit_topics": facts["culprits"],
        "culprit_threads": facts["threads"],
        "victim_topics": facts["victims"],
        "fetchers": facts["fetchers"],
        "records_waiting": waiting,
        "bytes_waiting": None if waiting is None or record_bytes is None else waiting * record_bytes,
        "max_lag": facts["max_lag"],
    }


def slow_consumer(facts: Facts) -> Words:
    """A poll loop that hardly sends requests."""
    return Words(
        sentence(
            f"{process(facts)} hardly asks for records any more",
            part(" and has ", counted(facts["unread"], "record"), " unread"),
            ": its application is slow",
            part(" with ", facts["culprit"], ", and others wait"),
            ".",
        ),
        {
            "culprit_topic": facts["culprit"],
            "victim_topics": facts["waiting"],
            "records_waiting": facts["unread"],
            "hosts": facts["hosts"],
        },
        "Hand records to workers, or read the slow topic with a consumer of its own: a poll loop serves all topics.",
    )


def paused_partition(facts: Facts) -> Words:
    """A client that has paused partitions."""
    partitions = ", ".join(map(str, facts["partitions"]))
    return Words(
        sentence(
            f"{process(facts)} reads nothing from {facts['topic']}, partitions {partitions}, though it reads others: "
            "these are paused",
            part(", with ", counted(facts["unread"], "record"), " unread"),
            ".",
        ),
        {"records_waiting": facts["unread"], "hosts": facts["hosts"]},
        "Call resume, or let another consumer read it; records-lag stays at its last value while paused.",
    )


def blind_gauge(facts: Facts) -> Words:
    """A gauge of lag that cannot be trusted."""
    queued = facts["queue_records"]
    why = "it is updated only when records arrive"
    if facts["verdict"] == "stale":
        why = "its fetches are no longer answered"
    elif queued is not None:
        why = "it does not count what waits in the client's queues"
    shown, lag = number(facts["max_lag"]) or "nothing", number(facts["max_consumer_lag"]) or "unknown"
    names = ("verdict", "max_lag", "max_fetcher_lag", "max_consumer_lag", "max_divergence", "hidden_lag")
    return Words(
        f"The lag gauge of {process(facts)} reads {shown} while consumer lag is {lag}: {why}.",
        {name: facts[name] for name in (*names, "queue_records")},
        "Alarm on consumer_lag, or on fetch counters that stand still, instead of the client's own gauge."
        if queued is None
        else f"A full queue hides {queued} records from MaxLag: alarm on consumer_lag instead, or lower the alarm's "
        "threshold by as many.",
    )


def buffer_too_large(facts: Facts) -> Words:
    """A client whose heap is too small for its buffers."""
    share = rounded(facts["heap_share"] * 100, 0)
    return Words(
        f"{process(facts)} may buffer {size(facts['buffer_bound_bytes'])}, {share:.0f} % of its heap.",
        {name: facts[name] for name in ("buffered_bytes", "buffer_bound_bytes", "heap_share")},
        "Lower the fetch sizes or the queue; laglake.fetch_memory says which, and to what.",
    )
