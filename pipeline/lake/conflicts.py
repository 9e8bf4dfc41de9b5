"""The exceptions of Spark, Delta and delta-rs, and how to retry after a conflict with another writer."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from pyspark.errors import PySparkException

from pipeline.common.errors import LaglakeError, LakeError, first_line

log = logging.getLogger(__name__)
T = TypeVar("T")

CONFLICT_TRIES = 6
CONFLICTS = (
    "DELTA_CONCURRENT",
    "DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION",
    "DELTA_DUPLICATE_COLUMNS_FOUND",
    "DELTA_METADATA_CHANGED",
    "DELTA_PROTOCOL_CHANGED",
    "FIELD_ALREADY_EXISTS",
)
"""Delta's names of conflicts with another writer: over rows, or over a table or column that both wanted to create."""

SPARK_ERRORS: tuple[type[Exception], ...] = (PySparkException,)
"""The exceptions of Spark. A classic session also passes on the JVM's, such as those of conflicts and aborted jobs."""
with suppress(ImportError):  # pyspark-client, which has only Connect, does not have it
    from py4j.protocol import Py4JError

    SPARK_ERRORS = (PySparkException, Py4JError)

FAILURES: tuple[type[Exception], ...] = (LaglakeError, *SPARK_ERRORS)
"""Errors of one cluster that must not stop the others."""


class ConflictError(LakeError):
    """Another writer has committed in between; nothing was written."""


def retry_on_conflict(action: Callable[[], T]) -> T:
    """Repeats an action after a conflict with another writer. Raises LakeError if the conflicts continue."""
    for attempt in range(CONFLICT_TRIES):
        try:
            return action()
        except FAILURES as exc:
            if not is_conflict(exc):
                raise
            conflict = first_line(exc)
            log.info("another writer was first, trying again: %s", conflict)
            time.sleep(random.uniform(0.1, 0.3) * 2**attempt)  # so that the writers do not collide again
    raise LakeError(f"gave up after {CONFLICT_TRIES} conflicts with other writers, the last: {conflict}")


def is_conflict(error: Exception) -> bool:
    """Whether Delta's optimistic concurrency control refused a commit: by the message, as in classic and Connect."""
    message = str(error)
    return isinstance(error, ConflictError) or any(name in message for name in CONFLICTS)
