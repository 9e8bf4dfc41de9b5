"""Makes the specifications of the page's charts, written with Vega-Altair.

Vega-Lite is compiled to Vega here, so an invalid chart fails here and the page needs only Vega's runtime. The file is
committed, so that a report does not need Altair; a test compares it with this code.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import altair as alt
import vl_convert

from pipeline.report.charts.vega import CLOCK, VEGA_LITE

FOLDER = Path(__file__).resolve().parents[1] / "pipeline" / "report" / "page"
HEIGHTS_PX = {"lag": 340, "series": 240, "steps": 260}
_NUMBER = (
    "unit === 'ms' ? (abs(datum.value) >= 3600000 ? format(datum.value / 3600000, '~g') + ' h'"
    " : abs(datum.value) >= 60000 ? format(datum.value / 60000, '.3~g') + ' min'"
    " : format(datum.value / 1000, '.3~g') + ' s')"
    " : format(datum.value, abs(datum.value) < 1 ? '.3~g' : '~s') + (unit === 'bytes' ? 'B' : '')"
)
"""Each label has its own unit: an axis format would use the unit of the largest label for all, and turn 10 into 0M.
Values below 1 have no unit prefix, because 800m looks like millions, not like 0.8."""


def chart_files() -> dict[Path, str]:
    """The text of the file."""
    return {FOLDER / "charts.json": f"{json.dumps(_charts(), indent=1)}\n"}


def _charts() -> dict[str, Any]:
    return {
        "lag": _with_own_time(_compiled(_lag("linear"), "lag")),
        "log_lag": _with_own_time(_compiled(_lag("symlog"), "lag")),
        "series": _with_own_time(_compiled(_series(), "series")),
        "steps": _compiled(_steps(), "steps"),
    }


def _time(title: str | None = None) -> alt.X:
    axis = alt.Axis(title=title, tickCount=8, grid=False)
    return alt.X("t_ms:T").scale(alt.Scale(type="utc")).axis(axis)


_IS_SHOWN = "datum.t_ms >= first && datum.t_ms <= last"
_CAPTION = "caption"


def _value(kind: Literal["linear", "symlog"], field: str = "value") -> alt.Y:
    axis = alt.Axis(labelExpr=_NUMBER, title=None, tickCount=6)
    if kind == "symlog":
        axis.values = alt.ExprRef("ticks")
    reach = [alt.ExprRef("low"), alt.ExprRef("high")]
    return alt.Y(f"{field}:Q").scale(alt.Scale(type=kind, domain=reach, nice=True)).axis(axis)


def _lag(kind: Literal["linear", "symlog"]) -> alt.LayerChart | alt.FacetChart:
    """Lines of groups. Points of one `line` are joined; `is_drawn` are dots; `is_coloured` react to the pointer."""
    is_lit = "picked === null || datum.group === picked"
    base = alt.Chart(alt.NamedData("points")).encode(
        x=_time(_CAPTION),
        y=_value(kind),
        color=alt.Color("colour:N").scale(None).legend(None),
        opacity=alt.condition(is_lit, alt.value(1), alt.value(0.12)),
    )
    lines = base.mark_line(clip=True).encode(
        detail="line:N",
        order="t_ms:T",
        strokeWidth=alt.condition("datum.group === picked", alt.value(3), alt.value(1.6)),
    )
    dots = (
        base.transform_filter(f"datum.is_drawn && {_IS_SHOWN}")
        .mark_point(size=22, strokeWidth=1.5, opacity=1)
        .encode(
            fill=alt.Fill("fill:N").scale(None).legend(None),
        )
    )
    hits = (
        base.transform_filter(f"(datum.is_coloured || datum.group === picked) && {_IS_SHOWN}")
        .mark_point(size=180, filled=True)
        .encode(opacity=alt.value(0), tooltip="t_ms:T")
    )
    return alt.layer(lines, dots, hits)


def _series() -> alt.LayerChart | alt.FacetChart:
    """A few named lines, with time bands behind them; beyond their end, a forecast: a band and its middle; limits."""
    bands = (
        alt.Chart(alt.NamedData("bands"))
        .mark_rect(opacity=0.16, clip=True)
        .encode(x=_time(), x2="end_ms", color=alt.Color("colour:N").scale(None).legend(None))
    )
    points = alt.Chart(alt.NamedData("points")).encode(
        x=_time(), y=_value("linear"), color=alt.Color("colour:N").scale(None).legend(None), tooltip="t_ms:T"
    )
    lines = points.mark_line(clip=True, strokeWidth=2).encode(detail="line:N", order="t_ms:T")
    dots = points.transform_filter(_IS_SHOWN).mark_point(size=18, filled=True, opacity=1)
    hits = points.transform_filter(_IS_SHOWN).mark_point(size=180, filled=True).encode(opacity=alt.value(0))
    ahead = alt.Chart(alt.NamedData("ahead")).encode(x=_time(), color=alt.Color("colour:N").scale(None).legend(None))
    band = ahead.mark_area(clip=True, opacity=0.18).encode(
        y=_value("linear", "low"), y2="high", fill=alt.Fill("colour:N").scale(None).legend(None)
    )
    middle = ahead.mark_line(clip=True, strokeWidth=2, strokeDash=[6, 4]).encode(
        y=_value("linear", "middle"), order="t_ms:T"
    )
    return alt.layer(bands, band, middle, *_limits(), lines, dots, hits)


def _limits() -> tuple[alt.Chart, alt.Chart]:
    """A line at each limit, as far as the axis of values reaches, with its name."""
    base = alt.Chart(alt.NamedData("limits")).transform_filter("datum.value <= high").encode(y=_value("linear"))
    rules = base.mark_rule(strokeDash=[2, 3], strokeWidth=1.5, color="var(--bad)")
    names = base.mark_text(
        align="right", baseline="bottom", dx=-4, dy=-3, fontSize=12, limit=alt.ExprRef("width - 8"), color="var(--bad)"
    )
    return rules, names.encode(x=alt.value("width"), text="name:N")


def _steps() -> alt.Chart:
    """The share of readers that have at most a given value."""
    x_axis = alt.Axis(labelExpr=_NUMBER, title=None, values=alt.ExprRef("ticks"))
    chart: alt.Chart = (
        alt.Chart(alt.NamedData("points"))
        .mark_line(interpolate="step-after", clip=True, strokeWidth=2)
        .encode(
            x=alt.X("value:Q").scale(alt.Scale(type="symlog", domain=[0, alt.ExprRef("high")])).axis(x_axis),
            y=alt.Y("share:Q")
            .scale(alt.Scale(domain=[0, 1]))
            .axis(alt.Axis(format="%", title="readers with at most this", tickCount=5)),
            detail="line:N",
            color=alt.Color("colour:N").scale(None).legend(None),
            tooltip="value:Q",
        )
    )
    return chart


def _compiled(chart: alt.Chart | alt.LayerChart | alt.FacetChart, name: str) -> dict[str, Any]:
    ends = {"low": 0, "high": 1, "first": 0, "last": 1}
    signals = {"picked": None, "unit": "records", "ticks": None, _CAPTION: "", **ends}
    named = chart.add_params(*(alt.param(name=key, value=value) for key, value in signals.items()))
    themed = named.properties(width="container", height=HEIGHTS_PX[name]).configure(**_CONFIG)
    return vl_convert.vegalite_to_vega(themed.to_dict(), vl_version=VEGA_LITE)


def _with_own_time(specification: dict[str, Any]) -> dict[str, Any]:
    """Sets the domain and the title of the time axis to signals. Vega-Lite cannot do this for times, but Vega can."""
    x = next(scale for scale in specification["scales"] if scale["name"] == "x")
    x["domain"] = [{"signal": "first"}, {"signal": "last"}]
    for axis in specification["axes"]:
        if axis.get("title") == _CAPTION:
            axis["title"] = {"signal": _CAPTION}
    return specification


_INK: dict[str, Any] = {"labelColor": "var(--soft)", "titleColor": "var(--soft)"}
_CONFIG: dict[str, Any] = {
    "background": "transparent",
    "font": "system-ui, sans-serif",
    "view": {"stroke": None},
    "aria": False,
    "axis": {
        **_INK,
        "domainColor": "var(--rule)",
        "gridColor": "var(--rule)",
        "tickColor": "var(--rule)",
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "titlePadding": 10,
    },
    "axisTemporal": {"format": CLOCK},
    "axisY": {"minExtent": 58},
}
"""Colours are names from the style sheet, so that the drawing follows light and dark mode."""
