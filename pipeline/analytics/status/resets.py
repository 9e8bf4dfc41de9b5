"""Commits that were reset by a tool or an admin client, as far as leader epochs show it, and what a reset skips.

A consumer stores with its commit the leader epoch of the last record that it has read (KIP-320): Java's
`SubscriptionState.allConsumed`, librdkafka from 2.1, kafka-python from 3. `kafka-consumer-groups --reset-offsets` and
an admin client store none (`new OffsetAndMetadata(offset)`). An application that commits explicit offsets stores none
either, so a commit without an epoch proves nothing by itself. `is_reset` says what else must be true.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pipeline.analytics.arrow_series import NONE, Bools, Ints
from pipeline.analytics.remembered import Remembered
from pipeline.analytics.status.commit import Commit
from pipeline.analytics.status.observation import Observation
from pipeline.common.epoch import DAY_MS, HOUR_MS

FEWEST_EPOCHS = 3
"""How many different commits with an epoch must have been seen of the members of a group, one after the other."""
PLAIN_MS = 7 * DAY_MS
"""For so long after a commit without an epoch that was no reset, the application may commit so again."""
APART_MS = 2 * HOUR_MS
"""Between snapshots that are further apart, a group may have had members and changed its client."""
LASTS_MS = DAY_MS
"""For how long skipped records are remembered."""


@dataclass(frozen=True)
class Resets(Remembered):
    """Whether a group stores leader epochs, and what the newest reset has skipped.

    plain_ms: when the newest commit without a leader epoch that was no reset was first seen. epochs: how many different
    commits of members with an epoch were seen since, at most as many as matter. is_empty: 1 if there were no members.
    next_written_ms, position_bytes, position_error: of a group without members, when the first record was written that
    is not committed, and where its commit is in the log (position_error is error_since of `Observation`).
    reset_ms: when the commit was last reset by a tool. reset_from: what the group had committed itself before that.
    skip_ms: when a reset skipped records. skip_from, skip_to: the offsets of those that can still be read again.
    skip_written_ms: when the first of them was written. skip_bytes, skip_error: how many bytes they have, only in the
    snapshot of the reset.
    """

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

    def step(self, commit: Commit, seen: Observation, markers: int) -> Resets:
        """The resets after a snapshot. `markers`: how many offsets may be transaction markers, which nobody reads."""
        reset = is_reset(self, commit, seen)
        return Resets(
            **_epochs(self, commit, seen, reset), **_commit_in_log(seen), **_skipped(self, commit, seen, reset, markers)
        )


def is_reset(old: Resets, commit: Commit, seen: Observation) -> Bools:
    """Whether the commit of this snapshot was made by a tool or an admin client.

    The reader has always stored an epoch, and this commit has another offset and none. In this snapshot and in the one
    before it, the group had no members, which is when Kafka accepts a reset. After a reset, so is another one that goes
    back before the group commits again: people correct themselves. One that goes further ahead is not a reset, because
    tools that copy offsets from another cluster, such as MirrorMaker, do so again and again. Nor is one after which the
    commit before is below log start: a consumer that ran in between would have begun where auto.offset.reset says, and
    until it has read a record, it stores no epoch either.
    """
    is_alone = (seen.has_members == 0) & (old.is_empty == 1) & (seen.at_ms - _or_now(commit.seen_ms, seen) <= APART_MS)
    is_other = ~commit.is_unknown & commit.has_changed(seen) & (seen.has_epoch == 0)
    has_always = (old.epochs >= FEWEST_EPOCHS) & ~_is_within(PLAIN_MS, old.plain_ms, seen)
    corrects = _was_reset(old, commit, seen) & (seen.committed < commit.offset)
    is_in_log = commit.offset >= seen.log_start
    return np.asarray(is_alone & is_other & is_in_log & (has_always | corrects))


def read_up_to(old: Resets, commit: Commit, seen: Observation) -> Ints:
    """The offset that the group had committed itself: before the resets, if its commit was reset."""
    return np.where(_was_reset(old, commit, seen), old.reset_from, commit.offset)


def _was_reset(old: Resets, commit: Commit, seen: Observation) -> Bools:
    """Whether the newest known commit is one of a tool, not long ago."""
    return np.asarray(_is_within(LASTS_MS, old.reset_ms, seen) & (old.reset_ms == commit.moved_ms))


def _is_new(old: Resets, commit: Commit, seen: Observation) -> Bools:
    """Whether the commit is another one, or the snapshot before could not show that it has no epoch.

    That is only known while the group has no members. If it was known to be a reset, no snapshot has to show it again.
    """
    was_hidden = (old.is_empty != 1) & ~_was_reset(old, commit, seen)
    return np.asarray(commit.has_changed(seen) | was_hidden)


def _epochs(old: Resets, commit: Commit, seen: Observation, reset: Bools) -> dict[str, Ints]:
    """Whether the application commits with epochs: plain_ms, epochs and is_empty.

    If it is not known whether a new commit has an epoch, counting begins again. Commits of a group without members do
    not count, because a consumer may commit without being a member, and its commits look like resets.
    """
    is_other = commit.is_unknown | commit.has_changed(seen)
    has, is_plain = seen.has_epoch == 1, seen.has_epoch == 0
    known = np.maximum(old.epochs, 0)
    counts = has & (seen.has_members == 1) & (is_other | (known == 0))
    more = np.where(counts, np.minimum(known + 1, FEWEST_EPOCHS), known)
    is_lost = is_plain & ~reset & (_is_new(old, commit, seen) | (old.epochs > 0))
    return {
        "plain_ms": np.where(is_lost, seen.at_ms, old.plain_ms),
        "epochs": np.where(is_plain | (is_other & ~has), 0, more),
        "is_empty": np.where(seen.has_members == 0, 1, NONE),
    }


def _commit_in_log(seen: Observation) -> dict[str, Ints]:
    """Where the commit of a group without members is in its log: when the next record was written, and its bytes."""
    is_empty = seen.has_members == 0
    has_age = is_empty & (seen.age_ms != NONE) & seen.has_unread
    has_bytes = is_empty & (seen.position_bytes != NONE) & (seen.error_since != NONE)
    return {
        "next_written_ms": np.where(has_age, seen.at_ms - np.where(has_age, seen.age_ms, 0), NONE),
        "position_bytes": np.where(has_bytes, seen.position_bytes, NONE),
        "position_error": np.where(has_bytes, seen.error_since, NONE),
    }


def _skipped(old: Resets, commit: Commit, seen: Observation, reset: Bools, markers: int) -> dict[str, Ints]:
    """The newest reset, and what it has skipped: NONE if nothing, and as soon as nothing of it can be read again.

    Records that retention has deleted, and those from an offset on to which the commit goes back, are left out.
    """
    # Almost no reader was ever reset, so only those that were are computed.
    at = np.flatnonzero(reset | (old.reset_ms != NONE) | (old.skip_ms != NONE))
    found = _skipped_by_some(old.take(at), commit.take(at), seen.take(at), reset[at], markers)
    return {name: _put(values, at, len(reset)) for name, values in found.items()}


def _skipped_by_some(old: Resets, commit: Commit, seen: Observation, reset: Bools, markers: int) -> dict[str, Ints]:
    was_reset = _was_reset(old, commit, seen)
    is_further = (old.skip_to != NONE) & (seen.committed > old.skip_to) & _is_new(old, commit, seen)
    is_copied = is_further & (seen.has_epoch == 0) & (old.epochs <= 0)  # the group has not run since the reset
    lasts = _is_within(LASTS_MS, old.skip_ms, seen) & (~reset | was_reset) & ~is_copied
    begins = reset & ~lasts
    begin = np.where(reset, read_up_to(old, commit, seen), np.where(lasts, old.skip_from, NONE))
    end = np.where(reset, seen.committed, np.where(lasts, np.minimum(old.skip_to, seen.committed), NONE))
    start = np.maximum(begin, seen.log_start)
    remains = (end != NONE) & (np.where(end != NONE, end, 0) - np.where(start != NONE, start, 0) > markers)
    is_whole = remains & (start == begin)
    has_bytes = begins & is_whole & ~was_reset & (old.position_bytes != NONE)
    # A ruler that began anew counts from another start. Where that shows, the bytes are not known.
    has_bytes &= (seen.position_bytes > old.position_bytes) & (seen.error_until != NONE)
    written_ms = np.where(begins, np.where(was_reset, NONE, old.next_written_ms), old.skip_written_ms)
    is_recent = _is_within(LASTS_MS, old.reset_ms, seen)
    return {
        "reset_ms": np.where(reset, seen.at_ms, np.where(is_recent, old.reset_ms, NONE)),
        "reset_from": np.where(reset, begin, np.where(is_recent, old.reset_from, NONE)),
        "skip_ms": np.where(remains, np.where(begins, seen.at_ms, old.skip_ms), NONE),
        "skip_from": np.where(remains, start, NONE),
        "skip_to": np.where(remains, end, NONE),
        "skip_written_ms": np.where(is_whole, written_ms, NONE),
        "skip_bytes": _difference(has_bytes, seen.position_bytes, old.position_bytes),
        "skip_error": _difference(has_bytes, seen.error_until, -old.position_error),
    }


def _put(values: Ints, at: Ints, readers: int) -> Ints:
    """Values of some readers as those of all: NONE for the others."""
    found = np.full(readers, NONE)
    found[at] = values
    return found


def _is_within(time_ms: int, instants: Ints, seen: Observation) -> Bools:
    """Whether there is an instant, and it is no longer ago than this."""
    return np.asarray((instants != NONE) & (seen.at_ms - _or_now(instants, seen) <= time_ms))


def _or_now(values: Ints, seen: Observation) -> Ints:
    """The instants; where there is none, the present one, so that differences do not overflow."""
    return np.where(values != NONE, values, seen.at_ms)


def _difference(is_known: Bools, one: Ints, other: Ints) -> Ints:
    return np.where(is_known, np.where(is_known, one, 0) - np.where(is_known, other, 0), NONE)
