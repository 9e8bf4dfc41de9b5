"""How long a `run` takes in a lake with many snapshots, compared with one with few, in the same process."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute
from deltalake import DeltaTable, write_deltalake

from benchmarks.timing import timed
from jobs import run
from pipeline.common.epoch import DAY_MS
from pipeline.tables import COMPUTED, SNAPSHOTS, Table

RUNS = 5
NOT_COUNTED = 1


def seconds(config: str, folder: Path, snapshots: int, step_ms: int) -> tuple[list[float], list[float]]:
    """The seconds of each `run` in a fresh lake, and in one with `snapshots` older snapshots with lag. They alternate.

    `config` is the text of a config, in which `{lake}` stands for the lake.
    """
    fresh, old = (_job(config, folder / name) for name in ("fresh", "old"))
    for job in (fresh, old):
        job()
    for table in (SNAPSHOTS, COMPUTED):
        _fill(folder / "old" / table.name, table, snapshots, step_ms)
    took: tuple[list[float], list[float]] = [], []
    for _ in range(NOT_COUNTED + RUNS):
        for job, found in zip((fresh, old), took, strict=True):
            time.sleep(1)  # each snapshot needs another instant
            found.append(timed(job))
    return took[0][NOT_COUNTED:], took[1][NOT_COUNTED:]


def _job(config: str, lake: Path) -> partial[int]:
    lake.mkdir(parents=True)
    file = lake.with_suffix(".toml")
    file.write_text(config.format(lake=lake))
    return partial(run.main, ["--config", str(file), "--output", str(lake.with_suffix(".html"))])


def _fill(path: Path, table: Table, snapshots: int, step_ms: int) -> None:
    """Adds copies of the existing row (in `computed`, of the mark of `lag`), each `step_ms` older than the next."""
    found = DeltaTable(path).to_pyarrow_table()
    if table is COMPUTED:
        found = found.filter(pa.compute.equal(found["job"], "lag"))
    rows = found.take(np.zeros(snapshots, dtype=np.int64))
    ids = found["snapshot_id"][0].as_py() - step_ms * np.arange(1, snapshots + 1, dtype=np.int64)
    for name, values in (
        ("snapshot_id", pa.array(ids)),
        ("snapshot_date", pa.array((ids // DAY_MS).astype(np.int32)).cast(pa.date32())),
        ("snapshot_at", pa.array(ids * 1000).cast(rows.schema.field("snapshot_at").type)),
    ):
        rows = rows.set_column(rows.schema.get_field_index(name), rows.schema.field(name), values)
    write_deltalake(path, rows, mode="append")
