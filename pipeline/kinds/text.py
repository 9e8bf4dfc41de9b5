"""The parts of sentences, and how they write numbers, bytes, times and names. What is not known is None."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from decimal import ROUND_HALF_UP, Decimal
from typing import Any, TypeVar

from pipeline.common import quantities
from pipeline.common.epoch import to_epoch_ms, utc_text

T = TypeVar("T")
NAMED = 20
"""How many groups, topics or errors a sentence names."""
LISTED = 1_000
"""How many groups or topics the evidence names. One finding with so many names is less than a finding for each."""
_EXACT = 2**52
"""From this value on, a float has no digits after the point."""


def sentence(*parts: str | None) -> str:
    """The parts joined; one that is not known is left out."""
    return "".join(part for part in parts if part is not None)


def part(*pieces: str | None) -> str | None:
    """The pieces joined; not known if one of them is not."""
    return None if None in pieces else sentence(*pieces)


def number(value: float | None) -> str | None:
    """A whole number with commas: 1,234."""
    return None if value is None else f"{value:,.0f}" if isinstance(value, float) else f"{value:,}"


def tenths(value: float | None) -> str | None:
    """A number with at most one digit after the point: 12.5, 10."""
    return None if value is None else f"{value:,.1f}".removesuffix(".0")


def figure(value: object) -> str:
    """A number of an evidence; a question mark if it has none."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return f"{value:,}" if is_number else "?"


def some(value: object, noun: str) -> str:
    """A number of an evidence and what it counts: 2 records; "some records" if it has none."""
    return f"{value:,} {noun}{'' if value == 1 else 's'}" if isinstance(value, int) else f"some {noun}s"


def counted(value: int | None, noun: str) -> str | None:
    """A number and what it counts: 1 record, 2 records."""
    return None if value is None else f"{value:,} {noun}{'' if value == 1 else 's'}"


def percent(share: float) -> str:
    """A share in whole percent: 80 %."""
    return f"{100 * share:,.0f} %"


def rounded(value: float | None, digits: int) -> float | None:
    """The value with so many digits after the point; halves are rounded up."""
    if value is None or abs(value) >= _EXACT:
        return value
    return float(Decimal(repr(value)).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP))


def required(value: T | None) -> T:
    """A fact that each problem of a kind has. Raises ValueError if it is missing."""
    if value is None:
        raise ValueError("a problem lacks a fact that all of its kind have")
    return value


def quotient(value: float | None, of: float | None) -> float | None:
    """The value as a part of another, which must be positive."""
    return None if value is None or of is None or of <= 0 else value / of


def size(value: int | None, error: int | None = None) -> str | None:
    """Bytes in decimal units, with their error: 1.2 MB ± 0.1 MB."""
    return None if value is None else quantities.size(value, error)


def duration(value: int | None) -> str | None:
    """Milliseconds in a readable unit: 1.5 h."""
    return None if value is None else quantities.duration(value)


def instant(epoch_ms: int | None) -> str | None:
    """An instant in UTC, to the minute: 2026-01-31 12:05 UTC. Not known if it is not in the years 1 to 9999."""
    text = iso(epoch_ms)
    return None if text is None else f"{text[:10]} {text[11:16]} UTC"


def instant_ms(text: object) -> int | None:
    """An instant of an evidence as epoch ms; None if it has none."""
    try:
        return to_epoch_ms(datetime.fromisoformat(text)) if isinstance(text, str) else None
    except ValueError:
        return None


def iso(epoch_ms: int | None) -> str | None:
    """An instant in UTC, for programs: 2026-01-31T12:05:00Z. Not known if it is not in the years 1 to 9999."""
    if epoch_ms is None:
        return None
    try:
        return utc_text(epoch_ms // 1_000 * 1_000)
    except OverflowError:
        return None


def for_streams(advice: str, group_type: str | None) -> str:
    """The advice with the tool that knows the group: a group of type streams has a tool of its own (KIP-1071)."""
    return advice.replace("kafka-consumer-groups", "kafka-streams-groups") if group_type == "streams" else advice


def as_json(evidence: Mapping[str, Any]) -> str:
    """The evidence as JSON, without what is not known."""
    known = {name: value for name, value in evidence.items() if value is not None}
    return json.dumps(known, ensure_ascii=False, separators=(",", ":"))
