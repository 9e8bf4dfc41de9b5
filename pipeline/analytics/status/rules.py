"""The rules of `partition_status`: functions of the memory of readers and of what a snapshot shows of them.

They are Burrow's rules, adapted to snapshots. Whether a wait is long depends on the reader's usual waits, not on a
fixed window (Burrow issue 303). A group falls behind if the age of its oldest unread record keeps rising, however often
the group commits (Burrow issue 155). Its lag in records does not matter, because it varies with the write rate.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pipeline.analytics.arrow_series import NONE, Bools, Ints
from pipeline.analytics.status.memory import Memory
from pipeline.analytics.status.observation import Observation
from pipeline.config.status import StatusConfig

FEWEST_SNAPSHOTS = 3
"""How many snapshots must show that a commit does not move. With fewer, the reader may have moved in between."""
FEWEST_RISES = 4
"""In how many snapshots an age must have risen further. With fewer, it may be random."""


@dataclass(frozen=True)
class Judged:
    """The input of the rules, for each reader.

    stable_lag: the lag to the last stable offset. committed_at_ms: when the
    commit was made, NONE if not known.
    """

    seen: Observation
    memory: Memory
    stable_lag: Ints
    committed_at_ms: Ints
    is_not_committed: Bools
    settings: StatusConfig

    @property
    def waited_ms(self) -> Ints:
        """How long the reader has had the same commit while records are unread; 0 if it does not wait."""
        return np.where(self.memory.waits.since_ms != NONE, self.seen.at_ms - self.memory.waits.since_ms, 0)

    @property
    def usual_ms(self) -> Ints:
        """The usual wait: twice the second longest wait, at least the tolerance; the window until that is known."""
        usual = np.maximum(2 * np.maximum(self.memory.waits.second_ms, 0), self.settings.tolerance_ms)
        return np.where(self.memory.waits.second_ms != NONE, usual, self.settings.window_ms)

    @property
    def waits_long(self) -> Bools:
        """Whether the reader has waited for longer than its usual wait."""
        is_long = (self.waited_ms >= self.usual_ms) & (self.memory.waits.snapshots >= FEWEST_SNAPSHOTS)
        return np.asarray(self.seen.is_known & is_long)

    @property
    def exceeds_markers(self) -> Bools:
        """Whether more is unread than transaction markers, which no reader ever gets.

        If it is not known how many are unread, the last offsets of a log that has not grown may be markers.
        """
        may_exceed = (self.seen.lag > self.settings.markers) | self.has_grown
        return np.where(self.seen.unread_markers != NONE, self.seen.has_unread, may_exceed)

    @property
    def is_still(self) -> Bools:
        """Whether the reader has waited for longer than its usual wait, with more than markers unread."""
        return np.asarray(self.waits_long & self.exceeds_markers)

    @property
    def has_grown(self) -> Bools:
        """Whether the log has grown since the wait began."""
        return np.asarray((self.memory.waits.since_ms != NONE) & (self.seen.end > self.memory.waits.end))

    @property
    def is_hidden(self) -> Bools:
        """Whether an open transaction hides all unread records from a read_committed reader.

        A reader that commits the offset after each record stays before the marker of the transaction that came before.
        """
        shown = self.stable_lag
        return np.asarray((shown >= 0) & (shown <= self.settings.markers) & (self.seen.lag > shown))


def is_stopped(judged: Judged) -> Bools:
    """The log has grown since the wait began, and nothing was committed: by commit times, or because of no members."""
    no_commits = (judged.committed_at_ms != NONE) & (judged.committed_at_ms <= judged.memory.waits.since_ms)
    is_unknown = judged.committed_at_ms == NONE
    return np.asarray(judged.is_still & judged.has_grown & (no_commits | (is_unknown & (judged.seen.has_members == 0))))


def is_stalled(judged: Judged) -> Bools:
    """The group commits, but always the same offset."""
    return np.asarray(
        judged.is_still & (judged.committed_at_ms != NONE) & (judged.committed_at_ms > judged.memory.waits.since_ms)
    )


def is_not_progressing(judged: Judged) -> Bools:
    """The commit does not move, and it is not known whether the group commits. The group may have members."""
    return np.asarray(judged.is_still & (judged.committed_at_ms == NONE) & (judged.seen.has_members != 0))


def is_rewound(judged: Judged) -> Bools:
    """The commit went back, and at least one later snapshot shows that it is still behind its former offset."""
    return np.asarray(judged.seen.is_known & (judged.memory.set_back.snapshots >= 2))


def is_falling_behind(judged: Judged) -> Bools:
    """The commit moves, but the age has risen by more than is usual for the reader, and still rises.

    It must exceed what is usual by the tolerance. What is usual is twice the second longest rise that has ended, but at
    most the window. Until that is known, it is the tolerance, and the rise must last for the window. A group whose lag
    falls works off a burst: its oldest unread record gets older until the burst is read.
    """
    memory, settings = judged.memory, judged.settings
    is_known = judged.seen.is_known & (memory.rise.from_age != NONE)
    is_new = memory.rise.second == NONE
    rise_ms, lasted_ms, passed_ms = (
        np.where(is_known, till - np.where(is_known, since, 0), 0)
        for till, since in (
            (memory.rise.to_age, memory.rise.from_age),
            (memory.rise.to_ms, memory.rise.begun_ms),
            (judged.seen.at_ms, memory.rise.to_ms),
        )
    )
    usual_ms = np.where(is_new, settings.tolerance_ms, np.minimum(2 * memory.rise.second, settings.window_ms))
    is_unusual = rise_ms >= usual_ms + settings.tolerance_ms
    is_long = lasted_ms >= np.where(is_new, settings.window_ms, settings.window_ms // 6)
    is_seen = memory.rise.snapshots >= FEWEST_RISES
    goes_on = np.maximum(judged.waited_ms, passed_ms) < settings.window_ms // 3
    return np.asarray(is_known & is_unusual & is_long & is_seen & goes_on & ~_catches_up(judged))


def _catches_up(judged: Judged) -> Bools:
    """Whether the lag shrinks while the age still rises, or both fall by more than is random."""
    memory = judged.memory
    lag = np.where(memory.waits.since_ms != NONE, memory.waits.end - memory.commit.offset, 0)
    much = memory.rise.most_lag - np.maximum(memory.rise.most_lag, 0) // 20
    is_known = (memory.rise.from_age != NONE) & (judged.seen.age_ms != NONE)
    fell_ms = np.where(is_known, memory.rise.to_age - np.where(is_known, judged.seen.age_ms - judged.waited_ms, 0), 0)
    return np.asarray((memory.rise.to_lag < much) | ((lag < much) & (fell_ms > np.maximum(memory.rise.second, 0))))


def is_not_committed(judged: Judged) -> Bools:
    """The group has committed nothing in this partition."""
    return judged.is_not_committed


def is_unknown(judged: Judged) -> Bools:
    """It is not known what the lag is or whether the reader moves, or the commit was made in another log."""
    # Before offset 0, nothing can be read in any log.
    is_elsewhere = judged.seen.is_new & judged.seen.is_known & (judged.seen.committed != 0)
    return np.asarray((~judged.seen.is_known | is_elsewhere | is_untried(judged)) & ~judged.is_not_committed)


def is_untried(judged: Judged) -> Bools:
    """Records are unread, the commit was never seen to move, and the wait is not yet long enough to judge."""
    waits = (judged.memory.waits.since_ms != NONE) & judged.exceeds_markers & ~judged.waits_long
    return np.asarray(judged.seen.is_known & (judged.memory.waits.ended_ms == NONE) & waits)


OK, NOT_COMMITTED, FALLING_BEHIND = "ok", "not_committed", "warning"
WAITS = ("stopped", "stalled", "not_progressing")
"""The statuses of a reader that has waited too long."""
RULES: dict[str, Callable[[Judged], Bools]] = {
    **dict(zip(WAITS, (is_stopped, is_stalled, is_not_progressing), strict=True)),
    "rewound": is_rewound,
    FALLING_BEHIND: is_falling_behind,
    "unknown": is_unknown,
    NOT_COMMITTED: is_not_committed,
}
"""The rules, the worst status first. The first rule that holds gives the status."""
STATUSES = (*RULES, OK)


def statuses(judged: Judged) -> Ints:
    """The status of each reader, as its index in STATUSES."""
    found = np.full(len(judged.seen.at_ms), len(STATUSES) - 1)
    for number, rule in reversed([*enumerate(RULES.values())]):
        found[rule(judged)] = number
    return found


def begins(judged: Judged, status: Ints) -> Ints:
    """When a status began, if that was before the first snapshot with this status; else NONE."""
    waits = np.isin(status, [STATUSES.index(name) for name in WAITS])
    is_rewound = status == STATUSES.index("rewound")
    return np.where(waits, judged.memory.waits.since_ms, np.where(is_rewound, judged.memory.set_back.at_ms, NONE))


REASONS = (None, "open_transaction", "no_members", "transaction_marker", "too_few_snapshots", "offsets_reset")


def reasons(judged: Judged, status: Ints) -> Ints:
    """The reason for each status, as its index in REASONS.

    open_transaction: it hides all unread records from a read_committed reader. no_members: the group has no members;
    the status may still be ok if nothing was written since the wait began. transaction_marker: only transaction markers
    are left, which no reader ever gets. That is certain if unread_markers is known; if not, the reader has waited for
    long, and so few offsets are unread that all may be markers. too_few_snapshots: too few snapshots have seen the
    reader to show whether it moves. offsets_reset: the commit went back because a tool or an admin client has reset it.
    """
    is_ok, waits = status == len(STATUSES) - 1, np.isin(status, [0, 1, 2])
    seen = judged.seen
    is_behind_none = (seen.unread_markers != NONE) & seen.is_known & (seen.lag > 0)
    was_reset = (judged.memory.resets.reset_ms != NONE) & (
        judged.memory.resets.reset_ms == judged.memory.set_back.at_ms
    )
    rules = {
        "open_transaction": waits & judged.is_hidden,
        "no_members": (waits | (is_ok & judged.is_still)) & (judged.seen.has_members == 0),
        "too_few_snapshots": (status == STATUSES.index("unknown")) & is_untried(judged),
        "offsets_reset": (status == STATUSES.index("rewound")) & was_reset,
        "transaction_marker": is_ok & ~judged.exceeds_markers & (judged.waits_long | is_behind_none),
    }
    found = np.zeros(len(status), np.int64)
    for name, holds in reversed(rules.items()):
        found[holds] = REASONS.index(name)
    return found
