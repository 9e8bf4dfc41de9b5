"""The snapshots of a cluster that are computed together, and the rows that they are computed from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from pyspark.sql import DataFrame

from pipeline.analytics.lag.lag import LAG_PARTS
from pipeline.common.data_source import arrow_schema
from pipeline.common.rows import Rows
from pipeline.derive.backlog import Backlog
from pipeline.derive.settings import Settings
from pipeline.lake import Clock, Lake, of_snapshots
from pipeline.lake.few_rows import MANY_ROWS
from pipeline.tables import CLIENT_POSITIONS, COMMITTED_OFFSETS, GROUP_MEMBERS, LAG, WATERMARKS, Table


@dataclass(frozen=True)
class Batch:
    """The next snapshots of a cluster without `lag`, with all that a step needs to compute a table for them.

    Few rows are read when a step first asks for them, and then kept; many rows are read by each query. `problems` are
    those that steps have found so far, for the step that makes findings of them.
    """

    lake: Lake
    cluster: str
    backlog: Backlog
    settings: Settings
    clock: Clock
    problems: list[Rows] = field(default_factory=list)

    @property
    def snapshot_ids(self) -> list[int]:
        """The snapshots, ascending."""
        return [s.snapshot_id for s in self.backlog.batch]

    @property
    def where(self) -> str:
        """The predicate for the rows of these snapshots."""
        return of_snapshots(self.cluster, self.snapshot_ids)

    @cached_property
    def commits(self) -> Rows:
        """The rows of COMMITTED_OFFSETS."""
        return self.rows(COMMITTED_OFFSETS, self.snapshot_ids)

    @cached_property
    def members(self) -> Rows:
        """The rows of GROUP_MEMBERS."""
        return self.rows(GROUP_MEMBERS, self.snapshot_ids)

    @cached_property
    def seen(self) -> Rows:
        """The rows of WATERMARKS of the batch and of the tail of the log index."""
        # Few rows are kept for the steps that read them; many rows are read again each time.
        are_few = self.backlog.size < MANY_ROWS
        return self.backlog.index.watermarks(self.snapshot_ids, once=are_few)

    @cached_property
    def positions(self) -> Rows:
        """The rows of CLIENT_POSITIONS of the batch and of the snapshot before it."""
        if not self.backlog.has_positions:
            return Rows(arrow_schema(CLIENT_POSITIONS.schema).empty_table())
        return self.rows(CLIENT_POSITIONS, [*self.backlog.up_to_complete[:1], *self.snapshot_ids])

    @cached_property
    def earlier_lag(self) -> Rows:
        """The rows of `lag` from which commits continue, with the columns that tell which log a commit belongs to."""
        return self.rows(LAG, self.backlog.up_to_complete, *LAG_PARTS["previous"].names)

    @property
    def watermarks(self) -> Rows:
        """The rows of WATERMARKS of the batch."""
        return self.seen.where_in("snapshot_id", self.snapshot_ids)

    def rows(self, table: Table, snapshot_ids: Sequence[int], *columns: str) -> Rows:
        """The rows of some snapshots of the cluster in a table, or some columns of them."""
        return self.lake.rows(table, of_snapshots(self.cluster, snapshot_ids), *columns)

    def frame(self, table: Table) -> DataFrame:
        """The rows of the batch in a table, as a DataFrame."""
        if table is COMMITTED_OFFSETS:
            rows = self.commits
        elif table is GROUP_MEMBERS:
            rows = self.members
        elif table is WATERMARKS:
            rows = self.watermarks
        elif table is CLIENT_POSITIONS:
            rows = self.positions.where_in("snapshot_id", self.snapshot_ids)
        else:
            rows = self.rows(table, self.snapshot_ids)
        return rows.frame(self.lake.spark, table.schema)
