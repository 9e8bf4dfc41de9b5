"""The problems of a topic that several groups share, and their words, from the evidence of the groups' problems."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from pipeline.analytics.findings.identity import Key
from pipeline.analytics.findings.shared_groups import listed
from pipeline.analytics.findings.words.groups import HOT_ADVICE, LOST_ADVICE, keep_records, soon
from pipeline.analytics.findings.words.parts import (
    NAMED,
    Facts,
    Words,
    as_json,
    counted,
    instant,
    iso,
    part,
    sentence,
)
from pipeline.analytics.findings.words.readers import figures, groups_named, unread
from pipeline.analytics.status.rules import STATUSES
from pipeline.common.epoch import to_epoch_ms

_UNREAD = "unread by all of them together"
_IN_COMMON = "Look for what these groups have in common: "
Row = Mapping[str, Any]


def shared_problem(
    key: Key, problems: Sequence[Row], partitions: Sequence[int], began_ms: tuple[int, int], absent: Sequence[Any]
) -> dict[str, Any]:
    """The problem in partitions of a topic from those of groups, in the order of their names.

    `began_ms` is when it began in the first and in the last group. `absent` are the digests of groups that may still
    take part, and when they had the problem last. Numbers include the same problem of the groups in other topics.
    """
    facts = _facts(key, problems)
    facts |= {"since_ms": began_ms[0], "latest_ms": began_ms[1], "partition_list": partitions}
    words = _WORDS[key.kind](facts)
    for_programs = {"other_groups": facts["other_groups"], "absent_groups": absent or None}
    known = [row["magnitude"] for row in problems if row["magnitude"] is not None]
    return {
        **dict.fromkeys(("group_id", "client_id", "instance")),
        "snapshot_id": problems[0]["snapshot_id"],
        "kind": key.kind,
        "cluster": key.cluster,
        "topic": key.of_topic,
        "partitions": [*partitions],
        "severity": problems[0]["severity"],
        "magnitude": None if not known else max(known) if key.kind == "data_loss_ahead" else sum(known),
        "summary": words.summary,
        "evidence": as_json({**words.evidence, "latest_since": iso(began_ms[1]), **for_programs}),
        "advice": words.advice,
    }


def _facts(key: Key, problems: Sequence[Row]) -> Facts:
    """What the problems show together: sums, and the partition that is worst."""
    evidence = [Facts(json.loads(row["evidence"])) for row in problems]
    names = [row["group_id"] for row in problems]
    deleted_at = [at for of in evidence if (at := of["deleted_at"]) is not None]
    worst = max(evidence, key=lambda of: of["consumer_lag"] or -1)
    if deleted_at:
        worst = min(evidence, key=lambda of: of["deleted_at"] or "~")
    found = Facts({f"consumer_{name}": _total(evidence, f"consumer_{name}") for name in ("lag", "lag_bytes")})
    found |= {
        "of_topic": key.of_topic,
        **listed(names),
        "status": min((of["status"] for of in evidence), key=_gravity),
        "reason": worst["reason"],
        "rows": _total(evidence, "partitions"),
        "topics": sorted({topic for of in evidence for topic in of["topics"] or ()})[:NAMED],
        "bytes_error": _total(evidence, "bytes_error"),
        "consumer_age_ms": max(
            (of["consumer_age_ms"] for of in evidence if of["consumer_age_ms"] is not None), default=None
        ),
        "deleted": _total(evidence, "deleted_offsets"),
        "deleted_ms": to_epoch_ms(datetime.fromisoformat(min(deleted_at))) if deleted_at else None,
        "left_ms": -max((row["magnitude"] or 0 for row in problems), default=0),
        "worst": Facts({"topic": worst["worst_topic"], "partition": worst["worst_partition"]}),
    }
    return found


def _gravity(status: str | None) -> int:
    return STATUSES.index(status) if status in STATUSES else len(STATUSES)


def _total(evidence: Iterable[Facts], name: str) -> int | None:
    """The sum of what is known; None if nothing is."""
    known = [value for of in evidence if (value := of[name]) is not None]
    return sum(known) if known else None


def _in_topic(facts: Facts) -> str:
    return f" in {counted(len(facts['partition_list']), 'partition')} of topic {facts['of_topic']}"


def _worst(facts: Facts) -> str:
    topic, partition = facts["worst"]["topic"], facts["worst"]["partition"]
    return f"partition {partition}" + ("" if topic == facts["of_topic"] else f" of topic {topic}")


def _stopped(facts: Facts) -> Words:
    return Words(
        sentence(
            f"{groups_named(facts)} have stopped at about the same time",
            _in_topic(facts),
            part(": commits have not moved since ", instant(facts["since_ms"])),
            unread(facts, _UNREAD),
            ".",
        ),
        figures(facts),
        f"{_IN_COMMON}a record that none of them can process, the leader of these partitions, a right that was taken "
        "away, or a deployment.",
    )


def _falling_behind(facts: Facts) -> Words:
    return Words(
        sentence(
            f"{groups_named(facts)} have begun to fall behind at about the same time",
            _in_topic(facts),
            ": their oldest unread records keep getting older",
            unread(facts, _UNREAD),
            ".",
        ),
        figures(facts),
        f"{_IN_COMMON}more records than usual, the leader of these partitions, a quota, or a deployment.",
    )


def _hot_partition(facts: Facts) -> Words:
    of = f"partition {', '.join(map(str, facts['partition_list']))}"
    return Words(
        sentence(
            f"{groups_named(facts)} fall behind because of {of} of topic {facts['of_topic']}, which "
            "gets more records than the others",
            unread(facts, _UNREAD),
            ".",
        ),
        figures(facts),
        HOT_ADVICE,
    )


def _deleted_unread(facts: Facts) -> Words:
    return Words(
        sentence(
            f"Deleted before {groups_named(facts)} had read them: ",
            counted(facts["deleted"], "offset"),
            _in_topic(facts),
            ", counted for each group.",
        ),
        {**figures(facts), "deleted_offsets": facts["deleted"]},
        LOST_ADVICE,
    )


def _data_loss_ahead(facts: Facts) -> Words:
    left_ms = int(facts["left_ms"])
    return Words(
        sentence(
            f"Retention may delete records {soon(facts['deleted_ms'], left_ms)} that {groups_named(facts)} have not "
            f"read{_in_topic(facts)}, first of {_worst(facts)}",
            unread(facts, _UNREAD),
            ".",
        ),
        {**figures(facts), "deleted_at": iso(facts["deleted_ms"])},
        " ".join(keep_records(topic) for topic in dict.fromkeys((facts["of_topic"], facts["worst"]["topic"])) if topic),
    )


_WORDS: Mapping[str, Callable[[Facts], Words]] = {
    "stopped_together": _stopped,
    "falling_behind": _falling_behind,
    "hot_partition": _hot_partition,
    "deleted_unread": _deleted_unread,
    "data_loss_ahead": _data_loss_ahead,
}
