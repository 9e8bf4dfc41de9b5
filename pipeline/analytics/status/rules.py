"""The rules of `partition_status`: functions of the memory of readers and of what a snapshot shows of them.

They are Burrow's rules, adapted to snapshots: whether a wait is long depends on what is usual for the reader, not on a
fixed window (Burrow issue 303). A group falls behind if the age of its oldest unread record rises, also at its lowest,
however often the group commits (Burrow issue 155), and whatever its lag in records is: that goes up and down with what
is written.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pipeline.analytics.status.memory import NONE, Bools, Ints, Look, Memory
from pipeline.config.status import StatusConfig

FEWEST_LOOKS = 3
"""Snapshots after the first that must show a wait: fewer could be chance."""


@dataclass(frozen=True)
class Judged:
    """The input of the rules, for each reader.

    has_members: 1 or 0, NONE where not known. stable_lag: lag to the last stable offset. committed_at_ms: when the
    commit was made, where that is known.
    """

    look: Look
    memory: Memory
    has_members: Ints
    stable_lag: Ints
    committed_at_ms: Ints
    is_not_committed: Bools
    settings: StatusConfig

    @property
    def waited_ms(self) -> Ints:
        """How long the reader has had the same commit while records are unread; 0 if it does not wait."""
        return np.where(self.memory.waiting_ms != NONE, self.look.at_ms - self.memory.waiting_ms, 0)

    @property
    def usual_ms(self) -> Ints:
        """How long it may wait: twice its second longest wait. Until that is known, a window."""
        usual = np.maximum(2 * np.maximum(self.memory.second_ms, 0), self.settings.tolerance_ms)
        return np.where(self.memory.second_ms != NONE, usual, self.settings.window_ms)

    @property
    def waits_long(self) -> Bools:
        """Whether it has waited for longer than is usual."""
        is_long = (self.waited_ms >= self.usual_ms) & (self.memory.waiting_looks >= FEWEST_LOOKS)
        return np.asarray(self.look.is_known & is_long)

    @property
    def exceeds_markers(self) -> Bools:
        """Whether more is unread than transaction markers at the end of a quiet log, which no reader ever gets."""
        return np.asarray((self.look.lag > self.settings.markers) | self.has_grown)

    @property
    def is_still(self) -> Bools:
        """Whether it has waited for longer than is usual, for records."""
        return np.asarray(self.waits_long & self.exceeds_markers)

    @property
    def has_grown(self) -> Bools:
        """Whether the log has grown since the wait began."""
        return np.asarray((self.memory.waiting_ms != NONE) & (self.look.end > self.memory.waiting_end))

    @property
    def is_hidden(self) -> Bools:
        """Whether an open transaction hides all that is unread from a read_committed reader."""
        return np.asarray((self.stable_lag == 0) & (self.look.lag > 0))


def is_stopped(judged: Judged) -> Bools:
    """Nothing was committed since the wait began, while the log grew: commit times show it, or there are no members."""
    no_commits = (judged.committed_at_ms != NONE) & (judged.committed_at_ms <= judged.memory.waiting_ms)
    is_unknown = judged.committed_at_ms == NONE
    return np.asarray(judged.is_still & judged.has_grown & (no_commits | (is_unknown & (judged.has_members == 0))))


def is_stalled(judged: Judged) -> Bools:
    """Commits are made, but they do not move."""
    return np.asarray(
        judged.is_still & (judged.committed_at_ms != NONE) & (judged.committed_at_ms > judged.memory.waiting_ms)
    )


def is_not_progressing(judged: Judged) -> Bools:
    """The commit does not move, and it is not known whether commits are made. Not for groups without members."""
    return np.asarray(judged.is_still & (judged.committed_at_ms == NONE) & (judged.has_members != 0))


def is_rewound(judged: Judged) -> Bools:
    """The commit went back, and the next snapshot shows it still behind where it was."""
    return np.asarray(judged.look.is_known & (judged.memory.set_back_looks >= 2))


def is_falling_behind(judged: Judged) -> Bools:
    """It goes on, and the least age has risen from each third of the window to the next, by the tolerance in all."""
    is_known = np.all(judged.memory.floor_age != NONE, axis=1)
    floors = np.where(is_known[:, None], judged.memory.floor_age, 0)
    rises = np.all(np.diff(floors, axis=1) >= judged.settings.tolerance_ms // 3, axis=1)  # a little may be chance
    goes_on = judged.waited_ms < judged.settings.window_ms // 3
    matters = floors[:, -1] >= np.maximum(floors[:, 0], 0) + judged.settings.tolerance_ms
    return np.asarray(judged.look.is_known & is_known & rises & goes_on & matters)


def is_not_committed(judged: Judged) -> Bools:
    """There is no commit."""
    return judged.is_not_committed


def is_unknown(judged: Judged) -> Bools:
    """Its lag is not known, or whether it goes on; or it has committed beyond the end of another log than there was."""
    is_beyond = judged.look.is_new & judged.look.is_known & (judged.look.lag < 0)
    return np.asarray((~judged.look.is_known | is_beyond | is_untried(judged)) & ~judged.is_not_committed)


def is_untried(judged: Judged) -> Bools:
    """It has records to read, was never seen to go on, and may need more time than it was seen for."""
    waits = (judged.memory.waiting_ms != NONE) & judged.exceeds_markers & ~judged.waits_long
    return np.asarray(judged.look.is_known & (judged.memory.waits_ms == NONE) & waits)


OK, NOT_COMMITTED = "ok", "not_committed"
RULES: dict[str, Callable[[Judged], Bools]] = {
    "stopped": is_stopped,
    "stalled": is_stalled,
    "not_progressing": is_not_progressing,
    "rewound": is_rewound,
    "warning": is_falling_behind,
    "unknown": is_unknown,
    NOT_COMMITTED: is_not_committed,
}
"""The worst status first. If several rules hold, the first one gives the status."""
STATUSES = (*RULES, OK)


def statuses(judged: Judged) -> Ints:
    """The status of each reader, as its index in STATUSES."""
    found = np.full(len(judged.look.at_ms), len(STATUSES) - 1)
    for place, rule in reversed([*enumerate(RULES.values())]):
        found[rule(judged)] = place
    return found


def begins(judged: Judged, status: Ints) -> Ints:
    """When a status began, if that was before a snapshot showed it; NONE if it began with the first such snapshot."""
    waits = np.isin(status, [STATUSES.index(name) for name in ("stopped", "stalled", "not_progressing")])
    is_rewound = status == STATUSES.index("rewound")
    return np.where(waits, judged.memory.waiting_ms, np.where(is_rewound, judged.memory.set_back_ms, NONE))


REASONS = (None, "open_transaction", "no_members", "transaction_marker", "too_few_snapshots")


def reasons(judged: Judged, status: Ints) -> Ints:
    """The reason for each status, as its index in REASONS.

    open_transaction: it hides all that is unread from a read_committed reader. no_members: nobody is there to read;
    also where the status is ok, as nothing was written since the wait began. transaction_marker: no more is left before
    the end than markers, which no reader ever gets. too_few_snapshots: the reader was not seen for long enough to tell
    whether it goes on.
    """
    is_ok, waits = status == len(STATUSES) - 1, np.isin(status, [0, 1, 2])
    rules = {
        "open_transaction": waits & judged.is_hidden,
        "no_members": (waits | (is_ok & judged.is_still)) & (judged.has_members == 0),
        "too_few_snapshots": (status == STATUSES.index("unknown")) & is_untried(judged),
        "transaction_marker": is_ok & judged.waits_long & ~judged.exceeds_markers,
    }
    found = np.zeros(len(status), np.int64)
    for name, holds in reversed(rules.items()):
        found[holds] = REASONS.index(name)
    return found
