"""How far the age of a reader's oldest unread record has risen, and how far it usually does.

A reader that keeps up has an age that rises and falls again. A rise begins at the lowest age, and ends when the age has
fallen by half of it or more: a smaller fall may be random. While a reader waits, its age grows with time alone. So only
the age at the beginning of each wait counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pipeline.analytics.arrow_series import NONE

if TYPE_CHECKING:
    from pipeline.analytics.arrow_series import Ints
    from pipeline.analytics.status.memory import Bools, Memory, Observation


def present_rise(
    old: Memory, seen: Observation, first: Bools, age_ms: Ints, waiting_end: Ints, fallen: Bools
) -> dict[str, Ints]:
    """The rise that goes on after a snapshot: the fields of `Memory` for it.

    age_ms: the age at the beginning of the wait. waiting_end: the log's end at that time, NONE if nothing is unread.
    fallen: `has_fallen`. An age that is not known changes nothing.
    """
    shows = (age_ms != NONE) & (first | (seen.committed != old.committed) | (waiting_end == NONE))
    begins, rose = _steps(old, seen, shows, age_ms, fallen)
    lag = np.where(waiting_end != NONE, waiting_end - seen.committed, 0)
    grows = shows & ~begins
    return {
        "rise_ms": np.where(begins, seen.at_ms, old.rise_ms),
        "rise_from": np.where(begins, age_ms, old.rise_from),
        "rise_to": np.where(begins | rose, age_ms, old.rise_to),
        "rise_to_ms": np.where(begins | rose, seen.at_ms, old.rise_to_ms),
        "rise_snapshots": np.where(begins, 0, old.rise_snapshots + rose),
        "rise_to_lag": np.where(begins | rose, lag, old.rise_to_lag),
        "rise_lag": np.where(begins, lag, np.where(grows, np.maximum(old.rise_lag, lag), old.rise_lag)),
    }


def ended_rise(old: Memory, fallen: Bools) -> Ints:
    """By how much the age has risen in the rise that ends with this commit; NONE if none does."""
    return np.where(fallen, old.rise_to - np.where(fallen, old.rise_from, 0), NONE)


def _steps(old: Memory, seen: Observation, shows: Bools, age_ms: Ints, fallen: Bools) -> tuple[Bools, Bools]:
    """Whether a rise begins with a snapshot that shows a new age, and whether the present one goes further.

    While a reader reads, however slowly, its age rises by no more than the time that passes. If it has risen by more
    than twice that, the reader had stopped or was set back, and has not read slowly: a rise begins at the new age.
    """
    goes_on = shows & (old.rise_from != NONE)
    further_ms = np.where(goes_on, age_ms - np.where(goes_on, old.rise_to, 0), 0)
    has_jumped = further_ms > 2 * np.where(goes_on, seen.at_ms - old.seen_ms, 0)
    begins = shows & (~goes_on | fallen | has_jumped)
    return begins, goes_on & ~begins & (further_ms > 0)


def has_fallen(old: Memory, age_ms: Ints) -> Bools:
    """Whether a rise ends: the age is back, or has fallen by half of its rise and by more than it usually rises."""
    is_known = (old.rise_from != NONE) & (age_ms != NONE)
    size = np.where(is_known, old.rise_to - np.where(is_known, old.rise_from, 0), 0)
    fell = np.where(is_known, old.rise_to - np.where(is_known, age_ms, 0), 0)
    falls = (2 * fell >= size) & (fell > np.maximum(old.second_rise, 0))
    return np.asarray(is_known & ((age_ms <= old.rise_from) | falls))
