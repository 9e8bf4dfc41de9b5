"""The words about a topic that is the cause: open_transaction, recreated_topic, truncated_log."""

from __future__ import annotations

from pipeline.analytics.findings.words.parts import Facts, Words, counted, in_shell, instant, iso, part, sentence
from pipeline.analytics.findings.words.readers import figures, groups_named
from pipeline.common.kafka_tools import tool


def open_transaction(facts: Facts) -> Words:
    """A transaction that hides records from read_committed readers: whose it is, and how it ends.

    The coordinator ends the transaction of a producer that is gone; only a hanging one needs an abort. A transaction of
    a two-phase commit, as Flink makes them, is committed by its producer after a restart: to abort it by hand may lose
    a part of it (KIP-664, KIP-939).
    """
    worst = facts["worst"]
    hanging = tool("transactions", f"find-hanging --topic {in_shell(facts['of_topic'], 'TOPIC')}")
    return Words(
        sentence(
            "An open transaction",
            _producer(worst),
            f" hides all unread records of {counted(facts['partition_numbers'], 'partition')} from read_committed "
            "readers since ",
            instant(facts["since_ms"]),
            f"; waiting: {groups_named(facts)}.",
        ),
        {
            **figures(facts),
            "transaction_producer_id": worst["transaction_producer_id"],
            "transaction_start_offset": worst["transaction_start_offset"],
            "transaction_last_written": iso(_written_ms(worst)),
        },
        "Look at the application that writes in transactions. If its producer is gone, Kafka aborts the transaction "
        "after the producer's transaction.timeout.ms, or the application commits it when it is back. Abort it by hand "
        f"only if it hangs (KIP-664), in each partition that is listed as hanging: {hanging}",
    )


def _producer(worst: Facts) -> str | None:
    """Whose transaction it is: " of the producer with id 7, which last wrote at …,". None if it is not known."""
    producer_id = worst["transaction_producer_id"]
    if producer_id is None:
        return None
    last = part(", which last wrote at ", instant(_written_ms(worst)), ",")
    return sentence(f" of the producer with id {producer_id}", last)


def _written_ms(worst: Facts) -> int | None:
    """When the producer last wrote; None if its timestamp is before 1970: a producer may write any."""
    at_ms: int | None = worst["transaction_timestamp_ms"]
    return None if at_ms is None or at_ms < 0 else at_ms


def recreated_topic(facts: Facts) -> Words:
    """A topic that was deleted and made again, while the commits of groups belong to the old one."""
    return Words(
        f"The topic was recreated; not committed since: {groups_named(facts)}.",
        figures(facts),
        "The commits belong to the deleted topic. Check where the groups read now; reset their offsets if they skip "
        "records of the new topic.",
    )


def truncated_log(facts: Facts) -> Words:
    """Commits beyond the end of a log: the log was cut off, or the commits were never within it."""
    cut, commits = facts["commits_cut_off"], facts["rows"]
    cause = "Look for an unclean leader election, or a topic that was recreated."
    if not cut:
        cause = (
            "Look for the tool or client that has committed these offsets. If there is none, look for an unclean "
            "leader election just after the commits."
        )
    return Words(
        _cut_or_wrong(facts, cut, commits - cut),
        {**figures(facts), "commits_cut_off": cut or None, "commits_never_within": commits - cut or None},
        f"{cause} Reset the groups to the offset from which they must read again.",
    )


def _cut_or_wrong(facts: Facts, cut: int, others: int) -> str:
    """Whether the log was cut off, or the commits may be wrong: one commit of 2^63 − 1 is no fault of the log."""
    partitions, groups = counted(facts["partition_numbers"], "partition"), groups_named(facts)
    if not cut:
        return (
            f"Commits of {groups} are beyond the end of the log of {partitions}, and no snapshot has seen them within "
            "it: the commits are wrong, or the log was cut off just after them."
        )
    begin = f"The log of {partitions} ends or was cut off before commits of {groups}"
    if not others:
        return f"{begin}: other records may have these offsets now."
    were = "was" if others == 1 else "were"
    return f"{begin}; {others:,} of the {cut + others:,} commits {were} never seen within the log, and may be wrong."
