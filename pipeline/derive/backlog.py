"""Which snapshots of a cluster are to be computed, and from what, by its ledger, its marks and its log index."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import dropwhile, takewhile
from typing import Any, NamedTuple

from pyspark.sql import Column, Window
from pyspark.sql import functions as F

from pipeline.derive.log_index import LONGEST_TAIL, Index
from pipeline.lake import Lake, quoted
from pipeline.ledger import COMPLETE, rows_of_snapshot
from pipeline.tables import (
    CLIENT_POSITIONS,
    COMMITTED_OFFSETS,
    COMPUTED,
    LOG_INDEX,
    READABLE,
    SNAPSHOTS,
    WATERMARKS,
    Table,
)

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
    marks = lake.read_all(COMPUTED, "cluster", "job", "snapshot_id").where(F.col("job").isin(*DONE))
    done = marks.select("cluster", "snapshot_id", F.lit(True).alias("is_done")).distinct()
    known = lake.read_all(SNAPSHOTS, "cluster", "snapshot_id", "status").where(
        F.col("status").isin(*READABLE) & F.col("cluster").isin(*clusters)
    )
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
    around = _around_the_first_due(lake, cluster, most)
    described = _described(lake, cluster, [row["snapshot_id"] for row in around])
    found = [(described[row["snapshot_id"]], row["has_lag"]) for row in around if row["snapshot_id"] in described]
    due = list(dropwhile(lambda pair: pair[1] is not None, found))
    batch = [snapshot for snapshot, _ in takewhile(lambda pair: pair[1] is None, due[:most])]
    # Nothing follows from a snapshot that was passed over, neither what persists nor how a log grew.
    before = [snapshot for snapshot, has_lag in found[: len(found) - len(due)] if has_lag]
    earlier, ids = ([s.snapshot_id for s in snapshots] for snapshots in (before, batch))
    index = Index.of(lake, cluster, earlier, ids, through=around[0]["through"] if around else None)
    return Backlog(batch, before[::-1][:MEMORY], index, has_more=bool(around) and around[0]["due"] > len(batch))


_AROUND_THE_FIRST_DUE = """
    WITH marks AS (
        SELECT snapshot_id, bool_or(job = '{job}') AS has_lag FROM {{computed}}
        WHERE cluster = '{cluster}' AND job IN ({done}) GROUP BY snapshot_id
    ), known AS (
        SELECT s.snapshot_id, has_lag, row_number() OVER (ORDER BY s.snapshot_id) AS number
        FROM {{snapshots}} s LEFT JOIN marks ON s.snapshot_id = marks.snapshot_id
        WHERE s.cluster = '{cluster}' AND s.status IN ({readable})
    ), due AS (
        SELECT min(number) AS first, count(*) AS due FROM known WHERE has_lag IS NULL
    ), head AS (
        SELECT max(through_snapshot_id) AS through FROM {{log_index}} WHERE cluster = '{cluster}'
    )
    SELECT snapshot_id, has_lag, due, through FROM known CROSS JOIN due CROSS JOIN head
    WHERE number BETWEEN first - {before} AND first + {most} ORDER BY snapshot_id
"""
"""The snapshots from LONGEST_TAIL before the oldest without lag; none if all have it. `has_lag`: NULL without a mark.

`due`: how many have none; `through`: how far the log index goes. In SQL as it reads the whole history: where the driver
can ask by itself, a year of minutes takes it some tenths of a second.
"""


def _around_the_first_due(lake: Lake, cluster: str, most: int) -> list[dict[str, Any]]:
    done, readable = (", ".join(map(quoted, names)) for names in (DONE, READABLE))
    text = _AROUND_THE_FIRST_DUE.format(
        cluster=cluster, job=JOB, done=done, readable=readable, before=LONGEST_TAIL, most=most
    )
    return lake.query(text, SNAPSHOTS, COMPUTED, LOG_INDEX)


def _described(lake: Lake, cluster: str, snapshot_ids: Sequence[int]) -> dict[int, Snapshot]:
    """What the ledger says of some snapshots that readers may see."""

    def rows_of(table: Table) -> Column:
        return F.coalesce(F.element_at("rows", table.name), F.lit(0))

    columns = {
        "has_positions": rows_of(CLIENT_POSITIONS) > 0,
        "commits": rows_of(COMMITTED_OFFSETS),
        "ends": rows_of(WATERMARKS),
        "rows": rows_of_snapshot(),
        "groups": F.coalesce(F.element_at("expected", "groups"), "groups", F.lit(0)),
    }
    rows = lake.read_snapshots(SNAPSHOTS, cluster, snapshot_ids).where(F.col("status").isin(*READABLE))
    found = rows.withColumns(columns).select(*Snapshot._fields).collect()
    return {row["snapshot_id"]: Snapshot(*row) for row in found}
