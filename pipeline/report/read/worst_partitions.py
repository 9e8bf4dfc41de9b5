"""The partitions with the most lag, read from a lake in a local folder without Spark, which takes a second."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

from pipeline.common.data_source import NameFilter
from pipeline.common.errors import LakeError, NoLakeError
from pipeline.common.quantities import at as at_utc
from pipeline.config.lake import is_lake
from pipeline.lake import VERSION_PROPERTY, of_each, one_of, why_refused
from pipeline.lake.driver_tables import DriverTables
from pipeline.report.formats.terminal import NAME_COLUMNS, NO_LAG
from pipeline.report.model.details import Partition
from pipeline.report.model.report import names_of
from pipeline.report.model.selection import Selection
from pipeline.report.text.names import cut, visible, visible_name
from pipeline.tables import COMPUTED, LAG, READABLE, SCHEMA_VERSION, SNAPSHOTS

_WORST_FIRST = """
    CASE WHEN offset_status NOT IN ('ok', 'no_commit') THEN 0 ELSE 1 END, consumer_lag DESC NULLS LAST,
    topic, partition, group_id, cluster
"""
"""The order of `details.WORST_FIRST`, but a partition with an unknown status comes last."""
NAMED, COMPARED = 5, 1_000
"""How many names are listed if none matches, and with how many the pattern is compared."""


@dataclass(frozen=True)
class Newest:
    """The worst partitions at each cluster's newest snapshot with lag.

    `snapshots` has that snapshot of each cluster, epoch ms; `left_out` says how many partitions are not listed.
    `nothing` says in a sentence why there is no partition, if there is none.
    """

    snapshots: Mapping[str, int]
    partitions: Sequence[Partition]
    left_out: int
    nothing: str = NO_LAG


def read_newest(folder: Path, selection: Selection, most: int | None) -> Newest:
    """The `most` worst partitions that are selected (None: all), from the tables in a folder.

    Of the selection, `from_ms` is ignored. Names are searched as Python's `re` does, in their first characters only.
    Raises NoLakeError if the folder has no lake, and LakeError if it is of another schema version or cannot be read.
    """
    tables = DriverTables(folder)
    _check_version(tables, folder)
    snapshots = _newest_with_lag(tables, selection)
    if not snapshots:
        return Newest(snapshots, [], 0, _nothing_yet(tables, selection.to_ms))
    at = of_each({cluster: [snapshot_id] for cluster, snapshot_id in snapshots.items()})
    named = _named(tables, at, selection)
    if nothing := next((names.nothing for names in named if not names.chosen), None):
        return Newest(snapshots, [], 0, nothing)
    where = " AND ".join([f"({at})", "topic IS NOT NULL", *(names.predicate for names in named)])
    (counted,) = tables.query(f"SELECT count(*) AS rows FROM lag WHERE {where}", [LAG])
    limit = "" if most is None else f"LIMIT {most}"
    columns = ", ".join(f'"{name}"' for name in names_of(Partition))
    rows = tables.query(f"SELECT {columns} FROM lag WHERE {where} ORDER BY {_WORST_FIRST} {limit}", [LAG])
    nothing = "No partition is of both: a group that --group matches, and a topic that --topic matches."
    found = [Partition(**row) for row in rows]
    return Newest(snapshots, found, counted["rows"] - len(rows), nothing if len(named) > 1 else NO_LAG)


def _check_version(tables: DriverTables, folder: Path) -> None:
    properties = tables.properties(SNAPSHOTS)
    if properties is None:
        raise _no_lake(folder)
    version = int(properties.get(VERSION_PROPERTY, 0))
    if version != SCHEMA_VERSION:
        old = f"{folder} has schema version {version}, this laglake knows {SCHEMA_VERSION}: call lag, which upgrades it"
        raise LakeError(why_refused(str(folder), version) or old)


def _no_lake(folder: Path) -> NoLakeError:
    if folder.exists() and not folder.is_dir():
        return NoLakeError(f"{folder}: is a file, and not the folder of a lake")
    inner = next(filter(is_lake, (folder / "lake", folder.parent)), None)
    if inner is not None:
        return NoLakeError(f"{folder}: there is no lake, but {inner} is one")
    return NoLakeError(f"{folder}: there is no lake; run makes one with its first snapshot")


def _with_lag(tables: DriverTables, aggregate: str, *conditions: str) -> list[dict[str, Any]]:
    """For each cluster, `snapshot_id` is the aggregate of its snapshots with lag that meet the conditions."""
    return tables.query(
        f"SELECT s.cluster AS cluster, {aggregate}(s.snapshot_id) AS snapshot_id FROM snapshots s "
        "JOIN computed c ON c.cluster = s.cluster AND c.snapshot_id = s.snapshot_id "
        f"WHERE c.job = 'lag' AND {' AND '.join([one_of('s.status', READABLE), *conditions])} "
        "GROUP BY s.cluster ORDER BY s.cluster",
        [SNAPSHOTS, COMPUTED],
    )


def _newest_with_lag(tables: DriverTables, selection: Selection) -> dict[str, int]:
    until = [] if selection.to_ms is None else [f"s.snapshot_id <= {selection.to_ms}"]
    rows = _with_lag(tables, "max", *until)
    found = {row["cluster"]: row["snapshot_id"] for row in rows}
    if unknown := sorted({*(selection.clusters or ())} - found.keys()):
        names = f"that of {', '.join(found)}" if found else "none"
        raise LakeError(f"--cluster {unknown[0]}: the lake has no lag of it, only {names}")
    return {name: found[name] for name in found if not selection.clusters or name in selection.clusters}


def _nothing_yet(tables: DriverTables, to_ms: int | None) -> str:
    """Why no snapshot has lag: perhaps because the instant that was asked for is too early."""
    oldest = [] if to_ms is None else [row["snapshot_id"] for row in _with_lag(tables, "min")]
    if to_ms is None or not oldest:
        return NO_LAG
    return f"No snapshot up to {at_utc(to_ms)} has lag; the oldest that has is of {at_utc(min(oldest))}."


class _Names(NamedTuple):
    """The names that a pattern matches: a predicate for them, and what to say if there are none."""

    chosen: Sequence[str]
    predicate: str
    nothing: str


def _named(tables: DriverTables, at: str, selection: Selection) -> list[_Names]:
    """The groups and the topics that are selected, if any are.

    They list the names, because DataFusion's regular expressions are not Python's; and in hexadecimal, because anyone
    who may commit can give a group a name that no two engines quote alike.
    """
    found = []
    for what, column, pattern in (("group", "group_id", selection.group), ("topic", "topic", selection.topic)):
        if pattern is not None:
            rows = tables.query(f"SELECT DISTINCT {column} FROM lag WHERE ({at}) AND topic IS NOT NULL", [LAG])
            names = sorted(row[column] for row in rows)
            chosen = NameFilter(pattern).select(names)
            predicate = one_of(f"encode({column}, 'hex')", [n.encode().hex() for n in chosen]) if chosen else "false"
            found.append(_Names(chosen, predicate, _no_match(what, pattern, names)))
    return found


def _no_match(what: str, pattern: str, names: Sequence[str]) -> str:
    """That nothing matches, with the names that are most like the pattern, or else the first ones."""
    if not names:
        return NO_LAG
    alike = get_close_matches(pattern, names[:COMPARED], NAMED, cutoff=0.4)
    listed = list(dict.fromkeys([*alike, *names[:NAMED]]))[:NAMED]
    more = f" and {len(names) - len(listed):,} more" if len(names) > len(listed) else ""
    which = ", ".join(cut(visible_name(name), NAME_COLUMNS) for name in listed)
    return f"No {what} matches --{what} {visible(pattern)}; the snapshot has {which}{more}."
