"""How much time the status of groups, forecasts and findings add to a warm `run` of a small cluster."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from unittest import mock

from benchmarks.timing import timed
from benchmarks.waterfall import one_run
from pipeline.derive import batches

STEPS = ("keep_status", "keep_forecasts", "keep_group_changes", "problems_of_groups", "keep_findings")
"""The functions that a run calls for these tables."""
WARM_UP = 5


def seconds(whole: Path, without: Path, pairs: int) -> tuple[list[float], list[float]]:
    """The seconds of warm runs with these steps, and of as many without, in turn.

    The arguments are their configurations, each with a lake of its own: a report also takes less time without findings.
    """
    with_s, without_s = [], []
    for number in range(WARM_UP + pairs):
        with_steps = timed(partial(one_run, whole, whole.with_suffix(".html")))
        with _without_steps():
            less = timed(partial(one_run, without, without.with_suffix(".html")))
        if number >= WARM_UP:
            with_s.append(with_steps)
            without_s.append(less)
    return with_s, without_s


def added_s(with_steps: list[float], without: list[float]) -> float:
    """The median of what the steps add, over the pairs of runs."""
    return statistics.median(a - b for a, b in zip(with_steps, without, strict=True))


@contextmanager
def _without_steps() -> Iterator[None]:
    with ExitStack() as stack:
        for name in STEPS:
            stack.enter_context(mock.patch.object(batches, name))
        yield
