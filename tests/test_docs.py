"""The pages: they build, every column and key is on them, and every error is explained."""

import ast
import html
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel

from pipeline.config import ClusterConfig, LakeConfig, LimitsConfig, SnapshotConfig
from pipeline.consumer_config import ConsumerSettings, PositionsConfig
from pipeline.tables import TABLES
from tests.conftest import ROOT

MODELS = (LakeConfig, SnapshotConfig, ClusterConfig, LimitsConfig, PositionsConfig, ConsumerSettings)
ERRORS = ("ClaimedError", "ClusterError", "ConfigError", "LakeError", "SchemaError")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pages, built strictly: a link that leads nowhere is an error."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    env = os.environ | {"PYTHONPATH": str(ROOT), "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=120)
    assert built.returncode == 0, built.stderr
    return folder


def section(page: Path, heading: str) -> str:
    """The text of one heading of the second level."""
    parts = re.split(r"<h2[^>]*>", page.read_text())
    titles = [html.unescape(re.sub(r"<[^>]+>", "", part.split("</h2>")[0])).rstrip("¶") for part in parts]
    found = parts[titles.index(heading)]
    return html.unescape(re.sub(r"<[^>]+>", "", found))


def test_every_column_is_on_the_page_of_tables(site: Path) -> None:
    for table in TABLES:
        told = section(site / "tables.html", table.name)
        for column in table.schema:
            assert column.metadata["comment"] in told
            assert re.search(rf"^{column.name}$", told, re.MULTILINE)


@pytest.mark.parametrize("model", MODELS)
def test_every_key_is_explained_on_the_page_of_the_configuration(site: Path, model: type[BaseModel]) -> None:
    page = html.unescape((site / "configuration.html").read_text())
    for name, field in model.model_fields.items():
        assert f"<code>{field.alias or name}</code>" in page
        assert field.description
        assert re.sub(r"`([^`]+)`", r"<code>\1</code>", field.description) in page


def test_no_page_asks_anything_of_the_network(site: Path) -> None:
    for page in site.rglob("*.html"):
        assert re.findall(r"<(?:script|link|img)[^>]+(?:src|href)=\"(?:https?:)?//[^\"]*", page.read_text()) == []


def raised() -> Iterator[tuple[str, list[str]]]:
    """Where laglake raises an error of its own, and the words of its message that are always the same."""
    for folder in ("pipeline", "jobs"):
        for file in sorted((ROOT / folder).rglob("*.py")):
            if "local" in file.parts:
                continue
            for node in ast.walk(ast.parse(file.read_text())):
                if (
                    isinstance(node, ast.Call)
                    and isinstance(node.func, ast.Name)
                    and node.func.id in ERRORS
                    and node.args
                ):
                    message = node.args[0]
                    parts = message.values if isinstance(message, ast.JoinedStr) else [message]
                    texts = [p.value for p in parts if isinstance(p, ast.Constant) and isinstance(p.value, str)]
                    if any(len(text) > 4 for text in texts):
                        yield f"{file.relative_to(ROOT)}:{node.lineno}", texts


def test_every_error_is_explained() -> None:
    words = re.findall(r"`([^`]+)`", (ROOT / "docs" / "troubleshooting.md").read_text())
    errors = list(raised())
    assert len(errors) > 30
    unexplained = [
        (where, texts)
        for where, texts in errors
        if not any(word in text for text in texts for word in words if len(word) > 5)
    ]
    assert unexplained == []
