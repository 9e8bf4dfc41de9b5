"""The Delta tables: where they are, and how they are created, read and written, even by several writers at once."""

from pipeline.lake.conflicts import CONFLICT_TRIES, FAILURES, SPARK_ERRORS, is_conflict, retry_on_conflict
from pipeline.lake.lake import VERSION_PROPERTY, Clock, Lake, Merged
from pipeline.lake.predicates import of_cluster, of_dates, of_each, of_snapshots, of_windows, quoted

__all__ = [
    "CONFLICT_TRIES",
    "FAILURES",
    "SPARK_ERRORS",
    "VERSION_PROPERTY",
    "Clock",
    "Lake",
    "Merged",
    "is_conflict",
    "of_cluster",
    "of_dates",
    "of_each",
    "of_snapshots",
    "of_windows",
    "quoted",
    "retry_on_conflict",
]
