"""Analyse a recording made elsewhere: all samples of one time become one snapshot, with that time."""

import logging
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from jobs import cli, schedule
from jobs.session import Job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)


def step(spark: "SparkSession | None", job: Job) -> int:
    """Loads the recording into the lake, and computes all derived tables."""
    from pipeline.lake import Lake  # see jobs.session
    from pipeline.replay import replay

    (cluster,) = job.clusters
    new = replay(Lake(spark, job.config.lake), job.config, job.recording, cluster, schedule.utc_now)
    log.info("%s: replayed, %d snapshots are new", cluster, new)
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the job and returns the exit status."""
    return cli.run(cli.parser("replay", __doc__, recording=True, local=False), argv, step)


if __name__ == "__main__":
    sys.exit(main())
