"""The words about service-level objectives: budget_burn."""

from __future__ import annotations

import re

from pipeline.analytics.findings.words.parts import (
    NAMED,
    Facts,
    Words,
    duration,
    iso,
    part,
    quotient,
    rounded,
    sentence,
)


def budget_burn(facts: Facts) -> Words:
    """A group that uses its error budget too fast."""
    lasts_ms = _lasts_ms(facts)
    return Words(
        _summary(facts, lasts_ms),
        {
            "slos": facts["slos"][:NAMED],
            **{name: facts[name] for name in ("objective", "target", "window_ms", "worst", "partitions_missed")},
            "partitions": facts["partitions"],
            "burn_rate_1h": rounded(facts["burn_rate_1h"], 2),
            "burn_rate_6h": rounded(facts["burn_rate_6h"], 2),
            "attainment": rounded(facts["attainment"], 6),
            "budget_left": rounded(facts["budget_left"], 4),
            "used_up_at": iso(None if lasts_ms is None else facts["snapshot_id"] + lasts_ms),
        },
        "The group's other findings and its lag say what is wrong. If nothing is, the objective may be stricter than "
        "the group can be: add consumers, or change the objective.",
    )


def _lasts_ms(facts: Facts) -> int | None:
    """How long the error budget lasts at this rate; None if none is left."""
    if facts["budget_left"] is None:
        return None
    left_ms = facts["budget_left"] * ((1 - facts["target"]) * facts["window_ms"])
    lasts_ms = rounded(quotient(left_ms * facts["span_ms"], facts["used_ms"]), 0)
    return int(lasts_ms) if left_ms > 0 and lasts_ms is not None else None


def _summary(facts: Facts, lasts_ms: int | None) -> str:
    used_ms, span_ms = facts["used_ms"], facts["span_ms"]
    part_of_it = "during all" if used_ms >= span_ms else f"for {duration(used_ms)}"
    span = "hour" if facts["is_fast"] else "6 hours"
    lasts = part(", and at this rate it lasts for ", duration(lasts_ms))
    others = ", ".join([slo for slo in facts["slos"] if slo != facts["slo"]][:NAMED])
    return sentence(
        f"Objective {facts['slo']}: {facts['objective']} was missed {part_of_it} of the last {span}, and must be met "
        f"for {_percent(facts['target'], 4)} of {duration(facts['window_ms'])}. ",
        part(_percent(facts["budget_left"], 1), " of the error budget is left", lasts) or "The error budget is used up",
        ".",
        f" Other objectives whose budget is used too fast: {others}." if others else None,
    )


def _percent(share: float | None, digits: int) -> str | None:
    """A share in percent, without zeros at its end: 99.9 %."""
    return None if share is None else re.sub(r"\.?0+$", "", f"{100 * share:,.{digits}f}") + " %"
