"""Write the report from the tables: one HTML page that needs no network, or JSON, CSV or Markdown."""

import logging
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from jobs import cli, schedule
from jobs.session import Job
from pipeline.common.errors import ConfigError, first_line, unexpected

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)


def step(spark: "SparkSession | None", job: Job) -> int:
    """Writes the report."""
    from pipeline.lake import Lake, refuse_new  # see jobs.session
    from pipeline.report.read.excerpt import Excerpt
    from pipeline.report.read.incident import selection_of
    from pipeline.report.write import write_incident, write_report
    from pipeline.tables import SNAPSHOTS

    lake = Lake(spark, job.config.lake)
    lake.prepare(refuse_new)
    if unknown := set(job.selection.clusters or ()) - set(job.config.clusters):
        known = sorted(r["cluster"] for r in lake.query("SELECT DISTINCT cluster FROM {snapshots}", SNAPSHOTS))
        if absent := sorted(unknown - set(known)):
            raise ConfigError(f"--cluster {absent[0]}: the lake has {', '.join(known) or 'no cluster yet'}")
    if job.incident is not None or job.selection.is_incident:
        selection = job.selection if job.incident is None else selection_of(lake, job.incident)
        excerpt = Excerpt(lake, selection, job.config.silences)
        for file in write_incident(excerpt, job.output, schedule.utc_now()):
            log.info("incident: %s", file.absolute())
        return 0
    excerpt = Excerpt(lake, job.selection, job.config.silences)
    page = write_report(excerpt, job.output, schedule.utc_now(), kind=job.kind)
    log.info("report: %s", page.absolute())
    return 0


def step_of_run(spark: "SparkSession | None", job: Job) -> int:
    """The same in a run. If the report cannot be written, the status is 1, and messages are still sent."""
    from pipeline.lake import FAILURES  # see jobs.session

    try:
        return step(spark, job)
    except Exception as error:
        is_expected = isinstance(error, (OSError, *FAILURES))
        log.debug("report", exc_info=True)
        log.error("the report is not written: %s", first_line(error) if is_expected else unexpected(error))
        return 1


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the job and returns the exit status."""
    return cli.run(cli.parser("report", __doc__, at=cli.AS_OF, output=True, selection=True), argv, step)


if __name__ == "__main__":
    sys.exit(main())
