"""Looks up the times of readers' rungs that the log index does not know exactly enough: rows of `log_samples`."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipeline.analytics.log_index.index import RULER_ROWS, wanted_times
from pipeline.derive.log_index import Index
from pipeline.kafka.lookups import SAMPLES, searching
from pipeline.lake import Lake, of_snapshots
from pipeline.tables import COMMITTED_OFFSETS, WATERMARKS


def learnt_samples(
    lake: Lake, cluster: str, snapshot_id: int, options: Mapping[str, str], *, budget: int, with_tiered: bool
) -> DataFrame:
    """The look-ups for a snapshot whose bronze rows have landed: rows of `log_samples`, and one row for each broker.

    The row of a broker counts the requests, and the partitions for which it did not answer. Each Spark action on the
    result makes the look-ups again. A broker gets at most `budget` look-ups, those for the widest intervals first. Logs
    in tiered storage are included only with `with_tiered`.
    """
    index = Index.while_running(lake, cluster, snapshot_id)
    seen = index.watermarks([snapshot_id])
    rulers = index.rulers([snapshot_id], seen).frame(lake.spark, RULER_ROWS)
    wanted = wanted_times(
        # A late snapshot that was read after this one has a ruler here, too.
        rulers.where(F.col("snapshot_id") == snapshot_id),
        seen.where_in("snapshot_id", [snapshot_id]).frame(lake.spark, WATERMARKS.schema),
        lake.frame(COMMITTED_OFFSETS, of_snapshots(cluster, [snapshot_id])),
        most=budget,
        with_tiered=with_tiered,
    )
    return wanted.groupBy("leader").applyInArrow(searching(dict(options), budget), SAMPLES)
