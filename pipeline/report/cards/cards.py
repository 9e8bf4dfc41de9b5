"""The cards of the page: one for each group with a problem, and one for each topic, client or cluster that is a cause.

A card answers the questions of an incident from the tables `findings`, `group_status`, `forecasts` and
`client_divergence`. It judges nothing by itself.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from pipeline.common.epoch import to_epoch_ms
from pipeline.common.quantities import clock
from pipeline.common.subject import Subject, subject_of
from pipeline.kinds import kind_named, rank
from pipeline.kinds.command_lines import Command, CommandContext, brokers_of, without_shown
from pipeline.kinds.kind import Clock
from pipeline.report.cards import answers
from pipeline.report.model.details import VICTIMS_NAMED, Finding, Forecast, Partition, Verdict
from pipeline.report.model.report import Group, Report

CARDS = 20
"""The most cards on a page."""
COMMANDS_SHOWN = 5
Key = tuple[str, str]


class Cause(NamedTuple):
    """A finding in few words: `word` is a status such as "stopped", `text` says why and since when."""

    word: str
    text: str
    severity: str
    since_ms: int
    resolved_ms: int | None


@dataclass(frozen=True)
class Victim:
    """A group that suffers from a cause which is not its own, with its lag and when it will have caught up."""

    key: Key
    behind: str
    caught_up: str
    owner: str | None
    tier: str | None


@dataclass(frozen=True)
class Card:
    """What is known about one cause. Answers are texts; None where the question makes no sense for the cause.

    `findings` are the findings of it, the worst first, and `causes` the same in few words. `since_ms` is when the first
    of those that are open began. `group` is the key of the group if it is the cause. `victims_total` also counts those
    that are not named. `silenced` is the reason if messages about all open findings are silenced. `advice` does not
    repeat `commands`.
    """

    subject: Subject
    is_critical: bool
    is_loss: bool
    since_ms: int
    causes: tuple[Cause, ...]
    behind: str | None
    loss: str | None
    caught_up: str | None
    gauge: str | None
    members: str | None
    owner: str | None
    tier: str | None
    silenced: str | None
    advice: tuple[str, ...]
    commands: tuple[Command, ...]
    victims: tuple[Victim, ...]
    victims_total: int
    findings: tuple[Finding, ...]
    group: Key | None


def cards(report: Report) -> list[Card]:
    """The cards, the worst first: at most CARDS."""
    return _all_cards(report)[:CARDS]


def findings_without_card(report: Report) -> int:
    """How many open findings that are more than information no card shows."""
    information = sum(f.is_open and f.severity == "info" for f in report.findings)
    shown = sum(f.is_open and f.severity != "info" for card in cards(report) for f in card.findings)
    return report.findings_open - information - shown


def _all_cards(report: Report) -> list[Card]:
    of: dict[Subject, list[Finding]] = defaultdict(list)
    for finding in report.findings:
        if finding.is_open or finding.is_loss:
            of[subject_of(finding)].append(finding)
    facts = _Facts(report)
    # What is only information needs nobody; it is shown on the card of a group that has another problem.
    found = [
        facts.card(subject, sorted(findings, key=gravest_first))
        for subject, findings in of.items()
        if {finding.severity for finding in findings} != {"info"}
    ]
    return sorted(found, key=_urgency)


def _urgency(card: Card) -> tuple[bool, bool, bool, bool, bool, int]:
    """The sort key of cards: what is over comes last, and before it what is silenced.

    Of the others, open losses come first, then losses ahead, what is critical, and the oldest. So no number of losses
    that are over takes the place of an open problem.
    """
    lasting = [f for f in card.findings if f.is_open]
    return (
        not lasting,
        card.silenced is not None,
        not any(f.is_loss for f in lasting),
        not any(kind_named(f.kind).is_loss_ahead for f in lasting),
        not any(f.severity == "critical" for f in lasting),
        card.since_ms,
    )


def brokers(report: Report) -> dict[str, str]:
    """For each cluster the variable that its commands take the address of a broker from."""
    return brokers_of([*(c.cluster for c in report.clusters), *(f.cluster for f in report.findings)])


def gravest_first(finding: Finding) -> tuple[bool, bool, int, int]:
    """The sort key of findings: open ones, losses, the most severe ones, and causes before their symptoms."""
    severities = ("critical", "warning", None, "info")
    severity = severities.index(finding.severity) if finding.severity in severities else len(severities)
    return (not finding.is_open, not finding.is_loss, severity, rank(finding.kind))


def is_of_losses(finding: Finding) -> bool:
    """Whether records were deleted unread, or will be."""
    kind = kind_named(finding.kind)
    return kind.is_loss or kind.is_loss_ahead


def cause_of(finding: Finding, clock: Clock) -> Cause:
    """The words for a finding. A kind that is not known, such as one of a newer laglake, has its summary."""
    kind = kind_named(finding.kind)
    word, text = kind.headline(finding, clock)
    if finding.resolved_ms is not None:
        text += f"; resolved at {clock(finding.resolved_ms)}"
    return Cause(word, text, finding.severity or "info", kind.since_ms(finding), finding.resolved_ms)


class _Facts:
    """The report by group."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self.groups: Mapping[Key, Group] = {g.key: g for g in report.groups}
        self.forecasts: Mapping[Key, Forecast] = {(f.cluster, f.group_id): f for f in report.forecasts}
        self.verdicts: Mapping[Key, Verdict] = {(v.cluster, v.group_id): v for v in report.verdicts}
        self.partitions: dict[Key, list[Partition]] = defaultdict(list)
        for p in report.partitions:
            self.partitions[p.cluster, p.group_id].append(p)
        self.types: dict[str, dict[str, str | None]] = defaultdict(dict)
        for g in report.groups:
            self.types[g.cluster][g.group_id] = g.group_type
        self.brokers = brokers(report)
        self.clock: Clock = partial(clock, today_ms=to_epoch_ms(report.generated_at))

    def card(self, subject: Subject, findings: Sequence[Finding]) -> Card:
        """The card about a subject with these findings."""
        key = (subject.cluster, subject.name) if subject.what == "group" else None
        causes = tuple(cause_of(f, self.clock) for f in findings)
        lasting = [f for f in findings if f.is_open]
        partitions = self.partitions[key] if key else []
        broker, is_alone = self.brokers[subject.cluster], len(self.brokers) == 1
        commits = {(p.topic, p.partition): p.committed_offset for p in partitions}
        around = CommandContext(commits, self.types[subject.cluster], broker, is_alone)
        every = (command for f in lasting for command in kind_named(f.kind).commands(f, around))
        offered = tuple(dict.fromkeys(every))[:COMMANDS_SHOWN]
        lines = [command.line for command in offered]
        advice = (without_shown(f.advice, lines, broker) for f in lasting if f.advice)
        affected = list(dict.fromkeys(name for f in lasting for name in f.newest_evidence.get("groups") or ()))
        victims = [] if key else [(subject.cluster, str(name)) for name in affected]
        total = max([len(affected), *(f.newest_evidence.get("groups_affected") or 0 for f in lasting)])
        group, forecast = (self.groups.get(key), self.forecasts.get(key)) if key else (None, None)
        current = [one for one in causes if one.resolved_ms is None] or causes
        owner, tier = next(((one.owner, one.tier) for one in (*findings, group) if one and one.owner), (None, None))
        return Card(
            subject,
            is_critical=any(f.severity == "critical" for f in findings),
            is_loss=any(f.is_loss for f in findings),
            since_ms=min(one.since_ms for one in current),
            causes=causes,
            behind=answers.behind(group, findings) if key else self._behind(findings),
            loss=self._loss(key, findings, forecast) if key else self._loss_of(victims, findings),
            caught_up=answers.caught_up_at(forecast, self.clock) if key else None,
            gauge=answers.gauge(self.verdicts.get(key), findings, self.clock) if key else None,
            members=self._members(group, findings, partitions, is_group=key is not None),
            owner=owner,
            tier=tier,
            silenced=next((f.silenced for f in lasting), None) if all(f.silenced for f in lasting) else None,
            advice=tuple(dict.fromkeys(text for text in advice if text)),
            commands=offered,
            victims=tuple(map(self._victim, victims[:VICTIMS_NAMED])),
            victims_total=max(total, len(victims)) if not key else 0,
            findings=tuple(findings),
            group=key,
        )

    @staticmethod
    def _behind(findings: Iterable[Finding]) -> str | None:
        most = sorted(findings, key=lambda f: (f.is_open, f.newest_evidence.get("consumer_lag") or 0), reverse=True)
        return next((known for f in most if (known := answers.of_evidence(f.newest_evidence))), None)

    def _loss(self, key: Key, findings: Sequence[Finding], forecast: Forecast | None) -> str:
        """What a group has lost, also with others."""
        of_group = (f for f in self.report.findings_of(*key) if f.is_open and is_of_losses(f))
        with_others = [f for f in of_group if f.group_id is None or f.cause_id is not None]
        return answers.loss(self.groups.get(key), [*findings, *with_others], forecast, self.clock)

    def _members(
        self, group: Group | None, findings: Sequence[Finding], partitions: Sequence[Partition], *, is_group: bool
    ) -> str | None:
        found = answers.members(group, findings, partitions, self.clock)
        return found if is_group or found != "not known" else None

    def _loss_of(self, victims: Sequence[Key], findings: Sequence[Finding]) -> str | None:
        """What the groups that suffer have lost; None if there are no such groups."""
        if known := answers.losses(findings, self.clock):
            return "; ".join(known)
        if not victims:
            return None
        lost = [f for f in self.report.findings if f.is_open and is_of_losses(f)]
        endangered = {(f.cluster, group_id): f for f in lost for group_id in f.groups()}
        named = [key for key in victims if key in endangered]
        if not named:
            return "no finding of data loss for these groups"
        names = ", ".join(name for _, name in named[:VICTIMS_NAMED]) + (", …" if len(named) > VICTIMS_NAMED else "")
        where = "group" if any(endangered[key].group_id is not None for key in named) else "topic"
        return f"yes, or ahead, for {names}: see the card of the {where}"

    def _victim(self, key: Key) -> Victim:
        group = self.groups.get(key)
        return Victim(
            key,
            "not listed" if group is None else answers.behind(group, ()),
            answers.caught_up_at(self.forecasts.get(key), self.clock),
            None if group is None else group.owner,
            None if group is None else group.tier,
        )
