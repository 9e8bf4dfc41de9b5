"""Take a snapshot of each cluster, compute the lag and write the report, in one Spark session.

If the config has channels, new and resolved findings are then sent to them.
"""

import logging
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from jobs import cli, lag, maintain, notify, report, snapshot
from jobs.session import Job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)


class Snapshots:
    """The first and the last step of a run: it takes the snapshots, and says at the end which are missing.

    What the steps between log last, such as where the report is, looks like success.
    """

    def __init__(self) -> None:
        self._outcomes: Sequence[snapshot.Outcome] = ()

    def take(self, spark: "SparkSession", job: Job) -> int:
        """Takes the snapshots; returns the exit status."""
        self._outcomes = ()  # of the run before, if this one fails
        self._outcomes = snapshot.take(spark, job)
        return snapshot.exit_status(self._outcomes, job.fail_on)

    def conclude(self, _spark: "SparkSession", job: Job) -> int:
        """Logs an error if no snapshot was read, or if the snapshots of other runs are not there yet."""
        from pipeline.snapshot import not_finished, nothing_read  # see jobs.session

        unfinished = [f"{o.cluster}: {o.message}" for o in self._outcomes if o.status == "unfinished"]
        if unfinished and not job.is_repeated:
            log.error("%s", not_finished(unfinished))
        if {outcome.status for outcome in self._outcomes} == {"failed"}:
            log.error("%s", nothing_read([outcome.message for outcome in self._outcomes]))
        return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the job and returns the exit status."""
    command = cli.parser("run", __doc__, at=cli.DUE, output=True, repeated=True)
    command.add_argument(
        "--maintain",
        action="store_true",
        help="also do what the job maintain does, after the report; with --every only once a day (UTC)",
    )
    snapshots = Snapshots()
    steps = (snapshots.take, lag.step, report.step_of_run, notify.step, maintain.Daily(), snapshots.conclude)
    return cli.run(command, argv, *steps, load=snapshot.SLOW)


if __name__ == "__main__":
    sys.exit(main())
