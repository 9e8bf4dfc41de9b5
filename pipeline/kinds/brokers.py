"""The kinds of findings about brokers, their records and laglake's own snapshots."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pipeline.common.kafka_tools import tool
from pipeline.kinds.command_lines import Command, CommandContext, in_shell
from pipeline.kinds.group_commands import Commands, topic_option
from pipeline.kinds.kind import Clock, Facts, Finding, Headline, Kind, SubjectType, Words
from pipeline.kinds.reader_facts import groups_named
from pipeline.kinds.text import counted, duration, figure, instant, number, sentence, some

_KEYS_OF_A_CLOCK = "`newest_timestamp_ms`, `newest_offset` and `newest_partition` of the record"


class MissingBroker(Facts):
    """The broker that is missing from most partitions. Its id is negative, so that the least one comes first."""

    partitions: int
    negative: int


class ReplicaFacts(Facts):
    """Partitions whose replicas are not in sync, those without a leader, and the groups that cannot read there."""

    partitions: int
    topics: Sequence[str] = ()
    topics_affected: int = 0
    worst: MissingBroker
    brokers: Sequence[int] = ()
    without_leader: int = 0
    critical: int = 0
    groups: Sequence[str] | None = None
    groups_affected: int = 0


class UnderReplicated(Kind[ReplicaFacts]):
    """A broker has been missing from the replicas in sync of some partitions for five minutes.

    The finding names the broker that is missing from most.
    """

    name = "under_replicated"
    subject = SubjectType.REPLICAS
    severity = "warning, or critical if a partition has no leader or less than half of its replicas are in sync"
    magnitude = "number of partitions"
    keys = (
        "`partitions`, `topics`, `topics_affected` (number); the missing `broker` and its `partitions_of_broker`, all "
        "missing `brokers`; `partitions_without_leader`, `critical_partitions`; `groups` (names), `groups_affected`"
    )
    facts = ReplicaFacts

    def words(self, facts: ReplicaFacts) -> Words:
        broker, without = -facts.worst.negative, facts.without_leader
        partitions, topics = counted(facts.partitions, "partition"), counted(facts.topics_affected, "topic")
        have = "has" if without == 1 else "have"
        cannot = ""
        if facts.groups_affected:
            cannot = f", so that {groups_named(facts.groups or (), facts.groups_affected)} cannot read there"
        return Words(
            sentence(
                f"Replicas of {partitions} of {topics} are not in sync; broker {broker} is missing from "
                f"{facts.worst.partitions:,}.",
                f" {counted(without, 'partition')} {have} no leader{cannot}." if without else None,
            ),
            {
                "partitions": facts.partitions,
                "topics": facts.topics,
                "topics_affected": facts.topics_affected,
                "broker": broker,
                "partitions_of_broker": facts.worst.partitions,
                "brokers": facts.brokers,
                "partitions_without_leader": without or None,
                "critical_partitions": facts.critical or None,
                "groups": facts.groups,
                "groups_affected": facts.groups_affected or None,
            },
            f"Look at broker {broker}: whether it runs, its log, its disks. Partitions that are being reassigned look "
            "the same; kafka-reassign-partitions lists them. See all of them: "
            + tool("topics", "--describe", "--under-replicated-partitions"),
        )

    def headline(self, finding: Finding, clock: Clock) -> Headline:
        of = some(finding.newest_evidence.get("partitions_of_broker"), "partition")
        broker = finding.newest_evidence.get("broker", "?")
        text = f"broker {broker} is missing from {of}, seen since {clock(finding.first_seen_ms)}"
        return Headline("under-replicated", text)

    def commands(self, finding: Finding, around: CommandContext) -> Commands:
        line = around.tool("topics", "--describe", "--under-replicated-partitions")
        yield Command("Shows these partitions now", line)

    def places(self, finding: Finding) -> list[str]:
        return [f"broker {broker}" for broker in finding.newest_evidence.get("brokers") or ()]


class NewestRecord(Facts):
    """The record whose timestamp is off by most, and by how much."""

    off_ms: int
    partition: int
    max_timestamp_ms: int
    max_timestamp_offset: int | None = None


class ClockFacts(Facts):
    """The partitions of a topic in which the newest timestamp cannot be right, by number."""

    topic: str
    partitions: int
    newest: NewestRecord


class _OfClock(Kind[ClockFacts]):
    """A kind about timestamps of a topic, whose card shows the newest ones."""

    subject = SubjectType.TOPIC
    magnitude = "by how many milliseconds"
    facts = ClockFacts

    def commands(self, finding: Finding, around: CommandContext) -> Commands:
        newest = around.tool("get-offsets", topic_option(finding), "--time max-timestamp")
        yield Command("Shows the offsets of the records with the newest timestamps", newest)


class ClockAhead(_OfClock):
    """The newest record of a partition has a timestamp more than five minutes in the future.

    Times of lag are not exact there, and retention keeps the record longer.
    """

    name = "clock_ahead"
    severity = "info, or warning from a day on"
    keys = f"`ahead_ms`; {_KEYS_OF_A_CLOCK}"

    def words(self, facts: ClockFacts) -> Words:
        newest = facts.newest
        alter = _alter(facts.topic, "message.timestamp.after.max.ms=3600000")
        return Words(
            f"Timestamps of records in {counted(facts.partitions, 'partition')} are in the future, by up to "
            f"{duration(newest.off_ms)}: times of lag are not exact there, and retention keeps these records longer.",
            {"ahead_ms": newest.off_ms, **_newest_record(newest)},
            "Look for a producer whose clock is ahead, or that sets timestamps in another unit than milliseconds. A "
            f"limit refuses such records (KIP-937): {alter}",
        )

    def headline(self, finding: Finding, clock: Clock) -> Headline:
        ahead = finding.newest_evidence.get("ahead_ms")
        by = f" by up to {duration(ahead)}" if isinstance(ahead, int) else ""
        text = f"timestamps are in the future{by}, seen since {clock(finding.first_seen_ms)}"
        return Headline("clock ahead", text)


class ClockBehind(_OfClock):
    """The newest record of a partition has seconds as its timestamp, where Kafka has milliseconds.

    Times of lag are 1,000 times too small, and retention by time, if the topic has one, deletes the record as soon as
    it can.
    """

    name = "clock_behind"
    severity = "warning"
    keys = f"`behind_ms`; {_KEYS_OF_A_CLOCK}"

    def words(self, facts: ClockFacts) -> Words:
        newest = facts.newest
        alter = _alter(facts.topic, "message.timestamp.before.max.ms=31536000000")
        return Words(
            f"Timestamps of records in {counted(facts.partitions, 'partition')} look like seconds, where Kafka has "
            f"milliseconds: {number(newest.max_timestamp_ms)} is an instant in January 1970. Times of lag are 1,000 "
            f"times too small there, ages are {duration(newest.off_ms)}, and retention by time, if the topic has one, "
            "deletes these records as soon as it can.",
            {"behind_ms": newest.off_ms, **_newest_record(newest)},
            "Look for a producer that sets timestamps in seconds, and multiply them by 1,000. A limit refuses such "
            f"records (since Kafka 3.6, KIP-937): {alter}",
        )

    def headline(self, finding: Finding, clock: Clock) -> Headline:
        text = f"timestamps are seconds, not milliseconds, seen since {clock(finding.first_seen_ms)}"
        return Headline("clock behind", text)


class LedgerFacts(Facts):
    """Snapshots of the last hour that failed, instants that were missed, when the first was noticed, and errors."""

    failed: int = 0
    missed: int = 0
    first_ms: int | None = None
    errors: Sequence[str] = ()


class SnapshotsMissing(Kind[LedgerFacts]):
    """Three or more snapshots of the last hour failed, or their instants passed without a snapshot.

    The latter are `missed_instants` in the ledger. The history has a hole.
    """

    name = "snapshots_missing"
    subject = SubjectType.CLUSTER
    severity = "warning"
    magnitude = "their number"
    keys = "`failed`, `missed_instants`, `errors`"
    facts = LedgerFacts

    def words(self, facts: LedgerFacts) -> Words:
        parts = [f"{counted(facts.failed, 'snapshot')} failed"] if facts.failed else []
        if facts.missed:
            parts.append(f"{counted(facts.missed, 'instant')} passed without a snapshot")
        return Words(
            f"The history has a hole: {' and '.join(parts)}; the first was noticed at {instant(facts.first_ms)}.",
            {"failed": facts.failed, "missed_instants": facts.missed, "errors": facts.errors},
            "If snapshots failed, the job `doctor` checks brokers and rights. If instants passed, the process was not "
            "running, or its runs take longer than `schedule`: make that longer.",
        )

    def headline(self, finding: Finding, clock: Clock) -> Headline:
        failed, missed = (finding.newest_evidence.get(name) for name in ("failed", "missed_instants"))
        said = f"{figure(failed)} failed, {figure(missed)} missed"
        return Headline("snapshots missing", f"{said}, seen since {clock(finding.first_seen_ms)}")

    def commands(self, finding: Finding, around: CommandContext) -> Commands:
        yield _DOCTOR


class ErrorFacts(Facts):
    """Readers whose lag is not known because of errors: partitions, and groups that could not be read at all."""

    partitions: int = 0
    whole_groups: int = 0
    topics: Sequence[str] = ()
    groups: Sequence[str] = ()
    groups_affected: int = 0
    errors: Sequence[str] = ()


class Unreadable(Kind[ErrorFacts]):
    """The lag of some partitions or groups has not been known in two successive snapshots, because of errors."""

    name = "unreadable"
    subject = SubjectType.CLUSTER
    severity = "warning"
    magnitude = "their number"
    keys = "`partitions`, `topics`, `errors`, `groups` (names), `groups_affected`"
    facts = ErrorFacts

    def words(self, facts: ErrorFacts) -> Words:
        partitions = counted(facts.partitions, "partition")
        what = "all partitions" if facts.partitions == 0 else f"{partitions} or more"
        names = "groups whose names are not known"
        if facts.groups_affected:
            names = groups_named(facts.groups, facts.groups_affected)
        return Words(
            f"Lag is not known for {what if facts.whole_groups else partitions} of {names}: {', '.join(facts.errors)}.",
            {
                "partitions": facts.partitions,
                "topics": facts.topics,
                "groups": facts.groups,
                "groups_affected": facts.groups_affected,
                "errors": facts.errors,
            },
            "docs/troubleshooting.md explains each error; the job `doctor` checks brokers and rights.",
        )

    def headline(self, finding: Finding, clock: Clock) -> Headline:
        errors = ", ".join(map(str, finding.newest_evidence.get("errors") or ())) or "the error is not known"
        return Headline("unreadable", f"lag is not known since {clock(finding.first_seen_ms)}: {errors}")

    def commands(self, finding: Finding, around: CommandContext) -> Commands:
        yield _DOCTOR


_DOCTOR = Command("Checks brokers and rights", "./spark-submit.sh doctor --config FILE")


def _alter(topic: str, config: str) -> str:
    entity = f"--alter --entity-type topics --entity-name {in_shell(topic, 'TOPIC')}"
    return f"{tool('configs', entity)} --add-config {config}"


def _newest_record(newest: NewestRecord) -> dict[str, Any]:
    """The evidence about the record whose timestamp is off by most."""
    return {
        "newest_timestamp_ms": newest.max_timestamp_ms,
        "newest_offset": newest.max_timestamp_offset,
        "newest_partition": newest.partition,
    }
