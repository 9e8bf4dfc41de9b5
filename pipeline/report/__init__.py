"""The report: one self-contained page about the lake, and the same groups as text for a terminal."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path

from pipeline.report.charts import runtime
from pipeline.report.collect import collect, collect_groups
from pipeline.report.frames import Frames
from pipeline.report.model import Group, by_lag
from pipeline.report.page import render
from pipeline.report.text import format_groups

__all__ = ["Frames", "Group", "format_groups", "groups_table", "write_report"]


def write_report(frames: Frames, output: Path, generated_at: datetime, *, title: str = "Kafka consumer lag") -> Path:
    """Writes the page on everything in the frames to `output` and returns that; its folder is made if need be.

    `generated_at` must be aware of its time zone. A reader of `output` never sees half a page.

    Raises: OSError, if the file cannot be written.
    """
    with ThreadPoolExecutor(1) as pool:
        pool.submit(runtime)  # takes seconds to make, and is kept
        report = collect(frames, generated_at, title)
    page = render(report)
    output.parent.mkdir(parents=True, exist_ok=True)
    unfinished = output.with_name(f".{output.name}.{os.getpid()}")
    try:
        unfinished.write_text(page, encoding="utf-8", newline="\n")
        unfinished.replace(output)
    finally:
        unfinished.unlink(missing_ok=True)
    return output


def groups_table(frames: Frames) -> list[Group]:
    """The groups at each cluster's newest snapshot with lag, most lag first."""
    return by_lag(collect_groups(frames))
