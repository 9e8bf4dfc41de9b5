"""Runs jobs in processes of their own, each killed at a chosen step: `python killed_job.py PLAN.json`.

Imports are paid for once: every run is a fork, in a process group of its own, that makes its own session. A run that is
told to die kills its whole group, so a JVM that it started dies with it. Prints what became of each run, as JSON.
"""

import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import Any, NoReturn

import pipeline.snapshot
from pipeline.config import load_config
from pipeline.derive import compute_lag
from pipeline.lake import Lake
from pipeline.session import spark_session
from pipeline.snapshot import take_snapshots

STEPS: dict[str, tuple[Any, str]] = {
    "merge": (Lake, "merge"),
    "delete": (Lake, "delete"),
    "replace": (Lake, "replace"),
    "brokers": (pipeline.snapshot, "read_brokers"),
    "gate": (pipeline.snapshot, "quarantine_failing"),
}


@dataclass(frozen=True)
class Run:
    """One run. `kill` is e.g. "replace 2 after": at the second replace, once it is done; empty = never."""

    config: str
    clusters: tuple[str, ...]
    now: str
    job: str = "snapshot"
    kill: str = ""


def execute(runs: list[Run], folder: Path, timeout_s: float = 240.0) -> dict[int, int]:
    """Fork every run, at once; run number → exit status, negative where a signal ended it."""
    children = {os.fork() or _child(run, folder / f"run-{number}.log"): number for number, run in enumerate(runs)}
    deadline = time.monotonic() + timeout_s
    statuses: dict[int, int] = {}
    while children and time.monotonic() < deadline:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid:
            statuses[children.pop(pid)] = os.waitstatus_to_exitcode(status)
        else:
            time.sleep(0.05)
    for pid in children:
        os.killpg(pid, signal.SIGKILL)
    return statuses


def _child(run: Run, log: Path) -> NoReturn:
    status = 1
    try:
        os.setsid()
        with log.open("w") as output:
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
        _work(run)
        status = 0
    except Exception:  # noqa: BLE001 – the log is the test's to read
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(status)


def _work(run: Run) -> None:
    if run.kill:
        _arm(*run.kill.split())
    now = datetime.fromisoformat(run.now)
    config = load_config(Path(run.config), os.environ)
    spark = spark_session("killed job")
    if run.job == "lag":
        print(compute_lag(spark, config, run.clusters, lambda: now))
    else:
        outcomes = take_snapshots(spark, config, run.clusters, None, lambda: now)
        print(json.dumps([asdict(outcome) for outcome in outcomes]))


def _arm(step: str, number: str, moment: str) -> None:
    owner, name = STEPS[step]
    original: Callable[..., Any] = getattr(owner, name)
    calls = count(1)

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        is_it = next(calls) == int(number)
        if is_it and moment == "before":
            os.killpg(0, signal.SIGKILL)
        result = original(*args, **kwargs)
        if is_it and moment == "after":
            os.killpg(0, signal.SIGKILL)
        return result

    setattr(owner, name, wrapped)


if __name__ == "__main__":
    plan = [Run(**{**run, "clusters": tuple(run["clusters"])}) for run in json.loads(Path(sys.argv[1]).read_text())]
    print(json.dumps(execute(plan, Path(sys.argv[1]).parent)))
