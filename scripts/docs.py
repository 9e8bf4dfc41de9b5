"""Writes what is made from the code: the pages of docs/ about tables, configuration and commands, and the charts.

They are committed, so that links to them also work in the repository; a test compares them with the code.
"""

import ast
import importlib
import inspect
import io
import os
from collections.abc import Iterator, Mapping
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints
from unittest import mock

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from jobs import entry_points
from pipeline.config import Config, slo, value_types
from pipeline.config.kafka_client import CLIENT_OPTIONS, ClientConfig
from pipeline.config.kafka_logins import LoginConfig
from pipeline.config.retention import KeptMs
from pipeline.config.toml_file import Section
from pipeline.kinds import FOUND
from pipeline.kinds import KINDS as KINDS_OF_FINDINGS
from pipeline.kinds.reader_facts import KEYS, SHARED_KEYS, ReaderFacts
from pipeline.tables import TABLES, Table
from pipeline.tables.views import VIEWS
from scripts.charts import chart_files

ROOT = Path(__file__).resolve().parents[1]
ABOUT_TABLES = """\
# Tables

This page is made from the code by `make docs`.

All are Delta tables without deletion vectors and column mapping, so Spark, delta-rs and DuckDB can read them. Instants
are UTC; columns ending in `_ms` are in milliseconds, those ending in `_bytes` in bytes; offsets are Kafka's. An unknown
value is NULL, never 0. Tables may also contain rows of snapshots that are still running or have failed: join
`snapshots` where `status` is `complete` or `partial`."""
ABOUT_CONFIGURATION = """\
# Configuration

This page is made from the code by `make docs`.

The configuration is a TOML file. Begin with a copy of `conf/production.example.toml`. Any job with `--check` says what
is wrong with your file, without starting Spark. In any text value, `${env:NAME}` stands for an environment variable of
the driver, and `${secret:SCOPE/KEY}` for a secret of Databricks.

Each relative path in a file is relative to the folder of that file, wherever a job is called. If the file is a link,
that is the folder of the link; if the folder is a link, it is the folder that the link names. What is written on the
command line, such as `--lake`, is relative to the current folder.

Secrets must be written in one of these two ways, so that the file can be kept with your code: `sasl_plain_password`,
`ssl_password`, `sasl_oauthbearer_client_secret`, `sasl_aws_secret_access_key`, `sasl_aws_session_token`, `password`,
`routing_key`, the `url` of a channel of type `apprise`, and any `url` or `proxy_url` with a
user or a password. If one of them is written into the file itself, no job starts. Other URLs may be written into it: if
their path or query has a token, as with webhooks of Slack, use a reference, too."""
ABOUT_CLIENT = """\
Options of [kafka-python's client](https://kafka-python.readthedocs.io), with its names and defaults: {options}.

Further options of logins ([which login needs what](connect.md#log-in)):"""
ABOUT_COMMANDS = """\
# Commands

This page is made from the code by `make docs`.

This is the output of `laglake JOB --help`, the command of the wheel. In a checkout, `make try` and `make demo` are the
first two, and `./spark-submit.sh JOB` the others. Databricks calls them as `laglake-JOB`."""
KINDS = {
    value_types.DurationMs: 'a duration: `"500ms"`, `"30s"`, `"5m"`, `"2h"`, `"1d"`',
    slo.ObjectiveText: "`COLUMN < NUMBER` or `COLUMN <= NUMBER`",
    slo.Share: "a number between 0 and 1",
    KeptMs: 'a duration, such as `"14d"`, or `"forever"`',
    value_types.Instant: "a date and time with `Z` or an offset: `2026-01-31T12:00:00Z`",
    value_types.Regex: "a regular expression, found anywhere in the name",
    value_types.HostPort: "`host:port`",
    value_types.Count: "a number above 0",
    value_types.Identifier: "a name",
    value_types.Location: "a path or URI",
    int: "a number",
    bool: "true or false",
}


def main() -> None:
    """Writes the pages, and what draws the charts of a report."""
    for file, text in (pages() | chart_files()).items():
        file.write_text(text, encoding="utf-8", newline="")


def pages() -> dict[Path, str]:
    """The text of each page."""
    made = {"tables": tables(), "configuration": configuration(), "commands": commands()}
    findings = ROOT / "docs" / "findings.md"
    whole = {ROOT / "docs" / f"{name}.md": f"{text}\n" for name, text in made.items()}
    contributing = ROOT / "CONTRIBUTING.md"
    return {
        **whole,
        findings: _with_parts(findings.read_text(), {"kinds": kinds(), "keys": keys_of_evidence(), "causes": views()}),
        contributing: _with_parts(contributing.read_text(), {"folders": folders()}),
    }


def tables() -> str:
    """Each table with its columns."""
    return "\n\n".join([ABOUT_TABLES, *map(_table, TABLES)])


def configuration() -> str:
    """Each table of the file with its keys."""
    return "\n\n".join([ABOUT_CONFIGURATION, *(_section(path, model) for path, model in _sections("", Config))])


def _with_parts(page: str, parts: Mapping[str, str]) -> str:
    """A page that people write, in which some parts are made."""
    for name, text in parts.items():
        begin = f"<!-- made by make docs: {name} -->"
        before, found, after = page.partition(begin)
        if not found:
            raise ValueError(f"no page has the line {begin}")
        page = f"{before}{begin}\n{text}\n<!-- end -->{after.partition('<!-- end -->')[2]}"
    return page


def folders() -> str:
    """Each package with what its docstring says first."""
    files = [
        file
        for of in ("pipeline", "jobs", "laglake", "demo", "benchmarks")
        for file in ROOT.glob(f"{of}/**/__init__.py")
    ]
    rows = []
    for file in sorted(files):
        docstring = ast.get_docstring(ast.parse(file.read_text())) or ""
        about = docstring.split("\n\n")[0].replace("\n", " ")
        rows.append(_row(f"`{file.parent.relative_to(ROOT)}/`", about))
    return "\n".join(["| folder | what is in it |", "|---|---|", *rows])


def kinds() -> str:
    """Each kind of finding, with what it is."""
    rows = []
    for kind in KINDS_OF_FINDINGS:
        of = kind.subject.in_docs if kind.name in FOUND else "cause"
        of += ", cause" if kind.shared_as == kind.name else ""
        about = " ".join((inspect.getdoc(type(kind)) or "").split())
        if kind.instead_of:
            about += f" A silence of `{kind.instead_of}` also silences it."
        rows.append(_row(f"`{kind.name}`", of, kind.severity, about, kind.magnitude))
    return "\n".join(["| kind | of | severity | what it is | magnitude |", "|---|---|---|---|---|", *rows])


def keys_of_evidence() -> str:
    """The keys that the evidence of each kind has; those of the same keys together."""
    of: dict[str, list[str]] = {KEYS: [], SHARED_KEYS: []}
    for kind in KINDS_OF_FINDINGS:
        if issubclass(kind.facts, ReaderFacts):
            of[KEYS].append(f"`{kind.name}`")
        if kind.keys:
            of.setdefault(kind.keys, []).append(f"`{kind.name}`")
    of[SHARED_KEYS] = ["those of a topic, and causes"]
    rows = [_row(", ".join(names), keys) for keys, names in of.items()]
    return "\n".join(["| kinds | keys |", "|---|---|", *rows])


def views() -> str:
    """The query of each view."""
    return "\n\n".join(f"```sql\n-- {name}\n{query}\n```" for name, query in VIEWS.items())


def commands() -> str:
    """The `--help` of each job."""
    shown = [f"## {job}\n\n```text\n{_help(job)}```" for job in entry_points.TO_LOOK | entry_points.JOBS]
    return "\n\n".join([ABOUT_COMMANDS, *shown])


def _help(job: str) -> str:
    """What `--help` of a job prints, 100 columns wide and without the settings of this environment."""
    shown = io.StringIO()
    env = {name: value for name, value in os.environ.items() if name != "LAGLAKE_CONFIG"} | {"COLUMNS": "100"}
    module: Any = importlib.import_module(entry_points.module_of(job))
    with mock.patch.dict(os.environ, env, clear=True), redirect_stdout(shown), suppress(SystemExit):
        module.main(["--help"])
    return shown.getvalue()


def _table(table: Table) -> str:
    named = (("Partitioned by", table.partitioned_by), ("One row for each", table.key))
    facts = " ".join(f"{what} {', '.join(f'`{c}`' for c in columns)}." for what, columns in named if columns)
    head = [f"## {table.name}\n", f"{table.about}\n", f"{facts}\n", "| column | type | what |", "|---|---|---|"]
    rows = [_row(f"`{f.name}`", f.dataType.simpleString(), _cell(f.metadata["comment"])) for f in table.stored]
    return "\n".join([*head, *rows])


def _sections(path: str, model: type[BaseModel]) -> Iterator[tuple[str, type[BaseModel]]]:
    """Each table of the file, as TOML names it, and its model."""
    yield path, model
    for name, hint in get_type_hints(model).items():
        inner = next((kind for kind in (hint, *get_args(hint)) if _is_table(kind)), None)
        if inner is None:
            continue
        key = f"{path}.{_key(model, name)}".lstrip(".")
        if get_origin(hint) is dict:
            key += '."ID"' if name == "clients" else ".X"
        yield from _sections(f"[{key}]" if get_origin(hint) is tuple else key, inner)


def _section(path: str, model: type[BaseModel]) -> str:
    title = f"## `[{path}]`" if path else "## The file"
    about = "\n".join(line.strip() for line in (model.__doc__ or "").splitlines()).strip()
    if issubclass(model, ClientConfig):
        names = [name for name in CLIENT_OPTIONS if name not in LoginConfig.model_fields]
        about, model = ABOUT_CLIENT.format(options=", ".join(f"`{name}`" for name in names)), LoginConfig
    head = [f"{title}\n", f"{about}\n", "| key | kind | default | what |", "|---|---|---|---|"]
    hints = get_type_hints(model, include_extras=True)
    rows = [
        _row(f"`{_key(model, name)}`", _kind(hints[name]), _default(field, hints[name]), _cell(field.description))
        for name, field in model.model_fields.items()
    ]
    return "\n".join([*head, *rows])


def _key(model: type[BaseModel], name: str) -> str:
    return model.model_fields[name].alias or name


def _is_table(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Section)


def _kind(hint: Any) -> str:
    """What a value must be, in words."""
    if hint in KINDS:
        return KINDS[hint]
    arguments = [kind for kind in get_args(hint) if kind is not type(None) and kind is not ...]
    if get_origin(hint) is Literal:
        return " or ".join(f"`{value}`" for value in arguments)
    if _is_table(hint):
        return "a table"
    if get_origin(hint) is dict:
        return "tables" if _is_table(arguments[1]) else "a table of texts"
    if get_origin(hint) is tuple:
        return "tables" if _is_table(arguments[0]) else f"a list, each {_kind(arguments[0])}"
    return _kind(arguments[0]) if arguments else "text"


def _default(field: FieldInfo, hint: Any) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if value is None or isinstance(value, BaseModel) or value in ((), {}):
        return ""
    if isinstance(value, tuple):
        texts = ", ".join(f'"{item}"' for item in value)
        return f"`[{texts}]`"
    return f"`{_duration(value) if hint in (value_types.DurationMs, KeptMs) else str(value).lower()}`"


def _duration(ms: int) -> str:
    units = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1))
    name, size = next(unit for unit in units if ms % unit[1] == 0)
    return f"{ms // size}{name}"


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(text: str | None) -> str:
    return (text or "").replace("|", "\\|").replace("\n", " ")


if __name__ == "__main__":
    main()
