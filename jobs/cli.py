"""What all jobs share: the command line, the log, and how a failure becomes one line and an exit status."""

import argparse
import logging
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Literal, NoReturn, Protocol

from jobs.schedule import repeat, stopped_by_signals
from pipeline.config import Config, load_config
from pipeline.config.value_types import cluster_name, duration_ms
from pipeline.databricks import is_databricks
from pipeline.errors import ConfigError, LaglakeError, LakeError, first_line
from pipeline.report.names import visible
from pipeline.report.selection import Selection

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# 1973 in milliseconds; what is smaller was meant as seconds.
_SMALLEST_MS = 100_000_000_000
_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)

CONFIG_VARIABLE = "LAGLAKE_CONFIG"
DEFAULT_CONFIG = "conf/local.toml"
ZONE = "spark.sql.session.timeZone"
DEFAULT_OUTPUT = Path("build/report.html")


class Outcome(Protocol):
    """How the snapshot of one cluster ended: `complete`, `partial`, `failed` or `skipped`, and why."""

    @property
    def cluster(self) -> str:
        """The cluster's name in the config."""

    @property
    def status(self) -> str:
        """The ledger's word, or `skipped`: done already, or being done by another run."""

    @property
    def message(self) -> str:
        """The one line that people should read."""


@dataclass(frozen=True)
class Job:
    """A command line and its config, both checked."""

    config: Config
    clusters: tuple[str, ...]
    at: datetime | None
    fail_on: str
    output: Path
    recording: Path = Path()
    selection: Selection = field(default_factory=Selection)
    kind: Literal["html", "json", "csv"] = "html"
    show: int = 0
    is_repeated: bool = False
    missed: int = 0
    """Instants of the schedule just before this run that had none, as the run before took too long."""


Step = Callable[["SparkSession", Job], int]
"""One part of a job: does it, says what it did in the log, returns the exit status."""


class _Parser(argparse.ArgumentParser):
    """argparse, except that a wrong argument is one line instead of the usage and a line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}\n")


def plain_parser(job: str, description: str | None, epilog: str) -> argparse.ArgumentParser:
    """A command line with the options that every job has: the config, and the place of the lake."""
    result = _Parser(
        prog=f"laglake {job}",
        description=description,
        epilog=epilog.format(job=job),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    result.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        default=Path(os.environ.get(CONFIG_VARIABLE, DEFAULT_CONFIG)),
        help=f"settings, TOML (default: ${CONFIG_VARIABLE}, else {DEFAULT_CONFIG})",
    )
    result.add_argument(
        "--lake",
        metavar="PLACE",
        help="where the tables are, instead of the config's: a path, a URI, or CATALOG.SCHEMA",
    )
    return result


def parser(
    job: str,
    description: str | None,
    *,
    output: bool = False,
    recording: bool = False,
    selection: bool = False,
    repeated: bool = False,
) -> argparse.ArgumentParser:
    """The command line of `job`.

    With `output` it also takes the path of the report, with `recording` a folder, with `selection` what of the lake is
    meant: any cluster that it has, and a time, groups and topics. With `repeated` it may be asked to go on.
    """
    result = plain_parser(job, description, _EXAMPLES)
    result.add_argument(
        "--at",
        type=instant,
        metavar="INSTANT",
        help="when the snapshot was due: ISO 8601 with Z or an offset, or epoch milliseconds (default: now). "
        "It is floored to the schedule; the same instant again adds nothing. Jobs that take no snapshot work "
        "on all that are there, whatever the instant; a report shows what was known then",
    )
    if recording:
        result.add_argument(
            "--recording",
            type=Path,
            metavar="FOLDER",
            required=True,
            help="what was recorded: jolokia/ or prom/ (here or in a folder for each client), statistics.jsonl, or "
            "request.log, beside truth.csv with what the brokers had; docs/positions.md says more",
        )
    cluster_help = "only this cluster of the config; may be repeated (default: all)"
    if recording:
        cluster_help = "the name that the recording's cluster gets in the tables (default: that of the folder)"
    elif selection:
        cluster_help = "only this cluster, also one of a recording; may be repeated (default: all that the lake has)"
        _add_selection(result)
    result.add_argument("--cluster", action="append", metavar="NAME", help=cluster_help)
    result.add_argument(
        "--fail-on",
        choices=("nothing", "partial"),
        default="nothing",
        help="exit with 1 if nothing could be read (the default), or also if a cluster was read only in part or not "
        "at all",
    )
    if output:
        result.add_argument(
            "--output",
            type=Path,
            metavar="PATH",
            help=f"the file to write (default: {DEFAULT_OUTPUT}, ending like the format)",
        )
    if repeated:
        result.add_argument(
            "--every",
            type=duration,
            nargs="?",
            const=0,
            metavar="DURATION",
            help="go on until SIGTERM or Ctrl-C, which let the step at hand finish: a run at this interval, such as "
            "60s (without a duration: the schedule of the config)",
        )
    result.add_argument("--check", action="store_true", help="check the arguments and the config, and stop there")
    result.add_argument(
        "--verbose", action="store_true", help="log more, with the tracebacks of what Spark refuses to do"
    )
    return result


def _add_selection(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--format",
        dest="kind",
        choices=("html", "json", "csv"),
        default="html",
        help="html: the page (the default); json: all that is on it; csv: every partition at the newest snapshot",
    )
    command.add_argument(
        "--from",
        dest="since",
        type=begin,
        metavar="INSTANT",
        help="no snapshot before this instant, or before this day of UTC (default: the first)",
    )
    command.add_argument(
        "--to",
        dest="until",
        type=end,
        metavar="INSTANT",
        help="no snapshot after this instant, or after this day of UTC (default: --at, else the newest)",
    )
    names = "as Java reads it, found anywhere in the name (default: all)"
    command.add_argument("--group", type=regex, metavar="REGEX", help=f"only groups with this, {names}")
    command.add_argument("--topic", type=regex, metavar="REGEX", help=f"only topics with this, {names}")


_EXAMPLES = """\
examples:
  ./spark-submit.sh {job} --config conf/production.toml
  ./spark-submit.sh {job} --config conf/production.toml --cluster east --at 2026-01-31T12:05:00Z
  ./spark-submit.sh --master 'local[4]' --driver-memory 4g -- {job} --config conf/production.toml

exit status: 0 done, also if another run did it first; 1 failed, see --fail-on; 2 wrong arguments or config
"""


def instant(text: str) -> datetime:
    """The instant an argument names, in UTC: ISO 8601 with an offset, or epoch milliseconds.

    Raises:
        argparse.ArgumentTypeError: neither, without an offset, or outside of years 1973 to 9999.
    """
    try:
        if re.fullmatch(r"[0-9]+", text):
            if int(text) < _SMALLEST_MS:
                raise argparse.ArgumentTypeError("looks like seconds; epoch milliseconds have 13 digits")
            return _EPOCH + timedelta(milliseconds=int(text))
        parsed = datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(
            "not an instant; write 2026-01-31T12:05:00Z, 2026-01-31T13:05:00+01:00 or 1769861100000"
        ) from None
    if parsed.tzinfo is None:
        utc = f"{text}T00:00:00Z" if _DAY.fullmatch(text) else f"{text}Z"
        raise argparse.ArgumentTypeError(f"has no offset, so it could be any zone's; for UTC write {utc}")
    return parsed.astimezone(UTC)


def begin(text: str) -> datetime:
    """An `instant`, or the first of a day of UTC."""
    return instant(f"{text}T00:00:00Z" if _DAY.fullmatch(text) else text)


def end(text: str) -> datetime:
    """An `instant`, or the last of a day of UTC."""
    return instant(f"{text}T23:59:59.999Z" if _DAY.fullmatch(text) else text)


def duration(text: str) -> int:
    """Milliseconds, as an argument.

    Raises:
        argparse.ArgumentTypeError: it is not a duration.
    """
    try:
        return duration_ms(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def positive(text: str) -> int:
    """A number above 0, as an argument.

    Raises:
        argparse.ArgumentTypeError: it is none.
    """
    if not re.fullmatch(r"0*[1-9][0-9]{0,8}", text):
        raise argparse.ArgumentTypeError(f"{text!a} is not a whole number from 1 to 999999999")
    return int(text)


def regex(text: str) -> str:
    """A regular expression, as an argument.

    Raises:
        argparse.ArgumentTypeError: it is none.
    """
    try:
        re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"{text!a} is not a valid regular expression: {error}") from None
    return text


def run(command: argparse.ArgumentParser, argv: Sequence[str] | None, *steps: Step, load: str | None = None) -> int:
    """Check the arguments (None: the process's) and the config, then do the steps in one Spark session.

    `load` names a module that takes seconds to import: it is loaded while Spark starts.
    Returns the exit status, the worst of the steps. What laglake or Spark raises ends the job with its
    message as one line on stderr; anything else is a defect and keeps its traceback.
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
            output=_output(arguments),
            recording=getattr(arguments, "recording", Path()),
            selection=_selection(arguments, clusters),
            kind=getattr(arguments, "kind", "html"),
            show=getattr(arguments, "show", 0),
            is_repeated=getattr(arguments, "every", None) is not None,
        )
        if arguments.check:
            print(f"{arguments.config}: arguments and config are right; `doctor` also asks the clusters and the lake")
            return 0
        log_to_stderr(logging.DEBUG if arguments.verbose else logging.INFO)
        if load:
            Thread(target=import_module, args=(load,), daemon=True).start()
        return _in_session(command.prog, job, steps)
    except LaglakeError as error:
        return refused(error)


def print_table(table: Callable[[bool], str]) -> None:
    """Print what `table` makes, coloured if that is asked for, on stdout; spark-submit.sh has a file for it instead."""
    is_terminal = sys.stdout.isatty() or "LAGLAKE_STDOUT_IS_A_TERMINAL" in os.environ
    text = table(is_terminal and "NO_COLOR" not in os.environ) + "\n"
    if file := os.environ.get("LAGLAKE_STDOUT"):
        Path(file).write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)


def refused(error: LaglakeError) -> int:
    """Say on stderr why the job ends; the exit status."""
    print("\n".join(visible(line) for line in str(error).split("\n")), file=sys.stderr)
    return error.exit_status


def _in_session(name: str, job: Job, steps: Sequence[Step]) -> int:
    # Not at the top: what is wrong with the arguments is said before Spark is loaded.
    from pyspark.sql import SparkSession

    from pipeline.lake import SPARK_ERRORS
    from pipeline.lake.few_rows import for_few_rows
    from pipeline.session import spark_session

    # A session that was there is someone else's: a notebook's, or the platform's. Our own is stopped, because
    # a cluster whose driver just ends takes that for a failure of executors and starts them anew.
    is_ours = SparkSession.getActiveSession() is None and not is_databricks()
    spark = spark_session(name)
    # Delta compares instants as text of the session's zone: an hour that comes twice would be two hours.
    zone = spark.conf.get(ZONE) or "UTC"
    spark.conf.set(ZONE, "UTC")
    try:
        if job.is_repeated:
            return _repeated(spark, job, steps)
        with for_few_rows(spark):
            return max(step(spark, job) for step in steps)
    except SPARK_ERRORS as error:
        log.debug("%s", error, exc_info=True)
        raise LakeError(f"Spark: {first_line(error)}") from error
    finally:
        if is_ours:
            with suppress(OSError):  # Spark's JVM may be gone
                spark.stop()
        else:
            spark.conf.set(ZONE, zone)


def _repeated(spark: "SparkSession", job: Job, steps: Sequence[Step]) -> int:
    """The steps at each instant of the schedule. A run that fails is not the last, unless Spark itself has ended."""
    from pipeline.lake import FAILURES
    from pipeline.lake.few_rows import for_few_rows

    recoverable: tuple[type[Exception], ...] = (*FAILURES, OSError)  # such as a disk that is full

    with stopped_by_signals() as stop:

        def once(at: datetime, missed: int) -> None:
            try:
                with for_few_rows(spark):
                    for step in steps:
                        if not stop.is_set():
                            step(spark, replace(job, at=at, missed=missed))
            except recoverable as error:
                _check_alive(spark)
                log.debug("%s", error, exc_info=True)
                log.error("this run has failed, the next will be tried: %s", first_line(error))
            if stop.is_set():
                log.info("%s: the job ends after the step at hand", stop.signal_name)

        repeat(job.config.snapshot.schedule_ms, once, utc_now, stop)
    return 0


def _check_alive(spark: "SparkSession") -> None:
    from pipeline.lake import SPARK_ERRORS

    dead: tuple[type[Exception], ...] = (*SPARK_ERRORS, OSError)
    try:
        spark.range(1).collect()
    except dead as error:
        raise LakeError(f"Spark has ended: {first_line(error)}") from error


def _scheduled(config: Config, arguments: argparse.Namespace) -> Config:
    """The config with the schedule that the command line asks for, if it does."""
    every_ms = getattr(arguments, "every", None)
    if every_ms is not None and arguments.at is not None:
        raise ConfigError("--at and --every: an instant is of one run; leave one of them out")
    if every_ms is not None and arguments.fail_on != "nothing":
        raise ConfigError("--fail-on and --every: a failed snapshot does not end the job; leave one of them out")
    if not every_ms:
        return config
    return config.model_copy(update={"snapshot": config.snapshot.model_copy(update={"schedule_ms": every_ms})})


def choose_clusters(config: Config, wanted: Iterable[str], file: Path) -> tuple[str, ...]:
    """The names of the clusters to work on, in the config's order; all if none is wanted.

    Raises:
        ConfigError: a name that the config does not have.
    """
    wanted = set(wanted)
    unknown = sorted(wanted - config.clusters.keys())
    if unknown:
        raise ConfigError(f"--cluster {unknown[0]}: not in {file}, which has {', '.join(config.clusters)}")
    return tuple(name for name in config.clusters if name in wanted or not wanted)


def _clusters(config: Config, arguments: argparse.Namespace) -> tuple[str, ...]:
    """The clusters of the config to work on; for a recording the name of its own, for a report any that are named."""
    if "since" in arguments:
        return tuple(arguments.cluster or ())
    if "recording" not in arguments:
        return choose_clusters(config, arguments.cluster or (), arguments.config)
    name, *more = arguments.cluster or [arguments.recording.resolve().name]
    if more:
        raise ConfigError("--cluster: a recording is of one cluster")
    try:
        return (cluster_name(name),)
    except ValueError as error:
        raise ConfigError(f"--cluster {name!a}: {error}") from None


def _output(arguments: argparse.Namespace) -> Path:
    output: Path | None = getattr(arguments, "output", None)
    return output or DEFAULT_OUTPUT.with_suffix(f".{getattr(arguments, 'kind', 'html')}")


def _selection(arguments: argparse.Namespace, clusters: tuple[str, ...]) -> Selection:
    if "since" not in arguments:
        return Selection(clusters)
    until = arguments.until or arguments.at
    from_ms, to_ms = (None if at is None else round(at.timestamp() * 1000) for at in (arguments.since, until))
    if from_ms is not None and to_ms is not None and from_ms > to_ms:
        begins, ends = (f"{at:%Y-%m-%dT%H:%M:%SZ}" for at in (arguments.since, until))
        raise ConfigError(f"--from {begins} is after --to {ends}")
    return Selection(clusters or None, from_ms, to_ms, arguments.group, arguments.topic)


def exit_status(outcomes: Iterable[Outcome], fail_on: str) -> int:
    """1 if nothing could be read; with `fail_on` = `partial`, if anything could not; else 0."""
    statuses = [outcome.status for outcome in outcomes]
    if fail_on == "partial":
        return int(not {"failed", "partial"}.isdisjoint(statuses))
    return int(set(statuses) == {"failed"})


class _OneLine(logging.Formatter):
    """One line for each event, whatever a name or an exception brings along: line ends or a terminal's escape codes."""

    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"

    def format(self, record: logging.LogRecord) -> str:
        return visible(super().format(record))


def utc_now() -> datetime:
    """The wall clock that jobs pass on."""
    return datetime.now(UTC)


def log_format() -> logging.Formatter:
    """One line for each event, its instant in UTC."""
    result = _OneLine("%(asctime)s %(levelname)s %(message)s")
    result.converter = time.gmtime
    return result


def log_to_stderr(level: int = logging.INFO) -> None:
    """Show laglake's own events from `level` on, and of libraries what went wrong; a log already set up stays."""
    from pyspark.logger import PySparkLogger  # see _in_session

    handler = logging.StreamHandler()
    handler.setFormatter(log_format())
    logging.basicConfig(handlers=[handler], level=logging.WARNING)
    for name in ("jobs", "pipeline", "__main__"):
        logging.getLogger(name).setLevel(level)
    # Spark's exceptions log themselves when they are raised, those too that are expected.
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)
    # kafka-python reports every try to reach a broker; what became of them is in the tables.
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
