"""The documentation pages: they build, every column and key is on them, and every error is explained."""

import ast
import html
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import kafka.errors
import pytest
from markdown.extensions.toc import slugify
from pydantic import BaseModel

from pipeline.config import ClusterConfig, Config, GroupFilter, LakeConfig, LimitsConfig, SnapshotConfig, TopicFilter
from pipeline.config.consumers import ConsumerSettings, PositionsConfig
from pipeline.config.notify import ChannelConfig, NotificationsConfig, Silence
from pipeline.config.owners import OwnerRule
from pipeline.config.slo import SloConfig
from pipeline.kinds.clients import BufferFacts, ClientFacts, GaugeFacts
from pipeline.tables import TABLES
from scripts.docs import pages
from tests.conftest import ROOT

MODELS: dict[str, type[BaseModel]] = {
    "The file": Config,
    "[lake]": LakeConfig,
    "[snapshot]": SnapshotConfig,
    "[clusters.X]": ClusterConfig,
    "[clusters.X.groups]": GroupFilter,
    "[clusters.X.topics]": TopicFilter,
    "[clusters.X.limits]": LimitsConfig,
    "[[clusters.X.positions]]": PositionsConfig,
    '[clients."ID"]': ConsumerSettings,
    "[slo.X]": SloConfig,
    "[[owners]]": OwnerRule,
    "[[silences]]": Silence,
    "[channels.X]": ChannelConfig,
    "[notifications]": NotificationsConfig,
}
ERRORS = (
    *("ChannelError", "ClaimedError", "ClusterError", "ConfigError", "LagError", "LakeError"),
    *("NoLakeError", "SchemaError", "SessionError", "TooLateError"),
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pages, built in strict mode: a broken link is an error."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    env = os.environ | {"PYTHONPATH": str(ROOT), "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=120)
    assert built.returncode == 0, built.stderr
    return folder


def test_generated_pages_are_up_to_date() -> None:
    for page, text in pages().items():
        assert page.read_text() == text, "make docs writes them"


def section(page: Path, heading: str) -> str:
    """The text below one second-level heading."""
    parts = re.split(r"<h2[^>]*>", page.read_text())
    titles = [html.unescape(re.sub(r"<[^>]+>", "", part.split("</h2>")[0])).rstrip("¶") for part in parts]
    found = parts[titles.index(heading)]
    return html.unescape(re.sub(r"<[^>]+>", "", found))


def test_every_column_is_on_the_page_of_tables(site: Path) -> None:
    for table in TABLES:
        reported = section(site / "tables.html", table.name)
        for column in table.stored:
            assert column.metadata["comment"] in reported
            assert re.search(rf"^{column.name}$", reported, re.MULTILINE)


@pytest.mark.parametrize("heading", MODELS)
def test_every_key_is_explained_on_the_page_of_the_configuration(site: Path, heading: str) -> None:
    reported = section(site / "configuration.html", heading)
    for name, field in MODELS[heading].model_fields.items():
        assert re.search(rf"^{re.escape(field.alias or name)}$", reported, re.MULTILINE)
        assert field.description
        assert field.description.replace("`", "").replace("\n", " ") in reported


def test_the_site_has_a_report_of_the_recorded_example_and_a_link_to_it(site: Path) -> None:
    report = (site / "example-report.html").read_text()
    assert "<h2>" in report or "<h2 " in report
    assert "billing-slow" in report
    assert '<a href="example-report.html"' in (site / "index.html").read_text()


def test_no_page_loads_anything_from_the_network(site: Path) -> None:
    for page in site.rglob("*.html"):
        assert re.findall(r"<(?:script|link|img)[^>]+(?:src|href)=\"(?:https?:)?//[^\"]*", page.read_text()) == []


def test_every_page_is_in_the_menu_and_on_the_first_page() -> None:
    names = {page.name for page in (ROOT / "docs").glob("*.md")}
    menu = (ROOT / "mkdocs.yml").read_text().split("\nnav:")[1]
    assert set(re.findall(r"- ([\w-]+\.md)", menu)) == names
    first = (ROOT / "docs" / "index.md").read_text()
    assert set(re.findall(r"\]\(([\w-]+\.md)\)", first)) == names - {"index.md"}


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_of_pages_outside_of_the_site_lead_somewhere(page: str) -> None:
    links = re.findall(r"\]\(([^)\s]+)\)", (ROOT / page).read_text())
    for path, _, anchor in (link.partition("#") for link in links if "://" not in link):
        assert (ROOT / path).exists(), path
        if anchor:
            titles = re.findall(r"^#+ (.+)$", (ROOT / path).read_text(), re.MULTILINE)
            assert anchor in {slugify(title, "-") for title in titles}, f"{path}#{anchor}"


def constants(node: ast.AST) -> list[str]:
    """The constant texts in an expression."""
    parts = node.values if isinstance(node, ast.JoinedStr) else [node]
    return [p.value for p in parts if isinstance(p, ast.Constant) and isinstance(p.value, str)]


def sources() -> Iterator[tuple[Path, ast.Module]]:
    for folder in ("pipeline", "jobs", "laglake"):
        for file in sorted((ROOT / folder).rglob("*.py")):
            yield file, ast.parse(file.read_text())


def messages() -> Iterator[tuple[str, str]]:
    """The error messages of laglake: where each is, and its longest constant text."""
    for file, tree in sources():
        for node in ast.walk(tree):
            said: ast.AST | None = None
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args:
                is_of_config = node.func.id == "ValueError" and "config" in file.name
                said = node.args[0] if node.func.id in ERRORS or is_of_config else None
            elif isinstance(node, ast.Return) and node.value and file.name in ("probe.py", "client.py"):
                said = node.value
            words = max(constants(said), key=len, default="") if said else ""
            if len(words.strip(" ;:")) > 4 and " " in words.strip():
                yield f"{file.relative_to(ROOT)}:{said.lineno if said else 0}", words


def quoted() -> set[str]:
    """The messages in the first columns of the page's tables."""
    rows = re.findall(r"^\|(.+?)\|", (ROOT / "docs" / "troubleshooting.md").read_text(), re.MULTILINE)
    return {text for row in rows for text in re.findall(r"`([^`]+)`", row)}


def test_every_error_is_explained() -> None:
    reported = quoted()
    found = list(messages())
    assert len(found) > 70
    unexplained = [
        (where, words)
        for where, words in found
        if not any(text in words and len(text) >= min(10, len(words.strip())) for text in reported)
    ]
    assert unexplained == []


def test_every_explained_error_exists() -> None:
    said = [text for _, tree in sources() for node in ast.walk(tree) for text in constants(node)]
    said += [file.read_text() for file in (ROOT / "spark-submit.sh", *(ROOT / "pipeline" / "lake").glob("*.scala"))]
    names = {getattr(error, "message", "") for error in vars(kafka.errors).values() if isinstance(error, type)}
    assert [text for text in quoted() if text not in names and not any(text in words for words in said)] == []


def _keys(module: ast.Module) -> Iterator[str]:
    """The keys of all dictionaries that a module writes down, also of those with a key for each of some names."""
    for node in ast.walk(module):
        names: list[ast.expr | None] = [*node.keys] if isinstance(node, ast.Dict) else []
        if isinstance(node, ast.DictComp):
            names = [part for of in node.generators for part in ast.walk(of.iter) if isinstance(part, ast.expr)]
        for name in names:
            if isinstance(name, ast.Constant) and isinstance(name.value, str):
                yield name.value


def test_every_key_of_an_evidence_is_on_the_page_of_findings() -> None:
    modules = [file for file in (ROOT / "pipeline" / "kinds").glob("*.py") if file.stem != "causes"]  # columns
    keys = {key for path in modules for key in _keys(ast.parse(path.read_text()))} - {"stopped", "stalled"}
    keys |= {*GaugeFacts.model_fields, *BufferFacts.model_fields} - {*ClientFacts.model_fields}
    assert {"consumer_lag", "missed_instants", "heap_share", "short_stays"} <= keys
    section = (ROOT / "docs" / "findings.md").read_text().split("## What the evidence has")[1].split("\n## ")[0]
    assert not {key for key in keys if f"`{key}`" not in section}
