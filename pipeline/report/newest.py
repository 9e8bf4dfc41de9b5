"""The partitions with the most lag, read from a lake in a local folder without Spark, which takes a second."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipeline.common.data_source import NameFilter
from pipeline.common.errors import LakeError
from pipeline.lake import VERSION_PROPERTY, of_each, one_of
from pipeline.lake.driver_tables import DriverTables
from pipeline.report.details_model import Partition
from pipeline.report.model import names_of
from pipeline.report.selection import Selection
from pipeline.tables import COMPUTED, LAG, READABLE, SCHEMA_VERSION, SNAPSHOTS

_WORST_FIRST = """
    CASE WHEN offset_status NOT IN ('ok', 'no_commit') THEN 0 ELSE 1 END, consumer_lag DESC NULLS LAST,
    topic, partition, group_id, cluster
"""
"""The order of `details.worst_partitions`."""


@dataclass(frozen=True)
class Newest:
    """The worst partitions at each cluster's newest snapshot with lag.

    `snapshots` has that snapshot of each cluster, epoch ms; `left_out` says how many partitions are not listed.
    """

    snapshots: Mapping[str, int]
    partitions: Sequence[Partition]
    left_out: int


def read_newest(folder: Path, selection: Selection, most: int | None) -> Newest:
    """The `most` worst partitions that are selected (None: all), from the tables in a folder.

    Of the selection, `from_ms` is ignored. Names are searched as Python's `re` does, in their first characters only.
    Raises LakeError if the folder has no lake of this schema version, or if it cannot be read.
    """
    tables = DriverTables(folder)
    _check_version(tables, folder)
    snapshots = _newest_with_lag(tables, selection)
    at = of_each({cluster: [snapshot_id] for cluster, snapshot_id in snapshots.items()})
    where = " AND ".join([f"({at})", "topic IS NOT NULL", *_named(tables, at, selection)])
    (counted,) = tables.query(f"SELECT count(*) AS rows FROM lag WHERE {where}", [LAG])
    limit = "" if most is None else f"LIMIT {most}"
    columns = ", ".join(f'"{name}"' for name in names_of(Partition))
    rows = tables.query(f"SELECT {columns} FROM lag WHERE {where} ORDER BY {_WORST_FIRST} {limit}", [LAG])
    return Newest(snapshots, [Partition(**row) for row in rows], counted["rows"] - len(rows))


def _check_version(tables: DriverTables, folder: Path) -> None:
    properties = tables.properties(SNAPSHOTS)
    if properties is None:
        raise LakeError(f"{folder}: there is no lake; run makes one with its first snapshot")
    version = properties.get(VERSION_PROPERTY)
    if version != str(SCHEMA_VERSION):
        raise LakeError(
            f"{folder}: the lake has schema version {version}, this laglake knows {SCHEMA_VERSION}: lag upgrades an "
            "older one, a newer one needs the laglake that wrote it"
        )


def _newest_with_lag(tables: DriverTables, selection: Selection) -> dict[str, int]:
    conditions = ["c.job = 'lag'", one_of("s.status", READABLE)]
    if selection.to_ms is not None:
        conditions.append(f"s.snapshot_id <= {selection.to_ms}")
    rows = tables.query(
        "SELECT s.cluster AS cluster, max(s.snapshot_id) AS snapshot_id FROM snapshots s "
        "JOIN computed c ON c.cluster = s.cluster AND c.snapshot_id = s.snapshot_id "
        f"WHERE {' AND '.join(conditions)} GROUP BY s.cluster ORDER BY s.cluster",
        [SNAPSHOTS, COMPUTED],
    )
    found = {row["cluster"]: row["snapshot_id"] for row in rows}
    if unknown := sorted({*(selection.clusters or ())} - found.keys()):
        names = f"that of {', '.join(found)}" if found else "none"
        raise LakeError(f"--cluster {unknown[0]}: the lake has no lag of it, only {names}")
    return {name: found[name] for name in found if not selection.clusters or name in selection.clusters}


def _named(tables: DriverTables, at: str, selection: Selection) -> list[str]:
    """Predicates for the names that are selected.

    They list the names, because DataFusion's regular expressions are not Python's; and in hexadecimal, because anyone
    who may commit can give a group a name that no two engines quote alike.
    """
    found = []
    for column, pattern in (("group_id", selection.group), ("topic", selection.topic)):
        if pattern is not None:
            rows = tables.query(f"SELECT DISTINCT {column} FROM lag WHERE ({at}) AND {column} IS NOT NULL", [LAG])
            names = NameFilter(pattern).select(row[column] for row in rows)
            found.append(one_of(f"encode({column}, 'hex')", [n.encode().hex() for n in names]) if names else "false")
    return found
