"""Functions of Arrow arrays as functions of columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import DataType


def arrow_udf(function: Callable[..., Any], returns: DataType) -> Callable[..., Column]:
    """A scalar Arrow function. Make it where it is used: it needs a session.

    Declared not deterministic, though it is: else Spark evaluates it once more for each filter on what it gives.
    """
    # PySpark's stubs lack it.
    made: Callable[..., Column] = F.arrow_udf(function, returns).asNondeterministic()  # type: ignore[attr-defined]
    return made
