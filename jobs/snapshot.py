"""Take a snapshot of each cluster: the committed offsets of its groups, and the ends of its logs."""

import logging
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from jobs import cli, schedule
from jobs.session import Job
from pipeline.common.epoch import utc_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pipeline.snapshot import SnapshotOutcome

log = logging.getLogger(__name__)

SLOW = "pipeline.snapshot"
"""This module imports most of laglake, which takes a second."""


class Snapshots:
    """The first and the last step of a job: it takes the snapshots, and says at the end whether there are any.

    What the steps between log last, such as where the report is, looks like success.
    """

    def __init__(self) -> None:
        self._outcomes: Sequence[SnapshotOutcome] = ()

    def take(self, spark: "SparkSession | None", job: Job) -> int:
        """Takes the snapshots. If one cluster fails, the others are not affected. `conclude` has the exit status."""
        from pipeline.snapshot import take_snapshots  # see jobs.session

        self._outcomes = ()  # of the run before, if this one fails
        self._outcomes = take_snapshots(spark, job.config, job.clusters, job.at, schedule.utc_now, missed=job.missed)
        log_outcomes(self._outcomes)
        return 0

    def conclude(self, spark: "SparkSession | None", job: Job) -> int:
        """Returns the exit status; logs an error if no snapshot was read, or other runs have not finished theirs.

        A single run waits for such runs, because its exit status says whether there is a snapshot. It does so at last:
        the lag, report and messages of the other clusters do not wait. A repeated run (`--every`) has no exit status
        and its next instant, so it leaves the snapshot to the other run.
        """
        from pipeline.snapshot import not_finished, nothing_read, wait_for_others  # see jobs.session

        if not job.is_repeated:
            before = self._outcomes
            self._outcomes = wait_for_others(spark, job.config, before, job.at or schedule.utc_now(), schedule.utc_now)
            log_outcomes([outcome for outcome in self._outcomes if outcome not in before])
            if unfinished := not_finished(self._outcomes, job.config.snapshot):
                log.error("%s", unfinished)
        if {outcome.status for outcome in self._outcomes} == {"failed"}:
            log.error("%s", nothing_read([outcome.message for outcome in self._outcomes]))
        return exit_status([outcome.status for outcome in self._outcomes], job.fail_on)


def log_outcomes(outcomes: Iterable["SnapshotOutcome"]) -> None:
    """Logs how each snapshot ended."""
    for outcome in outcomes:
        level = logging.INFO if outcome.status in ("complete", "unfinished") else logging.WARNING
        log.log(level, "%s %s: %s: %s", outcome.cluster, utc_text(outcome.snapshot_id), outcome.status, outcome.message)


def exit_status(statuses: Sequence[str], fail_on: str) -> int:
    """1 if nothing could be read, or if another run has not finished a snapshot; else 0.

    With `fail_on` = `partial` also 1 if anything could not be read. A try that was killed leaves a snapshot unfinished:
    with 0, a scheduler's second try would be a success without a snapshot.
    """
    if "unfinished" in statuses:
        return 1
    if fail_on == "partial":
        return int(not {"failed", "partial"}.isdisjoint(statuses))
    return int(set(statuses) == {"failed"})


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the job and returns the exit status."""
    snapshots = Snapshots()
    return cli.run(cli.parser("snapshot", __doc__, at=cli.DUE), argv, snapshots.take, snapshots.conclude, load=SLOW)


if __name__ == "__main__":
    sys.exit(main())
