"""The commands that a card offers for each kind of finding: Kafka's own tools, with the names filled in.

They take the address of a broker from a variable. A command that changes something is a dry run, or says what it does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from pipeline.common.epoch import HOUR_MS, utc
from pipeline.common.words import named
from pipeline.report.command_lines import Around, in_shell, offsets_file, place, topics
from pipeline.report.details_model import Finding

GROUPS_RESET = 3
"""For how many groups of a topic the commands are written."""
TOPICS_KEPT = 2
"""For how many topics of a group the commands that keep their records are written."""
_STOPPED = "Stop the group's consumers first: the tool refuses a group with members, even for a dry run. "
_EXECUTE = "; --execute in place of --dry-run sets it"


class Command(NamedTuple):
    """A command, and what it is for."""

    what: str
    line: str


Commands = Iterator[Command]


def commands(finding: Finding, around: Around | None = None) -> list[Command]:
    """The commands for a finding."""
    of_kind = _OF_KIND.get(finding.kind)
    return [] if of_kind is None else list(of_kind(finding, around or Around()))


def _group(group_id: object) -> str:
    return f"--group {in_shell(group_id, 'GROUP')}"


def _topic(finding: Finding) -> str:
    return f"--topic {in_shell(next(iter(topics(finding)), None), 'TOPIC')}"


def _partition(finding: Finding) -> str:
    number = finding.facts.get("worst_partition")
    return f"--partition {number if isinstance(number, int) else 'PARTITION'}"


def _of_group(group_id: str | None, around: Around, what: str, *words: str) -> Commands:
    is_streams = around.is_streams(group_id)
    if is_streams or around.is_plain(group_id):
        name = "streams-groups" if is_streams else "consumer-groups"
        yield Command(what, around.tool(name, "--describe", _group(group_id), *words))


def _describe(finding: Finding, around: Around) -> Commands:
    yield from _of_group(finding.group_id, around, "Shows the lag of each partition now")


def _members(finding: Finding, around: Around) -> Commands:
    if finding.group_id is None:
        yield from _together(finding, around)
        return
    yield from _of_group(finding.group_id, around, "Shows which member has which partitions", "--members", "--verbose")


def _reset(finding: Finding, around: Around, group_id: object, what: str, to: str) -> Commands:
    """Shows where the group would begin, in the partitions of the finding only."""
    where = place(finding)
    if where is not None and around.is_plain(group_id):
        words = ("--reset-offsets", _group(group_id), f"--topic {where}", to, "--dry-run")
        yield Command(what, around.tool("consumer-groups", *words))


def _no_progress(finding: Finding, around: Around) -> Commands:
    facts = finding.facts
    if facts.get("reason") == "no_members":
        yield from _of_group(finding.group_id, around, "Shows whether the group has members again", "--state")
        # A group that was never seen with members may commit without being one, and may run.
        if facts.get("members_seen_at") is not None:
            what = "Only if the unread records of these partitions are not needed: shows how to skip them" + _EXECUTE
            yield from _reset(finding, around, finding.group_id, what, "--to-latest")
        return
    yield from _members(finding, around)
    worst = facts.get("worst_topic"), facts.get("worst_partition")
    offset = next((p.committed_offset for p in around.partitions if (p.topic, p.partition) == worst), None)
    if offset is not None:
        words = (_topic(finding), _partition(finding), f"--offset {offset}", "--max-messages 1")
        yield Command("Shows the record that the group reads next", around.tool("console-consumer", *words))


def _keep_records(finding: Finding, around: Around) -> Commands:
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


def _deleted_unread(finding: Finding, around: Around) -> Commands:
    yield from _keep_records(finding, around)
    if finding.group_id is None:  # it is not known which of these partitions each group has lost records of
        for group_id in finding.groups()[:GROUPS_RESET]:
            yield from _of_group(group_id, around, f"Shows which partitions group {named(group_id)} has not read")
        return
    what = f"{_STOPPED}Shows where the group begins if it reads all that is left of these partitions{_EXECUTE}"
    yield from _reset(finding, around, finding.group_id, what, "--to-earliest")


def _commits_expire(finding: Finding, around: Around) -> Commands:
    if around.is_plain(finding.group_id):
        file = offsets_file(finding.cluster, finding.group_id, around)
        words = (_group(finding.group_id), f"--to-current --all-topics --dry-run --export > {file}")
        what = (
            "Keeps the commits in a file. Look into it, because it also gets the tool's errors: it must have a line "
            f"for each partition. Later, --from-file {file} --execute restores them"
        )
        yield Command(what, around.tool("consumer-groups", "--reset-offsets", *words))


def _skipped(finding: Finding, around: Around) -> Commands:
    offsets = finding.facts.get("offsets") or ()
    if not offsets or not around.is_plain(finding.group_id):
        yield from _describe(finding, around)
        return
    lines = [in_shell(f"{one['topic']},{one['partition']},{one['from']}", "TOPIC,PARTITION,OFFSET") for one in offsets]
    file = offsets_file(finding.cluster, finding.group_id, around)
    more = (finding.facts.get("partitions") or 0) - len(offsets)
    left_out = f"; {more} more partitions have fewer skipped records" if more > 0 else ""
    yield Command(f"Writes the old offsets into a file{left_out}", f"printf '%s\\n' {' '.join(lines)} > {file}")
    words = (_group(finding.group_id), f"--from-file {file}", "--dry-run")
    what = f"{_STOPPED}Shows where the group would begin with them{_EXECUTE}"
    yield Command(what, around.tool("consumer-groups", "--reset-offsets", *words))


def _together(finding: Finding, around: Around) -> Commands:
    leaders = around.tool("topics", "--describe", f"--topic {in_shell(finding.topic, 'TOPIC')}")
    yield Command("Shows the leader and the replicas of each partition", leaders)
    for group_id in finding.groups()[:1]:
        what = "Shows which member of the first group has which partitions"
        yield from _of_group(group_id, around, what, "--members", "--verbose")


def _hot_partition(finding: Finding, around: Around) -> Commands:
    words = (_topic(finding), _partition(finding), "--offset latest", "--max-messages 100")
    keys = "--property print.key=true --property print.value=false"
    what = "Shows the keys of the next 100 records of this partition: which of them is the most frequent?"
    yield Command(what, around.tool("console-consumer", *words, keys))


def _open_transaction(finding: Finding, around: Around) -> Commands:
    hanging = (
        "Lists transactions that hang: they have been open for longer than 15 minutes (--max-transaction-timeout "
        "changes this), and their coordinator does not know them any more"
    )
    yield Command(hanging, around.tool("transactions", "find-hanging", _topic(finding)))
    where = (_topic(finding), _partition(finding))
    start = finding.facts.get("transaction_start_offset")
    if isinstance(start, int):
        what = (
            "Only if the list has the transaction: ends it in this partition. Repeat it for each partition in the "
            "list, with the start offset from there. If the list does not have it, do not abort it: its producer ends "
            "it, or the coordinator aborts it after transaction.timeout.ms"
        )
        yield Command(what, around.tool("transactions", "abort", *where, f"--start-offset {start}"))
    shows = "Shows the producers of this partition, and which of them has an open transaction"
    yield Command(shows, around.tool("transactions", "describe-producers", *where))


def _reset_groups(finding: Finding, around: Around, what: str, to: str) -> Commands:
    for group_id in finding.groups()[:GROUPS_RESET]:
        yield from _reset(finding, around, group_id, f"{_STOPPED}{what}{_EXECUTE}", to)


def _recreated_topic(finding: Finding, around: Around) -> Commands:
    yield from _reset_groups(finding, around, "Shows where the group would begin in the new topic", "--to-earliest")


def _truncated_log(finding: Finding, around: Around) -> Commands:
    yield Command("Shows where the log ends", around.tool("get-offsets", _topic(finding)))
    before = f"{utc(finding.first_seen_ms - HOUR_MS):%Y-%m-%dT%H:%M:%S}.000"
    what = "Shows where the group would begin if it reads again what was written from an hour before the finding on"
    yield from _reset_groups(finding, around, what, f"--to-datetime {before}")


def _under_replicated(_: Finding, around: Around) -> Commands:
    line = around.tool("topics", "--describe", "--under-replicated-partitions")
    yield Command("Shows these partitions now", line)


def _newest_record(finding: Finding, around: Around) -> Commands:
    newest = around.tool("get-offsets", _topic(finding), "--time max-timestamp")
    yield Command("Shows the offsets of the records with the newest timestamps", newest)


def _doctor(_: Finding, __: Around) -> Commands:
    yield Command("Checks brokers and rights", "./spark-submit.sh doctor --config FILE")


def _of_client(finding: Finding, around: Around) -> Commands:
    if finding.group_id is not None:
        yield from _describe(finding, around)


_OF_KIND: Mapping[str, Callable[[Finding, Around], Commands]] = {
    "data_loss_ahead": _keep_records,
    "no_progress": _no_progress,
    "deleted_unread": _deleted_unread,
    "commits_expire": _commits_expire,
    "falling_behind": _members,
    "hot_partition": _hot_partition,
    "rewound": _describe,
    "skipped": _skipped,
    "budget_burn": _describe,
    "stopped_together": _together,
    "open_transaction": _open_transaction,
    "recreated_topic": _recreated_topic,
    "truncated_log": _truncated_log,
    "rebalance_storm": _members,
    "flapping_member": _members,
    "uneven_assignment": _members,
    "idle_member": _members,
    "under_replicated": _under_replicated,
    "clock_ahead": _newest_record,
    "clock_behind": _newest_record,
    "snapshots_missing": _doctor,
    "unreadable": _doctor,
    "blocked_connector": _of_client,
    "too_large_message": _of_client,
    "slow_consumer": _of_client,
    "paused_partition": _of_client,
    "blind_gauge": _of_client,
    "buffer_too_large": _of_client,
}
"""The commands of each kind of finding."""
