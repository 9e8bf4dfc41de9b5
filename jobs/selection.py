"""The options that select what a report shows, and where it is written."""

import argparse
from pathlib import Path

from jobs.argument_types import begin, end, finding_id, regex
from pipeline.common.epoch import to_epoch_ms
from pipeline.common.errors import ConfigError
from pipeline.report.model.selection import Selection

DEFAULT_OUTPUT = Path("build/report.html")


def add_selection(command: argparse.ArgumentParser) -> None:
    """Adds these options to a command."""
    command.add_argument(
        "--format",
        dest="kind",
        choices=("html", "json", "csv", "markdown"),
        default="html",
        help="html: the page (the default); json: everything on the page; csv: every partition at the newest snapshot; "
        "markdown: the report as text (for a post-mortem of one problem, use --incident)",
    )
    command.add_argument(
        "--incident",
        type=finding_id,
        nargs="?",
        const=True,
        metavar="FINDING_ID",
        help="a page about one finding, and beside it a text for a post-mortem (.md): its group, what happened to it "
        "before, during and after the finding, and what to do. Six digits of the id or more are enough. Without an id: "
        "the same about the groups and the time that --group, --from and --to name",
    )
    command.add_argument(
        "--from",
        dest="since",
        type=begin,
        metavar="INSTANT",
        help="only snapshots from this instant or UTC day on (default: the last seven days of each cluster)",
    )
    command.add_argument(
        "--to",
        dest="until",
        type=end,
        metavar="INSTANT",
        help="only snapshots up to this instant or UTC day (default: --at, else the newest)",
    )
    names = "a regular expression of Python matches, anywhere in the name (default: all)"
    command.add_argument("--group", type=regex, metavar="REGEX", help=f"only groups that {names}")
    command.add_argument("--topic", type=regex, metavar="REGEX", help=f"only topics that {names}")


def output_of(arguments: argparse.Namespace) -> Path:
    """The file to write."""
    output: Path | None = getattr(arguments, "output", None)
    if incident := getattr(arguments, "incident", None):
        if output is not None and output.suffix == ".md":
            raise ConfigError(f"--output {output}: with --incident this is the page; its text is beside it, with .md")
        return output or DEFAULT_OUTPUT.with_name(
            "incident.html" if incident is True else f"incident-{incident[:12]}.html"
        )
    suffix = {"markdown": "md"}.get(kind := getattr(arguments, "kind", "html"), kind)
    return output or DEFAULT_OUTPUT.with_suffix(f".{suffix}")


def selection_of(arguments: argparse.Namespace, clusters: tuple[str, ...]) -> Selection:
    """What to show.

    Raises:
        ConfigError: the options contradict each other.
    """
    if "since" not in arguments:
        shown = arguments.at if "show" in arguments else None
        if shown and not arguments.show:
            raise ConfigError("--at needs --show: without it, the lag of every snapshot is computed and none is shown")
        return Selection(clusters, to_ms=None if shown is None else to_epoch_ms(shown))
    is_incident = arguments.incident is True
    if is_incident:
        _require_group_and_time(arguments)
    elif arguments.incident:
        others = {
            "--cluster": clusters,
            "--from": arguments.since,
            "--to": arguments.until,
            "--at": arguments.at,
            "--group": arguments.group,
            "--topic": arguments.topic,
            "--format": arguments.kind != "html",
        }
        if given := [name for name, value in others.items() if value]:
            raise ConfigError(f"--incident and {given[0]} cannot be combined: the finding says what to show")
        return Selection()
    until = arguments.until or arguments.at
    from_ms, to_ms = (None if at is None else to_epoch_ms(at) for at in (arguments.since, until))
    if from_ms is not None and to_ms is not None and from_ms > to_ms:
        begins, ends = (f"{at:%Y-%m-%dT%H:%M:%SZ}" for at in (arguments.since, until))
        raise ConfigError(f"--from {begins} is after --to {ends}")
    return Selection(clusters or None, from_ms, to_ms, arguments.group, arguments.topic, is_incident=is_incident)


def _require_group_and_time(arguments: argparse.Namespace) -> None:
    """Raises ConfigError if an incident without a finding lacks what says what it is about."""
    if arguments.group is None or arguments.since is None:
        raise ConfigError("--incident without a FINDING_ID needs --group and --from, which say what to show")
    if arguments.kind != "html":
        raise ConfigError("--incident and --format cannot be combined: it writes the page, and Markdown beside it")
