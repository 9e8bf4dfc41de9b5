"""What several groups share: one row for all findings with the same `cause_id`, made when it is read.

The row looks like one of the table `findings`, so that messages and pages treat it like any other: its kind is
`Kind.shared_as`, its `finding_id` is the `cause_id`, it has no group, and its evidence names the groups.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from pipeline.common.epoch import to_epoch_ms
from pipeline.kinds import SHARED, kind_named
from pipeline.kinds.reader_facts import SharedFacts, WorstReader
from pipeline.kinds.text import LISTED, NAMED, as_json

Row = Mapping[str, Any]
_SEVERITIES = ("critical", "warning", "info")
_MOST_TEXT = 50_000
"""The most characters of all names in an evidence. A name may have 32,767."""


def by_cause(rows: Iterable[Row]) -> list[list[Row]]:
    """The rows of findings, those with the same cause together, in the order of the first of each."""
    found: dict[tuple[str, str, bool], list[Row]] = {}
    for row in rows:
        cause_id = row["cause_id"]
        key = (row["cluster"], cause_id or row["finding_id"], cause_id is not None)
        found.setdefault(key, []).append(row)
    return [*found.values()]


def with_causes_merged(rows: Iterable[Row]) -> list[Row]:
    """The rows of findings, but one row for all of those that have the same cause."""
    return [merged(several) if several[0]["cause_id"] is not None else several[0] for several in by_cause(rows)]


def merged(rows: Sequence[Row]) -> dict[str, Any]:
    """One row about a cause from rows of `findings`, or of `finding_history` at one snapshot, that have this cause.

    Numbers are sums over the groups that are not well again, or all of them if they are; each at its worst moment if
    the rows are those of `findings`. They include the same problem of the groups in other topics. It is first seen in
    the snapshot that shows that the groups share it, and resolved when the last of them is well. Partitions are only
    known if all groups have the problem nowhere else. Columns that differ between the groups are NULL. If the rows say
    why they are `silenced`, it is if all of those that last are.
    """
    kind = kind_named(SHARED[rows[0]["kind"]])
    lasting = [row for row in rows if row.get("resolved_at") is None] or rows
    counted = rows if kind.is_loss else lasting
    facts = _facts(rows, counted)
    words = kind.words_together(facts)
    worst = min(lasting, key=_gravity)
    return {
        **{name: _common(rows, name) for name in rows[0]},
        **dict.fromkeys(("group_id", "client_id", "instance")),
        "finding_id": rows[0]["cause_id"],
        "kind": kind.name,
        "topic": rows[0]["cause_topic"],
        "partitions": [*facts.partition_list] or None,
        "severity": worst["severity"],
        "magnitude": _magnitude(counted, is_most=kind.is_loss_ahead),
        "summary": words.summary,
        "evidence": as_json(words.evidence),
        "advice": words.advice,
        **_times(rows, worst),
        **_silenced(lasting),
    }


def _silenced(rows: Sequence[Row]) -> dict[str, Any]:
    if "silenced" not in rows[0]:
        return {}
    is_silenced = all(row["silenced"] is not None for row in rows)
    return {"silenced": rows[0]["silenced"] if is_silenced else None}


def _times(rows: Sequence[Row], worst: Row) -> dict[str, Any]:
    """When it was first seen, and when it ended; nothing for rows of `finding_history`."""
    if "first_seen" not in worst:
        return {}
    ends = ("resolved_at", "resolution_confirmed_at")
    is_over = all(row["resolved_at"] is not None for row in rows)
    last = max(rows, key=lambda row: row["resolved_at"]) if is_over else None
    first_seen = min(row["grouped_at"] for row in rows)
    return {
        "first_seen": first_seen,
        "last_seen": max(row["last_seen"] for row in rows),
        # A finding may have been worst before the others began.
        "worst_at": worst["worst_at"] and max(worst["worst_at"], first_seen),
        "grouped_at": first_seen,
        **{name: last and last[name] for name in ends},
    }


def _parsed(evidence: str | None) -> dict[str, Any]:
    found = json.loads(evidence or "{}")
    return found if isinstance(found, dict) else {}


def _common(rows: Sequence[Row], name: str) -> Any:
    """The value of a column if all rows have the same one."""
    first = rows[0][name]
    return first if all(row[name] == first for row in rows) else None


def _gravity(row: Row) -> tuple[int, bool, str, float]:
    """The sort key of the rows: the worst one is the first. What is deleted first is worst, or else the most lag."""
    evidence = _parsed(row["evidence"])
    severity = _SEVERITIES.index(row["severity"]) if row["severity"] in _SEVERITIES else len(_SEVERITIES)
    deleted_at = evidence.get("deleted_at")
    return severity, deleted_at is None, deleted_at or "", -(evidence.get("consumer_lag") or 0)


def _magnitude(rows: Iterable[Row], *, is_most: bool) -> float | None:
    known = [row["magnitude"] for row in rows if row["magnitude"] is not None]
    return None if not known else max(known) if is_most else sum(known)


def _facts(rows: Sequence[Row], counted: Sequence[Row]) -> SharedFacts:
    """What the findings show together: sums of those that are counted, and the partition that is worst."""
    evidence = [_parsed(row["evidence"]) for row in counted]
    worst = _parsed(min(counted, key=_gravity)["evidence"])
    topic = rows[0]["cause_topic"]
    is_only_there = all(row["topic"] == topic for row in counted)
    deleted_at = [at for of in evidence if (at := of.get("deleted_at")) is not None]
    names = {row["group_id"] for row in rows}
    lasting = {row["group_id"] for row in rows if row.get("resolved_at") is None} or names
    return SharedFacts(
        of_topic=topic,
        since_ms=to_epoch_ms(rows[0]["cause_since"]),
        partition_list=sorted({n for row in counted for n in row["partitions"] or ()}) if is_only_there else (),
        groups=_listed(names),
        groups_affected=len(names),
        groups_well=len(names - lasting),
        status=worst.get("status"),
        reason=worst.get("reason"),
        rows=_total(evidence, "partitions") or 0,
        topics=sorted({topic for of in evidence for topic in of.get("topics") or ()})[:NAMED],
        consumer_lag=_total(evidence, "consumer_lag"),
        consumer_lag_bytes=_total(evidence, "consumer_lag_bytes"),
        bytes_error=_total(evidence, "bytes_error"),
        consumer_age_ms=max((of["consumer_age_ms"] for of in evidence if "consumer_age_ms" in of), default=None),
        deleted=_total(evidence, "deleted_offsets"),
        deleted_ms=to_epoch_ms(datetime.fromisoformat(min(deleted_at))) if deleted_at else None,
        left_ms=-int(max((row["magnitude"] or 0 for row in counted), default=0)),
        worst=WorstReader(topic=worst.get("worst_topic"), partition=worst.get("worst_partition")),
    )


def _listed(names: Iterable[str]) -> list[str]:
    """The names that an evidence has room for. No long name takes the place of others."""
    shown: list[str] = []
    length = 0
    for name in sorted(names, key=lambda name: (len(name), name))[:LISTED]:
        length += len(name)
        if length <= _MOST_TEXT:
            shown.append(name)
    return sorted(shown)


def _total(evidence: Iterable[Row], name: str) -> int | None:
    """The sum of what is known; None if nothing is."""
    known = [value for of in evidence if (value := of.get(name)) is not None]
    return sum(known) if known else None
