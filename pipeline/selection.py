"""The part of a lake that somebody asks for."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass


@dataclass(frozen=True)
class Selection:
    """The part of the tables that is asked for; None asks for all.

    `from_ms` and `to_ms` are epoch ms, both included; `group` and `topic` are regular expressions, found anywhere in
    the name.
    """

    clusters: Collection[str] | None = None
    from_ms: int | None = None
    to_ms: int | None = None
    group: str | None = None
    topic: str | None = None
