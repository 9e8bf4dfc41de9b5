"""The Delta tables: where they are, and how they are created, read and written, even by several writers at once."""

from pipeline.lake.conflicts import CONFLICT_TRIES, FAILURES, SPARK_ERRORS, is_conflict, retry_on_conflict
from pipeline.lake.lake import STAGED_OVER, STAGES, Clock, Lake
from pipeline.lake.merge import Merged
from pipeline.lake.predicates import (
    among,
    before_day,
    further_back,
    instant_literal,
    of_cluster,
    of_dates,
    of_each,
    of_snapshots,
    of_windows,
    of_windows_within,
    one_of,
    since_days,
)
from pipeline.lake.upgrade import VERSION_PROPERTY, refuse_new, why_refused

__all__ = [
    "CONFLICT_TRIES",
    "FAILURES",
    "SPARK_ERRORS",
    "STAGED_OVER",
    "STAGES",
    "VERSION_PROPERTY",
    "Clock",
    "Lake",
    "Merged",
    "among",
    "before_day",
    "further_back",
    "instant_literal",
    "is_conflict",
    "of_cluster",
    "of_dates",
    "of_each",
    "of_snapshots",
    "of_windows",
    "of_windows_within",
    "one_of",
    "refuse_new",
    "retry_on_conflict",
    "since_days",
    "why_refused",
]
