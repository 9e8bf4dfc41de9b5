"""Groups that fall behind because one partition gets more records than the others: a finding of its own kind."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence

from pipeline.analytics.findings.identity import Key
from pipeline.analytics.findings.known_findings import Row
from pipeline.analytics.findings.spans import Findings, Span
from pipeline.kinds import kind_named
from pipeline.kinds.text import required

HOT = "hot_partition"
FALLING_BEHIND = required(kind_named(HOT).instead_of)
"""A group has one of these kinds: the second if one hot partition is not the reason."""


def with_skewed_groups(problems: Iterable[Row]) -> Iterator[Row]:
    """The rows of WORDED, and one more for each group that falls behind most in one of its partitions.

    Such a row begins a finding only if the partition is hot. If it is not, or not known to be, the row `is_weak`: it
    only continues a finding about the same partition, which may be hot again in the next snapshot.
    """
    for row in problems:
        yield row
        if row["kind"] == FALLING_BEHIND:
            evidence = json.loads(row["evidence"] or "{}")
            topic, partition = (evidence.get(f"worst_{name}") for name in ("topic", "partition"))
            if topic is None or partition is None:
                continue
            worst = {"topic": topic, "partition": partition}
            places = [place for place in json.loads(row["places"] or "[]") if worst.items() <= place.items()]
            of = {"kind": HOT, "topic": topic, "partitions": [partition], "places": json.dumps(places)}
            yield {**row, **of, "is_weak": not evidence.get("is_hot_partition")}


def skewed_partition(row: Row) -> str | None:
    """What makes two findings of HOT different ones: the partition. None for other kinds."""
    if row["kind"] != HOT or row["topic"] is None or not row["partitions"]:
        return None
    return f"{row['topic']}-{row['partitions'][0]}"


def assigned_if_skewed(problems: Sequence[Row], of_kinds: dict[str, Findings]) -> Iterator[tuple[Row, Key, Span]]:
    """The problems of the two kinds of one group that belong to a finding: a group has only one of them at a time.

    `of_kinds` are the findings so far of both kinds.
    """
    for row in sorted(problems, key=lambda row: (row["snapshot_id"], row["kind"] != HOT)):
        at_ms, kind, partition = row["snapshot_id"], row["kind"], skewed_partition(row)
        other = of_kinds[FALLING_BEHIND if kind == HOT else HOT]
        span = of_kinds[kind].continued(at_ms, partition)
        # The snapshot has a row of FALLING_BEHIND, too, which may continue that finding.
        is_other = other.last(at_ms) if kind == HOT else other.explain(at_ms)
        if span is None and not is_other and not row.get("is_weak") and of_kinds[kind].may_begin(at_ms):
            span = of_kinds[kind].begun(at_ms, partition)
        if span is not None:
            yield row, Key.of(row), span
