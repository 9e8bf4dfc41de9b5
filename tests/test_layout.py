"""Which folder may import which: data flows one way, so that new readers can read the folders from the top down."""

import ast
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from tests.conftest import ROOT

MAY_IMPORT = {
    "common": "",
    "kinds": "common",
    "tables": "kinds",
    "config": "common kinds",
    "lake": "common config tables",
    "analytics": "common config kinds tables",
    "kafka": "analytics common config tables",
    "log_segments": "common lake tables",
    "client_positions": "common tables",
    "session": "client_positions common config kafka lake log_segments",
    "quality": "common kafka tables",
    "derive": "analytics common config kinds lake log_segments tables",
    "snapshot": "analytics client_positions common config derive kafka lake quality tables",
    "replay": "client_positions common config derive lake tables",
    "maintain": "analytics common config derive lake tables",
    "notify": "common config kinds lake tables",
    "report": "analytics common config kinds lake tables",
    "jobs": "client_positions common config derive kafka lake log_segments maintain notify replay report session "
    "snapshot tables",
    "laglake": "analytics common config lake report session tables",
    "demo": "common config jobs laglake lake report session tables",
}
"""What each file or folder of `pipeline`, and each package beside it, may import."""
WITHIN = {
    "analytics": {
        "arrow_series": "",
        "keys": "",
        "series": "",
        "remembered": "arrow_series",
        "log_index": "keys",
        "histograms": "keys",
        "page_cache": "arrow_series histograms keys log_index",
        "lag": "keys log_index page_cache series",
        "slo": "keys lag",
        "status": "arrow_series keys lag remembered",
        "forecasts": "arrow_series keys lag remembered series",
        "findings": "arrow_series keys lag series status",
        "clients": "findings keys lag series",
        "passes": "findings lag log_index page_cache status",
    },
    "report": {
        "model": "",
        "text": "model",
        "charts": "model text",
        "cards": "model text",
        "read": "charts formats model text",
        "formats": "cards charts model text",
        "page": "cards charts model text",
        "write": "formats model page read",
    },
}
"""What each file or folder of these folders may import from the others."""
PACKAGES = ("demo", "jobs", "laglake", "pipeline")
LONGEST_FUNCTION = 40
"""Lines, without the docstring. A longer function has several steps, each of which can be a function with a name."""
LONGEST_FILE = 500


def files(*folders: str) -> list[Path]:
    return [file for folder in folders for file in sorted((ROOT / folder).rglob("*.py"))]


def imported(file: Path) -> Iterator[str]:
    """The full names that a file imports, including imports within functions."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def part(names: list[str]) -> str:
    """The part that a module belongs to: its second name if it is in `pipeline`, else its first."""
    return names[1] if names[0] == "pipeline" and len(names) > 1 else names[0]


def imports_of_parts() -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for file in files(*PACKAGES):
        importer = part([*file.relative_to(ROOT).with_suffix("").parts])
        names = (name.split(".") for name in imported(file))
        found.setdefault(importer, set()).update(part(n) for n in names if n[0] in PACKAGES)
    return {importer: parts - {importer} for importer, parts in found.items() if importer != "__init__"}


def test_a_part_imports_only_what_it_may() -> None:
    assert imports_of_parts() == {name: set(allowed.split()) for name, allowed in MAY_IMPORT.items()}


@pytest.mark.parametrize("folder", WITHIN)
def test_a_room_imports_only_what_it_may(folder: str) -> None:
    found: dict[str, set[str]] = {}
    for file in (ROOT / "pipeline" / folder).rglob("*.py"):
        room = file.relative_to(ROOT / "pipeline" / folder).with_suffix("").parts[0]
        names = [name.split(".") for name in imported(file) if name.startswith(f"pipeline.{folder}.")]
        found.setdefault(room, set()).update(name[2] for name in names)
    allowed = {room: {*others.split()} for room, others in WITHIN[folder].items()}
    assert {room: rooms - {room} for room, rooms in found.items() if room != "__init__"} == allowed
    assert {*TopologicalSorter(allowed).static_order()} == {*allowed}


def test_no_part_imports_itself_through_others() -> None:
    order = [*TopologicalSorter({name: allowed.split() for name, allowed in MAY_IMPORT.items()}).static_order()]
    assert {*order} == {*MAY_IMPORT}


def test_no_module_is_outside_of_folders() -> None:
    assert {file.stem for file in (ROOT / "pipeline").glob("*.py")} == {"__init__"}


@pytest.mark.parametrize("file", files("pipeline/analytics"), ids=lambda file: file.stem)
def test_analytics_neither_read_nor_write_nor_ask_the_time(file: Path) -> None:
    names = {node.attr for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Attribute)}
    assert not names & {"read", "table", "sql", "write", "writeTo", "collect", "toPandas"}
    assert not names & {"now", "today", "current_timestamp"}
    assert not {name.split(".")[0] for name in imported(file)} & {"time", "os", "pathlib", "kafka"}


@pytest.mark.parametrize("file", files("pipeline/report"), ids=lambda file: file.stem)
def test_the_report_computes_without_spark(file: Path) -> None:
    assert "pyspark" not in {name.split(".")[0] for name in imported(file)}
    names = {node.attr for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Attribute)}
    assert not names & {"spark", "frame"}


def test_only_kafka_opens_a_kafka_client_and_only_connections_and_logins_know_its_inner_api() -> None:
    client = "pipeline.kafka.client.KafkaClient"
    users = {file for file in files(*PACKAGES) for name in imported(file) if name == client}
    assert {part([*file.relative_to(ROOT).parts]) for file in users} == {"kafka"}
    inner = {file.stem for file in files(*PACKAGES) for name in imported(file) if name.startswith("kafka.net")}
    assert inner == {"connections", "logins"}


def length(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """The lines of a function without its docstring and its decorators."""
    lines = (function.end_lineno or 0) - function.lineno + 1
    if ast.get_docstring(function) is None:
        return lines
    docstring = function.body[0]
    return lines - ((docstring.end_lineno or 0) - docstring.lineno + 1)


@pytest.mark.parametrize("folder", [*PACKAGES, "benchmarks", "scripts", "tests"])
def test_a_function_fits_on_a_screen(folder: str) -> None:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    found = [(file, node) for file in files(folder) for node in ast.walk(ast.parse(file.read_text()))]
    functions = [(file.name, node.name, length(node)) for file, node in found if isinstance(node, kinds)]
    assert functions
    assert not [function for function in functions if function[2] > LONGEST_FUNCTION]


def test_a_file_has_one_subject() -> None:
    long = {file.stem for file in files("jobs", "pipeline") if len(file.read_text().splitlines()) > LONGEST_FILE}
    assert long == set()


def modules() -> dict[str, Path]:
    """The file of each module."""
    names = {file: ".".join(file.relative_to(ROOT).with_suffix("").parts) for file in files(*PACKAGES)}
    return {name.removesuffix(".__init__"): file for file, name in names.items()}


def test_no_two_modules_import_each_other() -> None:
    """Nor through others; also not where only a type needs it."""
    known = modules()
    needed = {}
    for name, file in known.items():
        found = {other if other in known else other.rpartition(".")[0] for other in imported(file)}
        needed[name] = found & known.keys() - {name}
    assert {*TopologicalSorter(needed).static_order()} == known.keys()


COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
MOST_NESTED = 0.8
"""Comprehensions with another one inside, for each thousand lines."""


def test_hardly_any_comprehension_has_another_one_inside() -> None:
    texts = [file.read_text() for file in files("jobs", "laglake", "pipeline")]
    found = [node for text in texts for node in ast.walk(ast.parse(text)) if isinstance(node, COMPREHENSIONS)]
    nested = [
        outer for outer in found if any(isinstance(n, COMPREHENSIONS) and n is not outer for n in ast.walk(outer))
    ]
    lines = sum(len(text.splitlines()) for text in texts)
    assert found
    assert 1_000 * len(nested) / lines <= MOST_NESTED
