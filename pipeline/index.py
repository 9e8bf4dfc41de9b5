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
    def of(cls, lake: Lake, cluster: str, readable: Sequence[int], through: int | None) -> Index:
        """The index up to the last of some readable snapshots, ascending; `through` is what `head` says."""
        newer = [i for i in readable if i > (through or 0)]
        return cls(lake, cluster, newer[-LONGEST_TAIL:], through is None)

    @classmethod
    def while_running(cls, lake: Lake, cluster: str, snapshot_id: int) -> Index:
        """The index up to a snapshot that is still running: its watermarks have landed."""
        through = cls.head(lake, cluster).collect()[0]["through"]
        if snapshot_id <= (through or 0):
            return cls(lake, cluster, (), is_new=False)
        # A literal, so that Delta opens only the files of newer snapshots.
        is_newer = (F.col("snapshot_id") > (through or 0)) & (F.col("snapshot_id") <= snapshot_id)
        newer = lake.read(SNAPSHOTS).where((F.col("cluster") == cluster) & F.col("status").isin(*READABLE) & is_newer)
        rows = newer.select("snapshot_id").orderBy(F.col("snapshot_id").desc()).limit(LONGEST_TAIL).collect()
        tail = {r["snapshot_id"] for r in rows} | {snapshot_id}
        return cls(lake, cluster, sorted(tail), through is None, snapshot_id)

    @staticmethod
    def head(lake: Lake, cluster: str) -> DataFrame:
        """One row: `through`, the newest snapshot that the index was written from; NULL where there is no index."""
        rows = lake.read(LOG_INDEX).where(F.col("cluster") == cluster)
        return rows.agg(F.max("through_snapshot_id").alias("through"))

    def watermarks(self, batch: Sequence[int]) -> DataFrame:
        """The watermarks of the tail and of a batch."""
        return self.lake.read_snapshots(WATERMARKS, self.cluster, sorted({*self.tail, *batch}))

    def rulers(self, batch: Sequence[int], watermarks: DataFrame) -> DataFrame:
        """The rulers as of each snapshot of the batch: cluster, topic, partition, snapshot_id, ruler.

        `watermarks` are those of the tail at least.
        """
        if not self.tail:
            return log_index.known_rulers(self._known(), batch)
        return log_index.rulers(self._known(), *self._seen(watermarks), asked_from=batch[0])

    def keep(self, watermarks: DataFrame) -> None:
        """Write the index, if it has none yet or the tail has become long."""
        if not self.tail or (len(self.tail) < WRITTEN_EVERY and not self.is_new):
            return
        through = self.tail[-1]
        rows = log_index.index_rows(self._known(), *self._seen(watermarks), through)
        self.lake.replace(LOG_INDEX, rows, f"cluster = '{self.cluster}'")

    def _known(self) -> DataFrame:
        return self.lake.read(LOG_INDEX).where(F.col("cluster") == self.cluster)

    def _seen(self, watermarks: DataFrame) -> tuple[DataFrame, DataFrame]:
        # What a run that was killed has looked up will be replaced.
        learnt = [i for i in self.tail if i != self.running]
        samples = self.lake.read_snapshots(LOG_SAMPLES, self.cluster, learnt)
        return watermarks.where(F.col("snapshot_id").isin(list(self.tail))), samples
