"""Snapshots: a cluster's offsets at one instant, read from Kafka and stored in the bronze tables."""

from pipeline.snapshot.take import SnapshotOutcome, not_finished, nothing_read, snapshot_instant, take_snapshots

__all__ = ["SnapshotOutcome", "not_finished", "nothing_read", "snapshot_instant", "take_snapshots"]
