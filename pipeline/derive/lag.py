"""Checks the bronze rows of a batch, and computes `lag` with all else that follows from one pass over the readers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipeline.analytics.clients.clients import POSITION_PARTS, reader_positions
from pipeline.analytics.findings.suspects import SUSPECTS
from pipeline.analytics.forecasts.forecasts import FORECAST_PARTS
from pipeline.analytics.histograms.lag_histograms import COUNTED
from pipeline.analytics.keys import GROUP, TOPIC, TOPIC_PARTITION
from pipeline.analytics.lag.lag import LAG_PARTS, facts_of_groups
from pipeline.analytics.lag.log_files import located_offsets
from pipeline.analytics.lag.recreated_topics import moved_topics
from pipeline.analytics.passes import READER_PARTS, readers_in_bucket
from pipeline.analytics.slo.objectives import OBJECTIVE_LAG
from pipeline.analytics.status.group_status import GROUP_PARTS
from pipeline.common.buckets import Form, Spread
from pipeline.common.rows import Rows, tables_in_buckets
from pipeline.derive.backlog import Snapshot
from pipeline.derive.batch import Batch
from pipeline.log_segments.source import locate
from pipeline.tables import (
    CLIENT_POSITIONS,
    COMMITTED_OFFSETS,
    GROUP_MEMBERS,
    LAG,
    PARTITION_STATUS,
    WATERMARKS,
)

_LAG_FOR_GROUPS = LAG.some(
    [
        *dict.fromkeys(
            (*GROUP_PARTS["lag"].names, *FORECAST_PARTS["lag"].names, *COUNTED.names, *OBJECTIVE_LAG.names),
        )
    ]
)
"""The columns of `lag` that the steps by group need."""
_MOVED = "moved"


@dataclass(frozen=True)
class Readers:
    """What was computed of the readers of a batch, for the steps that continue from it.

    `lag` are rows of LAG, `statuses` rows of PARTITION_STATUS; many of these are spread by partition, and by group.
    `suspects` are rows of SUSPECTS.
    """

    lag: Rows
    statuses: Rows
    suspects: Rows


class Bronze(NamedTuple):
    """What a batch finds in bronze before it is computed.

    `gone`: the snapshots for which a table has fewer rows than the ledger says, by table. Retention has removed rows,
    or a store has lost a commit. They are not computed again, so that rows which were derived from all of their rows
    stay. `has_moved`: whether commits may belong to another log than the current one of their topic.
    """

    gone: dict[str, list[Snapshot]]
    has_moved: bool


def check_bronze(batch: Batch) -> Bronze:
    """Counts the bronze rows of a batch. Of many rows, the same query asks whether a topic has moved.

    With few rows, it costs less to follow all commits.
    """
    counted = {
        COMMITTED_OFFSETS.name: batch.commits,
        WATERMARKS.name: batch.watermarks,
        GROUP_MEMBERS.name: batch.members,
        CLIENT_POSITIONS.name: batch.positions.where_in("snapshot_id", batch.snapshot_ids),
    }
    are_many = any(isinstance(some.rows, DataFrame) for some in (batch.commits, batch.seen, batch.earlier_lag))
    numbers = _count_rows(counted, [_any_moved(batch)] if are_many else [])
    return Bronze(_lacking(batch.backlog.batch, numbers), not are_many or (_MOVED, None) in numbers)


def compute_readers(batch: Batch, *, has_moved: bool) -> Readers:
    """Computes the lag of each reader, and judges it. `has_moved` is that of Bronze."""
    lake, backlog, ids = batch.lake, batch.backlog, batch.snapshot_ids
    by_partition, by_group = (Spread(tuple(key), backlog.buckets) for key in (TOPIC_PARTITION, GROUP))
    rulers, curves = backlog.index.rulers_and_curves(ids, batch.seen, by_partition)
    parts = _parts(batch, has_moved=has_moved)
    compute = partial(
        readers_in_bucket,
        groups=facts_of_groups(parts),
        curves=curves,
        reach=dict(backlog.reach),
        before=dict(backlog.compared_with),
        settings=batch.settings.status,
    )
    returns = {
        "lag": [Form(LAG.schema, by_partition), Form(_LAG_FOR_GROUPS, by_group)],
        "statuses": [Form(PARTITION_STATUS.schema, by_partition), Form(GROUP_PARTS["statuses"], by_group)],
        "suspects": [Form(SUSPECTS, Spread(("subject",), backlog.buckets))],
    }
    # Rulers are packed by partition already, and all have a topic.
    of_topics = {name: rows.where_known("topic") for name, rows in parts.items()} | {"rulers": rulers}
    compute_once = partial(lake.computed_or_staged, name=f"readers_{batch.cluster}", snapshot_id=ids[0])
    return Readers(**tables_in_buckets(of_topics, READER_PARTS, by_partition, compute, returns, compute_once))


def keep_lag(batch: Batch, readers: Readers) -> None:
    """Writes `lag`."""
    batch.lake.replace(LAG, readers.lag, batch.where)


def _parts(batch: Batch, *, has_moved: bool) -> dict[str, Rows]:
    """The READER_PARTS of a batch, without its rulers."""
    lake, backlog = batch.lake, batch.backlog
    older = {*backlog.compared_with.values()} - {*batch.snapshot_ids}
    parts = {
        "commits": batch.commits,
        "watermarks": batch.watermarks,
        "members": batch.members,
        "known": batch.rows(PARTITION_STATUS, backlog.up_to_complete, *READER_PARTS["known"].names),
        "earlier": batch.rows(LAG, sorted(older), *READER_PARTS["earlier"].names),
    }
    if has_moved:
        previous = batch.earlier_lag
        are_many = isinstance(previous.rows, DataFrame)
        parts["previous"] = previous.where_among(_moved_topics(batch), TOPIC) if are_many else previous
    if backlog.has_positions:
        parts["reported"] = _reported(batch)
    if batch.settings.log_dirs:
        of_clients = parts["reported"].frame(lake.spark, LAG_PARTS["reported"]) if "reported" in parts else None
        find = partial(locate, log_dirs=batch.settings.log_dirs)
        commits, watermarks, members = (batch.frame(t) for t in (COMMITTED_OFFSETS, WATERMARKS, GROUP_MEMBERS))
        located = located_offsets(commits, watermarks, members, of_clients, find)
        parts["files"] = lake.computed(located)
    return parts


def _moved_topics(batch: Batch) -> DataFrame:
    """The topics in which commits may belong to another log."""
    previous = batch.earlier_lag.frame(batch.lake.spark, LAG_PARTS["previous"])
    return moved_topics(batch.frame(COMMITTED_OFFSETS), batch.frame(WATERMARKS), previous)


def _reported(batch: Batch) -> Rows:
    """What clients report about readers."""
    before = batch.backlog.up_to_complete[:1]
    parts = {
        "positions": batch.positions,
        "watermarks": batch.watermarks,
        "commits": batch.commits,
        "members": batch.members,
        "before": batch.rows(LAG, before, *POSITION_PARTS["before"].names),
    }
    ids = [*before, *batch.snapshot_ids]
    # It is used several times if there are log files.
    return batch.lake.computed(reader_positions(parts, ids, batch.settings.clients, batch.backlog.buckets))


def _any_moved(batch: Batch) -> DataFrame:
    """A row if a topic has moved, with the columns of the query that counts rows."""
    any_moved = _moved_topics(batch).limit(1)
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


def _lacking(batch: Sequence[Snapshot], counts: Mapping[tuple[str, int | None], int]) -> dict[str, list[Snapshot]]:
    lacking: dict[str, list[Snapshot]] = {}
    for snapshot in batch:
        for table, expected in snapshot.expected().items():
            if counts.get((table, snapshot.snapshot_id), 0) < expected:
                lacking.setdefault(table, []).append(snapshot)
                break
    return lacking
