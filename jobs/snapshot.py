"""Take a snapshot of each cluster: the committed offsets of its groups, and the ends of its logs."""

import logging
import sys
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
    """How the snapshot of one cluster ended: `complete`, `partial`, `failed` or `skipped`, and why."""

    @property
    def cluster(self) -> str:
        """The cluster's name in the config."""

    @property
    def status(self) -> str:
        """The status in the ledger, or `skipped` if the snapshot is already taken, or is being taken by another run."""

    @property
    def message(self) -> str:
        """One line for people."""


def step(spark: "SparkSession", job: Job) -> int:
    """Takes the snapshots. If one cluster fails, the others are not affected."""
    return exit_status(take(spark, job), job.fail_on)


def take(spark: "SparkSession", job: Job) -> Sequence[Outcome]:
    """Takes the snapshots, and logs how each one ended."""
    from pipeline.snapshot import take_snapshots  # see jobs.session

    outcomes = take_snapshots(spark, job.config, job.clusters, job.at, schedule.utc_now, missed=job.missed)
    for outcome in outcomes:
        level = logging.INFO if outcome.status in ("complete", "skipped") else logging.WARNING
        log.log(level, "%s %s: %s: %s", outcome.cluster, utc_text(outcome.snapshot_id), outcome.status, outcome.message)
    return outcomes


def exit_status(outcomes: Iterable[Outcome], fail_on: str) -> int:
    """1 if nothing could be read, or with `fail_on` = `partial` if anything could not be read; else 0."""
    statuses = [outcome.status for outcome in outcomes]
    if fail_on == "partial":
        return int(not {"failed", "partial"}.isdisjoint(statuses))
    return int(set(statuses) == {"failed"})


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the job and returns the exit status."""
    return cli.run(cli.parser("snapshot", __doc__, at=cli.DUE), argv, step, load=SLOW)


if __name__ == "__main__":
    sys.exit(main())
