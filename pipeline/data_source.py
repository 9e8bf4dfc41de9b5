"""What all data sources share: how their options are read, and how large their batches are."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache

from pipeline.errors import ConfigError

MAX_BATCH_ROWS = 50_000


def several(text: str | None) -> tuple[str, ...]:
    """What an option names, with commas between; blanks around a name do not count."""
    return tuple(part.strip() for part in (text or "").split(",") if part.strip())


def refuse_unknown(options: Iterable[str], known: Sequence[str]) -> None:
    """Raises ConfigError for the first option that is not known."""
    for name in options:
        if name not in known:
            raise ConfigError(f"unknown option {name!r}; options are {', '.join(known)}")


@dataclass(frozen=True)
class NameFilter:
    """Names allowed by one regular expression and not denied by another (`re.search`; None = no limit)."""

    allow: str | None = None
    deny: str | None = None

    def __post_init__(self) -> None:
        for expression in (self.allow, self.deny):
            try:
                re.compile(expression or "")
            except re.error as exc:
                raise ConfigError(f"bad regular expression {expression!r}: {exc}") from None

    def select(self, names: Iterable[str]) -> list[str]:
        """The names that pass, sorted."""
        return sorted(filter(self.matcher(), names))

    def matcher(self) -> Callable[[str], bool]:
        """Whether a name passes, remembered: the same few names come again and again."""
        allow, deny = re.compile(self.allow or ""), re.compile(self.deny) if self.deny else None

        @cache
        def passes(name: str) -> bool:
            return bool(allow.search(name)) and not (deny and deny.search(name))

        return passes
