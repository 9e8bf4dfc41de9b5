"""The report as one HTML file: `render` is pure, and the page needs no network.

Every name goes through Jinja2's autoescape, the charts' data through its `tojson`, which escapes what could end a
script element. The page's own Content-Security-Policy forbids all other scripts and all network requests.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from pipeline.common.epoch import to_epoch_ms
from pipeline.common.quantities import duration, instant, size
from pipeline.common.subject import subject_of
from pipeline.common.words import spaced
from pipeline.report.cards.attention import notes
from pipeline.report.cards.cards import brokers, cards
from pipeline.report.charts import vega
from pipeline.report.model.report import Report, by_lag
from pipeline.report.page.payload import payload
from pipeline.report.page.search import searched
from pipeline.report.text.coverage import finding_in_words, what_was_seen
from pipeline.report.text.names import owner_in_words, visible, visible_name
from pipeline.report.text.outlook import caught_up, share

_GROUP_SCRIPTS = ("changes.js", "heat.js", "group.js")
_SCRIPTS = (
    "tables.js",
    "search.js",
    "pictures.js",
    "times.js",
    "page.js",
    *_GROUP_SCRIPTS,
    "charts.js",
    "all_groups.js",
)
_INSTANT = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")


def title_of(report: Report) -> str:
    """The title of the page: that of the report, or what the incident is."""
    finding = report.incident
    if report.selection.is_incident:
        return f"{report.title}: {report.selection}"
    return report.title if finding is None else f"Incident: {spaced(finding.kind)}, {subject_of(finding)}"


def render(report: Report) -> str:
    """The whole page."""
    groups = by_lag(report.groups)
    drawing = payload(report, groups)
    own_script = "".join(map(_asset, _SCRIPTS))
    runtime = vega.runtime() if drawing else ""
    return (
        _environment()
        .get_template("template.html")
        .render(
            report=report,
            title=title_of(report),
            cards=cards(report),
            brokers=brokers(report),
            notes=notes(report),
            seen=what_was_seen(report),
            searched=searched(report),
            ages=list(_ages(report)),
            groups=groups,
            # Names alone do not identify a group.
            outlook={(f.cluster, f.group_id): caught_up(f) for f in report.forecasts},
            numbers={g.key: number for number, g in enumerate(groups)},
            charted={g.key: number for number, g in enumerate(report.charted)},
            colours=vega.COLOURS,
            thinned=list(_thinned(report)),
            drawing=drawing,
            # Our own files and Vega's, which must not be escaped; they contain nothing from Kafka.
            style=Markup(_asset("report.css")),  # noqa: S704
            runtime=Markup(runtime),  # noqa: S704
            own_script=Markup(own_script),  # noqa: S704
            policy=_policy(script for script in (runtime, own_script) if script),
        )
    )


def _ages(report: Report) -> Iterator[tuple[str, int]]:
    """How old the newest lag of each cluster was when the page was made, in milliseconds."""
    made_ms = to_epoch_ms(report.generated_at)
    for cluster in report.clusters:
        if cluster.lag_snapshot_id is not None:
            yield cluster.cluster, max(made_ms - cluster.lag_snapshot_id, 0)


class Thinned(NamedTuple):
    """A cluster for which the chart shows only some of the snapshots."""

    cluster: str
    kept: int
    total: int


def _thinned(report: Report) -> Iterator[Thinned]:
    kept = Counter(i.cluster for i in report.instants)
    for cluster, total in sorted({(i.cluster, i.total) for i in report.instants}):
        if kept[cluster] < total:
            yield Thinned(cluster, kept[cluster], total)


@cache  # with the compiled templates
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("pipeline.report", "page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "ensure_ascii": False}
    environment.filters |= {
        "visible": visible,
        "visible_name": visible_name,
        "sentence": _sentence,
        "number": _number,
        "instant": instant,  # the page says UTC beside it
        "colour": vega.colour,
        "size": size,
        "duration": duration,
        "share": share,
        "with_tier": owner_in_words,
        "finding": finding_in_words,
        "iso": lambda at: f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}",
        "aware": lambda at: f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S}",
    }
    return environment


def _asset(name: str) -> str:
    return files("pipeline.report.page").joinpath(name).read_text("utf-8")


def _policy(scripts: Iterable[str]) -> str:
    """A Content-Security-Policy that allows only these scripts. Vega compiles expressions, so it needs unsafe-eval."""
    hashes = (b64encode(sha256(script.encode()).digest()).decode() for script in scripts)
    allowed = " ".join(f"'sha256-{hash_}'" for hash_ in hashes)
    return f"default-src 'none'; style-src 'unsafe-inline'; script-src {allowed} 'unsafe-eval'"


def _number(value: int) -> str:
    return f"{value:,}".replace("-", "\N{MINUS SIGN}")


def _sentence(text: str) -> Markup:
    """The text, escaped, with each instant in an element of its own, so that no line break can split it."""
    escaped = str(escape(visible(text)))  # as text, because Markup would escape the elements, too
    return Markup(_INSTANT.sub(r"<time>\g<0></time>", escaped))  # noqa: S704
