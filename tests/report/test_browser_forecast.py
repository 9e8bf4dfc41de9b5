"""The forecast of a group in a real browser."""

import re

import pytest

from pipeline.report.model.details import Forecast
from pipeline.report.model.report import Instant
from pipeline.report.page.page import render
from tests.helpers.browser import Browse, with_script
from tests.helpers.crowded import points
from tests.helpers.reports import MINUTE, NOON, group, report


@pytest.mark.tool
@pytest.mark.parametrize(("unit", "is_drawn"), [("records", True), ("bytes", True), ("age", False)])
def test_a_forecast_is_drawn_beyond_the_last_snapshot(browse: Browse, unit: str, is_drawn: bool) -> None:
    instants = tuple(Instant("east", NOON + i * MINUTE, 1, 10) for i in range(10))
    some = [group("g", 9)]
    forecast = Forecast("east", "g", NOON + 9 * MINUTE, 2 * MINUTE, MINUTE, 3 * MINUTE, None)
    page = render(report(*some, instants=instants, points=points(some, instants), forecasts=(forecast,)))
    choose = f"const u = document.querySelector('#unit'); u.value = '{unit}'; u.dispatchEvent(new Event('change'));"
    document, console = browse(with_script(page, choose))
    assert console == ""
    drawing = document[document.index('<div id="history"') : document.index('<div class="scroll events"')]
    assert ("stroke-dasharray" in drawing) is is_drawn
    assert ("12:10" in drawing or "12:11" in drawing) is is_drawn
    keys = re.findall(r'<span class="key \w+ ahead"[^>]*>', document)
    assert [" hidden" in key for key in keys] == [not is_drawn] * 2
