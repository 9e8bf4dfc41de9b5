"""Send new and resolved findings to the channels of their owners; see docs/notifications.md.

A channel that does not accept a message is a warning, and later runs try again. The job `run` does all this, too.
"""

import logging
import os
import sys
from argparse import Namespace
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from jobs import cli, schedule
from jobs.argument_types import duration
from jobs.session import Job
from pipeline.common.epoch import DAY_MS
from pipeline.common.errors import ChannelError, ConfigError, LaglakeError, first_line
from pipeline.config import load_config

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

DIGEST_PAGE = Path("build/digest.html")
AS_OF_DIGEST = "the end of the time that --digest is about: ISO 8601 or epoch milliseconds (default: now)"


def step(spark: "SparkSession | None", job: Job) -> int:
    """Sends what is due. Without channels it returns at once.

    If the lake cannot be read or written, the status is 1, and the job goes on.
    """
    if not job.config.channels:
        return 0
    from pipeline.lake import FAILURES, Lake, refuse_new  # see jobs.session
    from pipeline.notify.announce import announce

    lake = Lake(spark, job.config.lake)
    try:
        lake.prepare(refuse_new)
        sent = announce(lake, job.config, job.clusters, schedule.utc_now)
    except FAILURES as error:
        log.error("messages about findings may be missing or sent again: %s", first_line(error))
        return 1
    log.info("notify: %d findings sent", sent)
    return 0


def digest_step(spark: "SparkSession | None", job: Job, length_ms: int, page: Path) -> int:
    """Writes the digest and sends it. The status is 1 if it was not written, or not accepted by a channel."""
    from pipeline.lake import Lake, refuse_new  # see jobs.session
    from pipeline.notify.digest import as_html
    from pipeline.notify.send_digest import read_digest, send_digest

    lake = Lake(spark, job.config.lake)
    lake.prepare(refuse_new)
    digest = read_digest(lake, job.config, job.clusters, job.at or schedule.utc_now(), length_ms)
    failed = not _is_written(page, as_html(digest, job.config.notifications.report_url))
    for name, failure in send_digest(digest, job.config).items():
        if failure:
            failed = True
            log.error("channel %s did not accept the digest: %s", name, failure.reason)
        else:
            log.info("channel %s has accepted the digest", name)
    return int(failed)


def _is_written(page: Path, text: str) -> bool:
    try:
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(text, encoding="utf-8")
    except OSError as error:
        log.error("the digest could not be written to %s: %s", page.absolute(), first_line(error))
        return False
    log.info("digest: %s", page.absolute())
    return True


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the job and returns the exit status."""
    command = cli.parser("notify", __doc__, at=AS_OF_DIGEST)
    command.add_argument(
        "--test",
        metavar="CHANNEL",
        help="send one test message to this channel of the config, and do nothing else; needs neither a lake nor Spark",
    )
    command.add_argument(
        "--digest",
        type=duration,
        nargs="?",
        const=7 * DAY_MS,
        metavar="DURATION",
        help="instead of single findings, write what happened in this time (without a duration: 7d) as a page, and "
        "send it as one message to each channel of the types apprise and webhook",
    )
    command.add_argument(
        "--output", type=Path, metavar="PATH", help=f"the page to write with --digest (default: {DIGEST_PAGE})"
    )
    arguments = command.parse_args(argv)
    if arguments.digest is None:
        if given := [name for name in ("at", "output") if getattr(arguments, name) is not None]:
            return cli.refused(ConfigError(f"--{given[0]} needs --digest"))
    elif arguments.test is not None:
        return cli.refused(ConfigError("--test and --digest cannot be combined"))
    if arguments.digest is not None:
        page = arguments.output or DIGEST_PAGE
        return cli.run(command, argv, partial(digest_step, length_ms=arguments.digest, page=page))
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
