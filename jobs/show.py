"""Print the partitions with the most lag at the newest snapshot, or at that of an instant, from the tables.

Spark is not started, and Kafka is not asked: this shows what `run` or `lag` has written to a lake in a local folder.
"""

import os
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path

from jobs import cli
from jobs.argument_types import duration, instant, positive, regex
from jobs.example import CONFIG, DEFAULT_FOLDER
from pipeline.common.epoch import now_ms, to_epoch_ms
from pipeline.common.errors import ConfigError, LaglakeError, NoLakeError
from pipeline.common.quantities import at
from pipeline.common.quantities import duration as age
from pipeline.config import LakeConfig, load_config
from pipeline.config.lake import lake_at
from pipeline.report.formats.export import as_csv, partitions_as_json
from pipeline.report.formats.terminal import format_partitions
from pipeline.report.model.selection import Selection
from pipeline.report.read.worst_partitions import Newest, read_newest
from pipeline.report.text.names import visible

_EPILOG = """\
examples:
  ./spark-submit.sh {job} --config conf/production.toml
  ./spark-submit.sh {job} --config conf/production.toml --group '^orders-' --at 2026-01-31T12:05:00Z
  ./spark-submit.sh {job} --config conf/production.toml --watch 30s

exit status: 0 shown, even if nothing matches; 1 the lake cannot be read; 2 wrong arguments or config
"""
SHOWN = 50
WATCHED_MS = 10_000
ROOT = Path(__file__).parents[1]
_CLEAR = "\x1b[H\x1b[2J"


def main(argv: Sequence[str] | None = None) -> int:
    """Prints the table once or repeatedly, and returns the exit status."""
    command = cli.plain_parser("show", __doc__, _EPILOG)
    _add_options(command)
    arguments = command.parse_args(argv)
    try:
        folder = _folder(arguments)
        if arguments.watch and arguments.kind != "table":
            raise ConfigError("--watch and --format cannot be combined: only a table is repeated")
        to_ms = None if arguments.at is None else to_epoch_ms(arguments.at)
        selection = Selection(arguments.cluster, to_ms=to_ms, group=arguments.group, topic=arguments.topic)
        most = arguments.rows or (SHOWN if arguments.kind == "table" else None)
        while True:
            _print(read_newest(folder, selection, most), arguments)
            if not arguments.watch:
                return 0
            time.sleep(arguments.watch / 1000)
    except NoLakeError as error:
        is_default = not arguments.lake and arguments.config == command.get_default("config")
        return cli.refused(NoLakeError(f"{error}{_elsewhere() if is_default else ''}"))
    except LaglakeError as error:
        return cli.refused(error)
    except KeyboardInterrupt:  # the end of --watch
        return 0
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _folder(arguments: Namespace) -> Path:
    """The folder of the lake to read. Raises ConfigError if it is elsewhere."""
    lake = _lake(arguments)
    folder = lake.local_folder
    if folder is None and arguments.lake and lake.catalog:
        raise ConfigError(
            f"--lake {arguments.lake}: is read as schema {lake.schema_name} of catalog {lake.catalog}, which needs "
            f"Spark: use lag --show; for a folder write ./{arguments.lake}"
        )
    if folder is None:
        raise ConfigError("the lake is not in a folder of this machine: use lag --show, which starts Spark")
    return folder


def _elsewhere() -> str:
    """What to do if there is no lake where the default config has it."""
    tried = DEFAULT_FOLDER / CONFIG
    found = next((file for file in (tried, ROOT / tried) if file.exists()), None)
    example = "" if found is None else f" (that of make try is {found})"
    return f"; name another config with --config{example}, or another lake with --lake"


def _lake(arguments: Namespace) -> LakeConfig:
    """The lake to read. `--lake` alone is enough if the default config does not exist, as in an installed package."""
    if arguments.lake and arguments.config == Path(cli.DEFAULT_CONFIG) and not arguments.config.exists():
        return lake_at(arguments.lake)
    return load_config(arguments.config, os.environ, arguments.lake).lake


def _add_options(command: ArgumentParser) -> None:
    names = "a regular expression of Python matches, anywhere in the name (default: all)"
    command.add_argument(
        "--cluster",
        action="append",
        metavar="NAME",
        help="only this cluster, which may be one of a recording; may be repeated (default: all in the lake)",
    )
    command.add_argument("--group", type=regex, metavar="REGEX", help=f"only groups that {names}")
    command.add_argument("--topic", type=regex, metavar="REGEX", help=f"only topics that {names}")
    command.add_argument(
        "--at",
        type=instant,
        metavar="INSTANT",
        help="the newest snapshot up to this instant: ISO 8601 with Z or an offset, or epoch milliseconds",
    )
    command.add_argument(
        "--rows",
        type=positive,
        metavar="NUMBER",
        help=f"at most this many partitions, those with the most lag (default: {SHOWN} in a table, else all)",
    )
    command.add_argument(
        "--format",
        dest="kind",
        choices=("table", "json", "csv"),
        default="table",
        help="table: aligned columns, beginning with those of kafka-consumer-groups (the default); json: a list of "
        "objects; csv: a line for each partition",
    )
    command.add_argument(
        "--watch",
        type=duration,
        nargs="?",
        const=WATCHED_MS,
        metavar="DURATION",
        help=f"print again at this interval, such as 30s (without a duration: {WATCHED_MS // 1000}s), until Ctrl-C",
    )


def _print(newest: Newest, arguments: Namespace) -> None:
    out = sys.stdout
    if arguments.kind != "table" and not newest.partitions:
        sys.stderr.write(f"{newest.nothing}\n")
    if arguments.kind == "csv":
        out.writelines(as_csv(newest.partitions))
    elif arguments.kind == "json":
        out.write(partitions_as_json(newest.partitions) + "\n")
    else:
        is_terminal = out.isatty()
        coloured = is_terminal and "NO_COLOR" not in os.environ
        table = format_partitions(
            newest.partitions, left_out=newest.left_out, coloured=coloured, nothing=newest.nothing
        )
        out.write(_CLEAR if arguments.watch and is_terminal else "")
        out.write("\n".join([table, *_ages(newest)]) + "\n")
    out.flush()


def _ages(newest: Newest) -> list[str]:
    """A line for each cluster: which snapshot is shown, and how old it is."""
    now = now_ms()
    return [
        f"{visible(cluster)}: snapshot of {at(snapshot_id)}, {age(now - snapshot_id)} ago"
        for cluster, snapshot_id in newest.snapshots.items()
    ]


if __name__ == "__main__":
    sys.exit(main())
