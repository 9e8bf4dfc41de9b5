"""What is remembered of readers from one snapshot to the next, and how a snapshot changes it.

A reader is a group at a partition. All arrays are numpy arrays with one element for each reader; unknown integers are
NONE. Nothing here looks back further than the previous snapshot, so a judgement costs the same after a year.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from pipeline.common.epoch import DAY_MS

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

NONE = np.iinfo(np.int64).min
FLOORS = 4
"""Thirds of the window of which the least age is kept: three that are over, and the one that goes on."""
HALF_LIFE_MS = 7 * DAY_MS
"""After a week, the length of a wait counts half, because what was usual then may not be usual any more."""


@dataclass(frozen=True)
class Look:
    """What one snapshot shows of readers.

    at_ms: when the commit was read. topic: a hash of the topic's id. committed, end (high watermark), lag: NONE where
    not known, as topic. age_ms: how old the oldest record is that is not committed; NONE where not known. is_new: the
    topic was recreated or the log cut off below the commit, so that its offsets are others than before.
    """

    at_ms: Ints
    topic: Ints
    committed: Ints
    end: Ints
    lag: Ints
    age_ms: Ints
    is_new: Bools

    @property
    def is_known(self) -> Bools:
        """Whether the snapshot shows enough to judge progress."""
        return np.asarray((self.committed != NONE) & (self.end != NONE) & (self.lag != NONE))


_WIDTHS = {"floor_ms": FLOORS, "floor_age": FLOORS}


@dataclass
class Memory:
    """What is known of readers after a snapshot. All values are NONE for a reader that was never seen.

    seen_ms, topic, committed: when the newest commit that is known was read, of which topic, and what it was.
    waiting_ms: the same commit, with records to read behind it, since then; NONE where nothing is unread.
    waiting_looks: snapshots since that show it. waiting_end: the log's end at waiting_ms.
    longest_ms, second_ms: the two longest waits that ended, each less by half for every week; as of waits_ms.
    set_back_from: what was committed before the commit went back at set_back_ms; NONE where it did not, or is there
    again. set_back_looks: snapshots since then that show it.
    floor_ms, floor_age: FLOORS columns, the newest last: when a third of the window began, and the least age in it, as
    of the first snapshot with the commit.
    """

    seen_ms: Ints
    topic: Ints
    committed: Ints
    waiting_ms: Ints
    waiting_looks: Ints
    waiting_end: Ints
    longest_ms: Ints
    second_ms: Ints
    waits_ms: Ints
    set_back_from: Ints
    set_back_ms: Ints
    set_back_looks: Ints
    floor_ms: Ints
    floor_age: Ints

    @classmethod
    def empty(cls, readers: int) -> Memory:
        """The memory of readers that were never seen."""
        return cls.of_rows(np.full((readers, cls.width()), NONE))

    @classmethod
    def width(cls) -> int:
        """How many numbers are kept for each reader."""
        return sum(_WIDTHS.get(f.name, 1) for f in fields(cls))

    @classmethod
    def of_rows(cls, rows: Ints) -> Memory:
        """The memory from an array with a row for each reader, as `rows` returns it."""
        ends = np.cumsum([_WIDTHS.get(f.name, 1) for f in fields(cls)])
        parts = zip(fields(cls), np.split(rows, ends[:-1], axis=1), strict=True)
        return cls(**{f.name: part if f.name in _WIDTHS else part[:, 0] for f, part in parts})

    def rows(self) -> Ints:
        """The memory as an array with a row for each reader."""
        return np.column_stack([getattr(self, f.name) for f in fields(self)])


def after(before: Memory, look: Look, window_ms: int) -> Memory:
    """The memory after one more snapshot; unchanged if the snapshot has no lag, or was read before the previous one."""
    is_other = (look.topic != NONE) & (before.topic != NONE) & (look.topic != before.topic)
    # A commit into another log than there is stays for as long as the group commits nothing: it begins anew only once.
    is_new = look.is_new & (look.committed != before.committed)
    old = _chosen(is_new | is_other, Memory.empty(len(look.at_ms)), before)
    first = old.committed == NONE
    waiting = _waiting(old, look, first)
    found = Memory(
        seen_ms=look.at_ms,
        topic=np.where(look.topic != NONE, look.topic, old.topic),
        committed=look.committed,
        **waiting,
        **_waits(old, look, first),
        **_set_back(old, look, first, window_ms),
        **_floors(old, look.at_ms, _age_at_commit(look, waiting["waiting_ms"]), window_ms),
    )
    return _chosen(look.is_known & (look.at_ms > old.seen_ms), found, old)


def _chosen(condition: Bools, yes: Memory, no: Memory) -> Memory:
    return Memory(**{f.name: _where(condition, getattr(yes, f.name), getattr(no, f.name)) for f in fields(Memory)})


def _where(condition: Bools, yes: Ints, no: Ints) -> Ints:
    return np.where(condition[:, None] if yes.ndim > 1 else condition, yes, no)


def _waiting(old: Memory, look: Look, first: Bools) -> dict[str, Ints]:
    """A wait begins with the first snapshot that shows unread records, and begins again when the commit changes."""
    goes_on = ~first & (look.committed == old.committed) & (old.waiting_ms != NONE)
    is_unread = look.lag > 0
    return {
        "waiting_ms": np.where(is_unread, np.where(goes_on, old.waiting_ms, look.at_ms), NONE),
        "waiting_looks": np.where(is_unread, np.where(goes_on, old.waiting_looks + 1, 0), NONE),
        "waiting_end": np.where(is_unread, np.where(goes_on, old.waiting_end, look.end), NONE),
    }


def _waits(old: Memory, look: Look, first: Bools) -> dict[str, Ints]:
    """How long the reader was seen to wait before its commit moved. A gap between snapshots is not counted."""
    went_on = ~first & (look.committed > old.committed)
    lasted = np.where(old.waiting_ms != NONE, np.maximum(old.seen_ms - old.waiting_ms, 0), 0)
    passed = np.where(old.waits_ms != NONE, np.maximum(look.at_ms - old.waits_ms, 0), 0)
    share = 0.5 ** (passed / HALF_LIFE_MS)
    longest, second = (
        np.where(wait != NONE, (np.maximum(wait, 0) * share).astype(np.int64), NONE)
        for wait in (old.longest_ms, old.second_ms)
    )
    return {
        "longest_ms": np.where(went_on, np.maximum(longest, lasted), old.longest_ms),
        "second_ms": np.where(went_on, np.maximum(second, np.minimum(longest, lasted)), old.second_ms),
        "waits_ms": np.where(went_on, look.at_ms, old.waits_ms),
    }


def _set_back(old: Memory, look: Look, first: Bools, window_ms: int) -> dict[str, Ints]:
    went_back = ~first & (look.committed < old.committed)
    is_new = went_back & (old.set_back_from == NONE)
    since = np.where(is_new, look.at_ms, old.set_back_ms)
    start = np.where(is_new, old.committed, old.set_back_from)
    passed = look.at_ms - np.where(since != NONE, since, look.at_ms)
    lasts = (start != NONE) & (look.committed < start) & (passed <= window_ms)
    return {
        "set_back_from": np.where(lasts, start, NONE),
        "set_back_ms": np.where(lasts, since, NONE),
        "set_back_looks": np.where(lasts, np.where(is_new, 1, old.set_back_looks + 1), NONE),
    }


def _age_at_commit(look: Look, waiting_ms: Ints) -> Ints:
    """The age as of the first snapshot that shows the commit: between commits it rises only as time passes."""
    is_waiting = (look.age_ms != NONE) & (waiting_ms != NONE)
    return np.where(is_waiting, look.age_ms - np.where(is_waiting, look.at_ms - waiting_ms, 0), look.age_ms)


def _floors(old: Memory, at_ms: Ints, age_ms: Ints, window_ms: int) -> dict[str, Ints]:
    """The least age in each third of the window; thirds without a snapshot are left out, as on a rare schedule.

    A third in which it was not known once is not known, as NONE is less than any age.
    """
    begins = at_ms - at_ms % (window_ms // 3)
    newest_ms, newest = old.floor_ms[:, -1], old.floor_age[:, -1]
    goes_on = (newest_ms != NONE) & (begins <= newest_ms)
    moved_ms = np.column_stack([old.floor_ms[:, 1:], begins])
    moved = np.column_stack([old.floor_age[:, 1:], age_ms])
    lower = np.column_stack([old.floor_age[:, :-1], np.minimum(newest, age_ms)])
    return {"floor_ms": _where(goes_on, old.floor_ms, moved_ms), "floor_age": _where(goes_on, lower, moved)}
