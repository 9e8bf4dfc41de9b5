"""The commands in the wheel: `laglake JOB`, and a `laglake-JOB` for each job, which Databricks calls as a function.

Databricks ignores the return value of a function, so an exit status other than 0 is raised as SystemExit.
"""

import argparse
import sys
from collections.abc import Callable
from importlib import import_module

TO_LOOK = {
    "try": "show a recorded example and its report, without Kafka and Spark",
    "demo": "run everything on a real Kafka, which starts on this machine and stops at the end",
}
"""The commands for a first look. They are for this machine: neither spark-submit.sh nor Databricks has them."""
JOBS = {
    "run": "snapshot, lag and report in one Spark session, once or (--every) repeatedly",
    "snapshot": "take a snapshot of the clusters",
    "lag": "compute the lag of all snapshots without it; --show prints it",
    "show": "print the partitions with the most lag from a local lake, without Spark",
    "report": "write the report: HTML, JSON or CSV",
    "notify": "send new and resolved findings to the channels of their owners",
    "replay": "analyse a recording that was made elsewhere",
    "maintain": "remove old rows, compact small files",
    "doctor": "check brokers, rights and lake, without Spark",
}
_MODULES = {"try": "jobs.try_out", "demo": "demo.__main__"}


def module_of(command: str) -> str:
    """The name of the module whose `main` is the command."""
    return _MODULES.get(command, f"jobs.{command}")


def _command(job: str) -> Callable[[], None]:
    def command() -> None:
        _exit(import_module(module_of(job)).main())

    return command


def laglake() -> None:
    """The command `laglake JOB [OPTIONS]`: runs the job's own command."""
    commands = TO_LOOK | JOBS
    jobs = "\n".join(f"  {name:10}{about}" for name, about in commands.items())
    parser = argparse.ArgumentParser(
        "laglake",
        usage="laglake JOB [OPTIONS OF THE JOB]",
        description="The lag of Kafka's consumer groups, recorded as Delta tables.",
        epilog=f"jobs:\n{jobs}\n\n`laglake JOB --help` explains a job's options.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("job", choices=commands, metavar="JOB", help="one of the jobs below")
    job = parser.parse_args(sys.argv[1:2]).job
    _exit(import_module(module_of(job)).main(sys.argv[2:]))


def _exit(status: int) -> None:
    if status:
        sys.exit(status)


run, snapshot, lag, show, report, notify, replay, maintain, doctor = map(_command, JOBS)
