"""Reads a data source without Spark, in this process."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import cast

import pyarrow as pa
from pyspark.sql.datasource import DataSource, InputPartition
from pyspark.sql.types import StructType

from pipeline.common.data_source import arrow_schema

TASKS_AT_ONCE = 4


def read_in_process(source: DataSource, most_tasks: int | None = None) -> pa.Table | None:
    """The rows that Spark would read from a data source. Raises what the source's reader raises.

    If reading takes more than `most_tasks` tasks, nothing is read, and this returns None.
    """
    schema = cast(StructType, source.schema())
    reader = source.reader(schema)
    tasks = reader.partitions()
    if most_tasks is not None and len(tasks) > most_tasks:
        return None

    def read(task: InputPartition) -> list[pa.RecordBatch]:
        return [*cast(Iterator[pa.RecordBatch], reader.read(task))]

    with ThreadPoolExecutor(TASKS_AT_ONCE) as threads:
        batches = [batch for some in threads.map(read, tasks) for batch in some]
    return pa.Table.from_batches(batches, arrow_schema(schema))
