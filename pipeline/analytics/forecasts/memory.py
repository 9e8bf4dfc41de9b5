"""What is remembered about the log ends and commits of groups from one snapshot to the next.

A series is a group at a topic, or a whole group. All arrays are numpy arrays with one row for each series; unknown
integers are NONE. Only the previous snapshot's memory is read, so a forecast costs the same after a year.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np

from pipeline.analytics.arrow_series import NONE, Bools, Ints
from pipeline.common.epoch import DAY_MS, HOUR_MS, MINUTE_MS

TIERS = ((10 * MINUTE_MS, MINUTE_MS), (70 * MINUTE_MS, 5 * MINUTE_MS), (27 * HOUR_MS, 3 * HOUR_MS))
"""Which samples are kept: up to each age, the first one in each cell of this length. Older ones are forgotten."""
SAMPLES = 40
"""The most samples that are kept: one in each cell, one more where a tier begins within a cell, and the newest."""
HALF_LIFE_MS = 7 * DAY_MS
"""After a week, the length of a wait counts half, because a group's usual waits may have changed."""
NEEDED = ("ends_ms", "log_ends", "commits_ms", "commits", "worst_lag")
IN_BYTES = ("log_end_bytes", "log_end_error_bytes", "commit_bytes", "commit_error_bytes")
OF_RETENTION = ("oldest_ms", "log_starts", "start_ms")
READINGS = (*NEEDED, *IN_BYTES, "oldest_ms")
"""What a sample consists of. There is no sample of a snapshot in which one of NEEDED is not known."""


@dataclass(frozen=True)
class Sums:
    """What one snapshot shows: sums over the partitions of each series. All but `identity` may be NONE = not known.

    ends_ms, commits_ms: when the ends of the logs and the commits were read. worst_lag: the greatest lag of a
    partition. identity: a hash of the partitions. log_end_bytes, commit_bytes: the ends and the commits as positions in
    bytes. log_end_error_bytes: the error of log_end_bytes, which only grows, because growth was estimated now and then.
    commit_error_bytes: the error of the bytes between the two. log_starts: the sum of the log starts. oldest_ms: the
    age of the oldest unread record, start_ms: when the first record of its log was written; both of the partition in
    which retention is nearest to the commit.
    """

    ends_ms: Ints
    log_ends: Ints
    commits_ms: Ints
    commits: Ints
    worst_lag: Ints
    lag: Ints
    identity: Ints
    log_end_bytes: Ints
    log_end_error_bytes: Ints
    commit_bytes: Ints
    commit_error_bytes: Ints
    oldest_ms: Ints
    log_starts: Ints
    start_ms: Ints

    @classmethod
    def in_records(cls, *known: Ints) -> Sums:
        """The sums of which only those in records are known, in the order of the fields."""
        nothing = np.full(len(known[0]), NONE)
        return cls(*known, *(nothing for _ in fields(cls)[len(known) :]))

    @property
    def is_known(self) -> Bools:
        """Whether all sums in records are known."""
        return np.asarray(np.logical_and.reduce([getattr(self, name) != NONE for name in (*NEEDED, "lag")]))


@dataclass(frozen=True)
class Memory:
    """What is known about series after a snapshot. All is NONE for a series that was never seen.

    identity: a hash of the partitions whose sums these are. waiting_ms: since when records are unread and the commits
    are the same; NONE if nothing is unread. longest_ms, second_ms: the two longest waits that have ended, halved for
    each week, as of waits_ms. log_starts, start_ms: as in `Sums`, when they were last known. least_age_ms, most_age_ms:
    the least and the greatest age at which records were deleted since since_ms, and in the time before that; see
    `_deleted_ages`. The READINGS are the samples, as in `Sums`: SAMPLES columns, the newest last.
    """

    identity: Ints
    waiting_ms: Ints
    longest_ms: Ints
    second_ms: Ints
    waits_ms: Ints
    log_starts: Ints
    start_ms: Ints
    since_ms: Ints
    least_age_ms: Ints
    most_age_ms: Ints
    least_age_before_ms: Ints
    most_age_before_ms: Ints
    ends_ms: Ints
    log_ends: Ints
    commits_ms: Ints
    commits: Ints
    worst_lag: Ints
    log_end_bytes: Ints
    log_end_error_bytes: Ints
    commit_bytes: Ints
    commit_error_bytes: Ints
    oldest_ms: Ints

    @classmethod
    def empty(cls, series: int) -> Memory:
        """The memory of series that were never seen."""
        return cls.of_rows(np.full((series, cls.width()), NONE))

    @classmethod
    def width(cls) -> int:
        """How many numbers are kept for each series at most."""
        return len(fields(cls)) - len(READINGS) + len(READINGS) * SAMPLES

    @classmethod
    def of_rows(cls, rows: Ints) -> Memory:
        """The memory from an array with a row for each series, as `rows` returns it."""
        heads = [f.name for f in fields(cls) if f.name not in READINGS]
        samples = rows[:, len(heads) :].reshape(len(rows), SAMPLES, len(READINGS))[:, ::-1]
        return cls(
            **{name: rows[:, number] for number, name in enumerate(heads)},
            **{name: samples[:, :, number] for number, name in enumerate(READINGS)},
        )

    def rows(self) -> Ints:
        """The memory as an array with a row for each series. The newest sample comes first, so NONE is at the end."""
        heads = [getattr(self, f.name) for f in fields(self) if f.name not in READINGS]
        samples = np.stack([getattr(self, name)[:, ::-1] for name in READINGS], axis=2)
        return np.column_stack([*heads, samples.reshape(len(samples), SAMPLES * len(READINGS))])

    def take(self, at: Ints) -> Memory:
        """The memory of some series, by their numbers."""
        return Memory(**{name: values[at] for name, values in vars(self).items()})

    def where(self, condition: Bools, other: Memory) -> Memory:
        """This memory where `condition` holds, else the other."""
        if condition.all():  # as nearly always; a memory is large
            return self
        if not condition.any():
            return other
        found = {}
        for name in (f.name for f in fields(self)):
            yes, no = getattr(self, name), getattr(other, name)
            found[name] = np.where(condition[:, None] if yes.ndim > 1 else condition, yes, no)
        return Memory(**found)


def after(before: Memory, seen: Sums) -> Memory:
    """The memory after one more snapshot; unchanged if a sum is not known, or was read before the newest sample.

    It begins anew with other partitions, as after a topic was recreated. If offsets went back, as after a reset, only
    the samples begin anew, because they say nothing about the speed.
    """
    is_other = (before.identity != NONE) & (before.identity != seen.identity)
    old = Memory.empty(len(seen.identity)).where(is_other, before)
    went_back = (seen.log_ends < old.log_ends[:, -1]) | (seen.commits < old.commits[:, -1])
    kept = {name: np.where(went_back[:, None], NONE, getattr(old, name)) for name in READINGS}
    longer = {name: np.column_stack([kept[name], getattr(seen, name)]) for name in READINGS}
    found = replace(old, identity=seen.identity, **_waits(old, seen), **_deleted_ages(old, seen), **_thinned(longer))
    is_new = seen.is_known & (seen.ends_ms > old.ends_ms[:, -1]) & (seen.commits_ms > old.commits_ms[:, -1])
    return found.where(is_new, before)


def _waits(old: Memory, seen: Sums) -> dict[str, Ints]:
    """The wait so far, and the two longest ones, with the one that ends if a commit has moved."""
    at_ms, has_moved = seen.ends_ms, seen.commits != old.commits[:, -1]
    goes_on = ~has_moved & (old.waiting_ms != NONE)
    waiting_ms = np.where(seen.lag > 0, np.where(goes_on, old.waiting_ms, at_ms), NONE)
    ended = has_moved & (old.commits[:, -1] != NONE)
    lasted = np.where(old.waiting_ms != NONE, np.maximum(at_ms - old.waiting_ms, 0), 0)
    passed = np.where(old.waits_ms != NONE, np.maximum(at_ms - old.waits_ms, 0), 0)
    share = 0.5 ** (passed / HALF_LIFE_MS)
    longest, second = (
        np.where(wait != NONE, (np.maximum(wait, 0) * share).astype(np.int64), 0)
        for wait in (old.longest_ms, old.second_ms)
    )
    return {
        "waiting_ms": waiting_ms,
        "longest_ms": np.where(ended, np.maximum(longest, lasted), old.longest_ms),
        "second_ms": np.where(ended, np.maximum(second, np.minimum(longest, lasted)), old.second_ms),
        "waits_ms": np.where(ended, at_ms, old.waits_ms),
    }


def _deleted_ages(old: Memory, seen: Sums) -> dict[str, Ints]:
    """How old records were when they were deleted: log start has moved, and the records before it are gone.

    The oldest of them was the first record before, and the youngest is as old as the first record now. The ages of a
    day, and those of the last day before it on which something was deleted, are kept. Nothing is learnt from a log to
    which nothing was written, because the age of its first record is not known if nothing is unread.
    """
    is_known = (seen.log_starts != NONE) & (seen.start_ms != NONE)
    has_written = (old.ends_ms[:, -1] != NONE) & (seen.log_ends > old.log_ends[:, -1])
    has_deleted = is_known & has_written & (old.log_starts != NONE) & (seen.log_starts > old.log_starts)
    is_new_day = has_deleted & ((old.since_ms == NONE) | (seen.ends_ms - np.maximum(old.since_ms, 0) >= DAY_MS))
    found = {
        "log_starts": np.where(is_known, seen.log_starts, old.log_starts),
        "start_ms": np.where(is_known, seen.start_ms, old.start_ms),
        "since_ms": np.where(is_new_day, seen.ends_ms, old.since_ms),
    }
    youngest, oldest = (seen.ends_ms - np.where(has_deleted, of.start_ms, 0) for of in (seen, old))
    for name, age, choose in (("least", youngest, np.minimum), ("most", oldest, np.maximum)):
        now, before = getattr(old, f"{name}_age_ms"), getattr(old, f"{name}_age_before_ms")
        chosen = np.where(is_new_day | (now == NONE), age, choose(now, age))
        found[f"{name}_age_ms"] = np.where(has_deleted, chosen, now)
        found[f"{name}_age_before_ms"] = np.where(is_new_day, now, before)
    return found


def _thinned(samples: dict[str, Ints]) -> dict[str, Ints]:
    """The first sample in each cell, and the newest; at most SAMPLES of them."""
    ends_ms = samples["ends_ms"]
    ages_ms = ends_ms[:, -1:] - ends_ms
    cell_ms = np.select([ages_ms < age_ms for age_ms, _ in TIERS], [each_ms for _, each_ms in TIERS], 0)
    is_kept = (ends_ms != NONE) & (cell_ms > 0)
    cell_ms = np.maximum(cell_ms, 1)
    before = np.column_stack([np.full(len(ends_ms), NONE), ends_ms[:, :-1]])
    is_kept &= (before == NONE) | (before // cell_ms != ends_ms // cell_ms)
    is_kept[:, -1] = True
    order = np.argsort(is_kept, axis=1, kind="stable")[:, -SAMPLES:]
    stays = np.take_along_axis(is_kept, order, axis=1)
    return {name: np.where(stays, np.take_along_axis(some, order, axis=1), NONE) for name, some in samples.items()}
