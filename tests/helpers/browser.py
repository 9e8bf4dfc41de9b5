"""Pages that a script acts on like a reader, and what a browser then shows."""

import html
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

CHROMIUM = "chromium", "chromium-browser", "google-chrome"
Browse = Callable[..., tuple[str, str]]


def with_script(page: str, script: str) -> str:
    """The page with a script that acts like a reader; the page's own policy would forbid it."""
    page = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page)
    end = page.rindex("</body>")
    act = f"addEventListener('load', () => setTimeout(() => {{ {script} }}, 1000))"
    return f"{page[:end]}<script>{act}</script>{page[end:]}"


def framed(browse: Browse, folder: Path, page: str, width: int) -> Any:
    """What a page's script posts to its parent, as JSON, if the page is `width` pixels wide.

    It is in a frame, because a window of Chromium cannot be narrower than 500 px.
    """
    (folder / "inner.html").write_text(page, encoding="utf-8")
    listen = 'addEventListener("message", (message) => { document.body.dataset.seen = message.data; });'
    frame = f'<iframe src="inner.html" width="{width}" height="900" style="border: 0"></iframe>'
    document, _ = browse(f"<!doctype html><body style='margin: 0'><script>{listen}</script>{frame}</body>")
    found = re.search('data-seen="([^"]*)"', document)
    assert found
    return json.loads(html.unescape(found[1]))
