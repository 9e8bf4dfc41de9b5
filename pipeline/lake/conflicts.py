"""The exceptions of Spark, Delta and delta-rs, and how to retry if another writer was first."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from pyspark.errors import PySparkException

from pipeline.errors import LaglakeError, LakeError, first_line

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
"""What Delta calls it when another writer was first: with rows, with a table or column that both were to make."""

SPARK_ERRORS: tuple[type[Exception], ...] = (PySparkException,)
"""What Spark raises. A classic session leaves most of the JVM's exceptions as they are: conflicts, aborted jobs."""
with suppress(ImportError):  # pyspark-client, which has Connect alone, comes without
    from py4j.protocol import Py4JError

    SPARK_ERRORS = (PySparkException, Py4JError)

FAILURES: tuple[type[Exception], ...] = (LaglakeError, *SPARK_ERRORS)
"""What may go wrong with one cluster and must not keep the others."""


class ConflictError(LakeError):
    """Another writer's commit came in between; nothing was written."""


def through_conflicts(action: Callable[[], T]) -> T:
    """Do it again where another writer's commit came in between. Raises LakeError when it goes on losing."""
    for attempt in range(CONFLICT_TRIES):
        try:
            return action()
        except FAILURES as exc:
            if not is_conflict(exc):
                raise
            conflict = first_line(exc)
            log.info("another writer was first, trying again: %s", conflict)
            time.sleep(random.uniform(0.1, 0.3) * 2**attempt)  # so that rivals do not meet again
    raise LakeError(f"gave up after {CONFLICT_TRIES} conflicts with other writers, the last: {conflict}")


def is_conflict(error: Exception) -> bool:
    """Delta's optimistic concurrency control refused the commit; classic and Connect name it alike in the message."""
    message = str(error)
    return isinstance(error, ConflictError) or any(name in message for name in CONFLICTS)
