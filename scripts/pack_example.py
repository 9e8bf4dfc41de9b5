"""Packs the example that `laglake try` shows: `make example` after a change of the tables or of the report.

It reads the tables of the present example, or of a lake of `make demo`: `make example ARGS=build/demo/lake`. Each table
is written anew as one file with the columns that it has now, without paths of this machine. Beside the tables, the
archive has the values of the report that Spark makes from them.
"""

import re
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from datetime import UTC
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from jobs.example import ARCHIVE, LAKE, REPORT, unpacked
from pipeline.config import LakeConfig
from pipeline.lake import Lake
from pipeline.lake.driver_tables import DriverTables
from pipeline.lake.upgrade import PROPERTIES
from pipeline.report.collect import collect
from pipeline.report.excerpt import Excerpt
from pipeline.report.saved import saved
from pipeline.report.selection import Selection
from pipeline.session import spark_session
from pipeline.tables import SNAPSHOTS, TABLES

_HERE = re.compile(r"/[\w./-]*/build/demo\b")
"""The demo's folder, in paths and URIs."""
TITLE = "Kafka consumer lag: a recorded example"


def main(argv: Sequence[str]) -> int:
    """Returns the exit status."""
    with tempfile.TemporaryDirectory() as folder:
        recorded = Path(argv[0]) if argv else unpacked(Path(folder, "present")).lake
        spark = spark_session("laglake example")
        Lake(spark, LakeConfig(root=str(recorded))).prepare()  # if an older laglake has made the example
        rewrite(recorded, Path(folder, LAKE))
        excerpt = Excerpt(Lake(spark, LakeConfig(root=str(Path(folder, LAKE)))), Selection())
        newest = DriverTables(recorded).query("SELECT max(finished_at) AS at FROM snapshots", [SNAPSHOTS])
        report = collect(excerpt, newest[0]["at"].astimezone(UTC), TITLE)
        Path(folder, REPORT).write_bytes(saved(report))
        pack(Path(folder), ARCHIVE)
        spark.stop()
    print(f"{ARCHIVE}: {ARCHIVE.stat().st_size / 1000:.0f} kB")
    return 0


def rewrite(recorded: Path, target: Path) -> None:
    """Writes each table of the recorded lake to `target`, in a single commit."""
    copy = DriverTables(target)
    for table in TABLES:
        copy.create(table, PROPERTIES)
        rows = DeltaTable(recorded / table.name).to_pyarrow_table(columns=table.stored.names)
        if rows.num_rows:
            copy.overwrite(table, pa.Table.from_pylist(_anonymous(rows.to_pylist()), rows.schema), "cluster = 'demo'")
    for log in target.rglob("_delta_log/*.json"):  # a commit says where the table was created
        log.write_text(log.read_text().replace(str(target), "/demo/lake"))


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
