"""A report as text that becomes the same report again, so that its page can be made later, without Spark.

Unlike the report as JSON for other programs (`export`), it has the values of the model alone.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from pydantic import TypeAdapter

from pipeline.report.model.report import Report


def saved(report: Report) -> bytes:
    """The report as JSON, in UTF-8."""
    return _adapter().dump_json(report)


def loaded(text: bytes) -> Report:
    """The report of `saved`, as a recorded one. Raises ValueError if the text is none of this version of laglake."""
    return replace(_adapter().validate_json(text), is_recorded=True)


@cache
def _adapter() -> TypeAdapter[Report]:
    return TypeAdapter(Report)
