"""The commands that a card offers for each kind of finding: Kafka's own tools, with the names filled in.

They take the address of a broker from $BOOTSTRAP. A command that changes something is a dry run, or says what it does.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from pipeline.report.details_model import Finding, Partition

GROUPS_RESET = 3
"""For how many groups of a topic the commands are written."""


class Command(NamedTuple):
    """A command, and what it is for."""

    what: str
    line: str


Commands = Iterator[Command]


def commands(finding: Finding, partitions: Sequence[Partition] = ()) -> list[Command]:
    """The commands for a finding. `partitions` are the worst of its group, at the snapshot shown."""
    of_kind = _OF_KIND.get(finding.kind)
    return [] if of_kind is None else list(of_kind(finding, partitions))


def in_shell(name: object, instead: str) -> str:
    r"""A name as one word of a shell's command; `instead` if it is not known, or cannot be typed.

    >>> in_shell("orders", "TOPIC"), in_shell("it's; rm", "TOPIC"), in_shell("-x", "TOPIC"), in_shell(None, "TOPIC")
    ('orders', '\'it\'"\'"\'s; rm\'', 'TOPIC', 'TOPIC')
    """
    is_word = isinstance(name, str) and name and name.isprintable() and not name.startswith("-")
    return shlex.quote(str(name)) if is_word else instead


def _tool(name: str, *words: str) -> str:
    return " ".join((f"kafka-{name}", "--bootstrap-server", "$BOOTSTRAP", *words))


def _group(finding: Finding) -> str:
    return f"--group {in_shell(finding.group_id, 'GROUP')}"


def _topic(finding: Finding) -> str:
    return f"--topic {in_shell(finding.topic or finding.facts.get('worst_topic'), 'TOPIC')}"


def _of_topics(finding: Finding) -> str:
    return _topic(finding) if finding.topic else "--all-topics"


def _partition(finding: Finding) -> str:
    number = finding.facts.get("worst_partition")
    return f"--partition {number if isinstance(number, int) else 'PARTITION'}"


def _reset(finding: Finding, to: str, group: str | None = None) -> str:
    return _tool("consumer-groups", "--reset-offsets", group or _group(finding), _of_topics(finding), to, "--dry-run")


def _describe(finding: Finding, _: object = None) -> Commands:
    yield Command("Shows the lag of each partition now", _tool("consumer-groups", "--describe", _group(finding)))


def _members(finding: Finding, _: object = None) -> Commands:
    words = ("--describe", _group(finding), "--members", "--verbose")
    yield Command("Shows which member has which partitions", _tool("consumer-groups", *words))


def _no_progress(finding: Finding, partitions: Sequence[Partition]) -> Commands:
    if finding.facts.get("reason") == "no_members":
        state = _tool("consumer-groups", "--describe", _group(finding), "--state")
        yield Command("Shows whether the group has members again", state)
        skip = "Only if the unread records are not needed: shows how to skip them; --execute in place of --dry-run does"
        yield Command(skip, _reset(finding, "--to-latest"))
        return
    yield from _members(finding)
    place = finding.facts.get("worst_topic"), finding.facts.get("worst_partition")
    offset = next((p.committed_offset for p in partitions if (p.topic, p.partition) == place), None)
    if offset is not None:
        words = (_topic(finding), _partition(finding), f"--offset {offset}", "--max-messages 1")
        yield Command("Shows the record that the group reads next", _tool("console-consumer", *words))


def _deleted_unread(finding: Finding, _: object) -> Commands:
    what = "Shows where the group begins if it reads all that is left; --execute sets it while the group has no members"
    yield Command(what, _reset(finding, "--to-earliest"))


def _data_loss_ahead(finding: Finding, _: object) -> Commands:
    entity = f"--entity-type topics --entity-name {_topic(finding).removeprefix('--topic ')}"
    yield Command("Shows the retention of the topic: note it", _tool("configs", "--describe", entity))
    keep = _tool("configs", "--alter", entity, "--add-config retention.ms=-1,retention.bytes=-1")
    yield Command("Keeps all records until the group has caught up: watch the brokers' disks, then set it back", keep)


def _commits_expire(finding: Finding, _: object) -> Commands:
    words = (_group(finding), "--reset-offsets --to-current --all-topics --dry-run --export > offsets.csv")
    yield Command(
        "Keeps the commits in a file; --from-file offsets.csv restores them", _tool("consumer-groups", *words)
    )


def _open_transaction(finding: Finding, _: object) -> Commands:
    start = finding.facts.get("transaction_start_offset")
    if not isinstance(start, int):
        yield Command("Finds the producer", _tool("transactions", "find-hanging", _topic(finding)))
        return
    place = (_topic(finding), _partition(finding))
    yield Command("Shows the producers with an open transaction", _tool("transactions", "describe-producers", *place))
    abort = _tool("transactions", "abort", *place, f"--start-offset {start}")
    yield Command("Only if the producer is gone: ends its transaction", abort)


def _reset_groups(finding: Finding, to: str) -> Commands:
    for group in (finding.facts.get("groups") or ())[:GROUPS_RESET]:
        yield Command(
            "Shows where the group would begin; --execute in place of --dry-run sets it",
            _reset(finding, to, f"--group {in_shell(group, 'GROUP')}"),
        )


def _recreated_topic(finding: Finding, _: object) -> Commands:
    yield from _reset_groups(finding, "--to-earliest")


def _truncated_log(finding: Finding, _: object) -> Commands:
    yield Command("Shows where the log ends", _tool("get-offsets", _topic(finding)))
    yield from _reset_groups(finding, "--to-latest")


def _under_replicated(_: Finding, __: object) -> Commands:
    yield Command("Shows these partitions now", _tool("topics", "--describe", "--under-replicated-partitions"))


def _clock_ahead(finding: Finding, _: object) -> Commands:
    newest = _tool("get-offsets", _topic(finding), "--time max-timestamp")
    yield Command("Shows the offsets of the records with the newest timestamps", newest)


def _doctor(_: Finding, __: object) -> Commands:
    yield Command("Checks brokers and rights", "./spark-submit.sh doctor --config FILE")


def _of_client(finding: Finding, _: object) -> Commands:
    if finding.group_id is not None:
        yield from _describe(finding)


_OF_KIND: Mapping[str, Callable[[Finding, Sequence[Partition]], Commands]] = {
    "data_loss_ahead": _data_loss_ahead,
    "no_progress": _no_progress,
    "deleted_unread": _deleted_unread,
    "commits_expire": _commits_expire,
    "falling_behind": _members,
    "rewound": _describe,
    "budget_burn": _describe,
    "open_transaction": _open_transaction,
    "recreated_topic": _recreated_topic,
    "truncated_log": _truncated_log,
    "rebalance_storm": _members,
    "flapping_member": _members,
    "uneven_assignment": _members,
    "idle_member": _members,
    "under_replicated": _under_replicated,
    "clock_ahead": _clock_ahead,
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
