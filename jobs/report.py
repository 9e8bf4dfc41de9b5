"""Write the report: one HTML page that needs no network, of what the tables hold."""

import logging
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from jobs import cli

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)


def step(spark: "SparkSession", job: cli.Job) -> int:
    """Write the page."""
    from pyspark.sql import functions as F  # see cli.run

    from pipeline.lake import Lake
    from pipeline.report import write_report
    from pipeline.tables import COMPUTED, LAG, SNAPSHOTS

    lake = Lake(spark, job.config.lake)
    lake.prepare()
    chosen = F.col("cluster").isin(*job.clusters)
    snapshots, lag, computed = (lake.read(table).where(chosen) for table in (SNAPSHOTS, LAG, COMPUTED))
    page = write_report(snapshots, lag, job.output, cli.utc_now(), computed=computed)
    log.info("report: %s", page.absolute())
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run the job; the exit status."""
    return cli.run(cli.parser("report", __doc__, output=True), argv, step)


if __name__ == "__main__":
    sys.exit(main())
