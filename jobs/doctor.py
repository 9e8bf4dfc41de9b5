"""Check that a run would succeed: the clusters answer and allow a snapshot's requests, and the lake can be written.

Configured endpoints, files and log directories are tried, too: at most 16 of each list or folder. For each missing
right, the output has the command that grants it. `?` marks what may be intended, or cannot be checked. Spark is not
started. All checks run on this machine: executors elsewhere need the same host names, routes, files and packages.
"""

import os
import sys
from collections.abc import Iterable, Iterator, Sequence

from jobs import cli
from pipeline.client_positions.check_locations import check_locations
from pipeline.common.check import Check
from pipeline.common.errors import LaglakeError
from pipeline.common.files import redacted
from pipeline.common.words import counted
from pipeline.config import ClusterConfig, load_config
from pipeline.kafka.doctor import check_cluster, check_lake
from pipeline.log_segments.log_dirs import list_partitions
from pipeline.report.text.names import visible

_EPILOG = """\
examples:
  ./spark-submit.sh {job} --config conf/production.toml
  ./spark-submit.sh {job} --config conf/production.toml --cluster east

exit status: 0 nothing is wrong; 1 something is wrong; 2 wrong arguments or config
"""
_MARKS = {True: "ok", False: "WRONG", None: "?"}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the checks and returns the exit status."""
    command = cli.plain_parser("doctor", __doc__, _EPILOG)
    command.add_argument(
        "--cluster", action="append", metavar="NAME", help="only this cluster; may be repeated (default: all)"
    )
    arguments = command.parse_args(argv)
    try:
        config = load_config(arguments.config, os.environ, arguments.lake)
        clusters = cli.choose_clusters(config, arguments.cluster or (), arguments.config)
    except LaglakeError as error:
        return cli.refused(error)
    wrong = _show("lake", [check_lake(config.lake)])
    for name in clusters:
        wrong += _show(name, check_cluster(config.clusters[name]))
        wrong += _show(name, _check_files(config.clusters[name]))
    sys.stdout.write(
        f"{counted(len(clusters), 'cluster')} and the lake: {wrong or 'nothing'} {'is' if wrong < 2 else 'are'} wrong\n"
    )
    return int(wrong > 0)


def _check_files(cluster: ClusterConfig) -> Iterator[Check]:
    """Checks the endpoints and files of clients' positions and the log directories, and how passwords are sent."""
    for reason in cluster.passwords_in_plain_text():
        yield Check(None, reason)
    for positions in cluster.positions:
        for check in check_locations(positions.source, positions.options(snapshot_id=0)):
            yield check._replace(what=f"{positions.source}: {check.what}")
    for log_dir in cluster.log_dirs:
        try:
            partitions = len(list_partitions(log_dir))
        except LaglakeError as error:
            yield Check(
                False,
                str(error),
                "give the user of laglake the right to read it; all executors must find it under this path",
            )
            continue
        yield Check(bool(partitions) or None, f"log_dirs: {redacted(log_dir)}: {counted(partitions, 'partition')}")


def _show(subject: str, checks: Iterable[Check]) -> int:
    """Prints each check as soon as it is made; returns how many failed."""
    wrong = 0
    for check in checks:
        sys.stdout.write(f"{_MARKS[check.is_right]:5} {subject}: {visible(check.what)}\n")
        if check.todo:
            sys.stdout.write(f"      {visible(check.todo)}\n")
        sys.stdout.flush()
        wrong += check.is_right is False
    return wrong


if __name__ == "__main__":
    sys.exit(main())
