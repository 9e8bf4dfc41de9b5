"""What one snapshot shows of readers. A reader is a group at a partition."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pipeline.analytics.arrow_series import NONE, Bools, Ints


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

    def take(self, at: Ints) -> Observation:
        """That of some readers, by their numbers."""
        return Observation(**{name: values[at] for name, values in vars(self).items()})
