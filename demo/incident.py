"""A picture of one incident: the lag metric of a client, above the true state of the partition that it reads."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import altair as alt
import pyarrow as pa
import vl_convert

from pipeline.common.arrow_sql import queried
from pipeline.common.quantities import duration, size
from pipeline.report.charts.vega import VEGA_LITE
from pipeline.report.text.names import visible
from pipeline.tables import DATA_LOSS

RUNGS = {
    "high_watermark": ("high watermark", "#1f6fb4"),
    "fetched_offset": ("fetched", "#7d4bb0"),
    "consumed_offset": ("consumed", "#b8860b"),
    "committed_offset": ("committed", "#c0392b"),
    "log_start_offset": ("log start", "#565f6e"),
}
WIDTH_PX = 760


def write_incident(lag: pa.Table, positions: pa.Table, output: Path) -> Path | None:
    """Draws the partition with the most lag that its client's own metric hides, as an SVG file; None if there is none.

    `lag` and `positions` are rows of `lag` and `client_positions`. Raises OSError if the file cannot be written.
    """
    rows = moments(lag, positions)
    if not rows:
        return None
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(vl_convert.vegalite_to_svg(_picture(rows).to_dict(), vl_version=VEGA_LITE), encoding="utf-8")
    return output


def moments(lag: pa.Table, positions: pa.Table) -> list[dict[str, Any]]:
    """The rows of `lag`, with reported_lag, of the partition with the greatest stale_lag at the newest snapshot."""
    found: list[dict[str, Any]] = queried(_MOMENTS, lag=lag, positions=positions).to_pylist()
    return found


_MEASURES = ("consumer_lag", "consumer_lag_bytes", "bytes_error", "consumer_lag_ms", "time_error_ms", "headroom")
_NAMES = ("snapshot_id", "group_id", "client_id", "topic", "partition", "offset_status", *RUNGS, *_MEASURES)
_MOMENTS = f"""
    WITH worst AS (
        SELECT cluster, client_id, topic, "partition", group_id FROM lag WHERE stale_lag > 0
        ORDER BY snapshot_id DESC, stale_lag DESC, cluster, client_id, topic, "partition" LIMIT 1
    ), reported AS (
        SELECT snapshot_id, max(reported_lag) AS reported_lag
        FROM positions JOIN worst USING (cluster, client_id, topic, "partition") GROUP BY snapshot_id
    )
    SELECT {", ".join(f'lag."{name}"' for name in _NAMES)}, reported_lag
    FROM lag JOIN worst USING (cluster, group_id, topic, "partition") LEFT JOIN reported USING (snapshot_id)
    ORDER BY lag.snapshot_id
"""


def _picture(rows: Sequence[dict[str, Any]]) -> alt.VConcatChart:
    """Both panels have the same time axis. The scale of the upper one is that of the lag which it does not show."""
    x = alt.X("at:T", title=None, scale=alt.Scale(type="utc"), axis=alt.Axis(format="%H:%M:%S", grid=False))
    both: alt.VConcatChart = (
        alt.vconcat(_gauge(rows, x), _ladder(rows, x))
        .resolve_scale(x="shared", color="independent")
        .configure(background="white", font="sans-serif")
        .configure_title(anchor="start")
        .configure_view(stroke=None)
    )
    return both


def _gauge(rows: Sequence[dict[str, Any]], x: alt.X) -> alt.Chart:
    """The upper panel: the client's own metric."""
    most = max(1, *(row["consumer_lag"] or 0 for row in rows))
    reported = [{"at": r["snapshot_id"], "value": r["reported_lag"]} for r in rows if r["reported_lag"] is not None]
    title = f"The client's own records-lag: {visible(rows[-1]['client_id'] or '')}"
    gauge: alt.Chart = (
        _chart(reported)
        .mark_line(point=alt.OverlayMarkDef(size=20, color="#17806d"), strokeWidth=2.5, color="#17806d")
        .encode(x=x, y=alt.Y("value:Q", title="records", scale=alt.Scale(domain=[0, most]), axis=alt.Axis(tickCount=3)))
        .properties(width=WIDTH_PX, height=90, title=title)
    )
    return gauge


def _ladder(rows: Sequence[dict[str, Any]], x: alt.X) -> alt.LayerChart | alt.FacetChart:
    """The lower panel: the known rungs, and a bar for the lag at the end."""
    last = rows[-1]
    gap = {"at": last["snapshot_id"], "from": last["committed_offset"], "to": last["high_watermark"]}
    bar = _chart([gap]).mark_rule(strokeWidth=6, opacity=0.25, color="#c0392b").encode(x="at:T", y="from:Q", y2="to:Q")
    title = f"What was true: {visible(last['topic'])} {last['partition']}, group {visible(last['group_id'])}"
    return alt.layer(_lines(rows, x), bar).properties(
        width=WIDTH_PX, height=280, title=alt.TitleParams(title, subtitle=_gap(last), subtitleColor="#c0392b")
    )


def _lines(rows: Sequence[dict[str, Any]], x: alt.X) -> alt.Chart:
    drawn = [
        {"at": r["snapshot_id"], "offset": r[name], "rung": label}
        for r in rows
        for name, (label, _) in RUNGS.items()
        if r[name] is not None
    ]
    known = [(label, colour) for name, (label, colour) in RUNGS.items() if any(r[name] is not None for r in rows)]
    colour = alt.Color(
        "rung:N",
        title=None,
        scale=alt.Scale(domain=[label for label, _ in known], range=[c for _, c in known]),
        legend=alt.Legend(orient="bottom", symbolStrokeWidth=3),
    )
    lines: alt.Chart = (
        _chart(drawn)
        .mark_line(point=alt.OverlayMarkDef(size=20), strokeWidth=2)
        .encode(x=x, y=alt.Y("offset:Q", title="offset"), color=colour)
    )
    return lines


def _chart(rows: Sequence[dict[str, Any]]) -> alt.Chart:
    return alt.Chart({"values": list(rows)})


def _gap(row: dict[str, Any]) -> str:
    """The lag at the end, in every unit that is known, and the headroom that is left."""
    if row["consumer_lag"] is None:
        return "how far it is behind at the end is not known"
    parts = [f"{row['consumer_lag']:,} records"]
    if row["consumer_lag_bytes"] is not None:
        parts.append(size(row["consumer_lag_bytes"], row["bytes_error"]))
    if row["consumer_lag_ms"] is not None:
        parts.append(duration(row["consumer_lag_ms"], row["time_error_ms"]))
    return f"behind by {' · '.join(parts)} at the end{_headroom(row)}"


def _headroom(row: dict[str, Any]) -> str:
    if row["headroom"] is None:
        return ""
    if row["headroom"] >= 0:
        return f"; {row['headroom']:,} records of headroom left"
    read_up_to = max(row["committed_offset"], row["consumed_offset"] or 0)
    if row["offset_status"] == DATA_LOSS:
        return f"; {row['log_start_offset'] - read_up_to:,} records were deleted unread"
    return f"; {-row['headroom']:,} records after the commit were deleted"
