"""A browser for the tests of the page."""

import subprocess
from pathlib import Path

import pytest

from tests.helpers.browser import CHROMIUM, Browse
from tests.helpers.tools import tool


@pytest.fixture
def browse(tmp_path: Path) -> Browse:
    """Opens a page from a file in headless Chromium; returns the final document and the output of the console.

    A second argument is the part of the address from # on.
    """

    def browse(page: str, at: str = "") -> tuple[str, str]:
        path = tmp_path / "report.html"
        path.write_text(page, encoding="utf-8")
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr"]
        options += ["--window-size=1400,1000", "--virtual-time-budget=10000"]
        done = subprocess.run(
            [tool(*CHROMIUM), *options, f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", path.as_uri() + at],
            capture_output=True,
            encoding="utf-8",
            timeout=120,
            check=True,
        )
        return done.stdout, "\n".join(line for line in done.stderr.splitlines() if "CONSOLE" in line)

    return browse
