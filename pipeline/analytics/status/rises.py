"""How far the age of a reader's oldest unread record has risen, and how far it usually does.

A reader that keeps up has an age that rises and falls again. A rise begins at the lowest age, and ends when the age has
fallen by half of it or more: a smaller fall may be random. While a reader waits, its age grows with time alone. So only
the age at the beginning of each wait counts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pipeline.analytics.arrow_series import NONE, Bools, Ints
from pipeline.analytics.remembered import Remembered
from pipeline.analytics.status.commit import Commit
from pipeline.analytics.status.observation import Observation
from pipeline.analytics.status.waits import HALF_LIFE_MS, Waits, two_longest

RISE_HALF_LIFE_MS = 4 * HALF_LIFE_MS
"""A rise counts half after four weeks, so that what happens each Monday is usual from the third on. A usual rise never
counts more than the window (`rules.is_falling_behind`), so none is remembered at the cost of a late warning."""


@dataclass(frozen=True)
class Rise(Remembered):
    """The present rise of the age, and the two greatest ones. All ages and lags are those at the beginning of waits.

    begun_ms, from_age: when it began, and from which age. to_age, to_ms, to_lag: the highest age since then, when that
    was, and the lag. snapshots: how many snapshots have shown an age above all before them. most_lag: the highest lag
    since then. longest, second: by how much the age has risen in the two greatest rises that have ended, halved for
    each four weeks.
    """

    begun_ms: Ints
    from_age: Ints
    to_age: Ints
    to_ms: Ints
    to_lag: Ints
    snapshots: Ints
    most_lag: Ints
    longest: Ints
    second: Ints

    def step(self, commit: Commit, before: Waits, waits: Waits, seen: Observation) -> Rise:
        """The rise after a snapshot, with the waits before and after it.

        An age that is not known changes nothing, except that the greatest rises fade if the commit has moved.
        """
        age_ms = waits.age_at_beginning(seen)
        fallen = self._has_fallen(age_ms)
        shows = (age_ms != NONE) & (commit.is_unknown | commit.has_changed(seen) | (waits.end == NONE))
        begins, rose = self._steps(commit, seen, shows, age_ms, fallen)
        lag = np.where(waits.end != NONE, waits.end - seen.committed, 0)
        grows = shows & ~begins
        longest, second = self._greatest(commit, before, seen, fallen)
        return Rise(
            begun_ms=np.where(begins, seen.at_ms, self.begun_ms),
            from_age=np.where(begins, age_ms, self.from_age),
            to_age=np.where(begins | rose, age_ms, self.to_age),
            to_ms=np.where(begins | rose, seen.at_ms, self.to_ms),
            to_lag=np.where(begins | rose, lag, self.to_lag),
            snapshots=np.where(begins, 0, self.snapshots + rose),
            most_lag=np.where(begins, lag, np.where(grows, np.maximum(self.most_lag, lag), self.most_lag)),
            longest=longest,
            second=second,
        )

    def _greatest(self, commit: Commit, before: Waits, seen: Observation, fallen: Bools) -> tuple[Ints, Ints]:
        """The two greatest rises, with the one that ends if the commit has moved."""
        went_on = ~commit.is_unknown & (seen.committed > commit.offset)
        share = 0.5 ** (before.passed_ms(seen) / RISE_HALF_LIFE_MS)
        ended = np.where(fallen, self.to_age - np.where(fallen, self.from_age, 0), NONE)
        longest, second = two_longest(self.longest, self.second, share, ended)
        return np.where(went_on, longest, self.longest), np.where(went_on, second, self.second)

    def _steps(
        self, commit: Commit, seen: Observation, shows: Bools, age_ms: Ints, fallen: Bools
    ) -> tuple[Bools, Bools]:
        """Whether a rise begins with a snapshot that shows a new age, and whether the present one goes further.

        While a reader reads, however slowly, its age rises by no more than the time that passes. If it has risen by
        more than twice that, the reader had stopped or was set back, and has not read slowly: a rise begins at the new
        age.
        """
        goes_on = shows & (self.from_age != NONE)
        further_ms = np.where(goes_on, age_ms - np.where(goes_on, self.to_age, 0), 0)
        has_jumped = further_ms > 2 * np.where(goes_on, seen.at_ms - commit.seen_ms, 0)
        begins = shows & (~goes_on | fallen | has_jumped)
        return begins, goes_on & ~begins & (further_ms > 0)

    def _has_fallen(self, age_ms: Ints) -> Bools:
        """Whether a rise ends: the age is back, or has fallen by half of its rise and by more than it usually rises."""
        is_known = (self.from_age != NONE) & (age_ms != NONE)
        size = np.where(is_known, self.to_age - np.where(is_known, self.from_age, 0), 0)
        fell = np.where(is_known, self.to_age - np.where(is_known, age_ms, 0), 0)
        falls = (2 * fell >= size) & (fell > np.maximum(self.second, 0))
        return np.asarray(is_known & ((age_ms <= self.from_age) | falls))
