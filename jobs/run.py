"""Take a snapshot of each cluster, compute the lag and write the report, in one Spark session.

If the config has channels, new and resolved findings are then sent to them.
"""

import sys
from collections.abc import Sequence

from jobs import cli, lag, maintain, notify, report, snapshot


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the job and returns the exit status."""
    command = cli.parser("run", __doc__, at=cli.DUE, output=True, repeated=True)
    command.add_argument(
        "--maintain",
        action="store_true",
        help="also do what the job maintain does, after the report; with --every only once a day (UTC)",
    )
    snapshots = snapshot.Snapshots()
    steps = (snapshots.take, lag.step, report.step_of_run, notify.step, maintain.Daily(), snapshots.conclude)
    return cli.run(command, argv, *steps, load=snapshot.SLOW)


if __name__ == "__main__":
    sys.exit(main())
