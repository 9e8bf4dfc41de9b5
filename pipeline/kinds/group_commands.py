"""Commands about groups and topics that several kinds offer."""

from __future__ import annotations

from collections.abc import Iterator

from pipeline.kinds.command_lines import Command, CommandContext, in_shell, place, topics
from pipeline.kinds.kind import Finding

GROUPS_RESET = 3
"""For how many groups of a topic the commands are written."""
TOPICS_KEPT = 2
"""For how many topics of a group the commands that keep their records are written."""
STOP_FIRST = "Stop the group's consumers first: the tool refuses a group with members, even for a dry run. "
EXECUTE = "; --execute in place of --dry-run sets it"
Commands = Iterator[Command]


def group_option(group_id: object) -> str:
    """--group NAME."""
    return f"--group {in_shell(group_id, 'GROUP')}"


def topic_option(finding: Finding) -> str:
    """--topic NAME, of the worst topic."""
    return f"--topic {in_shell(next(iter(topics(finding)), None), 'TOPIC')}"


def partition_option(finding: Finding) -> str:
    """--partition NUMBER, of the worst partition."""
    number = finding.newest_evidence.get("worst_partition")
    return f"--partition {number if isinstance(number, int) else 'PARTITION'}"


def ask_group(group_id: str | None, around: CommandContext, what: str, *words: str) -> Commands:
    """Describes a group with the tool that knows its type; nothing for a share group."""
    is_streams = around.is_streams(group_id)
    if is_streams or around.is_plain(group_id):
        name = "streams-groups" if is_streams else "consumer-groups"
        yield Command(what, around.tool(name, "--describe", group_option(group_id), *words))


def show_lag(finding: Finding, around: CommandContext) -> Commands:
    """Shows the lag of the group."""
    yield from ask_group(finding.group_id, around, "Shows the lag of each partition now")


def show_members(finding: Finding, around: CommandContext) -> Commands:
    """Shows the members of the group; of a finding of a topic, its leaders, and the members of the first group."""
    if finding.group_id is not None:
        what = "Shows which member has which partitions"
        yield from ask_group(finding.group_id, around, what, "--members", "--verbose")
        return
    leaders = around.tool("topics", "--describe", f"--topic {in_shell(finding.topic, 'TOPIC')}")
    yield Command("Shows the leader and the replicas of each partition", leaders)
    for group_id in finding.groups()[:1]:
        what = "Shows which member of the first group has which partitions"
        yield from ask_group(group_id, around, what, "--members", "--verbose")


def show_reset(finding: Finding, around: CommandContext, group_id: object, what: str, to: str) -> Commands:
    """Shows where the group would begin, in the partitions of the finding only."""
    where = place(finding)
    if where is not None and around.is_plain(group_id):
        words = ("--reset-offsets", group_option(group_id), f"--topic {where}", to, "--dry-run")
        yield Command(what, around.tool("consumer-groups", *words))


def show_resets(finding: Finding, around: CommandContext, what: str, to: str) -> Commands:
    """The same for the first groups of a finding of a topic."""
    for group_id in finding.groups()[:GROUPS_RESET]:
        yield from show_reset(finding, around, group_id, f"{STOP_FIRST}{what}{EXECUTE}", to)


def keep_records(finding: Finding, around: CommandContext) -> Commands:
    """Keeps all records of the topics until the group has caught up."""
    known = topics(finding)
    for topic in known[:TOPICS_KEPT] or [""]:
        entity = f"--entity-type topics --entity-name {in_shell(topic, 'TOPIC')}"
        note = (
            "Shows the retention of the topic: note it. If it was not set on the topic (no DYNAMIC_TOPIC_CONFIG), put "
            "it back later with --delete-config retention.ms,retention.bytes"
        )
        yield Command(note, around.tool("configs", "--describe --all", entity))
        more = len(known) - TOPICS_KEPT
        others = f" Do the same for {more} more topic{'s' * (more > 1)} of the finding" if more > 0 else ""
        keep = f"Keeps all records until the group has caught up: watch the brokers' disks, then put it back.{others}"
        unlimited = ("--alter", entity, "--add-config retention.ms=-1,retention.bytes=-1")
        yield Command(keep.removesuffix("."), around.tool("configs", *unlimited))
