"""Measures how long something takes after it has warmed up."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from pyspark.sql import DataFrame


def timed(action: Callable[[], object]) -> float:
    """The seconds of one run."""
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def warm(action: Callable[[int], object], runs: int = 7) -> list[float]:
    """The seconds of each run, after two that are not counted. The action gets the number of the run."""
    seconds = [timed(partial(action, n)) for n in range(runs + 2)]
    return seconds[2:]


def computed(make: Callable[[], DataFrame], runs: int = 7) -> list[float]:
    """The seconds of each run until all rows of a DataFrame are computed; they are not written."""
    return warm(lambda _: make().write.format("noop").mode("overwrite").save(), runs)
