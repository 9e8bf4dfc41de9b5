"""How long a reader has had the same commit while records are unread, and how long it usually has."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pipeline.analytics.arrow_series import NONE, Floats, Ints
from pipeline.analytics.remembered import Remembered
from pipeline.analytics.status.commit import Commit
from pipeline.analytics.status.observation import Observation
from pipeline.common.epoch import DAY_MS

HALF_LIFE_MS = 7 * DAY_MS
"""After a week, a wait counts half, because what is usual for a reader may have changed."""


@dataclass(frozen=True)
class Waits(Remembered):
    """The present wait, and the two longest ones.

    since_ms: since when the commit has been the same although records are unread; NONE if nothing is unread.
    snapshots: how many snapshots show that the commit stays the same. end: the log's end at since_ms.
    longest_ms, second_ms: the two longest waits that have ended, halved for each week that has passed, as of ended_ms:
    when the last wait ended.
    """

    since_ms: Ints
    snapshots: Ints
    end: Ints
    longest_ms: Ints
    second_ms: Ints
    ended_ms: Ints

    def step(self, commit: Commit, seen: Observation) -> Waits:
        """The waits after a snapshot: one begins at the first with unread records, and again when the commit changes.

        A gap between snapshots does not count as a wait.
        """
        is_same = ~commit.is_unknown & ~commit.has_changed(seen)
        goes_on = is_same & (self.since_ms != NONE)
        is_unread = seen.has_unread
        went_on = ~commit.is_unknown & (seen.committed > commit.offset)
        lasted = np.where(self.since_ms != NONE, np.maximum(commit.seen_ms - self.since_ms, 0), 0)
        share = 0.5 ** (self.passed_ms(seen) / HALF_LIFE_MS)
        longest, second = two_longest(self.longest_ms, self.second_ms, share, lasted)
        return Waits(
            since_ms=np.where(is_unread, np.where(goes_on, self.since_ms, seen.at_ms), NONE),
            snapshots=np.where(is_unread, is_same + np.where(goes_on, self.snapshots, 0), NONE),
            end=np.where(is_unread, np.where(goes_on, self.end, seen.end), NONE),
            longest_ms=np.where(went_on, longest, self.longest_ms),
            second_ms=np.where(went_on, second, self.second_ms),
            ended_ms=np.where(went_on, seen.at_ms, self.ended_ms),
        )

    def passed_ms(self, seen: Observation) -> Ints:
        """How long ago the last wait ended; 0 if none has."""
        return np.where(self.ended_ms != NONE, np.maximum(seen.at_ms - self.ended_ms, 0), 0)

    def age_at_beginning(self, seen: Observation) -> Ints:
        """The age at the first snapshot of the wait, because between commits the age grows only with time."""
        is_waiting = (seen.age_ms != NONE) & (self.since_ms != NONE)
        return np.where(is_waiting, seen.age_ms - np.where(is_waiting, seen.at_ms - self.since_ms, 0), seen.age_ms)


def two_longest(longest: Ints, second: Ints, share: Floats, another: Ints) -> tuple[Ints, Ints]:
    """The two longest of three, after the two former ones have become shorter. NONE is shorter than all."""
    longest, second = (
        np.where(size != NONE, (np.maximum(size, 0) * share).astype(np.int64), NONE) for size in (longest, second)
    )
    return np.maximum(longest, another), np.maximum(second, np.minimum(longest, another))
