"""Reads a data source without Spark: in this process, or in as many processes as there are cores."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from multiprocessing import get_context
from typing import cast

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from pipeline.common.data_source import arrow_schema
from pipeline.common.errors import LakeError

TASKS_AT_ONCE = 4
FEW_TASKS = 8
"""More tasks than this are read by several processes: Python decodes answers on one core. A process takes a second to
start."""
_OF_PROCESS = threading.BoundedSemaphore(8)
"""Tasks at once in the whole process, which may read several clusters: each has connections to all brokers of one."""

OfBatch = Callable[[pa.RecordBatch], pa.RecordBatch]
"""What is kept of a batch that a task has read."""


def read_in_process(source: DataSource) -> pa.Table:
    """The rows that Spark would read from a data source. Raises what the source's reader raises."""
    schema = cast(StructType, source.schema())
    reader = source.reader(schema)
    return pa.Table.from_batches(read_tasks(reader, reader.partitions()), arrow_schema(schema))


def read_tasks(
    reader: DataSourceReader, tasks: Sequence[InputPartition], keep: OfBatch | None = None
) -> list[pa.RecordBatch]:
    """The rows of some tasks, in their order, some tasks at once. Raises what the reader raises.

    `keep` is called with each batch where it was read, and must be a function of a module. Raises LakeError if a
    process that reads is killed, as by a machine without free memory.
    """
    read = partial(_read, reader, keep)
    if len(tasks) > FEW_TASKS and (os.cpu_count() or 1) > 1:
        # Spawned, because a process that has threads must not be forked.
        context = get_context("spawn")
        with ProcessPoolExecutor(os.cpu_count(), context, _begin_process, (os.getpid(),)) as processes:
            try:
                return [batch for some in processes.map(read, tasks) for batch in some]
            except BrokenProcessPool as exc:
                raise LakeError("a process that reads was killed: has the machine too little memory?") from exc
    with ThreadPoolExecutor(TASKS_AT_ONCE) as threads:
        return [batch for some in threads.map(read, tasks) for batch in some]


def _begin_process(parent: int) -> None:
    """Makes a process that reads end with its parent, and leave Ctrl-C and the log to it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logging.disable(logging.WARNING)  # what cannot be read is a row with an error

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _read(reader: DataSourceReader, keep: OfBatch | None, task: InputPartition) -> list[pa.RecordBatch]:
    with _OF_PROCESS:
        batches = cast(Iterator[pa.RecordBatch], reader.read(task))
        return [batch if keep is None else keep(batch) for batch in batches]
