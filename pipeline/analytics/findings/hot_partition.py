"""Groups that fall behind because one partition gets more records than the others: a finding of its own kind."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

HOT, FALLING_BEHIND = "hot_partition", "falling_behind"
"""A group has one of these kinds: the second if one hot partition is not the reason."""
Row = Mapping[str, Any]


def with_hot_partitions(problems: Iterable[Row]) -> Iterator[Row]:
    """The rows of `problem` with their words, and one more for each group that falls behind because of one partition.

    The group's own row stays: it continues a finding that began before this was the reason.
    """
    for row in problems:
        yield row
        if row["kind"] == FALLING_BEHIND:
            evidence = json.loads(row["evidence"] or "{}")
            if evidence.get("is_hot_partition"):
                topic, partition = (evidence[f"worst_{name}"] for name in ("topic", "partition"))
                yield {**row, "kind": HOT, "topic": topic, "partitions": [partition]}
