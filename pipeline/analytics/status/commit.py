"""The newest known commit of each reader."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pipeline.analytics.arrow_series import NONE, Bools, Ints
from pipeline.analytics.remembered import Remembered
from pipeline.analytics.status.observation import Observation


@dataclass(frozen=True)
class Commit(Remembered):
    """The newest known commit: all is NONE for a reader that was never seen.

    seen_ms: when it was read. topic: a hash of its topic's id. offset: the committed offset. moved_ms: when it was
    first seen. beyond_end: if it is beyond the end of the log, this end.
    """

    seen_ms: Ints
    topic: Ints
    offset: Ints
    moved_ms: Ints
    beyond_end: Ints

    @property
    def is_unknown(self) -> Bools:
        """Whether no snapshot has shown a commit."""
        return np.asarray(self.offset == NONE)

    def has_changed(self, seen: Observation) -> Bools:
        """Whether a snapshot shows another commit."""
        return np.asarray(seen.committed != self.offset)

    def step(self, seen: Observation) -> Commit:
        """The commit after a snapshot."""
        is_same = ~self.has_changed(seen) & (self.moved_ms != NONE)
        return Commit(
            seen_ms=seen.at_ms,
            topic=np.where(seen.topic != NONE, seen.topic, self.topic),
            offset=seen.committed,
            moved_ms=np.where(is_same, self.moved_ms, seen.at_ms),
            beyond_end=np.where((seen.committed != NONE) & (seen.committed > seen.end), seen.end, NONE),
        )
