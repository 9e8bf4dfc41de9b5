"""What is known about problems of readers, and what all sentences about them share: where, what is unread, figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.common.words import named
from pipeline.kinds.kind import Facts
from pipeline.kinds.text import (
    NAMED,
    counted,
    duration,
    figure,
    iso,
    number,
    part,
    rounded,
    sentence,
    size,
    some,
)

KEYS = (
    "`status`, the worst of the partitions (such as `stopped` or `stalled`), and `reason`; `since`, the earliest of "
    "them; `partitions` that have the problem, of `partitions_of_group`; their `topics`; `worst_topic` and "
    "`worst_partition`; `consumer_lag` (records), `consumer_lag_bytes` with `bytes_error` (±), `consumer_age_ms`; "
    "`written_per_s` and `committed_per_s`, offsets per second of the whole group"
)
"""The keys of `figures`, for docs/findings.md."""
SHARED_KEYS = (
    "`groups` (names), and `groups_affected`, the number of all of them. Of a cause that groups share, `since` is "
    "`cause_since`, and `groups_well` says how many of the groups are well again"
)
"""The keys of findings of a topic."""


class WorstReader(Facts):
    """The reader that is worst: the one that loses records first, or else the one with the most lag."""

    topic: str | None = None
    partition: int | None = None
    consumer_lag: int | None = None
    records_per_s: float | None = None
    client_id: str | None = None
    host: str | None = None
    transaction_producer_id: int | None = None
    transaction_start_offset: int | None = None
    transaction_timestamp_ms: int | None = None


class ReaderFacts(Facts):
    """What the readers with a problem show together, of one group, or of one topic.

    Attributes:
        status, reason: the worst status, and its reason in the reader that is worst.
        since_ms, latest_ms: when the status began in the first reader, and in the last one.
        at_ms: when the newest of them was read.
        rows: how many readers have the problem; of_partitions: how many the group has.
        of_group, of_topic: the group, or the topic that is the cause.
        group_lag, written_per_s, committed_per_s: of the whole group.
        existing: how many of the records that are unread still exist.
        deleted, readable: offsets that were deleted unread, and that can still be read in these partitions.
        commits_cut_off: commits below which the log is known to have been cut off.
        deleted_in_ms, expires_in_ms: how long until records are deleted, or commits removed.
        groups, topics: the first of their names; groups_affected: the number of all groups.
        partition_numbers: how many different partition numbers have the problem.
        members_seen_ms: when the group was last seen with members. worst: the reader that is worst.
    """

    status: str | None = None
    reason: str | None = None
    since_ms: int | None = None
    latest_ms: int | None = None
    at_ms: int | None = None
    rows: int = 0
    of_group: str | None = None
    of_topic: str | None = None
    of_partitions: int | None = None
    group_type: str | None = None
    group_lag: int | None = None
    consumer_lag: int | None = None
    consumer_lag_bytes: int | None = None
    bytes_error: int | None = None
    existing: int | None = None
    consumer_age_ms: int | None = None
    written_per_s: float | None = None
    committed_per_s: float | None = None
    deleted: int | None = None
    commits_cut_off: int = 0
    readable: int | None = None
    deleted_in_ms: int | None = None
    expires_in_ms: int | None = None
    members_seen_ms: int | None = None
    worst: WorstReader = WorstReader()
    topics: Sequence[str] = ()
    groups: Sequence[str] = ()
    groups_affected: int = 0
    partition_numbers: int | None = None


class SharedFacts(ReaderFacts):
    """The same of a problem that groups share at a topic.

    partition_list: its partitions, none if they are not known. groups_well: how many of the groups are well again.
    deleted_ms, left_ms: when records will be deleted first, and how long that is.
    """

    groups_well: int = 0
    partition_list: Sequence[int] = ()
    deleted_ms: int | None = None
    left_ms: int = 0


def where(rows: int, of: int | None) -> str | None:
    """In 2 of 3 partitions; None if it is all of them, or if it is not known of how many."""
    return None if of is None or rows >= of else f" in {rows:,} of {counted(of, 'partition')}"


def unread(facts: ReaderFacts, what: str = "unread") -> str | None:
    """What is unread: "; unread: 1,234 records (1.2 MB), the oldest 2 hours old". None if it is not known.

    Bytes and age are those of the records that still exist.
    """
    lag, existing = facts.consumer_lag, facts.existing
    if lag is None:
        return None
    return sentence(
        f"; {what}: {counted(lag, 'record')}",
        f", of which {number(existing)} still exist" if existing is not None and existing < lag else None,
        part(" (", size(facts.consumer_lag_bytes, facts.bytes_error), ")"),
        part(", the oldest ", duration(facts.consumer_age_ms), " old"),
    )


def groups_named(groups: Sequence[str], affected: int) -> str:
    """Groups by number and name: "2 groups (a, b)"."""
    names = groups[:NAMED]
    return f"{counted(affected, 'group')} ({', '.join(map(named, names))}{', …' if affected > len(names) else ''})"


def figures(facts: ReaderFacts, lag_share: float | None = None, write_share: float | None = None) -> dict[str, Any]:
    """The evidence that each kind with ReaderFacts has. The shares are those of the worst partition."""
    several = facts.of_group is None
    return {
        "status": facts.status,
        "reason": facts.reason,
        "since": iso(facts.since_ms),
        "partitions": facts.rows,
        "partitions_of_group": facts.of_partitions,
        "topics": facts.topics,
        "groups": facts.groups if several else None,
        "groups_affected": facts.groups_affected if several else None,
        "worst_topic": facts.worst.topic,
        "worst_partition": facts.worst.partition,
        "worst_partition_lag_share": rounded(lag_share, 2),
        "worst_partition_write_share": rounded(write_share, 3),
        "consumer_lag": facts.consumer_lag,
        "consumer_lag_bytes": facts.consumer_lag_bytes,
        "bytes_error": facts.bytes_error,
        "consumer_age_ms": facts.consumer_age_ms,
        "written_per_s": rounded(facts.written_per_s, 1),
        "committed_per_s": rounded(facts.committed_per_s, 1),
    }


def where_in(evidence: Mapping[str, Any]) -> str:
    """`where`, from an evidence; nothing if it is not known."""
    rows, of = evidence.get("partitions"), evidence.get("partitions_of_group")
    is_part = isinstance(rows, int) and isinstance(of, int) and rows < of
    return f" in {figure(rows)} of {some(of, 'partition')}" if is_part else ""


def for_groups(group_id: str | None, evidence: Mapping[str, Any]) -> str:
    """Of which groups a finding of a topic is: " for 3 groups". Nothing if it is one of a group."""
    return "" if group_id is not None else f" for {some(evidence.get('groups_affected'), 'group')}"
