"""The heat map of a group: which partitions and snapshots it shows, and its data for the page's script."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, pairwise
from typing import Any, NamedTuple

from pipeline.report.charts.objectives import most_of
from pipeline.report.model.heat import OtherPartitions, PartitionSeries
from pipeline.report.model.report import Group, Instant, Point, Report
from pipeline.report.model.selection import Selection
from pipeline.report.text.names import visible

PARTITIONS = 60
"""The partitions of a group with a row of their own. The others have one row together."""
CELLS = 24_000
"""How many rows times snapshots the heat maps of a page have, which is about half a megabyte."""
COLUMNS = (48, 120)
"""The fewest and the most snapshots of a heat map. If there are many rows, it has fewer."""
ROWS_READ = 1_500_000
"""The rows of `lag` that a report reads for its heat maps, unless groups are selected."""
_FEWEST_READ = 12
UNITS = ("records", "bytes", "ms", "age")


class Plan(NamedTuple):
    """What is read for the heat maps: the names of the groups, and the snapshots, of each cluster."""

    groups: Mapping[str, list[str]]
    columns: Mapping[str, list[int]]
    has_others: bool


def plan(
    groups: Sequence[Group], instants: Sequence[Instant], most_rows: Mapping[str, int], selection: Selection
) -> Plan:
    """The heat maps that fit onto the page: those of the first of `groups`, which are sorted, the worst first.

    `most_rows` bounds the rows of `lag` that a snapshot of each cluster has. Without a selection of groups, clusters
    in which few snapshots would be more rows than ROWS_READ have no heat maps.
    """
    rows = [_rows(g) for g in groups]
    times: dict[str, list[int]] = defaultdict(list)
    for instant in instants:
        times[instant.cluster].append(instant.snapshot_id)
    fewest, most = COLUMNS
    per_row = min(max(CELLS // max(sum(rows), 1), fewest), most)
    is_chosen = selection.group is not None or selection.group_ids is not None
    columns = {}
    for cluster, of_cluster in times.items():
        bound = most if is_chosen else ROWS_READ // max(most_rows.get(cluster, 0), 1)
        if bound >= min(_FEWEST_READ, len(of_cluster)):
            columns[cluster] = _picked(of_cluster, min(per_row, bound))
    chosen: dict[str, list[str]] = defaultdict(list)
    left, has_others = CELLS, False
    for group, of_group in zip(groups, rows, strict=True):
        cells = of_group * len(columns.get(group.cluster, ()))
        if 0 < cells <= left:
            left -= cells
            chosen[group.cluster].append(group.group_id)
            has_others = has_others or group.partitions > PARTITIONS
    return Plan(dict(chosen), {cluster: columns[cluster] for cluster in chosen}, has_others)


def _rows(group: Group) -> int:
    return min(group.partitions, PARTITIONS + 1)


def _picked(ids: Sequence[int], most: int) -> list[int]:
    """At most `most` of the snapshots, evenly picked, always with the newest."""
    total = len(ids)
    return [id_ for nth, id_ in enumerate(ids, 1) if total <= most or nth * most % total < most]


def heat_of(report: Report, group: Group, points: Mapping[int, Point] | None = None) -> dict[str, Any] | None:
    """The heat map of a group; None if it has none. `points` are those of the group, by snapshot.

    `columns` are the positions of its snapshots in the instants of the cluster. Each of the `rows` has a list of values
    in each unit: a number of three digits, or all of them if that decides whether an objective is met; None if not
    known. `state` has a letter for each snapshot: k known, n no commit, u unknown, - no such row; it is left out if all
    are known. `owners` are (column, number of the member) where
    another member has the partition than before, None if nobody; `clients` has the name of each member's client.
    `others` are the partitions without a row, of `total`.
    """
    named = [s for s in report.partition_series if (s.cluster, s.group_id) == group.key]
    if not named:
        return None
    others = next((o for o in report.other_partitions if (o.cluster, o.group_id) == group.key), None)
    position = {i.snapshot_id: n for n, i in enumerate(_instants(report, group.cluster))}
    read = {id_ for series in named for id_ in series.snapshot_ids} | set(others.snapshot_ids if others else ())
    ids = sorted(read & position.keys() | _absent(list(position), read, points or {}))
    most = {unit: most_of(report, group, unit) for unit in UNITS}
    clients: dict[tuple[str, str], int] = {}
    return {
        "columns": [position[id_] for id_ in ids],
        "rows": [_row(series, ids, clients, most) for series in _by_topic(named)],
        "clients": [visible(name) for _, name in clients],
        "others": None if others is None else _others(others, ids),
        "total": named[0].total,
    }


def _instants(report: Report, cluster: str) -> list[Instant]:
    return sorted((i for i in report.instants if i.cluster == cluster), key=lambda i: i.snapshot_id)


def _absent(ids: Sequence[int], read: Collection[int], points: Mapping[int, Point]) -> set[int]:
    """The first and the last snapshot of each time in which the group had no partitions.

    They are columns, too: without them, a cell would reach half into such a time.
    """
    there = {id_ for id_, point in points.items() if point.partitions} | set(read)
    edges = {id_ for a, b in pairwise(ids) if (a in there) != (b in there) for id_ in (a, b)}
    return edges - there if points else set()


def _by_topic(named: Iterable[PartitionSeries]) -> Iterator[PartitionSeries]:
    """Topics in the order of their worst partition, and within them the worst partition first."""
    of_topic: dict[str, list[PartitionSeries]] = defaultdict(list)
    for series in named:
        of_topic[series.topic].append(series)
    return chain.from_iterable(of_topic.values())


def _row(
    series: PartitionSeries,
    ids: Sequence[int],
    clients: dict[tuple[str, str], int],
    most: Mapping[str, Collection[int]],
) -> dict[str, Any]:
    at = {id_: n for n, id_ in enumerate(series.snapshot_ids)}
    found = [at.get(id_) for id_ in ids]
    state = "".join(_state(series, n) for n in found)
    row: dict[str, Any] = {"topic": visible(series.topic), "partition": series.partition}
    row |= {unit: _values(getattr(series, unit), found, most[unit]) for unit in UNITS}
    if state.strip("k"):
        row["state"] = state
    return row | {"owners": list(_owners(series, found, clients))}


def _owners(
    series: PartitionSeries, found: Sequence[int | None], clients: dict[tuple[str, str], int]
) -> Iterator[tuple[int, int | None]]:
    """Where the member that has the partition changes; None where nobody has it any more."""
    before = None
    for column, n in enumerate(found):
        if n is None:
            continue
        member = series.member[n] or series.client[n]
        if member != before:
            key = None if member is None else (member, series.client[n] or member)
            yield column, None if key is None else clients.setdefault(key, len(clients))
        before = member


def _state(series: PartitionSeries, n: int | None) -> str:
    if n is None:
        return "-"
    if series.records[n] is not None:
        return "k"
    return "n" if series.status[n] == "no_commit" else "u"


def _others(others: OtherPartitions, ids: Sequence[int]) -> dict[str, Any]:
    at = {id_: n for n, id_ in enumerate(others.snapshot_ids)}
    found = [at.get(id_) for id_ in ids]
    lacking: dict[str, dict[int, int]] = {}
    for unit in UNITS:
        unknown = getattr(others, f"{unit}_unknown")
        lacking[unit] = {column: unknown[n] for column, n in enumerate(found) if n is not None and unknown[n]}
    values = {unit: _values(getattr(others, unit), found) for unit in UNITS}
    state = "".join("-" if n is None else "k" for n in found)
    row = values | {"partitions": max(others.partitions, default=0), "unknown": lacking}
    return row | {"state": state} if "-" in state else row


def _values(values: Sequence[int | None], found: Sequence[int | None], most: Collection[int] = ()) -> list[int | None]:
    return [None if n is None else _three_digits(values[n], most) for n in found]


def _three_digits(value: int | None, most: Collection[int]) -> int | None:
    """The value, rounded to three digits, which is all that a colour and its label show.

    It is not rounded if it would then be on the other side of one of `most`.
    """
    if value is None:
        return None
    rounded = int(float(f"{value:.3g}"))
    return value if any((value > limit) != (rounded > limit) for limit in most) else rounded
