"""What the words about groups and topics share: where a problem is, what is unread there, and the figures."""

from __future__ import annotations

from typing import Any

from pipeline.analytics.findings.words.parts import (
    NAMED,
    Facts,
    counted,
    duration,
    iso,
    number,
    part,
    rounded,
    sentence,
    size_within,
)
from pipeline.common.words import named


def where(facts: Facts) -> str | None:
    """In 2 of 3 partitions; None if it is all of them, or if it is not known of how many."""
    rows, of = facts["rows"], facts["of_partitions"]
    return None if of is None or rows >= of else f" in {rows:,} of {counted(of, 'partition')}"


def unread(facts: Facts, what: str = "unread") -> str | None:
    """What is unread: "; unread: 1,234 records (1.2 MB), the oldest 2 hours old". None if it is not known.

    Bytes and age are those of the records that still exist.
    """
    lag, existing = facts["consumer_lag"], facts["existing"]
    if lag is None:
        return None
    return sentence(
        f"; {what}: {counted(lag, 'record')}",
        f", of which {number(existing)} still exist" if existing is not None and existing < lag else None,
        part(" (", size_within(facts["consumer_lag_bytes"], facts["bytes_error"]), ")"),
        part(", the oldest ", duration(facts["consumer_age_ms"]), " old"),
    )


def groups_named(facts: Facts) -> str:
    """The groups, by number and name: "2 groups (a, b)"."""
    names, count = facts["groups"][:NAMED], facts["groups_affected"]
    return f"{counted(count, 'group')} ({', '.join(map(named, names))}{', …' if count > len(names) else ''})"


def figures(facts: Facts, lag_share: float | None = None, write_share: float | None = None) -> dict[str, Any]:
    """The evidence that each kind has. The shares are those of the worst partition."""
    several = facts["of_group"] is None
    return {
        "status": facts["status"],
        "reason": facts["reason"],
        "since": iso(facts["since_ms"]),
        "partitions": facts["rows"],
        "partitions_of_group": facts["of_partitions"],
        "topics": facts["topics"],
        "groups": facts["groups"] if several else None,
        "groups_affected": facts["groups_affected"] if several else None,
        "worst_topic": facts["worst"]["topic"],
        "worst_partition": facts["worst"]["partition"],
        "worst_partition_lag_share": rounded(lag_share, 2),
        "worst_partition_write_share": rounded(write_share, 3),
        "consumer_lag": facts["consumer_lag"],
        "consumer_lag_bytes": facts["consumer_lag_bytes"],
        "bytes_error": facts["bytes_error"],
        "consumer_age_ms": facts["consumer_age_ms"],
        "written_per_s": rounded(facts["written_per_s"], 1),
        "committed_per_s": rounded(facts["committed_per_s"], 1),
    }
