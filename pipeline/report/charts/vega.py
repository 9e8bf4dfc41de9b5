"""The page's charts: their specifications, and Vega's runtime, which draws them as SVG in the page.

The page has scripts rather than finished pictures, because scripts fit a chart to the width, show the value under the
pointer and highlight one line out of fifty. `charts.json` is made by `make docs` (`scripts/charts.py`). A specification
contains no data and no names: the page's script (charts.js) adds both.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

_PACKAGE = "pipeline.report.page"
VEGA_LITE = "6.4"
"""The version of Vega-Lite, which fixes the one of Vega."""
COLOURS = 8
"""The number of groups with a colour of their own. The others are grey, because more colours look alike."""
CLOCK = {
    "year": "%Y",
    "month": "%b",
    "week": "%b %d",
    "day": "%b %d",
    "date": "%b %d",
    "hours": "%H:%M",
    "minutes": "%H:%M",
    "seconds": "%H:%M:%S",
    "milliseconds": "%S.%L",
}
"""The formats of times on axes, by the unit of a tick. Vega's own formats use the 12-hour clock."""


@cache
def charts() -> dict[str, Any]:
    """The specifications by name: `lag` and `log_lag`, lines of groups; `series`, named lines; `steps`, distributions.

    The script fills the data sets `points` and, for series, `bands`, `ahead` (a forecast) and `limits`. It sets the
    signals `unit` (records | bytes | ms), `picked` (the number of a group, or null), `ticks`, `caption` (the title of
    the time axis of lags), and the ends of the axes: `low`, `high`, `first`, `last`.
    """
    specifications: dict[str, Any] = json.loads(_text("charts.json"))
    return specifications


def colour(number: int) -> str:
    """The CSS colour of a line. The style sheet defines it for light and dark mode."""
    return f"var(--series-{number + 1})" if number < COLOURS else "var(--series-other)"


@cache
def runtime() -> str:
    """Vega's JavaScript for embedding, about 0.9 MB, made offline. It defines the global `vegaEmbed`.

    To make it takes more than a second, so it is kept beside this file, if that can be written.
    """
    kept = f"vega-{VEGA_LITE}-{version('vl-convert-python')}.js"
    with suppress(OSError):
        if text := _text(kept):  # it may be empty after a power failure
            return text
    import vl_convert  # only if it is needed, because that takes as long

    # Vega alone would be smaller, but vl-convert 1.9 leaves its bundle's `vega` null.
    bundle = vl_convert.javascript_bundle(snippet="window.vegaEmbed = vegaEmbed;", vl_version=VEGA_LITE)
    text = bundle.replace("</script", r"<\/script").replace("<!--", r"<\!--")
    with suppress(OSError):
        _keep(Path(__file__).parents[1] / "page" / kept, text)
    return text


def _keep(file: Path, text: str) -> None:
    unfinished = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        unfinished.write_text(text, encoding="utf-8", newline="")
        unfinished.replace(file)
    finally:
        unfinished.unlink(missing_ok=True)


def _text(name: str) -> str:
    return files(_PACKAGE).joinpath(name).read_text(encoding="utf-8")
