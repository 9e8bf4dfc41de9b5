"""What is remembered about readers from one snapshot to the next, and how a snapshot changes it.

A reader is a group at a partition. All arrays are numpy arrays with one element for each reader; unknown integers are
NONE. Only the previous snapshot's memory is read, so a judgement costs the same after a year.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np
import numpy.typing as npt

from pipeline.analytics.arrow_series import NONE, Ints
from pipeline.analytics.status.resets import commit_in_log, epochs, is_reset, read_up_to, skipped
from pipeline.analytics.status.rises import ended_rise, has_fallen, present_rise
from pipeline.common.epoch import DAY_MS

Bools = npt.NDArray[np.bool_]
_Floats = npt.NDArray[np.float64]

HALF_LIFE_MS = 7 * DAY_MS
"""After a week, a wait counts half, because what is usual for a reader may have changed."""
RISE_HALF_LIFE_MS = 4 * HALF_LIFE_MS
"""A rise counts half after four weeks, so that what happens each Monday is usual from the third on. A usual rise never
counts more than the window (`rules.is_falling_behind`), so none is remembered at the cost of a late warning."""


@dataclass(frozen=True)
class Observation:
    """What one snapshot shows of readers. Every value but at_ms and is_new may be NONE, which means not known.

    at_ms: when the commit was read. topic: a hash of the topic's id. committed: the committed offset. end: the high
    watermark. lag: the consumer lag. age_ms: the age of the oldest record that is not committed. is_new: the topic was
    recreated, or the log was truncated below the commit, so the offsets belong to another log than before.
    has_members: 1 or 0. has_epoch: whether a leader epoch is stored with the commit, 1 or 0. log_start: the first
    offset of the log. position_bytes: where the commit is in the log, in bytes from where its ruler begins. How far it
    is from one commit to a later one is off by at most error_since of the first and error_until of the second.
    unread_markers: how many offsets of the lag are transaction markers.
    """

    at_ms: Ints
    topic: Ints
    committed: Ints
    end: Ints
    lag: Ints
    age_ms: Ints
    is_new: Bools
    has_members: Ints
    has_epoch: Ints
    log_start: Ints
    position_bytes: Ints
    error_since: Ints
    error_until: Ints
    unread_markers: Ints

    @property
    def has_unread(self) -> Bools:
        """Whether a record may be unread: there is a lag, and it is not known to be transaction markers alone."""
        return np.asarray(self.lag > np.maximum(self.unread_markers, 0))

    @property
    def is_known(self) -> Bools:
        """Whether the snapshot shows enough to judge progress."""
        return np.asarray((self.committed != NONE) & (self.end != NONE) & (self.lag != NONE))


@dataclass
class Memory:
    """What is known about readers after a snapshot. All values are NONE for a reader that was never seen.

    seen_ms, topic, committed: the newest known commit: when it was read, the hash of its topic's id, and its offset.
    waiting_ms: since when the commit has been the same although records are unread; NONE if nothing is unread.
    waiting_snapshots: how many snapshots show that the commit stays the same. waiting_end: the log's end at waiting_ms.
    longest_ms, second_ms: the two longest waits that have ended, halved for each week that has passed, as of waits_ms.
    set_back_from: the offset that was committed before the commit went back at set_back_ms; NONE if it did not go back,
    or has reached this offset again. set_back_snapshots: how many snapshots since then show this.
    moved_ms: when the newest known commit was first seen.
    rise_ms, rise_from: when the present rise of the age began, and from which age. rise_to_ms, rise_to, rise_to_lag:
    when the age was highest since then, that age, and the lag. rise_snapshots: how many snapshots have shown an age
    above all before them. rise_lag: the highest lag since then. longest_rise, second_rise: by how much the age has
    risen in the two greatest rises that have ended, halved for each four weeks. These ages and lags are those at the
    beginning of waits.
    plain_ms: when the newest commit without a leader epoch that was no reset was first seen. epochs: how many different
    commits of members with an epoch were seen since, at most as many as matter. is_empty: 1 if there were no members.
    next_written_ms, position_bytes, position_error: of a group without members, when the first record was written that
    is not committed, and where its commit is in the log (position_error is error_since of `Observation`).
    reset_ms: when the commit was last reset by a tool. reset_from: what the group had committed itself before that.
    skip_ms: when a reset skipped records. skip_from, skip_to: the offsets of those that can still be read again.
    skip_written_ms: when the first of them was written. skip_bytes, skip_error: how many bytes they have, only in the
    snapshot of the reset.
    beyond_end: if the newest known commit is beyond the end of the log, this end.
    """

    seen_ms: Ints
    topic: Ints
    committed: Ints
    waiting_ms: Ints
    waiting_snapshots: Ints
    waiting_end: Ints
    longest_ms: Ints
    second_ms: Ints
    waits_ms: Ints
    set_back_from: Ints
    set_back_ms: Ints
    set_back_snapshots: Ints
    rise_ms: Ints
    rise_from: Ints
    rise_to: Ints
    rise_to_ms: Ints
    rise_to_lag: Ints
    rise_snapshots: Ints
    rise_lag: Ints
    longest_rise: Ints
    second_rise: Ints
    moved_ms: Ints
    plain_ms: Ints
    epochs: Ints
    is_empty: Ints
    next_written_ms: Ints
    position_bytes: Ints
    position_error: Ints
    reset_ms: Ints
    reset_from: Ints
    skip_ms: Ints
    skip_from: Ints
    skip_to: Ints
    skip_written_ms: Ints
    skip_bytes: Ints
    skip_error: Ints
    beyond_end: Ints
    """Values that few readers have come last: what is NONE at the end of a row is not stored."""

    @classmethod
    def empty(cls, readers: int) -> Memory:
        """The memory of readers that were never seen."""
        return cls.of_rows(np.full((readers, cls.width()), NONE))

    @classmethod
    def width(cls) -> int:
        """How many numbers are kept for each reader."""
        return len(fields(cls))

    @classmethod
    def place(cls, name: str) -> int:
        """Where the number of a field is in a row."""
        return [f.name for f in fields(cls)].index(name)

    @classmethod
    def of_rows(cls, rows: Ints) -> Memory:
        """The memory from an array with a row for each reader, as `rows` returns it."""
        return cls(*rows.T)

    def rows(self) -> Ints:
        """The memory as an array with a row for each reader."""
        return np.column_stack([getattr(self, f.name) for f in fields(self)])


def after(before: Memory, seen: Observation, window_ms: int, markers: int) -> Memory:
    """The memory after one more snapshot; unchanged if the snapshot has no lag, or was read before the previous one.

    Only that the group may have had members is also remembered of a snapshot without lag.

    `markers`: how many offsets may be transaction markers, which nobody reads.
    """
    is_other = (seen.topic != NONE) & (before.topic != NONE) & (seen.topic != before.topic)
    # A commit that belongs to another log stays until the group commits again, but the memory is reset only once.
    is_new = seen.is_new & (seen.committed != before.committed)
    old = _chosen(is_new | is_other, Memory.empty(len(seen.at_ms)), before)
    first = old.committed == NONE
    waiting = _waiting(old, seen, first)
    age_ms = _age_at_commit(seen, waiting["waiting_ms"])
    fallen, reset = has_fallen(old, age_ms), is_reset(old, seen, first)
    found = Memory(
        seen_ms=seen.at_ms,
        topic=np.where(seen.topic != NONE, seen.topic, old.topic),
        committed=seen.committed,
        **waiting,
        **_usual(old, seen, first, fallen),
        **_set_back(old, seen, first, window_ms),
        **present_rise(old, seen, first, age_ms, waiting["waiting_end"], fallen),
        moved_ms=np.where((seen.committed == old.committed) & (old.moved_ms != NONE), old.moved_ms, seen.at_ms),
        **epochs(old, seen, first, reset),
        **commit_in_log(seen),
        **skipped(old, seen, reset, markers),
        beyond_end=np.where((seen.committed != NONE) & (seen.committed > seen.end), seen.end, NONE),
    )
    may_have_members = (seen.has_members != 0) & (seen.at_ms > old.seen_ms)
    old = replace(old, is_empty=np.where(may_have_members, NONE, old.is_empty))
    return _chosen(seen.is_known & (seen.at_ms > old.seen_ms), found, old)


def _chosen(condition: Bools, yes: Memory, no: Memory) -> Memory:
    return Memory(*(np.where(condition, getattr(yes, f.name), getattr(no, f.name)) for f in fields(Memory)))


def _waiting(old: Memory, seen: Observation, first: Bools) -> dict[str, Ints]:
    """The waits so far: one begins at the first snapshot with unread records, and again when the commit changes."""
    is_same = ~first & (seen.committed == old.committed)
    goes_on = is_same & (old.waiting_ms != NONE)
    is_unread = seen.has_unread
    return {
        "waiting_ms": np.where(is_unread, np.where(goes_on, old.waiting_ms, seen.at_ms), NONE),
        "waiting_snapshots": np.where(is_unread, is_same + np.where(goes_on, old.waiting_snapshots, 0), NONE),
        "waiting_end": np.where(is_unread, np.where(goes_on, old.waiting_end, seen.end), NONE),
    }


def _usual(old: Memory, seen: Observation, first: Bools, fallen: Bools) -> dict[str, Ints]:
    """The two longest waits and rises, with those that end if the commit has moved.

    A gap between snapshots does not count as a wait.
    """
    went_on = ~first & (seen.committed > old.committed)
    lasted = np.where(old.waiting_ms != NONE, np.maximum(old.seen_ms - old.waiting_ms, 0), 0)
    passed = np.where(old.waits_ms != NONE, np.maximum(seen.at_ms - old.waits_ms, 0), 0)
    longest, second = _two_longest(old.longest_ms, old.second_ms, 0.5 ** (passed / HALF_LIFE_MS), lasted)
    rises_share, ended = 0.5 ** (passed / RISE_HALF_LIFE_MS), ended_rise(old, fallen)
    longest_rise, second_rise = _two_longest(old.longest_rise, old.second_rise, rises_share, ended)
    return {
        "longest_ms": np.where(went_on, longest, old.longest_ms),
        "second_ms": np.where(went_on, second, old.second_ms),
        "waits_ms": np.where(went_on, seen.at_ms, old.waits_ms),
        "longest_rise": np.where(went_on, longest_rise, old.longest_rise),
        "second_rise": np.where(went_on, second_rise, old.second_rise),
    }


def _two_longest(longest: Ints, second: Ints, share: _Floats, another: Ints) -> tuple[Ints, Ints]:
    """The two longest of three, after the two former ones have become shorter. NONE is shorter than all."""
    longest, second = (
        np.where(size != NONE, (np.maximum(size, 0) * share).astype(np.int64), NONE) for size in (longest, second)
    )
    return np.maximum(longest, another), np.maximum(second, np.minimum(longest, another))


def _set_back(old: Memory, seen: Observation, first: Bools, window_ms: int) -> dict[str, Ints]:
    before = read_up_to(old, seen)  # a commit that goes back to records that a reset has skipped is not rewound
    # A commit beyond the end was made in another log. In this one, the group has read up to the end at most.
    before = np.where(old.beyond_end != NONE, np.minimum(before, old.beyond_end), before)
    went_back = ~first & (seen.committed < old.committed) & (seen.committed < before)
    is_new = went_back & (old.set_back_from == NONE)
    since = np.where(is_new, seen.at_ms, old.set_back_ms)
    start = np.where(is_new, before, old.set_back_from)
    passed = seen.at_ms - np.where(since != NONE, since, seen.at_ms)
    lasts = (start != NONE) & (seen.committed < start) & (passed <= window_ms)
    return {
        "set_back_from": np.where(lasts, start, NONE),
        "set_back_ms": np.where(lasts, since, NONE),
        "set_back_snapshots": np.where(lasts, np.where(is_new, 1, old.set_back_snapshots + 1), NONE),
    }


def _age_at_commit(seen: Observation, waiting_ms: Ints) -> Ints:
    """The age at the first snapshot of the wait, because between commits the age grows only with time."""
    is_waiting = (seen.age_ms != NONE) & (waiting_ms != NONE)
    return np.where(is_waiting, seen.age_ms - np.where(is_waiting, seen.at_ms - waiting_ms, 0), seen.age_ms)
