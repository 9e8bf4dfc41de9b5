"""Show a recorded example: its groups, what needed attention, and its report.

Neither Kafka nor Spark is started. The example comes with laglake; `make try` installs the packages for it once. It is
a lake that the demo has recorded: a Kafka with eight groups that lag in different ways. Its tables are unpacked into a
folder, where you can query them. Spark computed the values of the groups and of the report when the example was
recorded; the page is made from them now.
"""

import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Iterator, Sequence
from pathlib import Path

from jobs import cli
from jobs.example import unpacked
from pipeline.common.errors import ConfigError, LaglakeError, LakeError, first_line
from pipeline.common.subject import subject_of
from pipeline.report import write_page
from pipeline.report.model import Report
from pipeline.report.names import visible
from pipeline.report.saved import loaded
from pipeline.report.terminal import format_groups
from pipeline.report.units import at

DEFAULT_FOLDER = Path("build/try")
NAMED = 5
_EPILOG = """\
examples:
  laglake try
  laglake try --output /tmp/example

exit status: 0 shown; 1 the example cannot be read; 2 wrong arguments, or a folder that cannot be written
"""
_CONFIG = """\
# The recorded example of `laglake try`. Its Kafka is gone: `show` and `report` work, `run` has nothing to read.
[lake]
root = "{lake}"
[clusters.demo]
bootstrap_servers = ["127.0.0.1:9092"]
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Shows the example and returns the exit status."""
    command = ArgumentParser(
        "laglake try", description=__doc__, epilog=_EPILOG, formatter_class=RawDescriptionHelpFormatter
    )
    command.add_argument(
        "--output",
        type=Path,
        metavar="FOLDER",
        default=DEFAULT_FOLDER,
        help=f"where the tables and the report are written (default: {DEFAULT_FOLDER})",
    )
    folder: Path = command.parse_args(argv).output
    try:
        lines = list(_shown(folder))
    except LaglakeError as error:
        return cli.refused(error)
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


def _shown(folder: Path) -> Iterator[str]:
    """Writes everything into the folder, and yields the lines to print."""
    example = unpacked(folder)
    try:
        report = loaded(example.report)
    except ValueError as error:
        raise LakeError(f"the example is of another version of laglake: {first_line(error)}") from error
    config, page = folder / "config.toml", folder / "report.html"
    try:
        config.write_text(_CONFIG.format(lake=example.lake.absolute()), encoding="utf-8")
        write_page(report, page)
    except OSError as error:
        raise ConfigError(f"{folder}: the report cannot be written there: {first_line(error)}") from error
    yield format_groups(report.groups)
    yield ""
    for cluster in report.clusters:
        name, newest = visible(cluster.cluster), at(cluster.last_snapshot_id)
        yield f"This is a recorded example: the groups of the Kafka cluster {name} in its snapshot of {newest}."
    yield from _attention(report)
    yield from _next(config, page, example.lake)


def _attention(report: Report) -> Iterator[str]:
    """The problems that were open when the example was recorded, data loss first."""
    found = [f for f in report.findings if f.is_open and f.severity != "info"]
    found.sort(key=lambda f: not f.is_loss)
    yield f"\nWhat needed attention then, {min(NAMED, len(found))} of {len(found)} findings:"
    for finding in found[:NAMED]:
        yield f"- {visible(str(subject_of(finding)))}: {visible(finding.summary)}"


def _next(config: Path, page: Path, lake: Path) -> Iterator[str]:
    """What is where, and what to do next."""
    job, demo = ("./spark-submit.sh", "make demo") if cli.IN_CHECKOUT else ("laglake", "laglake demo")
    yield f"\nThe report: {page} (open it in a browser). The tables: {lake}, as Delta."
    yield "What next:"
    yield f"  {job} show --config {config} --group billing    # partitions, a second without Spark"
    yield f"  {demo}    # the same on a real Kafka, which starts on this machine"
    yield f"  {job} doctor --config my.toml    # your own clusters; README says how to write my.toml"


if __name__ == "__main__":
    sys.exit(main())
