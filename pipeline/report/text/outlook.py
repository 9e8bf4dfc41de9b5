"""What is said about the future of a group: when it will have caught up, and whether it meets its objectives."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import floor

from pipeline.common.quantities import duration, size
from pipeline.report.model.details import Forecast, Objective
from pipeline.report.model.report import Group, Report

_REASONS = {
    "never_at_this_rate": "never caught up at this rate",
    "too_uncertain": "its rate varies too much for a forecast",
}
"""The reasons that say something about the group, and not about what laglake knows."""
BY_WEEKS = ", by the traffic of earlier weeks"
"""What is added if the forecast takes the traffic of the next hours from earlier weeks."""


def forecast_of(report: Report, group: Group) -> Forecast | None:
    """When the group will have caught up; None if there is no forecast."""
    return next((f for f in report.forecasts if (f.cluster, f.group_id) == group.key), None)


def objectives_of(report: Report, group: Group) -> list[Objective]:
    """The objectives of a group, as far as they are listed."""
    return [o for o in report.objectives if (o.cluster, o.group_id) == group.key]


def caught_up(forecast: Forecast | None) -> str | None:
    """When the group will have caught up, or that it will not. None if it has, or if it is not known."""
    if forecast is None:
        return None
    by_weeks = BY_WEEKS if forecast.basis == "same_hour" else ""
    if forecast.caught_up_in_ms is None:
        return said + by_weeks if (said := _REASONS.get(forecast.reason or "")) else None
    if forecast.caught_up_in_ms == 0:
        return None
    times = band(forecast.caught_up_in_low_ms, forecast.caught_up_in_high_ms, _from_now)
    return f"caught up in {duration(forecast.caught_up_in_ms)} ({times}){by_weeks}"


def deleted(forecast: Forecast | None) -> str | None:
    """When retention deletes unread records; None if it does not, or if that is not known."""
    if forecast is None or forecast.deleted_in_ms is None:
        return None
    times = band(forecast.deleted_in_low_ms, forecast.deleted_in_high_ms, _from_now)
    return f"retention deletes unread records in {duration(forecast.deleted_in_ms)} ({times})"


def outlook(forecast: Forecast | None) -> list[str]:
    """What is said about the future of a group, as clauses."""
    return [said for said in (caught_up(forecast), deleted(forecast)) if said is not None]


def band(low_ms: int | None, high_ms: int | None, written: Callable[[int], str]) -> str:
    """The earliest and the latest time of a forecast, each as `written` writes it; without a latest time, "never"."""
    return f"{written(low_ms or 0)} to {'never' if high_ms is None else written(high_ms)}"


def _from_now(ms: int) -> str:
    return duration(ms) if ms else "now"


_SPANS = {"5m": "5 min", "1h": "1 h", "1d": "1 d"}
_WHY_NO_BYTES = {
    "not_known": "Where there are no bytes, the size or the place of the commit in a log is not known.",
    "too_little_history": "Where there are no bytes, the sizes of the logs were not yet known at that time.",
    "too_uncertain": "Where there are no bytes, they are not known to within a quarter.",
}


def rates(forecast: Forecast | None) -> list[tuple[str, str, str]]:
    """How fast the logs grew and the group committed: over which time, and both as text. Only what is known."""
    found = []
    for span, name in _SPANS.items():
        both = [_rate(forecast, of, span) for of in ("written", "committed")] if forecast else [None, None]
        if any(both):
            found.append((name, both[0] or "–", both[1] or "–"))
    return found


def why_no_bytes(forecast: Forecast | None) -> str | None:
    """Why a rate is not shown in bytes, as a sentence; None if all are, or if there is no rate."""
    return _WHY_NO_BYTES.get(forecast.bytes_reason or "") if forecast and rates(forecast) else None


def _rate(forecast: Forecast, of: str, span: str) -> str | None:
    records = getattr(forecast, f"{of}_per_s_{span}")
    in_bytes = getattr(forecast, f"{of}_bytes_per_s_{span}")
    if records is None:
        return None
    return f"{_per_s(records)} offsets" + ("" if in_bytes is None else f" · {size(round(in_bytes))}")


def _per_s(value: float) -> str:
    """A rate with at most three digits: 0.02, 1.5, 123, 12,345."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def attainment(objective: Objective) -> str:
    """How well an objective was met: "95.2 % of 99 %, −380 % of the error budget left"."""
    reached = "not known" if objective.attainment is None else share(objective.attainment)
    left = "" if objective.budget_left is None else f", {share(objective.budget_left)} of the error budget left"
    return f"{reached} of {share(objective.target)}{left}"


def objectives_in_words(objectives: Iterable[Objective]) -> list[str]:
    """A sentence for each objective."""
    return [
        f"Objective {o.slo} ({o.objective}): {attainment(o)} over {duration(o.window_ms)}"
        f"{', missed now' if o.is_met is False else ''}."
        for o in objectives
    ]


def share(value: float) -> str:
    """A share in per cent. What is less than all is never rounded up to 100 %.

    >>> share(0.9995), share(0.5), share(-3.8), share(0.9999999)
    ('99.95 %', '50 %', '\N{MINUS SIGN}380 %', '99.9999 %')
    """
    shown = floor(value * 1_000_000) / 10_000 if 0.99 < value < 1 else 100 * value
    digits = f"{shown:,.{4 if 0.99 < value < 1 else 2}f}".rstrip("0").rstrip(".")
    return f"{digits} %".replace("-", "\N{MINUS SIGN}")
