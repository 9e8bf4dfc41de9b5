"""Writes `lag` for the snapshots of a batch, from bronze rows that must all be there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipeline.analytics.clients.clients import reader_positions
from pipeline.analytics.clients.instances import observed
from pipeline.analytics.findings.suspects import SUSPECTS
from pipeline.analytics.forecasts.forecasts import FORECAST_PARTS
from pipeline.analytics.histograms.lag_histograms import COUNTED
from pipeline.analytics.keys import GROUP, TOPIC, TOPIC_PARTITION
from pipeline.analytics.lag.lag import PARTS, facts_of_groups
from pipeline.analytics.lag.log_files import located_offsets
from pipeline.analytics.lag.recreated_topics import moved_topics
from pipeline.analytics.passes import READER_PARTS, readers_in_bucket
from pipeline.analytics.status.group_status import GROUP_PARTS
from pipeline.common.buckets import Form, Spread
from pipeline.common.data_source import arrow_schema
from pipeline.common.rows import Rows, tables_in_buckets
from pipeline.config.consumers import ConsumerSettings
from pipeline.derive.backlog import Backlog, Snapshot
from pipeline.derive.settings import Settings
from pipeline.lake import Lake, of_snapshots
from pipeline.log_segments.source import locate
from pipeline.tables import (
    CLIENT_POSITIONS,
    COMMITTED_OFFSETS,
    GROUP_MEMBERS,
    LAG,
    PARTITION_STATUS,
    WATERMARKS,
    Table,
)


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

    @property
    def has_many(self) -> bool:
        """Whether the rows in which a topic may have moved are many."""
        parts = (self.commits, self.seen, self.previous)
        return any(isinstance(part.rows, DataFrame) for part in parts)

    def moved_topics(self) -> DataFrame:
        """The topics in which commits may belong to another log."""
        previous = self.previous.frame(self.lake.spark, PARTS["previous"])
        return moved_topics(self.frame(COMMITTED_OFFSETS), self.frame(WATERMARKS), previous)


def find_gone(bronze: Bronze) -> tuple[dict[str, list[Snapshot]], bool]:
    """The snapshots for which bronze has fewer rows than the ledger says, by table; and whether a topic may have moved.

    Retention has removed rows, or a store has lost a commit. They are not computed again, so that rows which were
    derived from all of their rows stay. Whether a topic has moved is only asked of many rows: with few, it costs less
    to follow all commits.
    """
    counted = {
        COMMITTED_OFFSETS.name: bronze.commits,
        WATERMARKS.name: bronze.watermarks,
        GROUP_MEMBERS.name: bronze.members,
        CLIENT_POSITIONS.name: bronze.positions.where_in("snapshot_id", bronze.snapshot_ids),
    }
    has_many = bronze.has_many
    numbers = _count_rows(counted, [_any_moved(bronze)] if has_many else [])
    return _lacking(bronze.backlog.batch, numbers), not has_many or (_MOVED, None) in numbers


_MOVED = "moved"


def _any_moved(bronze: Bronze) -> DataFrame:
    """A row if a topic has moved, with the columns of the query that counts rows."""
    any_moved = bronze.moved_topics().limit(1)
    return any_moved.selectExpr(f"'{_MOVED}' AS of", "bigint(NULL) AS snapshot_id", "1L AS count")


def _count_rows(tables: Mapping[str, Rows], others: Sequence[DataFrame]) -> dict[tuple[str, int | None], int]:
    """How many rows the tables have of each snapshot. Many rows are counted by one query, which also has `others`."""
    numbers, queries = dict[tuple[str, int | None], int](), [*others]
    for name, rows in tables.items():
        if isinstance(rows.rows, DataFrame):
            queries.append(rows.rows.groupBy(F.lit(name).alias("of"), "snapshot_id").count())
        else:
            counts = rows.rows["snapshot_id"].value_counts().to_pylist()
            numbers |= {(name, entry["values"]): entry["counts"] for entry in counts}
    for row in reduce(DataFrame.union, queries).collect() if queries else []:
        numbers[row["of"], row["snapshot_id"]] = row["count"]
    return numbers


_LAG_FOR_GROUPS = LAG.some([*dict.fromkeys((*GROUP_PARTS["lag"].names, *FORECAST_PARTS["lag"].names, *COUNTED.names))])
"""The columns of `lag` that the steps by group need."""


@dataclass(frozen=True)
class Readers:
    """What was computed of the readers of a batch, for the steps that continue from it.

    `lag` are rows of LAG, `statuses` rows of PARTITION_STATUS; many of these are spread by partition, and by group.
    `suspects` are rows of SUSPECTS.
    """

    lag: Rows
    statuses: Rows
    suspects: Rows


def keep_lag(bronze: Bronze, settings: Settings, *, has_moved: bool) -> Readers:
    """Writes `lag` for a batch, and judges its readers. If a topic has moved, commits may belong to another log."""
    lake, backlog, ids = bronze.lake, bronze.backlog, bronze.snapshot_ids
    by_partition, by_group = (Spread(tuple(key), backlog.buckets) for key in (TOPIC_PARTITION, GROUP))
    rulers, curves = backlog.index.rulers_and_curves(ids, bronze.seen, by_partition)
    parts = _parts(bronze, settings, has_moved=has_moved)
    compute = partial(
        readers_in_bucket,
        groups=facts_of_groups(parts),
        curves=curves,
        reach=dict(backlog.reach),
        before=dict(backlog.compared_with),
        settings=settings.status,
    )
    returns = {
        "lag": [Form(LAG.schema, by_partition), Form(_LAG_FOR_GROUPS, by_group)],
        "statuses": [Form(PARTITION_STATUS.schema, by_partition), Form(GROUP_PARTS["statuses"], by_group)],
        "suspects": [Form(SUSPECTS, Spread())],
    }
    # Rulers are packed by partition already, and all have a topic.
    of_topics = {name: rows.where_known("topic") for name, rows in parts.items()} | {"rulers": rulers}
    compute_once = partial(lake.computed_or_staged, name=f"readers_{bronze.cluster}", snapshot_id=ids[0])
    made = tables_in_buckets(of_topics, READER_PARTS, by_partition, compute, returns, compute_once)
    lake.replace(LAG, made["lag"], of_snapshots(bronze.cluster, ids))
    return Readers(**made)


def _parts(bronze: Bronze, settings: Settings, *, has_moved: bool) -> dict[str, Rows]:
    """The READER_PARTS of a batch, without its rulers."""
    lake, backlog = bronze.lake, bronze.backlog
    read = partial(_read, lake, bronze.cluster)
    older = {*backlog.compared_with.values()} - {*bronze.snapshot_ids}
    parts = {
        "commits": bronze.commits,
        "watermarks": bronze.watermarks,
        "members": bronze.members,
        "known": read(PARTITION_STATUS, backlog.up_to_complete, *READER_PARTS["known"].names),
        "earlier": read(LAG, sorted(older), *READER_PARTS["earlier"].names),
    }
    if has_moved:
        parts["previous"] = _of_moved_topics(bronze)
    if backlog.has_positions:
        parts["reported"] = _reported(bronze, settings.clients)
    if settings.log_dirs:
        of_clients = parts["reported"].frame(lake.spark, PARTS["reported"]) if "reported" in parts else None
        find = partial(locate, log_dirs=settings.log_dirs)
        commits, watermarks, members = (bronze.frame(t) for t in (COMMITTED_OFFSETS, WATERMARKS, GROUP_MEMBERS))
        located = located_offsets(commits, watermarks, members, of_clients, find)
        parts["files"] = lake.few_or_many(located)
    return parts


def _of_moved_topics(bronze: Bronze) -> Rows:
    """The rows of `lag` from which commits in moved topics are followed. Few rows may also be of other topics."""
    rows = bronze.previous.rows
    if isinstance(rows, DataFrame):
        return Rows(rows.join(F.broadcast(bronze.moved_topics()), TOPIC, how="left_semi"))
    return bronze.previous


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


def _lacking(batch: Sequence[Snapshot], counts: Mapping[tuple[str, int | None], int]) -> dict[str, list[Snapshot]]:
    lacking: dict[str, list[Snapshot]] = {}
    for snapshot in batch:
        for table, expected in snapshot.expected().items():
            if counts.get((table, snapshot.snapshot_id), 0) < expected:
                lacking.setdefault(table, []).append(snapshot)
                break
    return lacking
