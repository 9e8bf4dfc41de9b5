"""Looks up the times of readers' rungs that the log index does not know exactly enough: rows of `log_samples`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from pipeline.analytics.keys import TOPIC_PARTITION
from pipeline.analytics.log_index.wanted_times import WANTED, WANTED_PARTS, wanted_times
from pipeline.common.rows import Rows, bucketed
from pipeline.derive.log_index import Index
from pipeline.kafka.lookups import SAMPLES, searching
from pipeline.lake import Lake, of_snapshots
from pipeline.tables import COMMITTED_OFFSETS


def learnt_samples(
    lake: Lake, cluster: str, snapshot_id: int, options: Mapping[str, str], *, budget: int, with_tiered: bool
) -> Rows:
    """The look-ups for a snapshot whose bronze rows have landed: rows of `log_samples`, and one row for each broker.

    The row of a broker counts the requests, and the partitions for which it did not answer. If the rows are many, each
    Spark action on the result makes the look-ups again. A broker gets at most `budget` look-ups, those for the widest
    intervals first. Logs in tiered storage are included only with `with_tiered`.
    """
    index = Index.while_running(lake, cluster, snapshot_id)
    seen = index.watermarks([snapshot_id])
    of_snapshot = of_snapshots(cluster, [snapshot_id])
    parts = {
        # A late snapshot that was read after this one has a ruler here, too.
        "rulers": index.rulers([snapshot_id], seen).where_in("snapshot_id", [snapshot_id]),
        "watermarks": seen.where_in("snapshot_id", [snapshot_id]),
        "commits": lake.rows(COMMITTED_OFFSETS, of_snapshot, *WANTED_PARTS["commits"].names),
    }
    find = partial(wanted_times, with_tiered=with_tiered)
    wanted = bucketed(parts, WANTED_PARTS, TOPIC_PARTITION, find, WANTED)
    return wanted.grouped(["leader"], searching(dict(options), budget), SAMPLES)
