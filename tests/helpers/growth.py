"""Whether work is linear in the size of its input: measured in CPU time, so that a busy machine does not matter."""

import time
from collections.abc import Callable
from typing import Any

TIMES = 8
SLACK = 4
"""Quadratic work takes 8 times as much again as linear work. Allocation, caches and garbage collection take some."""
LEAST_S = 0.02
"""Below this, what is measured is the clock and everything else."""
MOST_S = 5.0


def assert_linear(work: Callable[[Any], object], made: Callable[[int], Any], size: int) -> None:
    """Checks that an input that is eight times as large takes at most 32 times as long."""
    small_s = _cpu_s(work, made(size), MOST_S)
    bound_s = TIMES * SLACK * max(small_s, LEAST_S)
    assert small_s < MOST_S
    assert _cpu_s(work, made(TIMES * size), bound_s) < bound_s


def _cpu_s(work: Callable[[Any], object], given: Any, enough_s: float) -> float:
    """The least of up to three measurements: the first that is short enough ends them."""
    least_s = float("inf")
    for _ in range(3):
        begun_s = time.process_time()
        work(given)
        least_s = min(least_s, time.process_time() - begun_s)
        if least_s < enough_s / SLACK:
            break
    return least_s
