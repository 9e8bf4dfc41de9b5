"""Searches names for the expressions of a configuration."""

import re
from functools import lru_cache

_MATCHED = 1024
"""Expressions are searched for in this many characters of a name, as those of `[clusters.X.groups]` are."""


def matches(pattern: str | None, name: str | None) -> bool:
    """Whether an expression is found in a name. No expression matches everything, also what is unknown."""
    return pattern is None or (name is not None and _compiled(pattern).search(name[:_MATCHED]) is not None)


@lru_cache(10_000)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)
