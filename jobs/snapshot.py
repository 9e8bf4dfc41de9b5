"""Take a snapshot of each cluster: the committed offsets of its groups, and the ends of its logs."""

import logging
import sys
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

from jobs import cli, schedule
from jobs.session import Job
from pipeline.common.epoch import utc_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

SLOW = "pipeline.quality"
"""This module imports Great Expectations."""


class Outcome(Protocol):
    """How the snapshot of one cluster ended, and why."""

    @property
    def cluster(self) -> str:
        """The cluster's name in the config."""

    @property
    def status(self) -> str:
        """`complete`, `partial` or `failed`, as in the ledger; `skipped` if another run has taken the snapshot.

        `unfinished` if another run has claimed it and has not finished it.
        """

    @property
    def message(self) -> str:
        """One line for people."""


def step(spark: "SparkSession", job: Job) -> int:
    """Takes the snapshots. If one cluster fails, the others are not affected."""
    return exit_status(take(spark, job), job.fail_on)


def take(spark: "SparkSession", job: Job) -> Sequence[Outcome]:
    """Takes the snapshots, and logs how each one ended.

    A single run waits for another run that has claimed a snapshot, because its exit status says whether there is one.
    A repeated run (`--every`) has no exit status and its next instant, so it leaves the snapshot to the other run.
    """
    from pipeline.snapshot import take_snapshots  # see jobs.session

    outcomes = take_snapshots(
        spark,
        job.config,
        job.clusters,
        job.at,
        schedule.utc_now,
        missed=job.missed,
        pause=None if job.is_repeated else time.sleep,
    )
    expected = ("complete", "skipped", "unfinished") if job.is_repeated else ("complete", "skipped")
    for outcome in outcomes:
        level = logging.INFO if outcome.status in expected else logging.WARNING
        log.log(level, "%s %s: %s: %s", outcome.cluster, utc_text(outcome.snapshot_id), outcome.status, outcome.message)
    return outcomes


def exit_status(outcomes: Iterable[Outcome], fail_on: str) -> int:
    """1 if nothing could be read, or if another run has not finished a snapshot; else 0.

    With `fail_on` = `partial` also 1 if anything could not be read. A try that was killed leaves a snapshot unfinished:
    with 0, a scheduler's second try would be a success without a snapshot.
    """
    statuses = [outcome.status for outcome in outcomes]
    if "unfinished" in statuses:
        return 1
    if fail_on == "partial":
        return int(not {"failed", "partial"}.isdisjoint(statuses))
    return int(set(statuses) == {"failed"})


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the job and returns the exit status."""
    return cli.run(cli.parser("snapshot", __doc__, at=cli.DUE), argv, step, load=SLOW)


if __name__ == "__main__":
    sys.exit(main())
