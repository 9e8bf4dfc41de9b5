"""Reads data sources for a snapshot: without Spark if the lake and all of Spark are on this machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import cast

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.datasource import DataSource

from pipeline.common.data_source import arrow_schema
from pipeline.common.rows import Rows
from pipeline.common.source_rows import read_in_process, read_tasks
from pipeline.kafka.snapshot import KIND, REQUESTS, SnapshotSource
from pipeline.kafka.source import REQUEST_COLUMNS
from pipeline.lake import Lake
from pipeline.quality.counts import COUNTS, count_kind, count_rows
from pipeline.tables import BRONZE, Table

_COLUMNS = {table.name: table.observed.names for table in BRONZE} | {REQUESTS: [c.name for c in REQUEST_COLUMNS]}


@dataclass(frozen=True)
class ClusterRows:
    """The rows of `kafka_snapshot` that were read of a cluster at one time.

    In `tables`, those of each kind are an Arrow table with its own columns. If Spark has read them, they are in
    `staged` with all columns.
    """

    tables: Mapping[str, pa.Table]
    staged: DataFrame | None = None

    def of_table(self, table: Table) -> Rows:
        """The rows for a bronze table, with its observed columns."""
        if self.staged is not None:
            return Rows(self.staged).where_in(KIND, [table.name]).chosen(table.observed)
        rows = self.tables.get(table.name)
        return Rows(pa.table({}) if rows is None else rows).chosen(table.observed)

    def counted(self, now: datetime) -> pa.Table:
        """COUNTS of all rows."""
        if self.staged is None:
            counts = [count_kind(rows, kind, now) for kind, rows in self.tables.items()]
            return pa.concat_tables([arrow_schema(COUNTS).empty_table(), *counts])
        # All rows with the same key are in one bucket, and all rows of a group.
        found = Rows(self.staged).grouped(["coalesce(group_id, topic)"], lambda rows: count_rows(rows, now), COUNTS)
        return found.collected_table()


def read_source(lake: Lake, source: DataSource) -> Rows:
    """The rows of a data source. If Spark reads them, each query on them reads the source again."""
    if lake.is_on_driver:
        return Rows(read_in_process(source))
    return Rows(lake.spark.read.format(source.name()).options(**source.options).load())


def read_cluster(lake: Lake, source: SnapshotSource, staging_area: str) -> ClusterRows:
    """Reads a cluster once."""
    if not lake.is_on_driver:
        return ClusterRows({}, lake.staged_once(cast(DataFrame, read_source(lake, source).rows), staging_area))
    reader = source.reader(source.schema())
    return of_batches(read_tasks(reader, reader.partitions(), with_own_columns))


def of_batches(batches: Sequence[pa.RecordBatch]) -> ClusterRows:
    """The rows of batches, each of which is `with_own_columns`."""
    by_kind: dict[str, list[pa.RecordBatch]] = {}
    for batch in batches:
        by_kind.setdefault(batch[KIND][0].as_py(), []).append(batch)
    return ClusterRows({kind: pa.Table.from_batches(some) for kind, some in by_kind.items()})


def with_own_columns(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch of `kafka_snapshot` that is not empty, and whose rows are all of one kind, with its columns only."""
    return batch.select([KIND, *_COLUMNS.get(batch[KIND][0].as_py(), ())])
