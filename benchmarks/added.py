"""How much of a warm `run` of a small cluster is spent on the status of groups, forecasts and findings."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial, wraps
from pathlib import Path
from typing import Any
from unittest import mock

from benchmarks.waterfall import one_run
from pipeline.derive import steps
from pipeline.tables import FINDINGS, FORECASTS, GROUP_CHANGES, GROUP_STATUS, PARTITION_STATUS

TABLES = {PARTITION_STATUS, GROUP_STATUS, FORECASTS, GROUP_CHANGES, FINDINGS}
WARM_UP = 5


def seconds(config: Path, runs: int) -> tuple[list[float], list[float]]:
    """The seconds of each warm run, and how many of them were spent in the steps of TABLES."""
    whole, in_steps = [], []
    for number in range(WARM_UP + runs):
        started = time.perf_counter()
        spent_s = spent_in_steps(partial(one_run, config, config.with_suffix(".html")))
        if number >= WARM_UP:
            whole.append(time.perf_counter() - started)
            in_steps.append(spent_s)
    return whole, in_steps


def spent_in_steps(run: Callable[[], object]) -> float:
    """How many of the seconds of a run were spent in the steps of TABLES."""
    spent: list[float] = []
    counted = [
        step._replace(run=_counted(step.run, spent)) if TABLES & {*step.writes} else step for step in steps.STEPS
    ]
    with mock.patch.object(steps, "STEPS", tuple(counted)):
        run()
    assert len(spent) == len(TABLES), "a run no longer has a step for each of these tables"
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
