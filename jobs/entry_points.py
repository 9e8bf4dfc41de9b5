"""The commands in the wheel: `laglake JOB`, and a `laglake-JOB` for each job, which Databricks calls as a function.

Databricks ignores the return value of a function, so an exit status other than 0 is raised as SystemExit.
"""

import argparse
import signal
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from threading import current_thread, main_thread

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
    "report": "write the report: HTML, JSON, CSV or Markdown",
    "notify": "send new and resolved findings to the channels of their owners",
    "replay": "analyse a recording that was made elsewhere",
    "maintain": "remove old rows, sort past days, delete unneeded files",
    "doctor": "check brokers, rights and lake, without Spark",
}
INTERRUPTED = 130
"""The exit status after Ctrl-C, as shells have it."""
_MODULES = {"try": "jobs.try_out", "demo": "demo.__main__"}


def module_of(command: str) -> str:
    """The name of the module whose `main` is the command."""
    return _MODULES.get(command, f"jobs.{command}")


def _command(job: str) -> Callable[[], None]:
    def command() -> None:
        _run(job, None)

    return command


def _run(job: str, argv: Sequence[str] | None) -> None:
    """Runs the job. Ctrl-C ends it without a traceback, also while its modules are imported, which takes seconds."""
    is_default = signal.getsignal(signal.SIGINT) is signal.default_int_handler and current_thread() is main_thread()
    if is_default:  # an exception in the middle of an import could be reported as an ImportError
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    main = import_module(module_of(job)).main
    if is_default:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        status = main(argv)
    except KeyboardInterrupt:
        status = INTERRUPTED
    if status:
        sys.exit(status)


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
    _run(job, sys.argv[2:])


run, snapshot, lag, show, report, notify, replay, maintain, doctor = map(_command, JOBS)
