"""How names from Kafka are shown. They may contain newlines, escape codes, and characters of any script."""

from __future__ import annotations

from collections.abc import Iterable
from unicodedata import combining, east_asian_width

from pipeline.common.words import visible, visible_name

__all__ = ["columns", "cut", "owner_in_words", "padded", "visible", "visible_name"]


def owner_in_words(owner: str | None, tier: str | None) -> str | None:
    """An owner with the tier, such as "payments, tier 1"; None if there is no owner."""
    return owner and (f"{owner}, tier {tier}" if tier else owner)


def columns(text: str) -> int:
    """How many columns of a terminal the text needs: a Chinese character needs two, a combining accent none."""
    return sum(0 if combining(c) else 2 if east_asian_width(c) in "WF" else 1 for c in text)


def cut(text: str, width: int) -> str:
    """The text in at most `width` columns. The middle is cut out, because both ends of a name distinguish groups.

    >>> cut("orders-loader-eu-west-1", 11)
    'order…est-1'
    """
    if columns(text) <= width:
        return text
    head = _first(text, (width - 1) // 2)
    tail = _first(reversed(text), width - 1 - (width - 1) // 2)
    return f"{''.join(head)}…{''.join(reversed(tail))}"


def _first(text: Iterable[str], width: int) -> list[str]:
    """The first characters that fit into `width` columns."""
    taken: list[str] = []
    for character in text:
        width -= columns(character)
        if width < 0:
            break
        taken.append(character)
    return taken


def padded(text: str, width: int, *, right: bool = False) -> str:
    """The text, padded with blanks to `width` columns; with `right`, the blanks come first."""
    blanks = " " * (width - columns(text))
    return blanks + text if right else text + blanks
