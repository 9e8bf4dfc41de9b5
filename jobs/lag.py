"""Compute the lag of every snapshot that does not have it yet, late ones too."""

import logging
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from jobs import cli

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)


def step(spark: "SparkSession", job: cli.Job) -> int:
    """Compute what is due."""
    from pipeline.derive import compute_lag  # see cli.run

    computed = compute_lag(spark, job.config, job.clusters, cli.utc_now)
    log.info("lag: %d snapshots computed", computed)
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run the job; the exit status."""
    return cli.run(cli.parser("lag", __doc__), argv, step)


if __name__ == "__main__":
    sys.exit(main())
