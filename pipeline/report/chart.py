"""The chart of lag over time: Vega-Altair, compiled to Vega here, drawn as SVG by Vega's own runtime in the page.

Embedded scripts rather than a finished picture: they fit the chart to the width, tell the value under the pointer
and pick one line out of fifty. Compiling here means that a bad chart fails here, and that the page carries only the
runtime. No name is part of the specification: names and points reach it as data.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

import altair as alt
import vl_convert

from pipeline.report.model import Group, Instant, Point, Report, utc
from pipeline.report.names import visible

VEGA_LITE = "6.4"
COLOURS = 8
"""The worst groups have a colour each, the rest are grey: more than eight colours cannot be told apart."""
DOTS_UP_TO = 60
"""With so few instants every point is drawn as a dot, with more only those that a line alone would hide."""
HEIGHT_PX = 340


class Dot(NamedTuple):
    """One point of the chart. Points are joined if they have the same `line`.

    group: its number among the charted; lag: in offsets; unknown: partitions missing from the sum;
    is_drawn: whether the point is drawn as a dot.
    """

    group: int
    t_ms: int
    lag: int
    unknown: int
    line: int
    is_drawn: bool


def chart(report: Report) -> dict[str, Any] | None:
    """What the page's script needs to draw the chart, as JSON values; None if no point is known."""
    dots = list(_dots(report.charted, report.instants, report.points))
    if not dots:
        return None
    lags = [dot.lag for dot in dots]
    span, reach = _span(report.instants), [min(0, *lags), max(1, *lags)]
    return {
        "groups": [
            {"name": visible(g.group_id), "cluster": visible(g.cluster), "colour": colour(i)}
            for i, g in enumerate(report.charted)
        ],
        "dots": dots,
        "linear": _vega(span, alt.Scale(domain=reach, nice=True), None),
        "log": _vega(span, alt.Scale(type="symlog", domain=reach, nice=True), _powers(lags)),
    }


def colour(number: int) -> str:
    """The CSS colour of a charted group's line; the style sheet has one for light and one for dark."""
    return f"var(--series-{number + 1})" if number < COLOURS else "var(--series-other)"


@cache
def runtime() -> str:
    """Vega's JavaScript, to be embedded; it defines the global `vegaEmbed`. Made offline, about 0.9 MB."""
    # Vega alone would be smaller, but vl-convert 1.9 leaves its bundle's `vega` null.
    bundle = vl_convert.javascript_bundle(snippet="window.vegaEmbed = vegaEmbed;", vl_version=VEGA_LITE)
    return bundle.replace("</script", r"<\/script").replace("<!--", r"<\!--")


def _dots(charted: Sequence[Group], instants: Sequence[Instant], points: Iterable[Point]) -> Iterator[Dot]:
    """The known points of each group; grey ones first, so that the coloured are drawn over them."""
    known = {(p.cluster, p.group_id, p.snapshot_id): p for p in points}
    of_cluster: dict[str, list[Instant]] = defaultdict(list)
    for instant in sorted(instants, key=lambda i: i.snapshot_id):
        of_cluster[instant.cluster].append(instant)
    line = 0
    for number, group in reversed(list(enumerate(charted))):
        times = of_cluster[group.cluster]
        for run in _runs([known.get((*group.key, i.snapshot_id)) for i in times], times):
            line += 1
            for point, lag in run:
                is_drawn = len(run) == 1 or len(times) <= DOTS_UP_TO or point.partitions_unknown > 0
                yield Dot(number, point.snapshot_id, lag, point.partitions_unknown, line, is_drawn)


def _runs(points: Sequence[Point | None], instants: Sequence[Instant]) -> Iterator[list[tuple[Point, int]]]:
    """The points cut where the lag is unknown or absent, or where the ledger has a hole."""
    run: list[tuple[Point, int]] = []
    segment = None
    for point, instant in zip(points, instants, strict=True):
        if run and (point is None or point.consumer_lag is None or instant.segment != segment):
            yield run
            run = []
        if point is not None and point.consumer_lag is not None:
            run.append((point, point.consumer_lag))
        segment = instant.segment
    if run:
        yield run


def _span(instants: Sequence[Instant]) -> list[int]:
    """First and last instant, epoch ms; a single one is given half a minute on each side."""
    first, last = min(i.snapshot_id for i in instants), max(i.snapshot_id for i in instants)
    return [first, last] if last > first else [first - 30_000, last + 30_000]


def _time_format(span_ms: list[int]) -> str:
    minutes = (span_ms[1] - span_ms[0]) / 60_000
    return "%H:%M:%S" if minutes < 10 else "%H:%M" if minutes < 36 * 60 else "%Y-%m-%d"


def _time_title(span_ms: list[int]) -> str:
    first, last = map(utc, span_ms)
    return f"UTC, {first:%Y-%m-%d %H:%M} to {last:%Y-%m-%d %H:%M}"


def _powers(lags: Sequence[int]) -> list[int]:
    """Ticks of the logarithmic axis: 0 and the powers of ten on either side, as far as the lags go."""
    ticks = [0]
    for sign in (1, -1):
        furthest = max(lag * sign for lag in lags)
        ticks += [sign * 10**n for n in range(len(str(furthest))) if 10**n <= furthest]
    return sorted(ticks)


def _vega(span_ms: list[int], y_scale: alt.Scale, ticks: list[int] | None) -> dict[str, Any]:
    """A Vega specification over the data set `dots`; its signal `picked` is the highlighted group, or null."""
    is_lit = "picked === null || datum.group === picked"
    picked = alt.param(name="picked", value=None)
    # Each label with a unit of its own: an axis format would take the largest one's, and turn 10 into 0M.
    y_axis = alt.Axis(labelExpr="format(datum.value, '~s')", title="offsets behind the high watermark", tickCount=6)
    if ticks:
        y_axis.values = ticks
    x_axis = alt.Axis(format=_time_format(span_ms), title=_time_title(span_ms), tickCount=8, grid=False)
    base = alt.Chart(alt.NamedData("dots")).encode(
        x=alt.X("t_ms:T").scale(alt.Scale(type="utc", domain=span_ms)).axis(x_axis),
        y=alt.Y("lag:Q").scale(y_scale).axis(y_axis),
        color=alt.Color("colour:N").scale(None).legend(None),
        opacity=alt.condition(is_lit, alt.value(1), alt.value(0.12)),
    )
    lines = base.mark_line(clip=True).encode(
        detail="line:N",
        order="t_ms:T",
        strokeWidth=alt.condition("datum.group === picked", alt.value(3), alt.value(1.6)),
    )
    dots = (
        base.transform_filter("datum.is_drawn")
        .mark_point(size=22, strokeWidth=1.5, opacity=1)
        .encode(
            fill=alt.Fill("fill:N").scale(None).legend(None),
        )
    )
    hits = (
        base.transform_filter(f"datum.group < {COLOURS} || datum.group === picked")
        .mark_point(size=180, filled=True)
        .encode(opacity=alt.value(0), tooltip="t_ms:T")
    )
    layers = alt.layer(lines, dots, hits).add_params(picked)
    themed = layers.properties(width="container", height=HEIGHT_PX).configure(**_CONFIG)
    return vl_convert.vegalite_to_vega(themed.to_dict(), vl_version=VEGA_LITE)


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
}
"""Colours are names of the style sheet's, so that the drawing follows light and dark by itself."""
