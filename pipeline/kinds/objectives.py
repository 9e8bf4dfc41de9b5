"""The kind of findings about service-level objectives."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pipeline.kinds.command_lines import CommandContext
from pipeline.kinds.group_commands import Commands, show_lag
from pipeline.kinds.kind import Clock, Facts, Finding, Headline, Kind, Words
from pipeline.kinds.text import NAMED, duration, figure, iso, part, quotient, rounded, sentence


class BudgetFacts(Facts):
    """The objective whose error budget is used fastest, of those of a group (`slos`) whose budget is used too fast.

    The budget was used for `used_ms` of the last `span_ms`. The other fields are columns of `slo`.
    """

    snapshot_id: int
    slo: str
    slos: Sequence[str]
    objective: str
    target: float
    window_ms: int
    worst: int | None = None
    partitions_missed: int | None = None
    partitions: int | None = None
    burn_rate_1h: float | None = None
    burn_rate_6h: float | None = None
    attainment: float | None = None
    budget_left: float | None = None
    is_fast: bool
    span_ms: int
    used_ms: int


class BudgetBurn(Kind[BudgetFacts]):
    """The group uses the error budget of a [service-level objective](slo.md) too fast."""

    name = "budget_burn"
    severity = "critical, or warning if it is slow"
    magnitude = "burn rate"
    keys = (
        "`slos` (names); of the worst: `objective`, `target`, `window_ms`, `attainment`, `budget_left`, "
        "`burn_rate_1h`, `burn_rate_6h`, `used_up_at`; `worst`, as in the table `slo`; `partitions_missed` of "
        "`partitions`"
    )
    facts = BudgetFacts

    def words(self, facts: BudgetFacts) -> Words:
        lasts_ms = _lasts_ms(facts)
        return Words(
            _summary(facts, lasts_ms),
            {
                "slos": facts.slos[:NAMED],
                "objective": facts.objective,
                "target": facts.target,
                "window_ms": facts.window_ms,
                "worst": facts.worst,
                "partitions_missed": facts.partitions_missed,
                "partitions": facts.partitions,
                "burn_rate_1h": rounded(facts.burn_rate_1h, 2),
                "burn_rate_6h": rounded(facts.burn_rate_6h, 2),
                "attainment": rounded(facts.attainment, 6),
                "budget_left": rounded(facts.budget_left, 4),
                "used_up_at": iso(None if lasts_ms is None else facts.snapshot_id + lasts_ms),
            },
            "The group's other findings and its lag say what is wrong. If nothing is, the objective may be stricter "
            "than the group can be: add consumers, or change the objective.",
        )

    def headline(self, finding: Finding, clock: Clock) -> Headline:
        names = ", ".join(map(str, finding.newest_evidence.get("slos") or ())) or "not known"
        rate = finding.newest_evidence.get("burn_rate_1h")
        burns = f", burn rate {figure(rate)}" if rate is not None else ""
        return Headline("budget burn", f"objective {names}{burns}")

    def commands(self, finding: Finding, around: CommandContext) -> Commands:
        yield from show_lag(finding, around)


def _lasts_ms(facts: BudgetFacts) -> int | None:
    """How long the error budget lasts at this rate; None if none is left."""
    if facts.budget_left is None:
        return None
    left_ms = facts.budget_left * ((1 - facts.target) * facts.window_ms)
    lasts_ms = rounded(quotient(left_ms * facts.span_ms, facts.used_ms), 0)
    return int(lasts_ms) if left_ms > 0 and lasts_ms is not None else None


def _summary(facts: BudgetFacts, lasts_ms: int | None) -> str:
    used_ms, span_ms = facts.used_ms, facts.span_ms
    part_of_it = "during all" if used_ms >= span_ms else f"for {duration(used_ms)}"
    span = "hour" if facts.is_fast else "6 hours"
    lasts = part(", and at this rate it lasts for ", duration(lasts_ms))
    others = ", ".join([slo for slo in facts.slos if slo != facts.slo][:NAMED])
    return sentence(
        f"Objective {facts.slo}: {facts.objective} was missed {part_of_it} of the last {span}, and must be met "
        f"for {_percent(facts.target, 4)} of {duration(facts.window_ms)}. ",
        part(_percent(facts.budget_left, 1), " of the error budget is left", lasts) or "The error budget is used up",
        ".",
        f" Other objectives whose budget is used too fast: {others}." if others else None,
    )


def _percent(share: float | None, digits: int) -> str | None:
    """A share in percent, without zeros at its end: 99.9 %."""
    return None if share is None else re.sub(r"\.?0+$", "", f"{100 * share:,.{digits}f}") + " %"
