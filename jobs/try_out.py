"""Show a recorded example: its groups, what needed attention, and its report.

Neither Kafka nor Spark is started. The example comes with laglake; `make try` installs the packages for it once. It is
a lake that the demo has recorded: a Kafka with eight groups that lag in different ways. Its tables are unpacked into a
folder, where you can query them. Spark computed the values of the groups and of the report when the example was
recorded; the page is made from them now.
"""

import json
import shlex
import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Iterator, Sequence
from pathlib import Path

from jobs import cli
from jobs.example import CONFIG, DEFAULT_FOLDER, PAGE, SETTINGS, unpacked
from pipeline.common.errors import ConfigError, LaglakeError, LakeError, first_line
from pipeline.common.quantities import at
from pipeline.common.subject import subject_of
from pipeline.report.cards.cards import gravest_first
from pipeline.report.formats.saved import loaded
from pipeline.report.formats.terminal import GROUP_COLUMNS, GROUPS_LEGEND, format_groups
from pipeline.report.model.report import Report
from pipeline.report.text.names import visible
from pipeline.report.write import write_page

NAMED = 5
_EPILOG = f"""\
columns of the table (numbers of offsets, except for PARTITIONS and OFFSETS):
{GROUP_COLUMNS}

examples:
  laglake try
  laglake try --output /tmp/example

exit status: 0 shown; 1 the example cannot be read; 2 wrong arguments, or a folder that cannot be written
"""
_JOB = "./spark-submit.sh" if cli.IN_CHECKOUT else "laglake"
_CONFIG = """\
# The recorded example of `laglake try`. `show` works now; `report` {report}.
# Its Kafka is gone, so `run` has nothing to read.
[lake]
root = {lake}
{settings}[clusters.demo]
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
    config, page = folder / CONFIG, folder / PAGE
    try:
        config.write_text(_config_of(example.lake), encoding="utf-8")
        write_page(report, page)
    except (OSError, UnicodeEncodeError) as error:
        raise ConfigError(f"{folder}: the report cannot be written there: {first_line(error)}") from error
    yield format_groups(report.groups)
    yield GROUPS_LEGEND
    yield f"{_JOB} try --help explains each column."
    yield ""
    for cluster in report.clusters:
        name, newest = visible(cluster.cluster), at(cluster.last_snapshot_id)
        yield f"This is a recorded example: the groups of the Kafka cluster {name} in its snapshot of {newest}."
    yield from _attention(report)
    yield from _next(config, page, example.lake)


def _config_of(lake: Path) -> str:
    """The config for the jobs that read this lake."""
    # A text of JSON is one of TOML, too, but for this character.
    root = json.dumps(str(lake.absolute()), ensure_ascii=False).replace("\x7f", "\\u007F")
    report = "installs Spark first, and needs Java" if cli.IN_CHECKOUT else "starts Spark, and needs Java"
    return _CONFIG.format(lake=root, settings=SETTINGS, report=report)


def _attention(report: Report) -> Iterator[str]:
    """The problems that were open when the example was recorded, the gravest first."""
    found = sorted((f for f in report.findings if f.is_open and f.severity != "info"), key=gravest_first)
    yield f"\nWhat needed attention then, {min(NAMED, len(found))} of {len(found)} findings:"
    for finding in found[:NAMED]:
        yield f"- {visible(str(subject_of(finding)))}: {visible(finding.summary)}"
    if (left_out := len(found) - NAMED) > 0:
        yield f"{left_out} more {'is' if left_out == 1 else 'are'} in the report."


def _next(config: Path, page: Path, lake: Path) -> Iterator[str]:
    """What is where, and what to do next."""
    demo = "make demo" if cli.IN_CHECKOUT else "laglake demo"
    named = shlex.quote(str(config))
    yield f"\nThe report: {page} (open it in a browser). The tables: {lake}, as Delta."
    yield "What next:"
    yield f"  {_JOB} show --config {named} --group billing    # its partitions; takes a second, needs no Spark"
    yield f"  {demo}    # the same on a real Kafka, which starts on this machine"
    yield f"  {_JOB} doctor --config my.toml    # your own clusters; README says how to write my.toml"


if __name__ == "__main__":
    sys.exit(main())
