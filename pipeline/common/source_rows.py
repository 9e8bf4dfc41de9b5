"""Reads a data source without Spark, in this process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import BoundedSemaphore
from typing import cast

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from pipeline.common.data_source import arrow_schema

TASKS_AT_ONCE = 4
_OF_PROCESS = BoundedSemaphore(8)
"""Tasks at once in the whole process, which may read several clusters: each has connections to all brokers of one."""


def read_in_process(source: DataSource) -> pa.Table:
    """The rows that Spark would read from a data source. Raises what the source's reader raises."""
    schema = cast(StructType, source.schema())
    reader = source.reader(schema)
    return read_tasks(reader, reader.partitions(), schema)


def read_tasks(reader: DataSourceReader, tasks: Sequence[InputPartition], schema: StructType) -> pa.Table:
    """The rows of some tasks, some of them at once."""

    def read(task: InputPartition) -> list[pa.RecordBatch]:
        with _OF_PROCESS:
            return [*cast(Iterator[pa.RecordBatch], reader.read(task))]

    with ThreadPoolExecutor(TASKS_AT_ONCE) as threads:
        batches = [batch for some in threads.map(read, tasks) for batch in some]
    return pa.Table.from_batches(batches, arrow_schema(schema))
