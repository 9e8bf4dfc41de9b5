"""The command line that all jobs share, and how a failure becomes one line and an exit status."""

import argparse
import logging
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NoReturn

from jobs.argument_types import duration, instant
from jobs.selection import DEFAULT_OUTPUT, add_selection, output_of, selection_of
from jobs.session import Job, Step, require_local, run_steps
from jobs.terminal import log_to_stderr
from pipeline.common.errors import ConfigError, LaglakeError
from pipeline.config import Config, load_config
from pipeline.config.value_types import cluster_name
from pipeline.report.text.names import visible

log = logging.getLogger(__name__)

CONFIG_VARIABLE = "LAGLAKE_CONFIG"
DEFAULT_CONFIG = "conf/local.toml"
IN_CHECKOUT = (Path(__file__).parents[1] / "spark-submit.sh").exists()
"""Whether this is a checkout, in which spark-submit.sh calls the jobs, and not an installed package."""

DUE = (
    "when the snapshot was due: ISO 8601 with Z or an offset, or epoch milliseconds (default: now). It is rounded down "
    "to the schedule; a second run for the same instant adds nothing"
)
AS_OF = "show what was known at this instant: ISO 8601 with Z or an offset, or epoch milliseconds (default: now)"
LOCAL = (
    "do without Spark and Java: everything in this process, with the same result. The lake must be in a folder of this "
    "machine; log_dirs and maintain need Spark"
)
FAIL_ON = "exit with 1 if nothing could be read (the default), or also if a cluster was read only in part or not at all"


class _Parser(argparse.ArgumentParser):
    """An argparse parser that reports an invalid argument in one line, without the usage."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}\n")


def plain_parser(job: str, description: str | None, epilog: str) -> argparse.ArgumentParser:
    """A command line with the options that every job has: the config and the location of the lake."""
    result = _Parser(
        prog=f"laglake {job}",
        description=description,
        epilog=_as_called(epilog.format(job=job)),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    result.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        default=Path(os.environ.get(CONFIG_VARIABLE, DEFAULT_CONFIG)),
        help=f"the TOML file with the settings (default: ${CONFIG_VARIABLE}, else {DEFAULT_CONFIG})",
    )
    result.add_argument(
        "--lake",
        metavar="LAKE",
        help="where the tables are, instead of the config's: a path, a URI, or CATALOG.SCHEMA",
    )
    return result


def _as_called(examples: str) -> str:
    """The examples with the command that is there: in an installed package it is laglake, not spark-submit.sh."""
    if IN_CHECKOUT:
        return examples
    lines = [line for line in examples.splitlines(keepends=True) if "spark-submit.sh --" not in line]
    return "".join(lines).replace("./spark-submit.sh", "laglake")


def parser(
    job: str,
    description: str | None,
    *,
    at: str | None = None,
    output: bool = False,
    recording: bool = False,
    selection: bool = False,
    repeated: bool = False,
    local: bool = True,
) -> argparse.ArgumentParser:
    """The command line of `job`.

    `at` is the help of its option `--at`: DUE if it takes snapshots, else AS_OF; without it there is no such option.
    With `output` it also takes the path of the report, and with `recording` a folder. With `selection` it has options
    that select what to read from the lake: clusters, a time, groups, topics. With `repeated` it has `--every`, and with
    `local` the option to do without Spark.
    """
    examples = _EXAMPLES if at == DUE else _EXAMPLES.replace(_EXAMPLE_AT, "").replace(_SEE_FAIL_ON, "")
    if recording:
        examples = examples.replace("production.toml", f"production.toml{_EXAMPLE_RECORDING}").replace(
            "east", "incident-7"
        )
    if selection:
        examples = examples.replace(_LAST_EXAMPLE, f"{_EXAMPLE_INCIDENT}{_LAST_EXAMPLE}")
    result = plain_parser(job, description, examples)
    result.set_defaults(at=None)
    if at:
        result.add_argument("--at", type=instant, metavar="INSTANT", help=at)
    if recording:
        _add_recording(result)
    if selection:
        add_selection(result)
    _add_cluster(result, recording=recording, selection=selection)
    result.add_argument(
        "--fail-on",
        choices=("nothing", "partial"),
        default="nothing",
        help=FAIL_ON if at == DUE else argparse.SUPPRESS,  # elsewhere it has no effect
    )
    if output:
        _add_output(result)
    if repeated:
        _add_every(result)
    _add_how(result, local=local)
    return result


def _add_how(command: argparse.ArgumentParser, *, local: bool) -> None:
    if local:
        command.add_argument("--local", action="store_true", help=LOCAL)
    command.add_argument("--check", action="store_true", help="only check the arguments and the config")
    command.add_argument("--verbose", action="store_true", help="log more, with the tracebacks of Spark's errors")


def _add_recording(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--recording",
        type=Path,
        metavar="FOLDER",
        required=True,
        help="the recording: a folder with jolokia/ or prom/ (at its top or in one subfolder for each client), "
        "statistics.jsonl or request.log, and truth.csv, which has the offsets of the brokers; see docs/positions.md",
    )


def _add_cluster(command: argparse.ArgumentParser, *, recording: bool, selection: bool) -> None:
    about = "only this cluster of the config; may be repeated (default: all)"
    if recording:
        about = "the name of the recording's cluster in the tables (default: the name of the folder)"
    elif selection:
        about = "only this cluster, which may be one of a recording; may be repeated (default: all in the lake)"
    command.add_argument("--cluster", action="append", metavar="NAME", help=about)


def _add_output(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--output",
        type=Path,
        metavar="PATH",
        help=f"the file to write (default: {DEFAULT_OUTPUT}, with the suffix of the format)",
    )


def _add_every(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--every",
        type=duration,
        nargs="?",
        const=0,
        metavar="DURATION",
        help="repeat the run at this interval, such as 60s (without a duration: the schedule of the config); SIGTERM "
        "or Ctrl-C ends the job after the current step",
    )


_EXAMPLE_AT = " --at 2026-01-31T12:05:00Z"
_EXAMPLE_RECORDING = " --recording recordings/7"
_EXAMPLE_INCIDENT = "  ./spark-submit.sh {job} --config conf/production.toml --incident 4f6d0c1e9ab2\n"
_LAST_EXAMPLE = "  ./spark-submit.sh --master"
_SEE_FAIL_ON = ", see --fail-on, or another run has\nnot finished it"
_EXAMPLES = f"""\
examples:
  ./spark-submit.sh {{job}} --config conf/production.toml
  ./spark-submit.sh {{job}} --config conf/production.toml --cluster east{_EXAMPLE_AT}
{_LAST_EXAMPLE} 'local[4]' --driver-memory 4g -- {{job}} --config conf/production.toml

exit status: 0 done, even if another run did it first; 1 failed{_SEE_FAIL_ON}; 2 wrong arguments or config
"""


def run(command: argparse.ArgumentParser, argv: Sequence[str] | None, *steps: Step, load: str | None = None) -> int:
    """Checks the arguments (None: those of the process) and the config, then runs the steps in one Spark session.

    `load` names a module that is imported while Spark starts. Returns the worst exit status of the steps. If laglake or
    Spark raises an error, the job ends with its message as one line on stderr; any other exception is a bug.
    """
    arguments = command.parse_args(argv)
    try:
        config = _scheduled(load_config(arguments.config, os.environ, arguments.lake), arguments)
        clusters = _clusters(config, arguments)
        job = Job(
            config=config,
            clusters=clusters,
            at=arguments.at,
            fail_on=arguments.fail_on,
            output=output_of(arguments),
            recording=getattr(arguments, "recording", Path()),
            selection=selection_of(arguments, clusters),
            kind=getattr(arguments, "kind", "html"),
            incident=incident if isinstance(incident := getattr(arguments, "incident", None), str) else None,
            show=getattr(arguments, "show", 0),
            renamed=getattr(arguments, "rename_cluster", None),
            is_maintained=getattr(arguments, "maintain", False),
            is_repeated=getattr(arguments, "every", None) is not None,
            is_local=getattr(arguments, "local", False),
        )
        if job.is_local:
            require_local(job, command.prog.split()[-1])
        if arguments.check:
            return _checked(config, arguments.config)
        log_to_stderr(logging.DEBUG if arguments.verbose else logging.INFO)
        if command.prog.split()[-1] in ("snapshot", "run"):  # these log in to clusters
            _warn_of_plain_text(config, clusters)
        if command.prog.split()[-1] in ("lag", "run"):  # these judge
            for warning in config.warnings():
                log.warning("%s: %s", arguments.config, warning)
        return run_steps(command.prog, job, steps, load)
    except LaglakeError as error:
        return refused(error)


def _checked(config: Config, file: Path) -> int:
    for warning in config.warnings():
        print(f"{file}: warning: {warning}")
    print(f"{file}: arguments and config are right; `doctor` also checks the clusters and the lake")
    return 0


def _warn_of_plain_text(config: Config, clusters: Iterable[str]) -> None:
    for name in clusters:
        for reason in config.clusters[name].passwords_in_plain_text():
            log.warning("%s: %s", name, reason)


def refused(error: LaglakeError) -> int:
    """Prints to stderr why the job ends; returns the exit status."""
    print("\n".join(visible(line) for line in str(error).split("\n")), file=sys.stderr)
    return error.exit_status


def _scheduled(config: Config, arguments: argparse.Namespace) -> Config:
    """The config, with the schedule from the command line if it has one."""
    every_ms = getattr(arguments, "every", None)
    if every_ms is not None and arguments.at is not None:
        raise ConfigError("--at and --every cannot be combined: --at is the instant of a single run")
    if every_ms is not None and arguments.fail_on != "nothing":
        raise ConfigError("--fail-on and --every cannot be combined: a failed snapshot does not end the job")
    if not every_ms:
        return config
    return config.model_copy(update={"snapshot": config.snapshot.model_copy(update={"schedule_ms": every_ms})})


def choose_clusters(config: Config, wanted: Iterable[str], file: Path) -> tuple[str, ...]:
    """The names of the clusters to work on, in the config's order; all clusters if `wanted` is empty.

    Raises:
        ConfigError: a name that the config does not have.
    """
    wanted = set(wanted)
    unknown = sorted(wanted - config.clusters.keys())
    if unknown:
        raise ConfigError(f"--cluster {unknown[0]}: not in {file}, which has {', '.join(config.clusters)}")
    return tuple(name for name in config.clusters if name in wanted or not wanted)


def _clusters(config: Config, arguments: argparse.Namespace) -> tuple[str, ...]:
    """The clusters to work on: those of the config; for a recording, its own name; for a report, any that are named."""
    if "since" in arguments:
        return tuple(arguments.cluster or ())
    if "recording" not in arguments:
        return choose_clusters(config, arguments.cluster or (), arguments.config)
    name, *more = arguments.cluster or [arguments.recording.resolve().name]
    if more:
        raise ConfigError("--cluster: a recording has only one cluster")
    try:
        return (cluster_name(name),)
    except ValueError as error:
        raise ConfigError(f"--cluster {name!a}: {error}") from None
