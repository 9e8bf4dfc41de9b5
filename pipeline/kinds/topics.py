"""The kinds of findings about a topic that is the cause, for all groups that read it."""

from __future__ import annotations

from pipeline.common.epoch import HOUR_MS, utc
from pipeline.common.kafka_tools import tool
from pipeline.kinds.command_lines import Command, CommandContext, in_shell
from pipeline.kinds.group_commands import Commands, partition_option, show_resets, topic_option
from pipeline.kinds.kind import Clock, Finding, Headline, Kind, SubjectType, Words
from pipeline.kinds.reader_facts import ReaderFacts, WorstReader, figures, groups_named
from pipeline.kinds.text import counted, instant, iso, part, sentence, some


class OpenTransaction(Kind[ReaderFacts]):
    """An open transaction hides all unread records from read_committed groups, which therefore wait.

    Names the producer, [if laglake may ask](sources.md#brokers), and the command that finds out whether the transaction
    hangs.
    """

    # The coordinator ends the transaction of a producer that is gone; only a hanging one needs an abort. A transaction
    # of a two-phase commit, as Flink makes them, is committed by its producer after a restart: to abort it by hand may
    # lose a part of it (KIP-664, KIP-939).
    name = "open_transaction"
    subject = SubjectType.TOPIC
    severity = "warning"
    magnitude = "unread records"
    keys = "`transaction_producer_id`, `transaction_start_offset`, `transaction_last_written` of the worst partition"
    facts = ReaderFacts
    begins_in_status = True

    def words(self, facts: ReaderFacts) -> Words:
        worst = facts.worst
        hanging = tool("transactions", f"find-hanging --topic {in_shell(facts.of_topic, 'TOPIC')}")
        return Words(
            sentence(
                "An open transaction",
                _producer(worst),
                f" hides all unread records of {counted(facts.partition_numbers, 'partition')} from read_committed "
                "readers since ",
                instant(facts.since_ms),
                f"; waiting: {groups_named(facts.groups, facts.groups_affected)}.",
            ),
            {
                **figures(facts),
                "transaction_producer_id": worst.transaction_producer_id,
                "transaction_start_offset": worst.transaction_start_offset,
                "transaction_last_written": iso(_written_ms(worst)),
            },
            "Look at the application that writes in transactions. If its producer is gone, Kafka aborts the "
            "transaction after the producer's transaction.timeout.ms, or the application commits it when it is back. "
            f"Abort it by hand only if it hangs (KIP-664), in each partition that is listed as hanging: {hanging}",
        )

    def headline(self, finding: Finding, clock: Clock) -> Headline:
        producer = finding.newest_evidence.get("transaction_producer_id")
        whose = "an unknown producer" if producer is None else f"producer {producer}"
        held = some(finding.newest_evidence.get("partitions"), "partition")
        return Headline("open transaction", f"{whose} holds back {held} since {clock(self.since_ms(finding))}")

    def commands(self, finding: Finding, around: CommandContext) -> Commands:
        hanging = (
            "Lists transactions that hang: they have been open for longer than 15 minutes (--max-transaction-timeout "
            "changes this), and their coordinator does not know them any more"
        )
        yield Command(hanging, around.tool("transactions", "find-hanging", topic_option(finding)))
        where = (topic_option(finding), partition_option(finding))
        start = finding.newest_evidence.get("transaction_start_offset")
        if isinstance(start, int):
            what = (
                "Only if the list has the transaction: ends it in this partition. Repeat it for each partition in the "
                "list, with the start offset from there. If the list does not have it, do not abort it: its producer "
                "ends it, or the coordinator aborts it after transaction.timeout.ms"
            )
            yield Command(what, around.tool("transactions", "abort", *where, f"--start-offset {start}"))
        shows = "Shows the producers of this partition, and which of them has an open transaction"
        yield Command(shows, around.tool("transactions", "describe-producers", *where))

    def places(self, finding: Finding) -> list[str]:
        producer = finding.newest_evidence.get("transaction_producer_id")
        return super().places(finding) if producer is None else [f"producer {producer}"]


class RecreatedTopic(Kind[ReaderFacts]):
    """The topic was recreated, and the groups have not committed since.

    A commit at offset 0 does not count, because it means the start of either topic.
    """

    name = "recreated_topic"
    subject = SubjectType.TOPIC
    severity = "warning"
    magnitude = "number of groups"
    facts = ReaderFacts

    def words(self, facts: ReaderFacts) -> Words:
        return Words(
            f"The topic was recreated; not committed since: {groups_named(facts.groups, facts.groups_affected)}.",
            figures(facts),
            "The commits belong to the deleted topic. Check where the groups read now; reset their offsets if they "
            "skip records of the new topic.",
        )

    def headline(self, finding: Finding, clock: Clock) -> Headline:
        text = f"its groups have not committed since; seen since {clock(finding.first_seen_ms)}"
        return Headline("topic recreated", text)

    def commands(self, finding: Finding, around: CommandContext) -> Commands:
        yield from show_resets(finding, around, "Shows where the group would begin in the new topic", "--to-earliest")


class TruncatedLog(Kind[ReaderFacts]):
    """Commits are beyond the end of the log, or other records have their offsets now.

    Says whether a snapshot has seen the commits within the log, which was then cut off, or
    [has never](#is-it-the-log-or-the-commit).
    """

    name = "truncated_log"
    subject = SubjectType.TOPIC
    severity = "critical"
    magnitude = "number of groups"
    keys = (
        "`commits_cut_off`: commits below which the log is known to have been cut off; `commits_never_within`: commits "
        "that no snapshot has seen within the log"
    )
    facts = ReaderFacts

    def words(self, facts: ReaderFacts) -> Words:
        cut, commits = facts.commits_cut_off, facts.rows
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

    def headline(self, finding: Finding, clock: Clock) -> Headline:
        since = clock(finding.first_seen_ms)
        if finding.newest_evidence.get("commits_never_within") and not finding.newest_evidence.get("commits_cut_off"):
            text = f"no snapshot has seen the commits within the log; seen since {since}"
            return Headline("commit beyond the end", text)
        return Headline("log truncated", f"commits are beyond what was cut off; seen since {since}")

    def commands(self, finding: Finding, around: CommandContext) -> Commands:
        yield Command("Shows where the log ends", around.tool("get-offsets", topic_option(finding)))
        before = f"{utc(finding.first_seen_ms - HOUR_MS):%Y-%m-%dT%H:%M:%S}.000"
        what = "Shows where the group would begin if it reads again what was written from an hour before the finding on"
        yield from show_resets(finding, around, what, f"--to-datetime {before}")


def _producer(worst: WorstReader) -> str | None:
    """Whose transaction it is: " of the producer with id 7, which last wrote at …,". None if it is not known."""
    producer_id = worst.transaction_producer_id
    if producer_id is None:
        return None
    last = part(", which last wrote at ", instant(_written_ms(worst)), ",")
    return sentence(f" of the producer with id {producer_id}", last)


def _written_ms(worst: WorstReader) -> int | None:
    """When the producer last wrote; None if its timestamp is before 1970: a producer may write any."""
    at_ms = worst.transaction_timestamp_ms
    return None if at_ms is None or at_ms < 0 else at_ms


def _cut_or_wrong(facts: ReaderFacts, cut: int, others: int) -> str:
    """Whether the log was cut off, or the commits may be wrong: one commit of 2^63 − 1 does not say that it was."""
    partitions = counted(facts.partition_numbers, "partition")
    groups = groups_named(facts.groups, facts.groups_affected)
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
