"""What a cluster's ledger, marks and log index say is to be computed, and from what: one query."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from itertools import dropwhile, takewhile
from typing import NamedTuple

from pyspark.sql import Column, Window
from pyspark.sql import functions as F

from pipeline.derive.log_index import LONGEST_TAIL, Index
from pipeline.lake import Lake
from pipeline.ledger import COMPLETE, rows_of_snapshot
from pipeline.tables import CLIENT_POSITIONS, COMMITTED_OFFSETS, COMPUTED, READABLE, SNAPSHOTS, WATERMARKS, Table

JOB = "lag"
PASSED_OVER = "lag passed over"
REMOVED = "lag removed"
"""The job of the marks in `computed` of snapshots that have lag, that can have none, and whose lag was removed."""
DONE = (JOB, PASSED_OVER, REMOVED)
MEMORY = 10
"""Snapshots to look back at most for a complete one: a partial one may lack a group whose state persists."""


class Snapshot(NamedTuple):
    """A snapshot that readers may see. `has_positions`: clients have reported theirs; `rows`: of all bronze tables.

    `commits` and `ends`: the rows of committed_offsets and watermarks, by the ledger. `groups`: those that were found.
    """

    snapshot_id: int
    run_id: str
    status: str
    has_positions: bool
    rows: int
    commits: int
    ends: int
    groups: int


@dataclass(frozen=True)
class Backlog:
    """The oldest snapshots without lag, with none in between that has it, and what they are computed from.

    `before` are the snapshots just before them, which have it: the newest first, MEMORY at most. `has_more`: there
    are others without it.
    """

    batch: list[Snapshot]
    before: list[Snapshot]
    index: Index
    has_more: bool

    @property
    def up_to_complete(self) -> list[int]:
        """Those before, back to the newest complete one, which has every group."""
        incomplete = list(takewhile(lambda s: s.status != COMPLETE, self.before))
        return [s.snapshot_id for s in self.before[: len(incomplete) + 1]]


def oldest_needed(lake: Lake, clusters: Collection[str]) -> dict[str, int]:
    """The oldest snapshot of each cluster that those without lag, or the next one, are computed from.

    A cluster without a snapshot that can be read is left out.
    """
    by_cluster = Window.partitionBy("cluster")
    marks = lake.read_all(COMPUTED).where(F.col("job").isin(*DONE))
    done = marks.select("cluster", "snapshot_id", F.lit(True).alias("is_done")).distinct()
    known = lake.read_all(SNAPSHOTS).where(F.col("status").isin(*READABLE) & F.col("cluster").isin(*clusters))
    numbered = (
        known.select("cluster", "snapshot_id")
        .join(done, ["cluster", "snapshot_id"], how="left")
        .withColumn("number", F.row_number().over(by_cluster.orderBy("snapshot_id")))
        .withColumn("first", F.min(F.when(F.col("is_done").isNull(), F.col("number"))).over(by_cluster))
        .withColumn("first", F.coalesce("first", F.count(F.lit(1)).over(by_cluster) + 1))
    )
    needed = numbered.where(F.col("number") >= F.col("first") - LONGEST_TAIL)
    return {row[0]: row[1] for row in needed.groupBy("cluster").agg(F.min("snapshot_id")).collect()}


def read_backlog(lake: Lake, cluster: str, most: int) -> Backlog:
    """The oldest of a cluster's snapshots without lag, `most` at most."""
    by_cluster = Window.partitionBy("cluster")

    def rows_of(table: Table) -> Column:
        return F.coalesce(F.element_at("rows", table.name), F.lit(0))

    columns = {
        "has_positions": rows_of(CLIENT_POSITIONS) > 0,
        "commits": rows_of(COMMITTED_OFFSETS),
        "ends": rows_of(WATERMARKS),
        "rows": rows_of_snapshot(),
        "groups": F.coalesce(F.element_at("expected", "groups"), "groups", F.lit(0)),
    }
    known = (
        lake.read_cluster(SNAPSHOTS, cluster)
        .where(F.col("status").isin(*READABLE))
        .withColumns(columns)
        .select("cluster", *Snapshot._fields)
    )
    marks = lake.read_cluster(COMPUTED, cluster).where(F.col("job").isin(*DONE))
    has_lag = marks.groupBy("snapshot_id").agg(F.bool_or(F.col("job") == JOB).alias("has_lag"))
    is_due = F.col("has_lag").isNull()
    around = (
        known.join(has_lag, "snapshot_id", how="left")
        .withColumn("number", F.row_number().over(by_cluster.orderBy("snapshot_id")))
        .withColumn("first", F.min(F.when(is_due, F.col("number"))).over(by_cluster))
        .withColumn("due", F.count_if(is_due).over(by_cluster))
        .where(F.col("number").between(F.col("first") - LONGEST_TAIL, F.col("first") + most))
        .crossJoin(Index.head(lake, cluster))
        .orderBy("snapshot_id")
    )
    rows = around.collect()
    found = [(Snapshot(*(row[name] for name in Snapshot._fields)), row["has_lag"]) for row in rows]
    due = list(dropwhile(lambda pair: pair[1] is not None, found))
    batch = [snapshot for snapshot, _ in takewhile(lambda pair: pair[1] is None, due[:most])]
    # Nothing follows from a snapshot that was passed over, neither what persists nor how a log grew.
    before = [snapshot for snapshot, has_lag in found[: len(found) - len(due)] if has_lag]
    earlier, ids = ([s.snapshot_id for s in snapshots] for snapshots in (before, batch))
    index = Index.of(lake, cluster, earlier, ids, through=rows[0]["through"] if rows else None)
    return Backlog(batch, before[::-1][:MEMORY], index, has_more=bool(rows) and rows[0]["due"] > len(batch))
