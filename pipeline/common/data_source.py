"""What all data sources share: how their options are read, and how large their batches are."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from inspect import signature
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from pipeline.common.errors import ConfigError

MAX_BATCH_ROWS = 50_000


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema with the same columns; instants are in UTC, as Spark expects them."""
    # Spark 4.0 and 4.1 always use UTC here.
    zone: dict[str, Any] = {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}
    return to_arrow_schema(schema, **zone)


def several(text: str | None) -> tuple[str, ...]:
    """The names in an option, which are separated by commas; blanks around a name are removed."""
    return tuple(part.strip() for part in (text or "").split(",") if part.strip())


def refuse_unknown(options: Iterable[str], known: Sequence[str]) -> None:
    """Raises ConfigError for the first unknown option."""
    for name in options:
        if name not in known:
            raise ConfigError(f"unknown option {name!r}; options are {', '.join(known)}")


MOST_SEARCHED = 1_024
"""Only this many characters of a name are searched. Anyone who may commit can give a group a name of 32 KB, on which an
ordinary pattern takes seconds. Topic names have at most 249."""


def positive_option(name: str, value: str) -> int:
    """The value of an option as a positive number. Raises ConfigError."""
    if not value.isdigit() or not int(value):
        raise ConfigError(f"option {name!r} must be a whole number above 0: {value!r}")
    return int(value)


@dataclass(frozen=True)
class NameFilter:
    """Names allowed by one regular expression and not denied by another (`re.search`; None = no limit).

    Only the first MOST_SEARCHED characters of a name are searched.
    """

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
        """A function that returns whether a name passes. Results are cached, because the same few names come often."""
        allow, deny = re.compile(self.allow or ""), re.compile(self.deny) if self.deny else None

        @cache
        def passes(name: str) -> bool:
            searched = name[:MOST_SEARCHED]
            return bool(allow.search(searched)) and not (deny and deny.search(searched))

        return passes
