"""A hook of MkDocs: the site also has the report of the recorded example, and its menu has a link to it.

The link is not in mkdocs.yml or on a page, because the report is only in the site, and not in docs/.
"""

import tempfile
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.nav import Link, Navigation

from jobs.example import unpacked
from pipeline.report.formats.saved import loaded
from pipeline.report.write import write_page

PAGE = "example-report.html"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the report."""
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / PAGE
        write_page(loaded(unpacked(Path(folder) / "example").report), page)
        files.append(File.generated(config, PAGE, content=page.read_text("utf-8")))
    return files


def on_nav(nav: Navigation, **_: object) -> Navigation:
    """Adds the link, after the page of concepts."""
    nav.items.insert(2, Link("An example of the report", PAGE))
    return nav
