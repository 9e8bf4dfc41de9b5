"""What is remembered about readers from one snapshot to the next, and how a snapshot changes it."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from itertools import accumulate

import numpy as np

from pipeline.analytics.arrow_series import NONE, Bools, Ints
from pipeline.analytics.status.commit import Commit
from pipeline.analytics.status.observation import Observation
from pipeline.analytics.status.resets import Resets, read_up_to
from pipeline.analytics.status.rises import Rise
from pipeline.analytics.status.set_back import SetBack
from pipeline.analytics.status.waits import Waits


@dataclass(frozen=True)
class Memory:
    """What is known about readers after a snapshot. All is NONE for a reader that was never seen."""

    commit: Commit
    waits: Waits
    set_back: SetBack
    rise: Rise
    resets: Resets
    """The last part, because few readers have most of it: what is NONE at the end of a row is not stored."""

    @classmethod
    def empty(cls, count: int) -> Memory:
        """Of readers that were never seen."""
        return cls.of_rows(np.full((count, cls.width()), NONE))

    @classmethod
    def width(cls) -> int:
        """How many numbers are kept for each reader."""
        return _ENDS[-1]

    @classmethod
    def place(cls, name: str) -> int:
        """Where a field of `Resets` is in a row."""
        return _ENDS[-2] + [field.name for field in fields(Resets)].index(name)

    @classmethod
    def of_rows(cls, rows: Ints) -> Memory:
        """From an array with a row for each reader, as `rows` returns it."""
        commit, waits, set_back, rise, resets = np.split(rows, _ENDS[:-1], axis=1)
        return cls(
            Commit.of_rows(commit),
            Waits.of_rows(waits),
            SetBack.of_rows(set_back),
            Rise.of_rows(rise),
            Resets.of_rows(resets),
        )

    def columns(self) -> list[Ints]:
        """The numbers of each field of each part, in their order."""
        return [values for part in vars(self).values() for values in part.columns()]

    def rows(self) -> Ints:
        """All numbers as an array with a row for each reader."""
        return np.column_stack(self.columns())

    def where(self, condition: Bools, other: Memory) -> Memory:
        """This memory where the condition holds, else the other."""
        if condition.all():  # as nearly always
            return self
        if not condition.any():
            return other
        return Memory(
            self.commit.where(condition, other.commit),
            self.waits.where(condition, other.waits),
            self.set_back.where(condition, other.set_back),
            self.rise.where(condition, other.rise),
            self.resets.where(condition, other.resets),
        )


_ENDS = [*accumulate(part.width() for part in (Commit, Waits, SetBack, Rise, Resets))]
"""Where each part ends in a row, in the order of the fields of a memory."""


def after(before: Memory, seen: Observation, window_ms: int, markers: int) -> Memory:
    """The memory after one more snapshot; unchanged if the snapshot has no lag, or was read before the previous one.

    Of a snapshot without lag, one thing is remembered: that the group may have had members.

    `markers`: how many offsets may be transaction markers, which nobody reads.
    """
    commit = before.commit
    is_other = (seen.topic != NONE) & (commit.topic != NONE) & (seen.topic != commit.topic)
    # A commit that belongs to another log stays until the group commits again, but the memory is reset only once.
    is_new = seen.is_new & commit.has_changed(seen)
    old = Memory.empty(len(seen.at_ms)).where(is_new | is_other, before)
    commit, waits = old.commit, old.waits.step(old.commit, seen)
    found = Memory(
        commit=commit.step(seen),
        waits=waits,
        set_back=old.set_back.step(commit, read_up_to(old.resets, commit, seen), seen, window_ms),
        rise=old.rise.step(commit, old.waits, waits, seen),
        resets=old.resets.step(commit, seen, markers),
    )
    is_later = seen.at_ms > commit.seen_ms
    may_have_members = (seen.has_members != 0) & is_later
    resets = replace(old.resets, is_empty=np.where(may_have_members, NONE, old.resets.is_empty))
    return found.where(seen.is_known & is_later, replace(old, resets=resets))
