"""What is known about findings before the problems of some snapshots are added. Plain Python."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pipeline.analytics.findings.identity import Key
from pipeline.common.epoch import to_epoch_ms
from pipeline.kinds import SubjectType, kind_named

Row = Mapping[str, Any]


@dataclass(frozen=True)
class KnownFindings:
    """What is known when the problems of some snapshots become findings.

    `findings` are the rows of `findings` that are open, or were last seen after the first of these snapshots. `whole`
    are the snapshots, some before these included, in which each "group", each "topic", or the "cluster" could be
    judged. `others` has the subjects that could be judged in other snapshots (true), or not in these (false).
    `together_ms` is that of the settings of statuses.

    A subject is what a finding is about, such as "client a": a client, else the members or the assignments of a group,
    else a group, else a topic, else the replicas of the cluster, or the whole cluster.
    """

    findings: Sequence[Row] = ()
    whole: Mapping[str, Collection[int]] = field(default_factory=dict)
    others: Mapping[str, Mapping[int, bool]] = field(default_factory=dict)
    together_ms: int = 0

    def judged_at(self, key: Key) -> list[int]:
        """The snapshots, in order, in which the subject could be judged."""
        return self._judged(*_subject(key))

    def _judged(self, subject: str, of: str) -> list[int]:
        found = {*self.whole.get(of, ())}
        for at_ms, is_judged in self.others.get(subject, {}).items():
            (found.add if is_judged else found.discard)(at_ms)
        return sorted(found)


def subjects(rows: Iterable[Row]) -> dict[str, dict[int, bool]]:
    """`KnownFindings.others` from rows with subject, snapshot_id and is_judged; of two that differ, false."""
    found: dict[str, dict[int, bool]] = defaultdict(dict)
    for row in rows:
        of = found[row["subject"]]
        of[row["snapshot_id"]] = row["is_judged"] and of.get(row["snapshot_id"], True)
    return found


def _subject(key: Key) -> tuple[str, str]:
    """The subject of a finding, and what must have been read of the cluster, so that it could be judged."""
    if key.client_id is not None:
        return f"client {key.client_id}", "client"
    subject = kind_named(key.kind).subject
    if key.group_id is not None:
        of = subject if subject in (SubjectType.MEMBERS, SubjectType.ASSIGNMENTS) else SubjectType.GROUP
        return f"{of.value} {key.group_id}", "group"
    if key.of_topic is not None:
        return f"topic {key.of_topic}", "topic"
    return f"replicas {key.cluster}" if subject is SubjectType.REPLICAS else "cluster", "cluster"


def snapshots_to_resolve(key: Key) -> int:
    """After how many snapshots without its problem a finding is resolved."""
    return kind_named(key.kind).resolved_after


def as_known(findings: Iterable[Row]) -> list[Row]:
    """`KnownFindings.findings` from the rows of `findings`."""
    rows: list[Row] = []
    for row in findings:
        times = {name: to_epoch_ms(value) for name, value in row.items() if isinstance(value, datetime)}
        rows.append({**row, **times})
    return rows
