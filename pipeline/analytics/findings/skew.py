"""Groups that fall behind because one partition gets more records than the others: a finding of its own kind."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from pipeline.analytics.findings.past import Row
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
