"""Send new and resolved findings to the channels of their owners; see docs/notifications.md.

A channel that does not accept a message is a warning, and the next run tries again. The job `run` does all this, too.
"""

import logging
import os
import sys
from argparse import Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING

from jobs import cli, schedule
from jobs.session import Job
from pipeline.common.errors import ChannelError, ConfigError, LaglakeError, first_line
from pipeline.config import load_config

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)


def step(spark: "SparkSession", job: Job) -> int:
    """Sends what is due. Without channels it returns at once.

    If the lake cannot be read or written, the status is 1, and the job goes on.
    """
    if not job.config.channels:
        return 0
    from pipeline.lake import FAILURES, Lake  # see jobs.session
    from pipeline.notify.announce import announce

    lake = Lake(spark, job.config.lake)
    try:
        lake.prepare()
        sent = announce(lake, job.config, job.clusters, schedule.utc_now)
    except FAILURES as error:
        log.error("messages about findings may be missing or sent again: %s", first_line(error))
        return 1
    log.info("notify: %d findings sent", sent)
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the job and returns the exit status."""
    command = cli.parser("notify", __doc__)
    command.add_argument(
        "--test",
        metavar="CHANNEL",
        help="send one test message to this channel of the config, and do nothing else; needs neither a lake nor Spark",
    )
    arguments = command.parse_args(argv)
    if arguments.test is None or arguments.check:
        return cli.run(command, argv, step)
    try:
        _send_test(arguments)
    except LaglakeError as error:
        return cli.refused(error)
    return 0


def _send_test(arguments: Namespace) -> None:
    from pipeline.notify.sending import send_test

    config = load_config(arguments.config, os.environ, arguments.lake)
    name = arguments.test
    if name not in config.channels:
        known = ", ".join(config.channels) or "no channels"
        raise ConfigError(f"--test {name}: not in {arguments.config}, which has {known}")
    failure = send_test(name, config, schedule.utc_now())
    if failure:
        raise ChannelError(f"channel {name} did not accept the test message: {failure.reason}")
    sys.stdout.write(f"channel {name} has accepted the test message\n")


if __name__ == "__main__":
    sys.exit(main())
