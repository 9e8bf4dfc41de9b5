"""Packs the example that `laglake try` shows: `make example` after a change of what is computed or of the report.

It reads what snapshots have recorded in the present example, or in a lake of `make demo`: `make example
ARGS=build/demo/lake`. All else is computed from it anew: the other tables, and the values of the report. Each table is
one file, without paths of this machine.
"""

import re
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from jobs.example import ARCHIVE, LAKE, REPORT, SETTINGS, unpacked
from pipeline.config import LakeConfig, load_config
from pipeline.derive import compute_lag
from pipeline.lake import Lake, of_cluster
from pipeline.lake.driver_tables import DriverTables
from pipeline.lake.upgrade import PROPERTIES
from pipeline.report.formats.saved import saved
from pipeline.report.model.selection import Selection
from pipeline.report.read.collect import collect
from pipeline.report.read.excerpt import Excerpt
from pipeline.tables import (
    BRONZE,
    CLIENT_POSITIONS,
    LOG_SAMPLES,
    QUARANTINE,
    SNAPSHOTS,
    TABLES,
    Table,
)

_HERE = re.compile(r"/[\w./-]*/build/demo\b")
"""The demo's folder, in paths and URIs."""
TITLE = "Kafka consumer lag: a recorded example"
CLUSTER = "demo"
_RECORDED = (*BRONZE, CLIENT_POSITIONS, LOG_SAMPLES, QUARANTINE, SNAPSHOTS)
"""The tables that the job `snapshot` writes."""


def main(argv: Sequence[str]) -> int:
    """Returns the exit status."""
    with tempfile.TemporaryDirectory() as folder:
        recorded = Path(argv[0]) if argv else unpacked(Path(folder, "present")).lake
        lake = derive_anew(recorded, Path(folder, "derived"))
        write_once(lake, Path(folder, LAKE))
        excerpt = Excerpt(Lake(None, LakeConfig(root=str(Path(folder, LAKE)))), Selection())
        newest = DriverTables(Path(folder, LAKE)).query("SELECT max(finished_at) AS at FROM snapshots", [SNAPSHOTS])
        report = collect(excerpt, newest[0]["at"].astimezone(UTC), TITLE)
        Path(folder, REPORT).write_bytes(saved(report))
        pack(Path(folder), ARCHIVE)
    print(f"{ARCHIVE}: {ARCHIVE.stat().st_size / 1000:.0f} kB")
    return 0


def derive_anew(recorded: Path, folder: Path) -> Path:
    """A lake in `folder` with what snapshots have recorded in a lake, and all that this laglake computes from it."""
    lake = folder / "lake"
    copy = DriverTables(lake)
    for table in TABLES:
        copy.create(table, PROPERTIES)
    for table in _RECORDED:
        stored = DeltaTable(recorded / table.name)
        have = {field.name for field in stored.schema().fields}
        rows = stored.to_pyarrow_table(columns=[name for name in table.stored.names if name in have])
        _overwrite(copy, table, rows)
    config = folder / "config.toml"
    config.write_text(
        f'{SETTINGS}[lake]\nroot = "{lake}"\n[clusters.{CLUSTER}]\nbootstrap_servers = ["localhost:9092"]\n'
    )
    compute_lag(None, load_config(config, {}), [CLUSTER], lambda: datetime.now(UTC))
    return lake


def write_once(lake: Path, target: Path) -> None:
    """Writes each table of the lake to `target`, in a single commit."""
    copy = DriverTables(target)
    for table in TABLES:
        copy.create(table, PROPERTIES)
        _overwrite(copy, table, DeltaTable(lake / table.name).to_pyarrow_table(columns=table.stored.names))
    for log in target.rglob("_delta_log/*.json"):  # a commit says where the table was created
        log.write_text(log.read_text().replace(str(target), "/demo/lake"))


def _overwrite(lake: DriverTables, table: Table, rows: pa.Table) -> None:
    if rows.num_rows:
        lake.overwrite(table, pa.Table.from_pylist(_anonymous(rows.to_pylist()), rows.schema), of_cluster(CLUSTER))


def _anonymous(value: Any) -> Any:
    """The value without the path of the demo's folder on this machine."""
    if isinstance(value, str):
        return _HERE.sub("/demo", value)
    if isinstance(value, dict):
        return {name: _anonymous(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(_anonymous, value))
    return value


def pack(folder: Path, archive: Path) -> None:
    """Packs the example without owners, times and modes, which say something only about this machine."""

    def anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid = entry.gid = entry.mtime = 0
        entry.uname = entry.gname = ""
        return entry

    with tarfile.open(archive, "w:xz", preset=9) as packed:
        for name in (LAKE, REPORT):
            packed.add(folder / name, name, filter=anonymous)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
