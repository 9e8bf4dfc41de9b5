"""The derived tables: computed from the snapshots that they lack, and kept in the lake."""

from pipeline.derive.backlog import JOB, REMOVED, oldest_needed
from pipeline.derive.batches import Settings, compute_cluster, compute_lag

__all__ = ["JOB", "REMOVED", "Settings", "compute_cluster", "compute_lag", "oldest_needed"]
