"""What is drawn beyond the last snapshot: points of a forecast by hand."""

from typing import Any

import pytest

from pipeline.report.charts.forecast_curve import Ahead, ahead
from pipeline.report.model.details import Forecast
from pipeline.report.model.report import Instant
from tests.helpers.reports import MINUTE, NOON, group

NOW = NOON + 60 * MINUTE
INSTANTS = [Instant("east", NOON + minute * MINUTE, 1, 2) for minute in (0, 60)]
"""An hour, so that at most 20 minutes are added."""
Point = tuple[float, float, float, float]


def forecast(low: int | None, middle: int | None, high: int | None, **more: Any) -> Forecast:
    """A forecast of times in minutes."""
    times = (None if minutes is None else minutes * MINUTE for minutes in (middle, low, high))
    return Forecast("east", "g", NOW, *times, **{"reason": None} | more)


def points(found: list[Ahead]) -> list[Point]:
    """In minutes from now."""
    return [((point.t_ms - NOW) / MINUTE, *point[1:]) for point in found]


NEVER = {"reason": "never_at_this_rate"}
CASES: dict[str, tuple[Forecast, list[Point]]] = {
    "it ends when the group has caught up at the latest": (
        forecast(6, 8, 12),
        [(0, 1200, 1200, 1200), (6, 0, 300, 600), (8, 0, 0, 400), (12, 0, 0, 0)],
    ),
    "or after a third of the time shown": (
        forecast(10, 40, 80),
        [(0, 1200, 1200, 1200), (10, 0, 900, 1050), (20, 0, 600, 900)],
    ),
    "it may have caught up now": (forecast(0, 10, 20), [(0, 1200, 1200, 1200), (10, 0, 0, 600), (20, 0, 0, 0)]),
    "at the latest never, but its lag does not rise": (
        forecast(10, 20, None, net_per_s=2.0, net_error_per_s=1.0),
        [(0, 1200, 1200, 1200), (10, 0, 600, 1200), (20, 0, 0, 1200)],
    ),
    "at the latest never, and its lag rises": (
        forecast(20, 40, None, net_per_s=0.5, net_error_per_s=1.5),
        [(0, 1200, 1200, 1200), (20, 0, 600, 2400)],
    ),
    "it falls behind": (
        forecast(None, None, None, net_per_s=-0.5, net_error_per_s=0.1, **NEVER),
        [(0, 1200, 1200, 1200), (20, 1680, 1800, 1920)],
    ),
    "its rate is hardly known": (
        forecast(None, None, None, net_per_s=-0.5, net_error_per_s=9.0, reason="too_uncertain"),
        [(0, 1200, 1200, 1200), (20, 0, 1800, 3600)],
    ),
    "it falls behind now, and catches up later, by earlier weeks": (
        forecast(20, 40, 60, net_per_s=-0.5, net_error_per_s=0.1, basis="same_hour"),
        [(0, 1200, 1200, 1200), (20, 1680, 1800, 1920)],
    ),
    "it catches up by earlier weeks, and its rate is not known": (forecast(20, 40, 60, basis="same_hour"), []),
    "it has stopped, and no rate is known": (forecast(None, None, None, **NEVER), []),
    "it has caught up": (forecast(0, 0, 0), []),
    "it has paused": (forecast(None, None, None, net_per_s=1.0, reason="paused"), []),
}


@pytest.mark.parametrize("case", CASES)
def test_the_points_of_a_forecast(case: str) -> None:
    found, expected = CASES[case]
    shown = points(ahead(found, group("g", 1_200), INSTANTS))
    assert [pytest.approx(point) for point in expected] == shown


@pytest.mark.parametrize("lag", [None, 0, -3])
def test_without_a_lag_nothing_is_ahead(lag: int | None) -> None:
    assert ahead(forecast(6, 8, 12), group("g", lag), INSTANTS) == []
    assert ahead(None, group("g", 1_200), INSTANTS) == ahead(forecast(6, 8, 12), group("g", 1_200), []) == []
