"""Compute the lag of every snapshot that does not have it yet, late ones too."""

import logging
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from jobs import cli, schedule
from jobs.argument_types import positive
from jobs.session import Job
from jobs.terminal import print_table
from pipeline.common.errors import LagError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

SHOWN = 50


def step(spark: "SparkSession | None", job: Job) -> int:
    """Computes what is due; with `--show`, then shows the result.

    If one cluster fails, the status is 1, and the job goes on: its next steps show what there is.
    """
    from pipeline.derive import compute_lag  # see jobs.session

    status = 0
    try:
        computed = compute_lag(spark, job.config, job.clusters, schedule.utc_now)
        log.info("lag: %d snapshots computed", computed)
    except LagError as error:
        log.error("%s", error)
        status = 1
    if job.show:
        from pipeline.lake import Lake
        from pipeline.report.read.excerpt import Excerpt
        from pipeline.report.write import partitions_table

        excerpt = Excerpt(Lake(spark, job.config.lake), job.selection)
        print_table(lambda coloured: partitions_table(excerpt, job.show, coloured=coloured))
    return status


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the job and returns the exit status."""
    command = cli.parser("lag", __doc__, at=f"{cli.AS_OF}; needs --show")
    command.add_argument(
        "--show",
        type=positive,
        nargs="?",
        const=SHOWN,
        default=0,
        metavar="ROWS",
        help="then print the partitions with the most lag at the newest snapshot, beginning with the columns of "
        f"kafka-consumer-groups (without a number: {SHOWN} rows)",
    )
    return cli.run(command, argv, step)


if __name__ == "__main__":
    sys.exit(main())
