"""The words about commits that were moved, or that Kafka will remove: rewound, skipped, commits_expire."""

from __future__ import annotations

from pipeline.analytics.findings.words.groups import soon
from pipeline.analytics.findings.words.parts import (
    Facts,
    Words,
    counted,
    in_shell,
    instant,
    iso,
    part,
    sentence,
    size_within,
)
from pipeline.analytics.findings.words.readers import figures, unread, where
from pipeline.common.kafka_tools import tool

LOOKS_LIKE_A_RESET = " This looks like a reset by a tool or an admin client."


def rewound(facts: Facts) -> Words:
    """A group whose commits went back, by a tool or an admin client, or by the application itself."""
    was_reset = facts["reason"] == "offsets_reset"
    return Words(
        sentence(
            "Commits went back at ",
            instant(facts["since_ms"]),
            where(facts),
            ", and are still behind where they were",
            unread(facts),
            ".",
            LOOKS_LIKE_A_RESET if was_reset else None,
        ),
        figures(facts),
        "Records are processed again. If this was not intended, find out who has reset the offsets."
        if was_reset
        else "Records are processed again. If nobody has reset the offsets on purpose, look for a consumer that seeks, "
        "or that started with auto.offset.reset=earliest.",
    )


def skipped(facts: Facts) -> Words:
    """A group whose commits were moved ahead over records that it had not read."""
    worst = facts["offsets"][0]
    offsets = [{name: one[name] for name in ("topic", "partition", "from", "to")} for one in facts["offsets"]]
    return Words(
        sentence(
            f"Commits were moved ahead at {instant(facts['since_ms'])}",
            where(facts),
            " while the group had no members, and skip up to ",
            counted(facts["records"], "record"),
            part(" (", size_within(facts["bytes"], facts["bytes_error"]), ")"),
            part(", the first of them written at ", instant(facts["written_ms"])),
            ".",
            LOOKS_LIKE_A_RESET,
        ),
        {
            "since": iso(facts["since_ms"]),
            "partitions": facts["rows"],
            "partitions_of_group": facts["of_partitions"],
            "topics": facts["topics"],
            "worst_topic": worst["topic"],
            "worst_partition": worst["partition"],
            "skipped_offsets": facts["records"],
            "skipped_bytes": facts["bytes"],
            "bytes_error": facts["bytes_error"],
            "first_written_at": iso(facts["written_ms"]),
            "offsets": sorted(offsets, key=lambda one: [*one.values()]),
        },
        _how_to_go_back(facts, worst),
    )


def _how_to_go_back(facts: Facts, worst: Facts) -> str:
    back = (
        "If the group must read these records, stop its consumers and set its offsets back before retention deletes "
        "the records. It then also reads again what it has read since."
    )
    if facts["group_type"] == "streams":
        return back
    group, topic = in_shell(facts["group_id"], "GROUP"), in_shell(worst["topic"], "TOPIC")
    place = f"--topic {topic}:{worst['partition']} --to-offset {worst['from']}"
    reset = tool("consumer-groups", f"--reset-offsets --group {group} {place} --dry-run")
    more = ". The evidence has the old offset of each partition." if facts["rows"] > 1 else ""
    return (
        f"{back} For the partition with the most of them, this shows it, and --execute in place of --dry-run does it: "
        f"{reset}{more}"
    )


def commits_expire(facts: Facts) -> Words:
    """A group without members whose commits Kafka will remove."""
    left_ms = facts["expires_in_ms"]
    at_ms, seen_ms = facts["at_ms"] + left_ms, facts["members_seen_ms"]
    return Words(
        sentence(
            f"Kafka may remove the group's committed offsets {soon(at_ms, left_ms)}",
            part("; the group last had members at ", instant(seen_ms)),
            part(", and ", counted(facts["consumer_lag"], "record"), " are unread"),
            ".",
        ),
        {**figures(facts), "commits_expire_at": iso(at_ms), "members_seen_at": iso(seen_ms)},
        _how_to_keep(facts),
    )


def _how_to_keep(facts: Facts) -> str:
    start = "Start the group's consumers before then: without its offsets, it starts where auto.offset.reset says."
    if facts["group_type"] == "streams":
        # kafka-consumer-groups refuses such groups, and with kafka-streams-groups --execute deletes more.
        return start
    group = in_shell(facts["of_group"], "GROUP")
    export = f"--reset-offsets --group {group} --to-current --all-topics --dry-run --export"
    return (
        f"{start} Or keep its position in a file, which must have a line for each partition, and which --from-file "
        f"with --execute restores: {tool('consumer-groups', export)} > {group}-offsets.csv"
    )
