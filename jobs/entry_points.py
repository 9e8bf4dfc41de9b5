"""The commands of the wheel, which Databricks calls as functions: it does not look at what they return."""

import sys
from collections.abc import Callable
from importlib import import_module


def _command(job: str) -> Callable[[], None]:
    def command() -> None:
        status = import_module(f"jobs.{job}").main()
        if status:
            sys.exit(status)

    return command


doctor, lag, replay, report, run, snapshot = map(_command, ("doctor", "lag", "replay", "report", "run", "snapshot"))
