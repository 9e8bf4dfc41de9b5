"""The rules of `partition_status`: each a function of what is remembered of readers and what a snapshot shows of them.

They are Burrow's rules, adapted to snapshots: whether a wait is long depends on what is usual for the reader, not on a
fixed window (Burrow issue 303), and lag grows if its minimum rises, however often the group commits (Burrow issue 155).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pipeline.analytics.status.memory import NONE, Bools, Ints, Look, Memory
from pipeline.config.status import StatusConfig

FEWEST_LOOKS = 3
"""Snapshots after the first that must show a wait: fewer could be chance."""
MOST_MARKERS = 1
"""Offsets at the end of a quiet log that a transaction's marker may take, which no reader ever gets."""


@dataclass(frozen=True)
class Judged:
    """What the rules go by, for each reader.

    has_members: 1 or 0, NONE where not known. age_ms: of the oldest record that is not committed. stable_lag: lag to
    the last stable offset. committed_at_ms: when the commit was made, where that is known.
    """

    look: Look
    memory: Memory
    has_members: Ints
    age_ms: Ints
    stable_lag: Ints
    committed_at_ms: Ints
    is_not_committed: Bools
    settings: StatusConfig

    @property
    def waited_ms(self) -> Ints:
        """How long the reader has had the same commit with records to read; 0 where it does not wait."""
        return np.where(self.memory.waiting_ms != NONE, self.look.at_ms - self.memory.waiting_ms, 0)

    @property
    def usual_ms(self) -> Ints:
        """How long it may wait: twice what it has waited for twice. Before that is known, a window."""
        usual = np.maximum(2 * np.maximum(self.memory.second_ms, 0), self.settings.tolerance_ms)
        return np.where(self.memory.second_ms != NONE, usual, self.settings.window_ms)

    @property
    def waits_long(self) -> Bools:
        """Whether it has waited for longer than is usual."""
        is_long = (self.waited_ms >= self.usual_ms) & (self.memory.waiting_looks >= FEWEST_LOOKS)
        return np.asarray(self.look.is_known & is_long)

    @property
    def exceeds_a_marker(self) -> Bools:
        """Whether more is unread than a transaction's marker at the end of a quiet log."""
        return np.asarray((self.look.lag > MOST_MARKERS) | self.has_grown)

    @property
    def is_still(self) -> Bools:
        """Whether it has waited for longer than is usual, for records."""
        return np.asarray(self.waits_long & self.exceeds_a_marker)

    @property
    def has_grown(self) -> Bools:
        """Whether the log has grown since the wait began."""
        return np.asarray((self.memory.waiting_ms != NONE) & (self.look.end > self.memory.waiting_end))

    @property
    def is_hidden(self) -> Bools:
        """Whether an open transaction hides all that is unread from a read_committed reader."""
        return np.asarray((self.stable_lag == 0) & (self.look.lag > 0))


def is_stopped(judged: Judged) -> Bools:
    """Nothing was committed since the wait began, while the log grew: by commit times, or as nobody is there to."""
    no_commits = (judged.committed_at_ms != NONE) & (judged.committed_at_ms <= judged.memory.waiting_ms)
    is_unknown = judged.committed_at_ms == NONE
    return np.asarray(judged.is_still & judged.has_grown & (no_commits | (is_unknown & (judged.has_members == 0))))


def is_stalled(judged: Judged) -> Bools:
    """Commits are made, and do not move."""
    return np.asarray(
        judged.is_still & (judged.committed_at_ms != NONE) & (judged.committed_at_ms > judged.memory.waiting_ms)
    )


def is_not_progressing(judged: Judged) -> Bools:
    """The commit does not move, and whether commits are made is not known. Of a group without members `is_stopped`."""
    return np.asarray(judged.is_still & (judged.committed_at_ms == NONE) & (judged.has_members != 0))


def is_rewound(judged: Judged) -> Bools:
    """The commit went back, and the next snapshot shows it still behind where it was."""
    return np.asarray(judged.look.is_known & (judged.memory.set_back_looks >= 2))


def is_falling_behind(judged: Judged) -> Bools:
    """It goes on, and its least lag has risen from each third of the window to the next."""
    floors = judged.memory.floor_lag
    rises = np.all(floors[:, 1:] > floors[:, :-1], axis=1) & np.all(floors != NONE, axis=1)
    goes_on = judged.waited_ms < judged.settings.window_ms // 3
    is_late = (judged.age_ms == NONE) | (judged.age_ms >= judged.settings.tolerance_ms)
    return np.asarray(judged.look.is_known & rises & goes_on & is_late)


def is_not_committed(judged: Judged) -> Bools:
    """There is no commit."""
    return judged.is_not_committed


def is_unknown(judged: Judged) -> Bools:
    """Its lag is not known, or whether it goes on."""
    return np.asarray((~judged.look.is_known | is_untried(judged)) & ~judged.is_not_committed)


def is_untried(judged: Judged) -> Bools:
    """It has records to read, was never seen to go on, and may need more time than it was seen for."""
    waits = (judged.memory.waiting_ms != NONE) & judged.exceeds_a_marker & ~judged.waits_long
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
"""The worst first: of several the first that holds is the status."""
STATUSES = (*RULES, OK)


def statuses(judged: Judged) -> Ints:
    """The status of each reader, as its place in STATUSES."""
    found = np.full(len(judged.look.at_ms), len(STATUSES) - 1)
    for place, rule in reversed([*enumerate(RULES.values())]):
        found[rule(judged)] = place
    return found


def begins(judged: Judged, status: Ints) -> Ints:
    """When a status began that began before a snapshot showed it; NONE where it began with the first that did."""
    waits = np.isin(status, [STATUSES.index(name) for name in ("stopped", "stalled", "not_progressing")])
    is_rewound = status == STATUSES.index("rewound")
    return np.where(waits, judged.memory.waiting_ms, np.where(is_rewound, judged.memory.set_back_ms, NONE))


REASONS = (None, "open_transaction", "no_members", "transaction_marker", "too_few_snapshots")


def reasons(judged: Judged, status: Ints) -> Ints:
    """What explains each status, as its place in REASONS.

    open_transaction: it hides all that is unread from a read_committed reader. no_members: nobody is there to read.
    transaction_marker: at most that is left before the end, which no reader ever gets. too_few_snapshots: the reader
    was not seen for long enough to tell whether it goes on.
    """
    is_ok, waits = status == len(STATUSES) - 1, np.isin(status, [0, 1, 2])
    rules = {
        "open_transaction": waits & judged.is_hidden,
        "no_members": waits & (judged.has_members == 0),
        "too_few_snapshots": (status == STATUSES.index("unknown")) & judged.look.is_known,
        "transaction_marker": is_ok & judged.waits_long & ~judged.exceeds_a_marker,
    }
    found = np.zeros(len(status), np.int64)
    for name, holds in reversed(rules.items()):
        found[holds] = REASONS.index(name)
    return found
