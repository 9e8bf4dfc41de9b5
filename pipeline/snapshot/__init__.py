"""Snapshots: a cluster's offsets at one instant, read from Kafka and stored in the bronze tables."""

from pipeline.snapshot.take import SnapshotOutcome, nothing_read, snapshot_instant, take_snapshots
from pipeline.snapshot.wait import not_finished, wait_for_others

__all__ = [
    "SnapshotOutcome",
    "not_finished",
    "nothing_read",
    "snapshot_instant",
    "take_snapshots",
    "wait_for_others",
]
