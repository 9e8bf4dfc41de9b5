"""How long something takes, once it is warm."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from pyspark.sql import DataFrame


def timed(action: Callable[[], object]) -> float:
    """Seconds of one run."""
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def warm(action: Callable[[int], object], runs: int = 7) -> list[float]:
    """Seconds of each run after two that are not counted; the action is given the run's number."""
    seconds = [timed(partial(action, n)) for n in range(runs + 2)]
    return seconds[2:]


def computed(make: Callable[[], DataFrame], runs: int = 7) -> list[float]:
    """Seconds of each run until all rows of a frame are computed; they are written nowhere."""
    return warm(lambda _: make().write.format("noop").mode("overwrite").save(), runs)
