"""The words about brokers, their records and snapshots.

These are unreadable, under_replicated, clock_ahead, clock_behind and snapshots_missing.
"""

from __future__ import annotations

from typing import Any

from pipeline.analytics.findings.words.parts import (
    Facts,
    Words,
    counted,
    duration,
    in_shell,
    instant,
    number,
    sentence,
)
from pipeline.analytics.findings.words.readers import groups_named
from pipeline.common.kafka_tools import tool


def unreadable(facts: Facts) -> Words:
    """Brokers do not say how far groups are behind."""
    partitions = counted(facts["partitions"], "partition")
    what = "all partitions" if facts["partitions"] == 0 else f"{partitions} or more"
    names = groups_named(facts) if facts["groups_affected"] else "groups whose names are not known"
    return Words(
        f"Lag is not known for {what if facts['whole_groups'] else partitions} of {names}: "
        f"{', '.join(facts['errors'])}.",
        {name: facts[name] for name in ("partitions", "topics", "groups", "groups_affected", "errors")},
        "docs/troubleshooting.md explains each error; the job `doctor` checks brokers and rights.",
    )


def under_replicated(facts: Facts) -> Words:
    """Replicas have not all been in sync for some time."""
    broker, without = -facts["worst"]["negative"], facts["without_leader"]
    partitions, topics = counted(facts["partitions"], "partition"), counted(facts["topics_affected"], "topic")
    have = "has" if without == 1 else "have"
    cannot = f", so that {groups_named(facts)} cannot read there" if facts["groups_affected"] else ""
    return Words(
        sentence(
            f"Replicas of {partitions} of {topics} are not in sync; broker {broker} is missing from "
            f"{facts['worst']['partitions']:,}.",
            f" {counted(without, 'partition')} {have} no leader{cannot}." if without else None,
        ),
        {
            "partitions": facts["partitions"],
            "topics": facts["topics"],
            "topics_affected": facts["topics_affected"],
            "broker": broker,
            "partitions_of_broker": facts["worst"]["partitions"],
            "brokers": facts["brokers"],
            "partitions_without_leader": without or None,
            "critical_partitions": facts["critical"] or None,
            "groups": facts["groups"],
            "groups_affected": facts["groups_affected"] or None,
        },
        f"Look at broker {broker}: whether it runs, its log, its disks. Partitions that are being reassigned look the "
        "same; kafka-reassign-partitions lists them. See all of them: "
        + tool("topics", "--describe", "--under-replicated-partitions"),
    )


def clock_ahead(facts: Facts) -> Words:
    """Records have timestamps in the future."""
    newest = facts["newest"]
    alter = tool("configs", f"--alter --entity-type topics --entity-name {in_shell(facts['topic'], 'TOPIC')}")
    return Words(
        f"Timestamps of records in {counted(facts['partitions'], 'partition')} are in the future, by up to "
        f"{duration(newest['off_ms'])}: times of lag are not exact there, and retention keeps these records longer.",
        {
            "ahead_ms": newest["off_ms"],
            **_newest_record(newest),
        },
        "Look for a producer whose clock is ahead, or that sets timestamps in another unit than milliseconds. A limit "
        f"refuses such records (KIP-937): {alter} --add-config message.timestamp.after.max.ms=3600000",
    )


def clock_behind(facts: Facts) -> Words:
    """Records have seconds as their timestamps, where Kafka has milliseconds."""
    newest = facts["newest"]
    alter = tool("configs", f"--alter --entity-type topics --entity-name {in_shell(facts['topic'], 'TOPIC')}")
    return Words(
        f"Timestamps of records in {counted(facts['partitions'], 'partition')} look like seconds, where Kafka has "
        f"milliseconds: {number(newest['max_timestamp_ms'])} is an instant in January 1970. Times of lag are 1,000 "
        f"times too small there, ages are {duration(newest['off_ms'])}, and retention by time, if the topic has one, "
        "deletes these records as soon as it can.",
        {
            "behind_ms": newest["off_ms"],
            **_newest_record(newest),
        },
        "Look for a producer that sets timestamps in seconds, and multiply them by 1,000. A limit refuses such records "
        f"(since Kafka 3.6, KIP-937): {alter} --add-config message.timestamp.before.max.ms=31536000000",
    )


def _newest_record(newest: Facts) -> dict[str, Any]:
    """The evidence about the record whose timestamp is off by most."""
    return {
        "newest_timestamp_ms": newest["max_timestamp_ms"],
        "newest_offset": newest["max_timestamp_offset"],
        "newest_partition": newest["partition"],
    }


def snapshots_missing(facts: Facts) -> Words:
    """Snapshots failed or were not taken."""
    failed, missed = facts["failed"], facts["missed"]
    parts = [f"{counted(failed, 'snapshot')} failed"] if failed else []
    if missed:
        parts.append(f"{counted(missed, 'instant')} passed without a snapshot")
    return Words(
        f"The history has a hole: {' and '.join(parts)}; the first was noticed at {instant(facts['first_ms'])}.",
        {"failed": failed, "missed_instants": missed, "errors": facts["errors"]},
        "If snapshots failed, the job `doctor` checks brokers and rights. If instants passed, the process was not "
        "running, or its runs take longer than `schedule`: make that longer.",
    )
