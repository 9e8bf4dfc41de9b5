"""Commits that went back, and are still behind where they were."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pipeline.analytics.arrow_series import NONE, Ints
from pipeline.analytics.remembered import Remembered
from pipeline.analytics.status.commit import Commit
from pipeline.analytics.status.observation import Observation


@dataclass(frozen=True)
class SetBack(Remembered):
    """A commit that went back; all is NONE if it did not, or has reached the former offset again.

    offset: what was committed before the commit went back at at_ms. snapshots: how many snapshots since then show this.
    """

    offset: Ints
    at_ms: Ints
    snapshots: Ints

    def step(self, commit: Commit, read_up_to: Ints, seen: Observation, window_ms: int) -> SetBack:
        """The state after a snapshot. It lasts for the window at most.

        read_up_to: the offset that the group had committed itself. A commit that goes back to records that a reset has
        skipped did not go back.
        """
        # A commit beyond the end was made in another log. In this one, the group has read up to the end at most.
        before = np.where(commit.beyond_end != NONE, np.minimum(read_up_to, commit.beyond_end), read_up_to)
        went_back = ~commit.is_unknown & (seen.committed < commit.offset) & (seen.committed < before)
        is_new = went_back & (self.offset == NONE)
        since = np.where(is_new, seen.at_ms, self.at_ms)
        start = np.where(is_new, before, self.offset)
        passed = seen.at_ms - np.where(since != NONE, since, seen.at_ms)
        lasts = (start != NONE) & (seen.committed < start) & (passed <= window_ms)
        return SetBack(
            offset=np.where(lasts, start, NONE),
            at_ms=np.where(lasts, since, NONE),
            snapshots=np.where(lasts, np.where(is_new, 1, self.snapshots + 1), NONE),
        )
