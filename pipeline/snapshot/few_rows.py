"""Reads a cluster in this process if it has few rows: that takes less time than to start a Python worker of Spark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import pyarrow as pa

from pipeline.common.source_rows import read_tasks
from pipeline.kafka.source import Chunk, KafkaSource
from pipeline.lake import Lake, further_back, of_cluster, one_of
from pipeline.lake.few_rows import FEW_FOR_SPARK
from pipeline.lake.ledger import Claim
from pipeline.snapshot.summary import Landed
from pipeline.tables import READABLE, SNAPSHOTS

FEW_TASKS = 2
"""A cluster of which nothing is known yet has few rows if it takes at most so many tasks to read it."""
MOST_TASKS = 20
"""A cluster that had few rows has many now if it takes more tasks than this."""


def few_rows_of(lake: Lake, claim: Claim, source: KafkaSource, landed: Landed) -> pa.Table | None:
    """The rows of a source of the cluster; None if Spark must read them.

    Spark reads them if the cluster has many rows, and if Spark or the lake is not on this machine alone. The requests
    that it took to learn that the rows are many are added to `landed`.
    """
    if not lake.is_on_driver:
        return None
    before = _rows_before(lake, claim)
    if before is not None and before >= FEW_FOR_SPARK:
        return None
    schema = source.schema()
    reader = source.reader(schema)
    tasks = cast(Sequence[Chunk], reader.partitions())
    if len(tasks) <= (FEW_TASKS if before is None else MOST_TASKS):
        return read_tasks(reader, tasks, schema)
    for broker, count in tasks[0].planned.items():
        landed.add_requests(broker, count)
    return None


def _rows_before(lake: Lake, claim: Claim) -> int | None:
    """How many rows the snapshot before had; None if there is none."""
    for is_new in (*further_back(claim.snapshot_id), "true"):
        rows = lake.query(
            f"SELECT rows FROM {{snapshots}} WHERE {of_cluster(claim.cluster)} AND snapshot_id < {claim.snapshot_id} "
            f"AND {one_of('status', READABLE)} AND {is_new} ORDER BY snapshot_id DESC LIMIT 1",
            SNAPSHOTS,
        )
        if rows:
            return sum(dict(rows[0]["rows"] or {}).values())
    return None
