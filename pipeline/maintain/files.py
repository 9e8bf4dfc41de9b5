"""Keeps the files of a table few and small: sorts past days, joins small files, deletes files that no version needs."""

from __future__ import annotations

import logging
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from math import ceil
from typing import NamedTuple
from urllib.parse import unquote

from pipeline.lake import Lake, of_cluster, one_of
from pipeline.tables import Table

log = logging.getLogger(__name__)

ROWS_OF_A_FILE = 2_000_000
"""A day with more rows has several sorted files, which several cores write."""
_SORTED = re.compile(r"/part-(\d+)-[^/]*\.zstd\.parquet$")
"""The name of a file that Lake.rewrite_sorted has written: only this compresses with zstd. The number is that of
the task that has written it."""


@dataclass
class Done:
    """What was done: rows removed by table and cluster; files joined (before, after) and files deleted by table."""

    rows: dict[tuple[str, str], int] = field(default_factory=dict)
    joined: dict[str, tuple[int, int]] = field(default_factory=dict)
    deleted: dict[str, int] = field(default_factory=dict)


class Day(NamedTuple):
    """A day of some clusters."""

    date: str
    clusters: tuple[str, ...]

    @property
    def where(self) -> str:
        """The predicate for its rows, which names partitions."""
        return f"snapshot_date = DATE'{self.date}' AND {one_of('cluster', self.clusters)}"


def tidy(lake: Lake, table: Table, today: date, done: Done) -> None:
    """Rewrites the files of a table where that makes them fewer or smaller; deletes files that no version needs."""
    before = _by_partition(lake.files(table))
    if "snapshot_date" in table.partitioned_by:
        changed = _sort_past_days(lake, table, before, today)
    else:
        changed = _join_small_files(lake, table, before)
    if changed:
        after = _by_partition(lake.files(table))
        counts = _count(before, changed), _count(after, changed)
        done.joined[table.name] = counts
        log.info("%s: %d files rewritten as %d", table.name, *counts)
    if lake.checkpoint(table):
        log.debug("%s: a checkpoint of its log was written", table.name)
    deleted = lake.vacuum(table)
    if deleted:
        done.deleted[table.name] = deleted
        log.info("%s: %d files deleted that no recent version needs", table.name, deleted)


def _count(files: Mapping[tuple[str, str], Collection[str]], partitions: Iterable[tuple[str, str]]) -> int:
    return sum(len(files.get(name, ())) for name in partitions)


def _by_partition(files: Iterable[str]) -> dict[tuple[str, str], list[str]]:
    """The files of each cluster and day; the day is empty if the table is not partitioned by it."""
    found = defaultdict(list)
    for file in files:
        values = dict(re.findall("/(cluster|snapshot_date)=([^/]+)(?=/)", file))
        if "cluster" in values:
            found[unquote(values["cluster"]), values.get("snapshot_date", "")].append(file)
    return found


def _sort_past_days(
    lake: Lake, table: Table, files: Mapping[tuple[str, str], Collection[str]], today: date
) -> list[tuple[str, str]]:
    """Sorts each past day that is not sorted yet; small days together, because each commit takes a second."""
    unsorted = defaultdict(list)
    for (cluster, date_), names in files.items():
        if date_ < f"{today}" and not is_sorted(names):
            unsorted[date_].append(cluster)
    days = [Day(date_, tuple(sorted(clusters))) for date_, clusters in sorted(unsorted.items())]
    rows = _rows_by_day(lake, table, days)
    for some in batches([(day, rows.get(day.date, 0)) for day in days]):
        number = ceil(sum(rows.get(day.date, 0) for day in some) / ROWS_OF_A_FILE)
        lake.rewrite_sorted(table, _any_of(some), max(1, number))
    return [(cluster, day.date) for day in days for cluster in day.clusters]


def batches(days: Iterable[tuple[Day, int]]) -> Iterator[list[Day]]:
    """Days with their numbers of rows, in batches of at most ROWS_OF_A_FILE rows or of one day.

    They are not larger, because a batch is written again after a conflict with another writer.
    """
    batch: list[Day] = []
    total = 0
    for day, rows in days:
        if batch and total + rows > ROWS_OF_A_FILE:
            yield batch
            batch, total = [], 0
        batch.append(day)
        total += rows
    if batch:
        yield batch


def _any_of(days: Iterable[Day]) -> str:
    return " OR ".join(f"({day.where})" for day in days)


def is_sorted(files: Iterable[str]) -> bool:
    """Whether a single rewrite has written all files of a day: two of them would use the same number twice."""
    numbers = [match[1] if (match := _SORTED.search(name)) else None for name in files]
    return None not in numbers and len({*numbers}) == len(numbers)


def _rows_by_day(lake: Lake, table: Table, days: Collection[Day]) -> dict[str, int]:
    if not days:
        return {}
    text = f"SELECT snapshot_date, count(*) AS rows FROM {{{table.name}}} WHERE {_any_of(days)} GROUP BY snapshot_date"
    return {f"{row['snapshot_date']}": row["rows"] for row in lake.query(text, table)}


def _join_small_files(
    lake: Lake, table: Table, files: Mapping[tuple[str, str], Collection[str]]
) -> list[tuple[str, str]]:
    """Joins the files of each cluster that has several."""
    return [
        (cluster, day)
        for (cluster, day), names in sorted(files.items())
        if len(names) > 1 and lake.compact(table, of_cluster(cluster))[0]
    ]
