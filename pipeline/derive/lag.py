"""Writes `lag` for the snapshots of a batch, from bronze rows that must all be there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipeline.analytics.clients.clients import reader_positions
from pipeline.analytics.clients.instances import observed
from pipeline.analytics.keys import TOPIC
from pipeline.analytics.lag.lag import PARTS, ROWS_A_BUCKET, lag_of_readers
from pipeline.analytics.lag.log_files import located_offsets
from pipeline.analytics.lag.recreated_topics import moved_topics
from pipeline.common.data_source import arrow_schema
from pipeline.common.rows import Rows
from pipeline.config.consumers import ConsumerSettings
from pipeline.derive.backlog import Backlog, Snapshot
from pipeline.lake import Lake, of_snapshots
from pipeline.log_segments.source import locate
from pipeline.tables import CLIENT_POSITIONS, COMMITTED_OFFSETS, GROUP_MEMBERS, LAG, WATERMARKS, Table


@dataclass(frozen=True)
class Bronze:
    """The bronze rows of a batch. `positions` also has those of the snapshot before it.

    `seen` are the watermarks of the tail of the log index and of the batch. `previous` are the rows of `lag` from which
    the batch continues, with the columns that tell which log a commit belongs to.
    """

    lake: Lake
    cluster: str
    backlog: Backlog
    commits: Rows
    members: Rows
    seen: Rows
    previous: Rows
    positions: Rows

    @classmethod
    def of_batch(cls, lake: Lake, cluster: str, backlog: Backlog, seen: Rows) -> Bronze:
        """The rows of the next batch."""
        ids, earlier = [s.snapshot_id for s in backlog.batch], backlog.up_to_complete
        read = partial(_read, lake, cluster)
        previous = read(LAG, earlier, *PARTS["previous"].names)
        positions = Rows(arrow_schema(CLIENT_POSITIONS.schema).empty_table())
        if backlog.has_positions:
            positions = read(CLIENT_POSITIONS, [*earlier[:1], *ids])
        commits, members = (read(table, ids) for table in (COMMITTED_OFFSETS, GROUP_MEMBERS))
        return cls(lake, cluster, backlog, commits, members, seen, previous, positions)

    @property
    def snapshot_ids(self) -> list[int]:
        """The snapshots of the batch."""
        return [s.snapshot_id for s in self.backlog.batch]

    @property
    def watermarks(self) -> Rows:
        """The watermarks of the batch."""
        return self.seen.where_in("snapshot_id", self.snapshot_ids)

    def frame(self, table: Table) -> DataFrame:
        """The rows of the batch in one of the tables, as a DataFrame."""
        more = {WATERMARKS: self.seen, CLIENT_POSITIONS: self.positions}
        if table in more:
            rows = more[table].where_in("snapshot_id", self.snapshot_ids)
        else:
            rows = {COMMITTED_OFFSETS: self.commits, GROUP_MEMBERS: self.members}[table]
        return rows.frame(self.lake.spark, table.schema)

    def moved_topics(self) -> DataFrame:
        """The topics in which commits may belong to another log."""
        previous = self.previous.frame(self.lake.spark, PARTS["previous"])
        return moved_topics(self.frame(COMMITTED_OFFSETS), self.frame(WATERMARKS), previous)

    def gone(self) -> tuple[dict[str, list[Snapshot]], bool]:
        """The snapshots for which bronze has fewer rows than the ledger says, by table; and whether a topic has moved.

        Retention has removed rows, or a store has lost a commit. They are not computed again, so that rows which were
        derived from all of their rows stay.
        """
        tables = [
            COMMITTED_OFFSETS,
            WATERMARKS,
            GROUP_MEMBERS,
            *([CLIENT_POSITIONS] if self.backlog.has_positions else []),
        ]
        ids = [self.frame(table).select(F.lit(table.name).alias("of"), "snapshot_id") for table in tables]
        counts = reduce(DataFrame.union, ids).groupBy("of", "snapshot_id").count()
        any_moved = self.moved_topics().limit(1).select(F.lit("moved").alias("of"))
        counted = counts.unionByName(any_moved, allowMissingColumns=True).collect()
        numbers = {(row["of"], row["snapshot_id"]): row["count"] for row in counted}
        return _lacking(self.backlog.batch, numbers), any(row["of"] == "moved" for row in counted)


def keep_lag(
    bronze: Bronze, clients: Mapping[str, ConsumerSettings], log_dirs: Sequence[str], *, has_moved: bool
) -> None:
    """Writes `lag` for a batch. If a topic has moved, commits may belong to another log."""
    lake, ids = bronze.lake, bronze.snapshot_ids
    parts = {
        "commits": bronze.commits,
        "watermarks": bronze.watermarks,
        "members": bronze.members,
        "rulers": lake.computed_once(bronze.backlog.index.rulers(ids, bronze.seen, bronze.backlog.partitions)),
    }
    if has_moved:
        parts["previous"] = bronze.previous.where_among(bronze.moved_topics(), TOPIC)
    reported = _reported(bronze, clients) if bronze.backlog.has_positions else None
    if reported:
        parts["reported"] = reported
    if log_dirs:
        of_clients = reported.frame(lake.spark, PARTS["reported"]) if reported else None
        find = partial(locate, log_dirs=log_dirs)
        commits, watermarks, members = (bronze.frame(t) for t in (COMMITTED_OFFSETS, WATERMARKS, GROUP_MEMBERS))
        located = located_offsets(commits, watermarks, members, of_clients, find)
        parts["files"] = lake.few_or_many(located)
    buckets = 1 + sum(s.rows for s in bronze.backlog.batch) // ROWS_A_BUCKET
    lake.replace(LAG, lag_of_readers(parts, bronze.backlog.reach, buckets), of_snapshots(bronze.cluster, ids))


def _reported(bronze: Bronze, clients: Mapping[str, ConsumerSettings]) -> Rows:
    """What clients report about readers."""
    lake, before = bronze.lake, bronze.backlog.up_to_complete[:1]
    positions = bronze.positions.frame(lake.spark, CLIENT_POSITIONS.schema)
    watermarks, commits, members = (bronze.frame(table) for table in (WATERMARKS, COMMITTED_OFFSETS, GROUP_MEMBERS))
    just_before = lake.read_snapshots(LAG, bronze.cluster, before)
    observations = observed(positions, [*before, *bronze.snapshot_ids])
    of_readers = reader_positions(observations, watermarks, commits, members, just_before, clients, lake.computed)
    return lake.computed_once(lake.few_or_many(of_readers))


def _read(lake: Lake, cluster: str, table: Table, snapshot_ids: Sequence[int], *columns: str) -> Rows:
    return lake.read_few_or_many(table, of_snapshots(cluster, snapshot_ids), *columns)


def _lacking(batch: Sequence[Snapshot], counts: Mapping[tuple[str, int], int]) -> dict[str, list[Snapshot]]:
    lacking: dict[str, list[Snapshot]] = {}
    for snapshot in batch:
        for table, expected in snapshot.expected().items():
            if counts.get((table, snapshot.snapshot_id), 0) < expected:
                lacking.setdefault(table, []).append(snapshot)
                break
    return lacking
