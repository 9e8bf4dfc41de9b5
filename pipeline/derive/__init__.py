"""Computes the derived tables for snapshots that they do not contain yet, and writes them to the lake."""

from pipeline.derive.backlog import JOB, REMOVED, oldest_needed
from pipeline.derive.batches import compute_cluster, compute_lag
from pipeline.derive.settings import Settings

__all__ = ["JOB", "REMOVED", "Settings", "compute_cluster", "compute_lag", "oldest_needed"]
