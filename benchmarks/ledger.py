"""How long a `run` takes, and how many files it reads, in a lake with many snapshots and in one with few."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.compute
from deltalake import DeltaTable, write_deltalake

from benchmarks.files_read import FilesRead
from benchmarks.timing import timed
from jobs import run
from pipeline.common.epoch import DAY_MS
from pipeline.tables import COMPUTED, SNAPSHOTS, Table

RUNS = 5
NOT_COUNTED = 1
FRESH = 20
"""The snapshots in the lake that is compared with: what a run looks back at is there."""
ROWS_OF_FILE = 5_000
Way = Literal["driver", "Spark"]


@dataclass
class Runs:
    """The seconds of each run, and the most files that one has read: of the tables, and of Delta's logs."""

    seconds: list[float] = field(default_factory=list)
    data_files: int = 0
    log_files: int = 0


def measure(config: str, folder: Path, snapshots: int, step_ms: int, way: Way) -> tuple[Runs, Runs]:
    """Runs in a lake with FRESH older snapshots with lag, and in one with `snapshots`. They alternate, in one process.

    `config` is the text of a config, in which `{lake}` stands for the lake. `way`: whether the driver reads and writes
    few rows without Spark.
    """
    with _by(way):
        jobs = [_job(config, folder / name) for name in ("fresh", "old")]
        for job in jobs:
            job()
        for name, number in (("fresh", FRESH), ("old", snapshots)):
            for table in (SNAPSHOTS, COMPUTED):
                _fill(folder / name / table.name, table, number, step_ms)
        found = Runs(), Runs()
        for number in range(NOT_COUNTED + RUNS):
            for job, name, runs in zip(jobs, ("fresh", "old"), found, strict=True):
                time.sleep(1)  # each snapshot needs another instant
                with FilesRead(folder / name) as read:
                    seconds = timed(job)
                if number >= NOT_COUNTED:
                    runs.seconds.append(seconds)
                    runs.data_files = max(runs.data_files, len(read.data))
                    runs.log_files = max(runs.log_files, len(read.log))
        return found


@contextmanager
def _by(way: Way) -> Iterator[None]:
    if way == "driver":
        yield
        return
    with mock.patch("pipeline.lake.lake_tables.driver_tables", return_value=None):
        yield


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
    for first in range(0, snapshots, ROWS_OF_FILE):
        write_deltalake(path, rows.slice(first, ROWS_OF_FILE), mode="append")
    DeltaTable(path).create_checkpoint()  # so that these commits are not read one by one
