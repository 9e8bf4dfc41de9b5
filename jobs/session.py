"""Runs the steps of a job, once or repeatedly, in one Spark session or without Spark."""

import logging
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from importlib import import_module
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Literal

from jobs.schedule import repeat, stopped_by_signals, utc_now
from pipeline.common.errors import ConfigError, LakeError, first_line
from pipeline.config import Config
from pipeline.config.databricks import is_databricks
from pipeline.report.model.selection import Selection

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

ZONE = "spark.sql.session.timeZone"


@dataclass(frozen=True)
class Job:
    """A command line and its config, both of them checked."""

    config: Config
    clusters: tuple[str, ...]
    at: datetime | None
    fail_on: str
    output: Path
    recording: Path = Path()
    selection: Selection = field(default_factory=Selection)
    kind: Literal["html", "json", "csv", "markdown"] = "html"
    incident: str | None = None
    """The first digits of the finding_id that the report is about; None also if `selection` says what it is about."""
    show: int = 0
    renamed: tuple[str, str] | None = None
    """The old and the new name of a cluster to rename."""
    is_maintained: bool = False
    """Whether a `run` also maintains the lake."""
    is_repeated: bool = False
    is_local: bool = False
    """Whether the job runs in this process alone, without Spark."""
    missed: int = 0
    """How many instants of the schedule just before this one had no run, because the previous run took too long."""


Step = Callable[["SparkSession | None", Job], int]
"""One part of a job. It gets the session, None if the job runs without Spark. It logs what it did, and returns the exit
status."""


def run_steps(name: str, job: Job, steps: Sequence[Step], load: str | None = None) -> int:
    """Runs the steps, once or at each instant of the schedule; returns the worst exit status.

    `load` names a module that is imported while Spark starts. Raises what `in_session` raises.
    """
    if not job.is_local:
        return in_session(name, job, steps, load)
    return repeated(None, job, steps) if job.is_repeated else max(step(None, job) for step in steps)


def require_local(job: Job, name: str) -> None:
    """Raises ConfigError if the job of this name needs something that only Spark can do."""
    from pipeline.lake.stores import has_links, local_folder

    config = job.config
    folder = local_folder(None, config.lake.root)
    if folder is None or "%" in str(folder):
        place = config.lake.root or f"{config.lake.catalog}.{config.lake.schema_name}"
        raise ConfigError(f"--local: the lake {place} is not a folder of this machine: leave out --local")
    if not has_links(folder):
        raise ConfigError(f"--local: {folder}: files cannot be linked there, so no lake is safe there")
    if job.is_maintained:
        raise ConfigError("--local and --maintain cannot be combined: call maintain, which needs Spark, once a day")
    for cluster in job.clusters:
        if name in ("lag", "run") and config.clusters[cluster].log_dirs:
            raise ConfigError(f"--local: clusters.{cluster}.log_dirs needs Spark: leave out --local")


def in_session(name: str, job: Job, steps: Sequence[Step], load: str | None = None) -> int:
    """Runs the steps in one Spark session, once or at each instant of the schedule; returns the worst exit status.

    Raises LakeError with Spark's message if Spark fails, and the errors of laglake itself.
    """
    # Not at the top, so that errors in the arguments are reported before Spark is imported.
    from pyspark.sql import SparkSession

    from pipeline.lake import SPARK_ERRORS
    from pipeline.lake.few_rows import for_few_rows
    from pipeline.session import spark_session

    # An existing session belongs to a notebook or to the platform. Our own session is stopped, because a cluster whose
    # driver just ends takes that for a failure of executors and starts them again.
    is_ours = SparkSession.getActiveSession() is None and not is_databricks()
    if load:  # after the imports above, so that no two threads import the same
        Thread(target=import_module, args=(load,), daemon=True).start()
    spark = spark_session(name)
    # Delta compares instants as text in the session's time zone, in which an hour may occur twice.
    zone = spark.conf.get(ZONE) or "UTC"
    spark.conf.set(ZONE, "UTC")
    try:
        if job.is_repeated:
            return repeated(spark, job, steps)
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


def repeated(spark: "SparkSession | None", job: Job, steps: Sequence[Step]) -> int:
    """Runs the steps at each instant of the schedule, also after a failed run, unless Spark itself has ended."""
    from pipeline.lake import FAILURES
    from pipeline.lake.few_rows import for_few_rows

    recoverable: tuple[type[Exception], ...] = (*FAILURES, OSError)  # such as a full disk

    with stopped_by_signals() as stop:

        def once(at: datetime, missed: int) -> None:
            try:
                with for_few_rows(spark) if spark else nullcontext():
                    for step in steps:
                        if not stop.is_set():
                            step(spark, replace(job, at=at, missed=missed))
            except recoverable as error:
                if spark:
                    _check_alive(spark)
                log.debug("%s", error, exc_info=True)
                log.error("this run failed, the next one starts as scheduled: %s", first_line(error))
            if stop.is_set():
                log.info("%s: the job ends after the current step", stop.signal_name)

        repeat(job.config.snapshot.schedule_ms, once, utc_now, stop)
    return 0


def _check_alive(spark: "SparkSession") -> None:
    from pipeline.lake import SPARK_ERRORS

    dead: tuple[type[Exception], ...] = (*SPARK_ERRORS, OSError)
    try:
        spark.range(1).collect()
    except dead as error:
        raise LakeError(f"Spark has ended: {first_line(error)}") from error
