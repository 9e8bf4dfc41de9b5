"""The problems of a topic that several groups share, and their words, from the evidence of the groups' problems."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from pipeline.analytics.findings.identity import Key
from pipeline.analytics.findings.shared_groups import listed
from pipeline.analytics.status.rules import STATUSES
from pipeline.common.epoch import to_epoch_ms
from pipeline.kinds import kind_named
from pipeline.kinds.reader_facts import SharedFacts, WorstReader
from pipeline.kinds.text import NAMED, as_json, iso

Row = Mapping[str, Any]


def shared_problem(
    key: Key, problems: Sequence[Row], partitions: Sequence[int], began_ms: tuple[int, int], absent: Sequence[Any]
) -> dict[str, Any]:
    """The problem in partitions of a topic from those of groups, in the order of their names.

    `began_ms` is when it began in the first and in the last group. `absent` are the digests of groups that may still
    take part, and when they had the problem last. Numbers include the same problem of the groups in other topics.
    """
    names = listed([row["group_id"] for row in problems])
    facts = _facts(key, problems, partitions, began_ms, names)
    words = kind_named(key.kind).words_together(facts)
    for_programs = {"other_groups": names["other_groups"], "absent_groups": absent or None}
    known = [row["magnitude"] for row in problems if row["magnitude"] is not None]
    return {
        **dict.fromkeys(("group_id", "client_id", "instance")),
        "snapshot_id": problems[0]["snapshot_id"],
        "kind": key.kind,
        "cluster": key.cluster,
        "topic": key.of_topic,
        "partitions": [*partitions],
        "severity": problems[0]["severity"],
        "magnitude": None if not known else max(known) if kind_named(key.kind).is_loss_ahead else sum(known),
        "summary": words.summary,
        "evidence": as_json({**words.evidence, "latest_since": iso(began_ms[1]), **for_programs}),
        "advice": words.advice,
    }


def _facts(
    key: Key,
    problems: Sequence[Row],
    partitions: Sequence[int],
    began_ms: tuple[int, int],
    names: Mapping[str, Any],
) -> SharedFacts:
    """What the problems show together: sums, and the partition that is worst."""
    evidence: list[Row] = [json.loads(row["evidence"]) for row in problems]
    deleted_at = [at for of in evidence if (at := of.get("deleted_at")) is not None]
    worst = max(evidence, key=lambda of: of.get("consumer_lag") or -1)
    if deleted_at:
        worst = min(evidence, key=lambda of: of.get("deleted_at") or "~")
    ages = [of["consumer_age_ms"] for of in evidence if of.get("consumer_age_ms") is not None]
    return SharedFacts(
        of_topic=key.of_topic,
        since_ms=began_ms[0],
        latest_ms=began_ms[1],
        partition_list=[*partitions],
        groups=names["groups"],
        groups_affected=names["groups_affected"],
        status=min((of.get("status") for of in evidence), key=_gravity),
        reason=worst.get("reason"),
        rows=_total(evidence, "partitions") or 0,
        topics=sorted({topic for of in evidence for topic in of.get("topics") or ()})[:NAMED],
        consumer_lag=_total(evidence, "consumer_lag"),
        consumer_lag_bytes=_total(evidence, "consumer_lag_bytes"),
        bytes_error=_total(evidence, "bytes_error"),
        consumer_age_ms=max(ages, default=None),
        deleted=_total(evidence, "deleted_offsets"),
        deleted_ms=to_epoch_ms(datetime.fromisoformat(min(deleted_at))) if deleted_at else None,
        left_ms=-int(max((row["magnitude"] or 0 for row in problems), default=0)),
        worst=WorstReader(topic=worst.get("worst_topic"), partition=worst.get("worst_partition")),
    )


def _gravity(status: str | None) -> int:
    return STATUSES.index(status) if status in STATUSES else len(STATUSES)


def _total(evidence: Iterable[Row], name: str) -> int | None:
    """The sum of what is known; None if nothing is."""
    known = [value for of in evidence if (value := of.get(name)) is not None]
    return sum(known) if known else None
