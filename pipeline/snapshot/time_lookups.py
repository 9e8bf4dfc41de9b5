"""Looks up the times of readers' rungs that the log index does not know well enough, and writes `log_samples`."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipeline.analytics.log_index.index import wanted_times
from pipeline.derive.log_index import Index
from pipeline.kafka.lookups import SAMPLES, searching
from pipeline.lake import Lake
from pipeline.tables import COMMITTED_OFFSETS


def learnt_samples(
    lake: Lake, cluster: str, snapshot_id: int, options: Mapping[str, str], *, budget: int, with_tiered: bool
) -> DataFrame:
    """The look-ups of a snapshot whose bronze rows have landed: rows of `log_samples`, and one for each broker.

    That one counts the requests, and the partitions that were not answered.

    Each action makes them anew. A broker is asked `budget` times at most, about the widest brackets first.
    """
    index = Index.while_running(lake, cluster, snapshot_id)
    seen = index.watermarks([snapshot_id])
    wanted = wanted_times(
        # A look that was made later may be of an earlier snapshot: it has a ruler, too.
        index.rulers([snapshot_id], seen).where(F.col("snapshot_id") == snapshot_id),
        seen.where(F.col("snapshot_id") == snapshot_id),
        lake.read_snapshots(COMMITTED_OFFSETS, cluster, [snapshot_id]),
        most=budget,
        with_tiered=with_tiered,
    )
    return wanted.groupBy("leader").applyInArrow(searching(dict(options), budget), SAMPLES)
