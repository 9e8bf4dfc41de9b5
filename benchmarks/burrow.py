"""Burrow's rules for a partition, as its caching evaluator applies them (core/internal/evaluator/caching.go)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

COMMITS = 10
"""`intervals`: how many commits are kept, and how many offsets of the broker."""


def is_bad(
    times_s: Sequence[float], offsets: Sequence[int], lags: Sequence[int], ends: Sequence[int], now_s: float
) -> bool:
    """Whether a partition is in STOP, REWIND, STALL or WARN.

    `times_s`, `offsets` and `lags` are those of its newest commits, each lag as it was at the commit. `ends` are the
    offsets of the broker that were polled last.
    """
    if ends[-1] <= offsets[-1]:
        return False
    if _is_stopped(times_s, offsets, ends, now_s) or _is_rewound(offsets):
        return True
    if min(lags) <= 0:
        return False
    is_stalled = len(set(offsets)) == 1
    return is_stalled or all(after >= before for before, after in pairwise(lags))


def _is_stopped(times_s: Sequence[float], offsets: Sequence[int], ends: Sequence[int], now_s: float) -> bool:
    return now_s - times_s[-1] > times_s[-1] - times_s[0] and offsets[-1] < min(ends)


def _is_rewound(offsets: Sequence[int]) -> bool:
    """Whether no later offset reaches the one from which the commits first went back."""
    for nth, (before, after) in enumerate(pairwise(offsets), 1):
        if after < before:
            return max(offsets[nth:]) < before
    return False
