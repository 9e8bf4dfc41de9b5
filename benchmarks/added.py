"""How much of a warm `run` of a small cluster is spent on the status of groups, forecasts and findings."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial, wraps
from pathlib import Path
from typing import Any
from unittest import mock

from benchmarks.waterfall import one_run
from pipeline.derive import batches

STEPS = ("keep_status", "keep_forecasts", "keep_group_changes", "problems_of_groups", "keep_findings")
"""The functions that a run calls for these tables. They also write them."""
WARM_UP = 5


def seconds(config: Path, runs: int) -> tuple[list[float], list[float]]:
    """The seconds of each warm run, and how many of them were spent in STEPS."""
    whole, in_steps = [], []
    for number in range(WARM_UP + runs):
        started = time.perf_counter()
        spent_s = spent_in_steps(partial(one_run, config, config.with_suffix(".html")))
        if number >= WARM_UP:
            whole.append(time.perf_counter() - started)
            in_steps.append(spent_s)
    return whole, in_steps


def spent_in_steps(run: Callable[[], object]) -> float:
    """How many of the seconds of a run were spent in STEPS."""
    spent: list[float] = []
    with ExitStack() as stack:
        for name in STEPS:
            stack.enter_context(mock.patch.object(batches, name, _counted(getattr(batches, name), spent)))
        run()
    assert len(spent) == len(STEPS), "a run no longer calls each of these functions once"
    return sum(spent)


def _counted(function: Callable[..., Any], spent: list[float]) -> Callable[..., Any]:
    @wraps(function)
    def counted(*args: Any, **options: Any) -> Any:
        started = time.perf_counter()
        try:
            return function(*args, **options)
        finally:
            spent.append(time.perf_counter() - started)

    return counted
