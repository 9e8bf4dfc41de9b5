"""The digest of some days: what was wrong, for how long, what still is, and which objectives were missed. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined

from pipeline.common.subject import subject_of
from pipeline.common.words import counted, named
from pipeline.config import Config
from pipeline.notify.due import Finding, Row, findings_of, in_utc
from pipeline.notify.message import LONGEST_NAME, Message, in_words, shown, title_of

DIGEST = "digest"
LISTED = 20
"""The most findings, groups or objectives that a section lists."""
_HOUR = timedelta(hours=1)


class Missed(NamedTuple):
    """An objective that a group has missed: a row of `slo` at the newest snapshot whose attainment is below target."""

    cluster: str
    slo: str
    group_id: str
    objective: str
    target: float
    attainment: float
    budget_left: float | None
    channels: tuple[str, ...]


class Trouble(NamedTuple):
    """What had findings, how many, and for how long in all. Findings that last at the same time count one by one."""

    name: str
    findings: int
    lasted: timedelta


@dataclass(frozen=True)
class Digest:
    """What happened from `since` to `until`.

    `findings` are those that lasted at some time in between, the gravest first. `snapshots` maps a cluster to the
    number of its snapshots with each status.
    """

    since: datetime
    until: datetime
    findings: tuple[Finding, ...]
    missed: tuple[Missed, ...]
    snapshots: Mapping[str, Mapping[str, int]]

    @property
    def still_open(self) -> list[Finding]:
        """The findings that were not resolved at the end of this time."""
        return [f for f in self.findings if f.resolved_at is None or f.resolved_at > self.until]

    @property
    def begun(self) -> int:
        """How many of the findings began in this time."""
        return sum(f.first_seen is not None and f.first_seen >= self.since for f in self.findings)

    def lasted(self, finding: Finding) -> timedelta:
        """How long a finding lasted within this time."""
        begin = max(finding.first_seen or self.since, self.since)
        return max(min(finding.resolved_at or self.until, self.until) - begin, timedelta(0))

    def by_kind(self) -> list[Trouble]:
        """The kinds of findings, the longest first."""
        return self._troubles((in_words(f.kind), f) for f in self.findings)

    def by_subject(self) -> list[Trouble]:
        """The groups, clients, topics and clusters with findings that are more than information, the longest first."""
        return self._troubles((subject_of(f).with_cluster, f) for f in self.findings if f.gravity > 0)

    def _troubles(self, named: Iterable[tuple[str, Finding]]) -> list[Trouble]:
        number: Counter[str] = Counter()
        lasted: dict[str, timedelta] = {}
        for name, finding in named:
            number[name] += 1
            lasted[name] = lasted.get(name, timedelta(0)) + self.lasted(finding)
        found = [Trouble(name, number[name], lasted[name]) for name in number]
        return sorted(found, key=lambda trouble: (-trouble.lasted, trouble.name))

    def of_channel(self, channel: str) -> Digest:
        """The part whose owners have this channel."""
        return replace(
            self,
            findings=tuple(f for f in self.findings if channel in f.channels),
            missed=tuple(missed for missed in self.missed if channel in missed.channels),
        )


def digest_of(
    findings: Iterable[Row],
    slo: Iterable[Row],
    snapshots: Mapping[str, Mapping[str, int]],
    config: Config,
    span: tuple[datetime, datetime],
) -> Digest:
    """The digest from rows of `findings`, and of `slo` at the newest snapshots. Findings with one cause are one."""
    since, until = span
    found = sorted(findings_of(_as_known(findings, until), config), key=lambda f: (-f.gravity, f"{f.first_seen}"))
    missed = (_missed(row, config) for row in slo)
    below = sorted((m for m in missed if m.attainment < m.target), key=lambda m: (m.attainment - m.target, m))
    return Digest(since, until, tuple(found), tuple(below), snapshots)


def _as_known(findings: Iterable[Row], until: datetime) -> Iterator[Row]:
    """The rows of what had begun at an instant, without the ends and causes that were not known then."""

    def is_later(instant: datetime | None) -> bool:
        at = in_utc(instant)
        return at is not None and at > until

    for row in findings:
        if not is_later(row["first_seen"]):
            cause_id = None if is_later(row["grouped_at"]) else row["cause_id"]
            resolved_at = None if is_later(row["resolved_at"]) else row["resolved_at"]
            yield {**row, "cause_id": cause_id, "resolved_at": resolved_at}


def _missed(row: Row, config: Config) -> Missed:
    channels = config.responsible().channels_of({"group_id": row["group_id"], "topic": None})
    values = {name: row[name] for name in Missed._fields if name != "channels"}
    return Missed(**values, channels=channels)


def title(digest: Digest) -> str:
    """The digest in one line."""
    days = f"{digest.since:%Y-%m-%d} to {digest.until:%Y-%m-%d}"
    numbers = f"{counted(len(digest.findings), 'finding')}, {len(digest.still_open):,} still open"
    return f"Kafka consumer lag, {days}: {numbers}"


def message_of(digest: Digest, report_url: str | None) -> Message:
    """The digest as one message."""
    gravest = digest.still_open[0].severity if digest.still_open else None
    key = f"laglake-digest-{digest.until:%Y-%m-%d}"
    body = "\n".join(_lines(digest, report_url)).strip()
    return Message(DIGEST, gravest or "info", key, title(digest), body)


def _lines(digest: Digest, report_url: str | None) -> Iterator[str]:
    for heading, lines in sections(digest):
        yield from (f"{heading}:", *(f"- {shown(line, 4 * LONGEST_NAME)}" for line in lines), "")
    yield f"Report: {report_url}" if report_url else ""


def sections(digest: Digest) -> list[tuple[str, list[str]]]:
    """The headings, each with its lines; a section without lines is left out."""
    found = [
        ("Still open", _some([_open(finding) for finding in digest.still_open])),
        ("Objectives missed", _some([_objective(missed) for missed in digest.missed])),
        ("By kind", [_trouble(trouble) for trouble in digest.by_kind()]),
        ("Where", _some([_trouble(trouble) for trouble in digest.by_subject()])),
        ("Snapshots", [_snapshots(name, statuses) for name, statuses in sorted(digest.snapshots.items())]),
    ]
    return [(heading, lines) for heading, lines in found if lines]


def _some(lines: Sequence[str]) -> list[str]:
    more = len(lines) - LISTED
    return [*lines[:LISTED], f"and {more:,} more"] if more > 0 else list(lines)


def _open(finding: Finding) -> str:
    since = f", since {finding.first_seen:%Y-%m-%d %H:%M} UTC" if finding.first_seen else ""
    return title_of(finding) + since


def _objective(missed: Missed) -> str:
    left = "" if missed.budget_left is None else f"; {missed.budget_left:.0%} of the error budget is left"
    reached = f"{missed.attainment:.2%} of the time instead of {missed.target:.2%}"
    return (
        f"{missed.slo}, group {named(missed.group_id)}, cluster {missed.cluster}: {missed.objective} in {reached}{left}"
    )


def _trouble(trouble: Trouble) -> str:
    return f"{trouble.name}: {counted(trouble.findings, 'finding')}, {trouble.lasted / _HOUR:,.1f} h"


def _snapshots(cluster: str, statuses: Mapping[str, int]) -> str:
    bad = [f"{statuses[status]:,} {status}" for status in ("failed", "partial", "running") if statuses.get(status)]
    return f"{cluster}: {counted(sum(statuses.values()), 'snapshot')}; {', '.join(bad) or 'all complete'}"


def as_html(digest: Digest, report_url: str | None) -> str:
    """The digest as one page without scripts, which a mail may contain."""
    environment = Environment(
        loader=PackageLoader("pipeline", "notify"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    values: dict[str, Any] = {
        "title": shown(title(digest), 4 * LONGEST_NAME),
        "sections": [
            (heading, [shown(line, 4 * LONGEST_NAME) for line in lines]) for heading, lines in sections(digest)
        ],
        "begun": digest.begun,
        "report_url": report_url,
        "since": f"{digest.since:%Y-%m-%d %H:%M}",
        "until": f"{digest.until:%Y-%m-%d %H:%M}",
    }
    return environment.get_template("digest.html").render(values)
