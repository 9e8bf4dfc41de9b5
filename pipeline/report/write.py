"""Writes the report: one self-contained page about the lake; also as JSON, as CSV, and as text for a terminal."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Literal

from pipeline.report.formats.export import as_csv, as_json
from pipeline.report.formats.markdown import as_markdown
from pipeline.report.formats.terminal import format_partitions
from pipeline.report.model.report import Group, Report, by_lag
from pipeline.report.page.page import render
from pipeline.report.read.collect import all_partitions, collect, collect_groups, collect_partitions
from pipeline.report.read.excerpt import Excerpt

Kind = Literal["html", "json", "csv", "markdown"]


def write_report(
    excerpt: Excerpt,
    output: Path,
    generated_at: datetime,
    *,
    title: str = "Kafka consumer lag",
    kind: Kind = "html",
) -> Path:
    """Writes the report on `excerpt` to `output`, and returns `output`. Its folder is created if necessary.

    `html` is the page, `json` what it shows, `csv` all partitions at the newest snapshots, `markdown` a text for a
    post-mortem. `generated_at` must have a time zone. A reader of `output` never sees an incomplete file.

    Raises: OSError, if the file cannot be written.
    """
    return _write(output, _content(excerpt, generated_at, title, kind))


def write_incident(excerpt: Excerpt, output: Path, generated_at: datetime) -> tuple[Path, Path]:
    """Writes the page about an incident to `output`, and beside it the text for a post-mortem, with the suffix `.md`.

    The selection of `excerpt` is one of `selection_of`, or has `is_incident`. Returns both paths.

    Raises: OSError, as `write_report`.
    """
    report = collect(excerpt, generated_at, "Incident")
    text = _write(output.with_suffix(".md"), iter([as_markdown(report)]))
    return _write(output, iter([render(report)])), text


def write_page(report: Report, output: Path) -> Path:
    """Writes the page of values that were collected before, and returns `output`. Raises: OSError."""
    return _write(output, iter([render(report)]))


def _write(output: Path, content: Iterator[str]) -> Path:
    output.parent.mkdir(parents=True, exist_ok=True)
    unfinished = output.with_name(f".{output.name}.{os.getpid()}")
    try:
        with unfinished.open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(content)
        unfinished.replace(output)
    finally:
        unfinished.unlink(missing_ok=True)
    return output


def _content(excerpt: Excerpt, generated_at: datetime, title: str, kind: Kind) -> Iterator[str]:
    if kind == "csv":
        yield from as_csv(all_partitions(excerpt))
    elif kind == "json":
        yield as_json(collect(excerpt, generated_at, title))
    elif kind == "markdown":
        yield as_markdown(collect(excerpt, generated_at, title))
    else:
        yield render(collect(excerpt, generated_at, title))


def groups_table(excerpt: Excerpt) -> list[Group]:
    """The groups at each cluster's newest snapshot with lag, the most lag first."""
    return by_lag(collect_groups(excerpt))


def partitions_table(excerpt: Excerpt, most: int, *, coloured: bool) -> str:
    """The worst partitions at each cluster's newest snapshot with lag, as text for a terminal."""
    partitions, total = collect_partitions(excerpt, most)
    return format_partitions(partitions, left_out=total - len(partitions), coloured=coloured)
