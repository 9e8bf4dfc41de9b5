"""docs/tried.md: each test that it names exists and runs when the page says, and its versions are the pinned ones."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from demo.embedded_kafka.jars import IVY_MODULE, KAFKA_VERSION
from pipeline.session.delta_package import BUILDS
from scripts.requirements import requirements
from tests.conftest import ROOT
from tests.end_to_end import test_spark_versions

PAGE = (ROOT / "docs" / "tried.md").read_text()
IN_CI, BY_TEST_ALL, READ, UNKNOWN = "**tried** in CI", "**tried** by test-all", "**read**", "**unknown**"
NOT_IN_CI = {"lengthy", "tool"}
"""The markers of tests that only `make test-all` runs."""
TEST = re.compile(r"`(tests/[\w/]+\.py)(?: -k (\w+))?`")


@dataclass(frozen=True)
class Row:
    """A row of a table on the page."""

    what: str
    word: str
    evidence: str
    missing: str


def rows() -> list[Row]:
    lines = re.findall(r"^\| (.+) \|$", PAGE, re.MULTILINE)
    cells = [re.split(r" *\| +", line) for line in lines]
    return [Row(*row) for row in cells if row[:2] != ["what", "word"]]


def marks(nodes: list[ast.expr]) -> set[str]:
    """The names of the markers in decorators, or in `pytestmark`."""
    called = [node.func if isinstance(node, ast.Call) else node for node in nodes]
    return {node.attr for node in called if isinstance(node, ast.Attribute)}


def listed_tests(path: Path) -> dict[str, bool]:
    """The names of the tests in a file, and whether CI runs each."""
    module = ast.parse(path.read_text())
    of_file: set[str] = set()
    for node in module.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark":
            of_file = marks(node.value.elts if isinstance(node.value, ast.List) else [node.value])
    functions = [node for node in module.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]
    return {function.name: not NOT_IN_CI & (of_file | marks(function.decorator_list)) for function in functions}


def named_tests(text: str) -> Iterator[tuple[str, bool]]:
    """Each test that a text names, all of a file or those with a word in their names, and whether CI runs it."""
    for path, word in TEST.findall(text):
        found = {test: runs_in_ci for test, runs_in_ci in listed_tests(ROOT / path).items() if word in test}
        assert found, f"{path} -k {word} selects no test"
        for test, runs_in_ci in found.items():
            yield f"{path}::{test}", runs_in_ci


def test_ci_runs_every_test_that_is_neither_lengthy_nor_needs_a_tool() -> None:
    makefile = (ROOT / "Makefile").read_text()
    assert "make test" in (ROOT / ".ci" / "run").read_text().splitlines()
    selections = re.findall(r'\$\(PYTEST\) -m "(.+)" \$\(ARGS\)', makefile)
    assert selections == [
        "not lengthy and not tool",
        "thorough and not lengthy and not tool",
    ]


def test_every_row_has_one_of_the_three_words_and_what_it_needs() -> None:
    assert len(rows()) > 50
    for row in rows():
        assert row.word in {IN_CI, BY_TEST_ALL, READ, UNKNOWN}, row
        named, linked = bool(TEST.search(row.evidence)), "](" in row.evidence
        needed = {READ: (False, True), UNKNOWN: (False, False)}.get(row.word, (True, linked))
        assert (named, linked) == needed, row


def test_no_two_rows_are_about_the_same() -> None:
    names = [row.what for row in rows()]
    assert len(names) == len({*names})


@pytest.mark.parametrize(("word", "is_in_ci"), [(IN_CI, True), (BY_TEST_ALL, False)])
def test_every_test_that_the_page_names_exists_and_runs_when_it_says(word: str, is_in_ci: bool) -> None:
    tried = [test for row in rows() if row.word == word for test in named_tests(row.evidence)]
    assert len(tried) > 10
    assert [test for test, runs_in_ci in tried if runs_in_ci != is_in_ci] == []


def pinned() -> dict[str, set[str]]:
    """The versions that the code pins, by the names that the page has for them."""
    versions = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line)
    extra = {r.partition("==")[0].partition("[")[0]: r.partition("==")[2] for r in requirements(["spark"])}
    settings = (ROOT / "setup.cfg").read_text()
    minimum = re.search(r"version < (\d+)", (ROOT / "scripts" / "check-java.sh").read_text())
    airflow = re.search(r"^apache-airflow==(\S+)", (ROOT / "tests" / "airflow.txt").read_text(), re.MULTILINE)
    assert minimum is not None
    assert airflow is not None
    return {
        "Kafka": {KAFKA_VERSION},
        "Spark": {extra["pyspark"], *test_spark_versions.VERSIONS},
        "Delta": {extra["delta-spark"]},
        "Python": {*re.findall(r"Programming Language :: Python :: (\d+\.\d+)", settings)},
        "Java": {minimum[1]},
        "Airflow": {airflow[1]},
        "moto": {versions["moto"]},
        "DuckDB": {versions["duckdb"]},
        "confluent-kafka": {versions["confluent-kafka"]},
        "kafka-python": {versions["kafka-python"]},
        "Polars": {versions["polars"]},
        "pandas": {versions["pandas"]},
    }


@pytest.mark.parametrize("name", pinned())
def test_the_versions_that_were_tried_are_those_that_the_code_pins(name: str) -> None:
    tried = [row.what for row in rows() if row.word in {IN_CI, BY_TEST_ALL}]
    found: set[str] = set()
    for listed in re.findall(rf"\b{name} (\d[\d., and]*)", "\n".join(tried)):
        found |= {*re.findall(r"\d+(?:\.\d+)*", listed)}
    assert found == pinned()[name]


def test_kafka_is_fetched_in_the_version_that_was_tried() -> None:
    assert {*re.findall(r'org="org.apache.kafka" .*rev="(.+)"', IVY_MODULE.read_text())} == {KAFKA_VERSION}


def test_the_page_names_the_versions_of_spark_for_which_delta_has_a_build() -> None:
    builds = f"has builds only for {', '.join(BUILDS[:-1])} and {BUILDS[-1]}"
    assert [row.what for row in rows() if builds in row.missing]
    assert {version.rpartition(".")[0] for version in pinned()["Spark"]} == {*BUILDS}


def test_the_requests_of_old_versions_are_those_that_a_test_sends() -> None:
    (what,) = (row.what for row in rows() if row.what.startswith("the requests of"))
    sent = (ROOT / "tests" / "kafka" / "test_watermarks_faults.py").read_text()
    assert re.findall(r"\d+\.\d+", what) == re.findall(r'pytest\.param\("(\d+\.\d+)"', sent)


def test_the_recorded_versions_are_those_of_the_recordings() -> None:
    (what,) = (row.what for row in rows() if row.what.startswith("recorded"))
    recordings = (ROOT / "tests" / "data" / "recordings" / "README.md").read_text()
    versions = re.findall(r"\d+(?:\.\d+){2,}", what)
    assert len(versions) > 3
    assert [version for version in versions if version not in recordings] == []


def test_readme_names_the_versions_that_were_tried_and_points_to_the_page() -> None:
    table = (ROOT / "README.md").read_text().split("\n| | tried")[1].split("\n\n")[0]
    assert "](docs/tried.md)" in table.splitlines()[0]
    for name in ("Kafka", "Spark", "Python", "Java"):
        (line,) = (line for line in table.splitlines() if line.startswith(f"| {name} |"))
        for version in pinned()[name]:
            assert version in line, name
