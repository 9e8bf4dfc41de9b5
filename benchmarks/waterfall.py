"""What each phase of a `run` costs: seconds, CPU, SQL executions, Spark jobs, exchanges, scans, Delta commits.

A phase is a function that a run calls. If one phase calls another, as "claim" calls the MERGE of the ledger, each
counts only its own cost. The config has one cluster, because parallel phases could not be distinguished. As a program,
it prints the first and the last run of a process: `python -m benchmarks.waterfall CONFIG LAKE RUNS`.
"""

from __future__ import annotations

import functools
import operator
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import astuple, dataclass, field, fields
from pathlib import Path
from typing import Any
from unittest import mock

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from benchmarks.processes import family
from jobs import run
from pipeline import lake
from pipeline.derive import batches as derive
from pipeline.derive import log_index as index
from pipeline.derive import steps
from pipeline.lake import ledger
from pipeline.report import write
from pipeline.session import spark_session
from pipeline.snapshot import land, read_sources, take
from pipeline.tables import Table

REST = "all the rest"
PHASES: dict[str, tuple[Any, str]] = {
    "prepare the lake": (lake.Lake, "prepare"),
    "claim": (ledger.Ledger, "claim"),
    "read Kafka": (land, "read_cluster"),
    "count what was read": (read_sources.ClusterRows, "counted"),
    "land": (land, "_land_table"),
    "land positions": (land, "_land_positions"),
    "judge": (land, "judge_rows"),
    "look up times": (land, "_land_samples"),
    "sum up": (take, "summarize"),
    "finish": (ledger.Ledger, "finish"),
    "find what is pending": (derive, "read_backlog"),
    "check bronze": (derive, "check_bronze"),
    "compute readers": (steps, "compute_readers"),
    "keep the index": (index.Index, "keep"),
    "report": (write, "write_report"),
}
"""Phase → the object that has the function, and the function's name. Steps and writes to tables are further phases."""
WRITES = ("replace", "merge")


def _name_of(step: steps.Step) -> str:
    return "step " + ", ".join(table.name for table in step.writes)


@dataclass(frozen=True)
class Cost:
    """The cost of something, or what a session has spent so far."""

    seconds: float = 0.0
    cpu_s: float = 0.0
    executions: int = 0
    jobs: int = 0
    exchanges: int = 0
    scans: int = 0
    commits: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(*map(operator.add, astuple(self), astuple(other)))

    def __sub__(self, other: Cost) -> Cost:
        return Cost(*map(operator.sub, astuple(self), astuple(other)))

    def __str__(self) -> str:
        return " ".join(f"{value:10.1f}" if isinstance(value, float) else f"{value:10d}" for value in astuple(self))


@dataclass
class Waterfall:
    """Counts what a classic session spends in each phase, with a lake in a local folder."""

    spark: SparkSession
    lake: Path
    phases: dict[str, Cost] = field(default_factory=dict)
    _seen: int = 0
    _exchanges: int = 0
    _scans: int = 0

    def run(self, action: Callable[[], object]) -> Cost:
        """Runs the action and returns its total cost. The cost of each phase is then in `phases`."""
        self.phases = dict.fromkeys((*PHASES, *map(_name_of, steps.STEPS), REST), Cost())
        with ExitStack() as stack:
            for phase, (owner, name) in PHASES.items():
                stack.enter_context(mock.patch.object(owner, name, self._counting(phase, getattr(owner, name))))
            counted = (step._replace(run=self._counting(_name_of(step), step.run)) for step in steps.STEPS)
            stack.enter_context(mock.patch.object(steps, "STEPS", tuple(counted)))
            for name in WRITES:
                stack.enter_context(mock.patch.object(lake.Lake, name, self._writing(getattr(lake.Lake, name))))
            with self._phase(REST):
                action()
        return self._total()

    def __str__(self) -> str:
        heads = " ".join(f"{f.name:>10}" for f in fields(Cost))
        lines = [f"{phase:26}{cost}" for phase, cost in self.phases.items() if cost.executions or cost.seconds > 0.05]
        return "\n".join([f"{'':26}{heads}", *lines, f"{'in all':26}{self._total()}"])

    def so_far(self) -> Cost:
        """What the session has spent until now."""
        session = self.spark._jsparkSession  # noqa: SLF001 – what Spark counts for its web pages
        context = session.sparkContext()
        context.listenerBus().waitUntilEmpty()
        store = session.sharedState().statusStore()
        kept = store.executionsList()  # only the newest ones are kept, so they are counted by their ids
        oldest, number = (kept.head().executionId(), kept.last().executionId() + 1) if kept.nonEmpty() else (0, 0)
        # Of an older one, nothing is known: asking Spark for thousands of them takes seconds.
        operators = [name for found in range(max(self._seen, oldest), number) for name in _operators(store, found)]
        self._seen = number
        self._exchanges += sum("Exchange" in name and "Reused" not in name for name in operators)
        self._scans += sum(name.startswith("Scan parquet") for name in operators)
        return Cost(
            seconds=time.perf_counter(),
            cpu_s=sum(process.cpu_s for process in family(os.getpid()).values()),
            executions=number,
            jobs=context.dagScheduler().numTotalJobs(),
            exchanges=self._exchanges,
            scans=self._scans,
            commits=sum(1 for _ in self.lake.glob("*/_delta_log/*.json")),
        )

    def _counting(self, phase: str, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def counted(*args: Any, **options: Any) -> Any:
            with self._phase(phase):
                return original(*args, **options)

        return counted

    def _writing(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def counted(to: lake.Lake, table: Table, *args: Any, **options: Any) -> Any:
            with self._phase(f"  {original.__name__} {table.name}"):
                return original(to, table, *args, **options)

        return counted

    @contextmanager
    def _phase(self, phase: str) -> Iterator[None]:
        elsewhere, before = self._total(), self.so_far()
        try:
            yield
        finally:
            spent = self.so_far() - before - (self._total() - elsewhere)
            self.phases[phase] = self.phases.get(phase, Cost()) + spent

    def _total(self) -> Cost:
        return functools.reduce(Cost.__add__, self.phases.values(), Cost())


def one_run(config: Path, page: Path) -> None:
    """Runs the job `run` in the active session. The schedule is one second, so no snapshot is skipped."""
    time.sleep(1 - time.time() % 1)
    status = run.main(["--config", str(config), "--output", str(page), "--fail-on", "partial"])
    assert status == 0, "the log says why"


def _operators(store: Any, execution: int) -> list[str]:
    """The names of the operators in an execution's plan, from the graph in the DOT language that Spark makes of it."""
    try:
        graph = store.planGraph(execution).makeDotFile(store.executionMetrics(execution))
    except Py4JJavaError:
        return []
    return re.findall(r'^\s*\d+ \[id="node\d+" label="([^"]*)"', graph, re.MULTILINE)


def main(config: str, lake_folder: str, runs: str) -> int:
    """Prints what the first and the last of `runs` runs cost."""
    started = time.perf_counter()
    spark = spark_session("waterfall", {"spark.master": "local[2]", "spark.driver.memory": "4g"})
    waterfall = Waterfall(spark, Path(lake_folder))
    sys.stdout.write(f"Spark has started after {time.perf_counter() - started:.1f} s\n")
    page = Path(config).with_name("report.html")
    for number in range(1, int(runs) + 1):
        waterfall.run(lambda: one_run(Path(config), page))
        if number in (1, int(runs)):
            sys.stdout.write(f"\nrun {number} of this process\n{waterfall}\n")
            sys.stdout.flush()
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
