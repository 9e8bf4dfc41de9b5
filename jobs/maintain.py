"""Maintain the lake: remove rows older than `[retention]` allows, sort past days, delete unneeded files."""

import logging
import sys
from collections.abc import Sequence
from datetime import date
from typing import TYPE_CHECKING

from jobs import cli, schedule
from jobs.session import Job
from pipeline.config.value_types import cluster_name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)


def step(spark: "SparkSession | None", job: Job) -> int:
    """Maintains the lake, and logs what was done."""
    from pipeline.lake import Lake, refuse_new  # see jobs.session
    from pipeline.maintain import maintain, rename_cluster

    lake = Lake(spark, job.config.lake)
    lake.prepare(refuse_new)
    if job.renamed:
        rename_cluster(lake, *job.renamed)
        return 0
    done = maintain(lake, job.config.retention, job.clusters, schedule.utc_now)
    joined = sum(before - after for before, after in done.joined.values())
    log.info(
        "maintain: %d rows removed, %d files fewer, %d files deleted",
        sum(done.rows.values()),
        joined,
        sum(done.deleted.values()),
    )
    return 0


class Daily:
    """The last step of a `run`: maintains the lake if the command line asks for it, once a day if the run is repeated.

    If it fails, the next run tries again.
    """

    def __init__(self) -> None:
        self._done: date | None = None

    def __call__(self, spark: "SparkSession | None", job: Job) -> int:
        """Maintains the lake unless that has been done today."""
        today = schedule.utc_now().date()
        if not job.is_maintained or self._done == today:
            return 0
        status = step(spark, job)
        self._done = today
        return status


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the job and returns the exit status."""
    command = cli.parser("maintain", __doc__, local=False)
    command.add_argument(
        "--rename-cluster",
        type=cluster_name,
        nargs=2,
        metavar=("OLD", "NEW"),
        help="give a cluster another name in all tables, and do nothing else; stop the jobs that write to it first",
    )
    return cli.run(command, argv, step)


if __name__ == "__main__":
    sys.exit(main())
