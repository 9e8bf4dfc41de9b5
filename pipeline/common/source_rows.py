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
MOST_PROCESSES = 4
"""A process needs 170 MB before it has read anything."""
_HAS_PROCESSES = threading.BoundedSemaphore(1)
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
    process that reads ends early, as on a machine without free memory.
    """
    read = partial(_read, reader, keep)
    # Clusters that are read meanwhile have threads: more processes would need more memory, and have no core.
    if len(tasks) > FEW_TASKS and _cores() > 1 and _HAS_PROCESSES.acquire(blocking=False):
        try:
            return _read_by_processes(read, tasks)
        finally:
            _HAS_PROCESSES.release()
    with ThreadPoolExecutor(TASKS_AT_ONCE) as threads:
        return [batch for some in threads.map(read, tasks) for batch in some]


def _cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _read_by_processes(
    read: Callable[[InputPartition], list[pa.RecordBatch]], tasks: Sequence[InputPartition]
) -> list[pa.RecordBatch]:
    # Spawned, because a process that has threads must not be forked.
    context = get_context("spawn")
    with ProcessPoolExecutor(min(_cores(), MOST_PROCESSES), context, _begin_process, (os.getpid(),)) as processes:
        try:
            packed = [batch for some in processes.map(partial(_read_packed, read), tasks) for batch in some]
        except BrokenProcessPool as exc:
            raise LakeError(
                "a process that reads the cluster has ended: has the machine too little memory, or does your script "
                'lack `if __name__ == "__main__":`?'
            ) from exc
    return [pa.ipc.open_stream(batch).read_next_batch() for batch in packed]


def _read_packed(read: Callable[[InputPartition], list[pa.RecordBatch]], task: InputPartition) -> list[pa.Buffer]:
    """The batches as Arrow streams: a batch may be a slice, and would be pickled with all that it is a slice of."""
    packed = []
    for batch in read(task):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as stream:
            stream.write_batch(batch)
        packed.append(sink.getvalue())
    return packed


def _begin_process(parent: int) -> None:
    """Makes a process that reads end with its parent, and leave signals and the log to it."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
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
