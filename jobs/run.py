"""Take a snapshot of each cluster, compute the lag and write the report, in one Spark session."""

import sys
from collections.abc import Sequence

from jobs import cli, lag, maintain, report, snapshot


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the job and returns the exit status."""
    command = cli.parser("run", __doc__, at=cli.DUE, output=True, repeated=True)
    command.add_argument(
        "--maintain",
        action="store_true",
        help="also do what the job maintain does, after the report; with --every only once a day (UTC)",
    )
    return cli.run(command, argv, snapshot.step, lag.step, report.step, maintain.Daily(), load=snapshot.SLOW)


if __name__ == "__main__":
    sys.exit(main())
