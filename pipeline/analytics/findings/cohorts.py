"""Groups that have stopped together: which finding `stopped_together` they belong to. Plain Python.

A topic may have several such findings at once. They differ in when the waits of their groups began, which stays the
same for as long as a group waits: groups that stop today do not belong to those that stopped last month.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from itertools import groupby
from operator import itemgetter
from typing import Any

from pipeline.analytics.findings.spans import absences
from pipeline.common.epoch import to_epoch_ms

TOGETHER = "stopped_together"
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Cohort:
    """When the waits of some groups began: the first and the last of them, epoch ms."""

    first_ms: int
    last_ms: int

    @classmethod
    def of(cls, row: Row) -> Cohort | None:
        """That of a problem or a finding of groups that wait; None if its evidence does not say it."""
        evidence = json.loads(row["evidence"] or "{}")
        since = evidence.get("since")
        if since is None:
            return None
        texts = since, evidence.get("latest_since", since)
        return cls(*(to_epoch_ms(datetime.fromisoformat(text)) for text in texts))

    def meets(self, other: Cohort, apart_ms: int) -> bool:
        """Whether they overlap, or are at most so far apart."""
        return self.first_ms <= other.last_ms + apart_ms and other.first_ms <= self.last_ms + apart_ms

    def with_others(self, other: Cohort) -> Cohort:
        """Both of them as one."""
        return Cohort(min(self.first_ms, other.first_ms), max(self.last_ms, other.last_ms))


def begun(finding: Row) -> str:
    """The name of a finding among those of its topic."""
    return str(finding["first_seen"])


def by_cohort(problems: Iterable[Row], known: Sequence[Row], apart_ms: int) -> Iterator[tuple[Row, str | None]]:
    """Problems of one topic, ordered by snapshot, each with a name for its finding: when that has begun, as text.

    `known` are the findings of the topic so far. Of two cohorts that are new in one snapshot, the one that stopped last
    comes first. The other one follows in the next snapshot, because findings that begin at once would have the same id.
    If a finding's groups look like two cohorts by now, only the first of these is kept.
    """
    found = {begun(row): cohort for row in known if (cohort := Cohort.of(row))}
    for at_ms, several in groupby(problems, itemgetter("snapshot_id")):
        named: set[str] = set()
        cohorts = [(cohort, row) for row in several if (cohort := Cohort.of(row))]
        for cohort, row in sorted(cohorts, key=lambda pair: -pair[0].last_ms):
            met = (name for name, other in found.items() if other.meets(cohort, apart_ms))
            name = next(met, str(at_ms))
            if name not in named:
                named.add(name)
                found[name] = found.get(name, cohort).with_others(cohort)
                yield row, name


@dataclass(frozen=True)
class Lasting:
    """How long a finding `stopped_together` of a topic lasts: from one snapshot to before another, if it has ended."""

    cluster: str
    topic: str | None
    cohort: Cohort
    from_ms: int
    to_ms: int | None

    def has(self, row: Row, apart_ms: int) -> bool:
        """Whether a group's problem `no_progress` is a part of it, so that the group needs no finding of its own."""
        return (
            (row["cluster"], row["topic"]) == (self.cluster, self.topic)
            and self.from_ms <= row["snapshot_id"]
            and (self.to_ms is None or row["snapshot_id"] < self.to_ms)
            and (cohort := Cohort.of(row)) is not None
            and self.cohort.meets(cohort, apart_ms)
        )


def lasting(rows: Iterable[Row], judged_at: Sequence[int], patience: int) -> Iterator[Lasting]:
    """How long the findings of one topic last, from rows of `findings` and new rows of `finding_history`.

    `judged_at` are the snapshots in which the topic could be judged. After `patience` of them without the problem, the
    finding has ended, and a group that still waits may have one of its own.
    """
    by_id: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_id[row["finding_id"]].append(row)
    for several in by_id.values():
        cohorts = [cohort for row in several if (cohort := Cohort.of(row))]
        if cohorts:
            seen = [at for row in several for at in _seen(row)]
            ended = [row["resolved_at"] for row in several if row.get("resolved_at") is not None]
            ended += absences(max(seen), judged_at, patience)[-1:]
            cohort = reduce(Cohort.with_others, cohorts)
            to_ms = min(ended, default=None)
            yield Lasting(several[0]["cluster"], several[0]["topic"], cohort, min(seen), to_ms)


def _seen(row: Row) -> tuple[int, int]:
    """The first and the last snapshot of a finding; the snapshot of a problem."""
    return (row["first_seen"], row["last_seen"]) if "first_seen" in row else (row["snapshot_id"], row["snapshot_id"])
