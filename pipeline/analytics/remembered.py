"""What is remembered of many series from one snapshot to the next, and how a batch of snapshots is followed.

A series is what the snapshots of a batch are followed for: a reader, or a group. Only the newest row
of each series before the batch is needed, so it costs the same after a year.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Self

import numpy as np

from pipeline.analytics.arrow_series import NONE, Bools, Ints


@dataclass(frozen=True)
class Remembered:
    """Numbers of many series: each field is an array with one number for each series. NONE means not known."""

    @classmethod
    def empty(cls, count: int) -> Self:
        """Of series that were never seen."""
        return cls.of_rows(np.full((count, cls.width()), NONE))

    @classmethod
    def width(cls) -> int:
        """How many numbers are kept for each series."""
        return len(fields(cls))

    @classmethod
    def of_rows(cls, rows: Ints) -> Self:
        """From an array with a row for each series, as `rows` returns it."""
        return cls(*rows.T)

    def columns(self) -> list[Ints]:
        """The numbers of each field, in the order of the fields."""
        return [getattr(self, field.name) for field in fields(self)]

    def rows(self) -> Ints:
        """The numbers as an array with a row for each series."""
        return np.column_stack(self.columns())

    def where(self, condition: Bools, other: Self) -> Self:
        """These where the condition holds, else the others."""
        pairs = zip(self.columns(), other.columns(), strict=True)
        return type(self)(*(np.where(condition, one, another) for one, another in pairs))

    def take(self, at: Ints) -> Self:
        """Those of some series, by their numbers."""
        return type(self)(*(values[at] for values in self.columns()))


def newest_of_each(rows: Ints, series: Ints, ids: Ints, count: int) -> tuple[Ints, Ints]:
    """What the newest row of each of `count` series remembers, and its snapshot; NONE for a series without a row.

    `rows` has a row of numbers for each row, `series` and `ids` say of which series and snapshot that is. If a series
    has several rows of a snapshot, the last one counts.
    """
    state, seen_at = np.full((count, rows.shape[1]), NONE), np.full(count, NONE)
    order = np.lexsort((ids, series))
    state[series[order]], seen_at[series[order]] = rows[order], ids[order]
    return state, seen_at


def followed(
    series: Ints, ids: Ints, before: tuple[Ints, Ints], reaches: Ints, step: Callable[[Ints, Ints], Ints]
) -> Ints:
    """What is remembered after each row of a batch: a row of numbers for each.

    The rows are in the order of `series` and snapshots (`ids`). All first rows of series are followed at once, then all
    second ones. `before` is that of `newest_of_each`. A series whose last snapshot is before `reaches` counts as new.
    `step` gets what is remembered before some rows, and which rows these are.
    """
    state, seen_at = before
    number = np.arange(len(series)) - np.searchsorted(series, series)
    states = np.full((len(series), state.shape[1]), NONE)
    for turn in range(number.max(initial=-1) + 1):
        at = np.flatnonzero(number == turn)
        of = series[at]
        earlier = state[of]
        earlier[seen_at[of] < reaches[at]] = NONE
        states[at] = step(earlier, at)
        state[of], seen_at[of] = states[at], ids[at]
    return states
