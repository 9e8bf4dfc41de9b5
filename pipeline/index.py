"""The log index of a cluster: as it was last written, and what was seen since."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipeline.analytics import log_index
from pipeline.lake import Lake
from pipeline.tables import LOG_INDEX, LOG_SAMPLES, READABLE, SNAPSHOTS, WATERMARKS

WRITTEN_EVERY = 10
"""Snapshots after which the index is written anew."""
LONGEST_TAIL = 120
"""Snapshots that are read at most; older ones leave a hole, which look-ups by time close."""


@dataclass(frozen=True)
class Index:
    """The index up to a batch of snapshots: the table, and the tail of snapshots that it does not know yet.

    It is written after every WRITTEN_EVERY snapshots, after `lag`. So a run that was killed computes the same again,
    and most runs write none of it. The tail of a late batch is empty: the index knows newer snapshots already.
    """

    lake: Lake
    cluster: str
    tail: Sequence[int]
    is_new: bool
    running: int | None = None

    @classmethod
    def up_to(cls, lake: Lake, cluster: str, snapshot_id: int, *, is_running: bool = False) -> Index:
        """The index up to a snapshot, which may still be running: its watermarks have landed."""
        rows = lake.read(LOG_INDEX).where(F.col("cluster") == cluster)
        through = rows.agg(F.max("through_snapshot_id")).collect()[0][0]
        is_readable = F.col("status").isin(*READABLE) & (F.col("snapshot_id") <= snapshot_id)
        known = lake.read(SNAPSHOTS).where((F.col("cluster") == cluster) & is_readable)
        newer = known.where(F.col("snapshot_id") > (through or 0)).select("snapshot_id")
        tail = {r[0] for r in newer.orderBy(F.col("snapshot_id").desc()).limit(LONGEST_TAIL).collect()}
        if is_running and snapshot_id > (through or 0):
            return cls(lake, cluster, sorted(tail | {snapshot_id}), through is None, snapshot_id)
        return cls(lake, cluster, sorted(tail), through is None)

    def rulers(self, batch: Sequence[int]) -> DataFrame:
        """The rulers as of each snapshot of the batch: cluster, topic, partition, snapshot_id, ruler."""
        if not self.tail:
            return log_index.known_rulers(self._known(), batch)
        return log_index.rulers(self._known(), *self._seen(), asked_from=batch[0])

    def keep(self) -> None:
        """Write the index, if it has none yet or the tail has become long."""
        if not self.tail or (len(self.tail) < WRITTEN_EVERY and not self.is_new):
            return
        through = self.tail[-1]
        rows = log_index.index_rows(self._known(), *self._seen(), through)
        self.lake.replace(LOG_INDEX, rows, f"cluster = '{self.cluster}'")

    def _known(self) -> DataFrame:
        return self.lake.read(LOG_INDEX).where(F.col("cluster") == self.cluster)

    def _seen(self) -> tuple[DataFrame, DataFrame]:
        watermarks = self.lake.read_snapshots(WATERMARKS, self.cluster, self.tail)
        # What a run that was killed has looked up will be replaced.
        learnt = [i for i in self.tail if i != self.running]
        return watermarks, self.lake.read_snapshots(LOG_SAMPLES, self.cluster, learnt)
