"""Runs jobs in separate processes, each of which is killed at a chosen step: `python killed_job.py PLAN.json`.

Modules are imported only once: every run is a fork, in its own process group, that creates its own session. A run that
must die kills its whole group, including a JVM that it has started. Prints the exit status of each run, as JSON.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import Any, NoReturn

from pipeline.config import load_config
from pipeline.derive import compute_lag
from pipeline.lake import Lake
from pipeline.lake.few_rows import for_few_rows
from pipeline.maintain import maintain
from pipeline.quality.rules import RULES, Rule
from pipeline.session import spark_session
from pipeline.snapshot import take_snapshots
from pipeline.tables import COMMITTED_OFFSETS
from tests.helpers.short_lived import SHORT_LIVED

STEPS: dict[str, tuple[Any, str]] = {
    "merge": (Lake, "merge"),
    "replace": (Lake, "_replace"),  # what both ways of replacing rows have in common
    "delete": (Lake, "delete"),
    "sort": (Lake, "rewrite_sorted"),
    "join": (Lake, "compact"),
    "checkpoint": (Lake, "checkpoint"),
    "vacuum": (Lake, "vacuum"),
}
TIMEOUT_S = 600.0
"""The limit for all runs of a plan together, on two cores that are shared with other tests."""


@dataclass(frozen=True)
class Run:
    """One run. `kill` is for example "replace 2 after": after the second replace.

    The moments are `before`, `after` and, for a replace or a sort, `amid`: when its first data file exists. Without
    `kill`, the run ends by itself. `min_offset` makes the gate stricter, so that it finds something.
    """

    config: str
    clusters: Sequence[str]
    now: str
    job: str = "snapshot"
    kill: str = ""
    min_offset: int = 0


def start(runs: Sequence[Run], folder: Path, env: Mapping[str, str]) -> "subprocess.Popen[str]":
    """Starts all runs at once; `results` waits for them. The output of each is in <folder>/run-<number>.log."""
    folder.mkdir()
    plan = folder / "plan.json"
    plan.write_text(json.dumps([asdict(run) for run in runs]))
    command = [sys.executable, "-P", __file__, str(plan)]  # -P: our neighbours here are not to be imported
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)


def results(process: "subprocess.Popen[str]") -> list[int]:
    """The exit status of each run, which is negative if a signal ended it."""
    output, _ = process.communicate(timeout=TIMEOUT_S + 60)
    statuses: list[int] = json.loads(output) if output else []
    return statuses


def execute(runs: Sequence[Run], folder: Path) -> list[int]:
    """Forks all runs at once; returns the exit status of each."""
    children = [os.fork() or _child(run, folder / f"run-{number}.log") for number, run in enumerate(runs)]
    statuses: dict[int, int] = {}
    deadline = time.monotonic() + TIMEOUT_S
    while len(statuses) < len(children):
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid:
            statuses[pid] = os.waitstatus_to_exitcode(status)
        elif time.monotonic() > deadline:
            for child in set(children) - set(statuses):
                os.killpg(child, signal.SIGTERM)
        else:
            time.sleep(0.05)
    return [statuses[pid] for pid in children]


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
    now = datetime.fromisoformat(run.now)
    config = load_config(Path(run.config), os.environ)
    RULES[COMMITTED_OFFSETS.name] = rules_of_commits(run.min_offset)
    spark = spark_session("killed job", SHORT_LIVED | {"spark.master": "local[1]", "spark.ui.enabled": "false"})
    Lake(spark, config.lake).prepare()  # so that its own writes are not counted
    if run.kill:
        _arm(*run.kill.split(), root=Path(config.lake.root or ""), cluster=run.clusters[0])
    # The driver writes few rows within milliseconds, so a run that is to be killed during a write uses Spark for it.
    with nullcontext() if "amid" in run.kill else for_few_rows(spark):
        if run.job == "lag":
            sys.stdout.write(f"{compute_lag(spark, config, run.clusters, lambda: now)}\n")
        elif run.job == "maintain":
            done = maintain(Lake(spark, config.lake), config.retention, run.clusters, lambda: now)
            sys.stdout.write(f"{done}\n")
        else:
            outcomes = take_snapshots(spark, config, run.clusters, None, lambda: now)
            sys.stdout.write(json.dumps([asdict(outcome) for outcome in outcomes], default=str))


def rules_of_commits(least: int) -> list[Rule]:
    """The gate's rules of committed_offsets, with another smallest offset."""
    rules = RULES[COMMITTED_OFFSETS.name]
    return [rule._replace(least=least) if rule == Rule("committed_offset", 0) else rule for rule in rules]


def _arm(step: str, number: str, moment: str, root: Path, cluster: str) -> None:
    owner, name = STEPS[step]
    original: Callable[..., Any] = getattr(owner, name)
    calls = count(1)

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if next(calls) != int(number):
            return original(*args, **kwargs)
        if moment == "before":
            _die()
        if moment == "amid":
            folder = root / args[1].name / f"cluster={cluster}"  # others land in this table, too
            threading.Thread(target=_die_at_first_file, args=(folder,), daemon=True).start()
        result = original(*args, **kwargs)
        if moment == "after":
            _die()
        return result

    setattr(owner, name, wrapped)


def _die_at_first_file(folder: Path) -> None:
    there = set(folder.rglob("*.parquet"))
    while set(folder.rglob("*.parquet")) == there:
        time.sleep(0.001)
    _die()


def _die() -> None:
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    plan = [Run(**run) for run in json.loads(Path(sys.argv[1]).read_text())]
    sys.stdout.write(json.dumps(execute(plan, Path(sys.argv[1]).parent)))
