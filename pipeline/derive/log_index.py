"""The log index of a cluster: the table as it was last written, extended by later snapshots."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipeline.analytics.log_index import index as log_index
from pipeline.analytics.log_index.index import RULER_ROWS
from pipeline.analytics.page_cache.reuse_distance import (
    PARTIAL_CURVES,
    BrokerCurves,
    curves_of,
)
from pipeline.analytics.passes import RULER_PARTS, rulers_and_curves
from pipeline.common.buckets import Form, Spread
from pipeline.common.errors import LakeError
from pipeline.common.rows import Rows, tables_in_buckets
from pipeline.lake import CONFLICT_TRIES, FAILURES, Lake, of_cluster, of_snapshots, one_of
from pipeline.tables import LOG_INDEX, LOG_SAMPLES, READABLE, SNAPSHOTS, WATERMARKS

log = logging.getLogger(__name__)
T = TypeVar("T")

WRITTEN_EVERY = 10
"""The index is written again after this many snapshots."""
LONGEST_TAIL = 120
"""The most snapshots that are read, unless a batch is larger. Older ones leave a gap that look-ups by time close."""
REWRITTEN = "laglake: another job has written the log index meanwhile"


@dataclass(frozen=True)
class Index:
    """The index up to a batch of snapshots: the table, and the tail of snapshots that it does not include yet.

    The index is written every WRITTEN_EVERY snapshots, so most runs do not write it. It is written after `lag`, so the
    same lag is computed again after a killed run. A late snapshot is not in the tail if the index already includes
    newer ones.

    `through` is the newest snapshot that the index was written from, None if there is no index. If another job has
    written the index since then, tail and index do not fit together, and reading it fails: see `with_the_index`.
    """

    lake: Lake
    cluster: str
    tail: Sequence[int]
    through: int | None
    running: int | None = None

    @classmethod
    def of(cls, lake: Lake, cluster: str, before: Sequence[int], batch: Sequence[int], through: int | None) -> Index:
        """The index up to a batch. `before` are earlier snapshots, ascending; `through` is the value of `head`."""
        newer = [i for i in (*before, *batch) if i > (through or 0)]
        return cls(lake, cluster, newer[-max(LONGEST_TAIL, len(batch)) :], through)

    @classmethod
    def while_running(cls, lake: Lake, cluster: str, snapshot_id: int) -> Index:
        """The index up to a snapshot that is still running, whose watermarks have landed."""
        through = cls.head(lake, cluster)
        if snapshot_id <= (through or 0):
            return cls(lake, cluster, (), through)
        # A predicate of the read itself, so that only the files of newer snapshots are opened.
        is_newer = f"snapshot_id > {through or 0} AND snapshot_id <= {snapshot_id}"
        where = f"{of_cluster(cluster)} AND {one_of('status', READABLE)} AND {is_newer}"
        newest = f"SELECT snapshot_id FROM {{snapshots}} WHERE {where} ORDER BY snapshot_id DESC LIMIT {LONGEST_TAIL}"
        rows = lake.query(newest, SNAPSHOTS)
        tail = {r["snapshot_id"] for r in rows} | {snapshot_id}
        return cls(lake, cluster, sorted(tail), through, snapshot_id)

    @staticmethod
    def head(lake: Lake, cluster: str) -> int | None:
        """The newest snapshot that the index was written from; None if there is no index."""
        head = f"SELECT max(through_snapshot_id) AS through FROM {{log_index}} WHERE {of_cluster(cluster)}"
        through: int | None = lake.query(head, LOG_INDEX)[0]["through"]
        return through

    def watermarks(self, batch: Sequence[int], *, once: bool = False) -> Rows:
        """The watermarks of the tail and of a batch; `once`: they are computed only once for several queries."""
        where = of_snapshots(self.cluster, sorted({*self.tail, *batch}))
        found = self.lake.rows(WATERMARKS, where)
        return self.lake.computed(found) if once else found

    def rulers(self, batch: Sequence[int], watermarks: Rows) -> Rows:
        """The rulers as of each snapshot of the batch: RULER_ROWS. `watermarks` are those of the tail and the batch."""
        return log_index.rulers_of(self._seen(watermarks, batch), batch[0])

    def rulers_and_curves(self, batch: Sequence[int], watermarks: Rows, spread: Spread) -> tuple[Rows, BrokerCurves]:
        """The same, computed only once and spread by partition; and the curves of the brokers, on the driver."""
        compute = partial(rulers_and_curves, batch=[*batch])
        returns = {"rulers": [Form(RULER_ROWS, spread)], "curves": [Form(PARTIAL_CURVES, Spread())]}
        seen = self._seen(watermarks, batch)
        compute_once = partial(self.lake.computed_or_staged, name=f"rulers_{self.cluster}", snapshot_id=batch[0])
        made = tables_in_buckets(seen, RULER_PARTS, spread, compute, returns, compute_once)
        return made["rulers"], curves_of(made["curves"])

    def keep(self, watermarks: Rows, buckets: int | None = None) -> bool:
        """Writes the index if there is none, or if the tail is long; not if another job has written it meanwhile.

        Returns whether there was none, or the tail was long.
        """
        if not self.tail or (len(self.tail) < WRITTEN_EVERY and self.through is not None):
            return False
        try:
            rows = log_index.index_after(self._seen(watermarks), self.tail[-1], buckets)
            self.lake.guarded(self._check_unchanged).replace(LOG_INDEX, rows, of_cluster(self.cluster))
        except FAILURES as exc:
            if not _was_rewritten(exc):
                raise
            log.info("%s: another job has written the log index meanwhile: its version is kept", self.cluster)
        return True

    def _check_unchanged(self) -> None:
        # Few rows are computed before the commit starts, and another job may have written the index since then.
        if self.head(self.lake, self.cluster) != self.through:
            raise LakeError(REWRITTEN)

    def _known(self) -> Rows:
        names = log_index.INDEX_PARTS["stored"].names
        found = self.lake.rows(LOG_INDEX, of_cluster(self.cluster), *names, "through_snapshot_id")
        through = -1 if self.through is None else self.through
        if not isinstance(found.rows, DataFrame):
            if found.rows.filter(pc.field("through_snapshot_id") > through).num_rows:
                raise LakeError(REWRITTEN)
            return found
        is_unchanged = F.col("through_snapshot_id") <= F.lit(through)
        return Rows(
            found.rows.where(F.when(is_unchanged, True).otherwise(F.raise_error(F.lit(REWRITTEN)).cast("boolean")))
        )

    def _seen(self, watermarks: Rows, batch: Sequence[int] = ()) -> dict[str, Rows]:
        """The parts of which rulers are made. A snapshot of the batch is late if the index already includes it."""
        # The running snapshot may have look-ups from a killed run; they will be replaced.
        learnt = of_snapshots(self.cluster, [i for i in self.tail if i != self.running])
        samples = self.lake.rows(LOG_SAMPLES, learnt, *log_index.INDEX_PARTS["samples"].names)
        seen = {
            "stored": self._known(),
            "watermarks": watermarks.where_in("snapshot_id", self.tail),
            "samples": samples,
        }
        late = [snapshot_id for snapshot_id in batch if snapshot_id not in self.tail]
        if late:
            seen["late"] = watermarks.where_in("snapshot_id", late)
        return seen


def with_the_index(action: Callable[[], T]) -> T:
    """Runs an action that reads the index, and runs it again if another job has written the index in between."""
    for _ in range(CONFLICT_TRIES):
        try:
            return action()
        except FAILURES as exc:
            if not _was_rewritten(exc):
                raise
            log.info("another job has written the log index meanwhile: starting again")
    raise LakeError(f"gave up after {CONFLICT_TRIES} conflicts with other writers, the last: {REWRITTEN}")


def _was_rewritten(error: Exception) -> bool:
    is_raised = isinstance(error, LakeError) or "USER_RAISED_EXCEPTION" in str(error)
    return is_raised and REWRITTEN in str(error)
