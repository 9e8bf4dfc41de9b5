"""The settings of service-level objectives: which groups must meet which objective, and how much of the time."""

import re
from collections.abc import Mapping
from typing import Annotated, NamedTuple, Self

from pydantic import AfterValidator, Field, model_validator

from pipeline.common.epoch import DAY_MS
from pipeline.config.toml_file import Section
from pipeline.config.value_types import DurationMs, Regex

OBJECTIVE_COLUMNS = (
    *("consumer_lag", "consumer_lag_stable", "consumer_lag_bytes"),
    *("consumer_lag_ms", "consumer_age_ms"),
)
"""The columns of `lag` that an objective may limit."""
LEAST_WINDOW_MS = 5 * DAY_MS
"""In a shorter window, 5 % of the budget in six hours would be less than a group may use in every six hours. For the
same reason, a window must not be longer than this divided by the error budget's share: else six hours without any
success would use less than 5 %."""
_OBJECTIVE = re.compile(r"([a-z_]+) *(<=?) *(\d{1,3}(?:_?\d{1,3}){0,7})", re.ASCII)


class Objective(NamedTuple):
    """A limit for a column of `lag`. `is_inclusive`: whether the limit itself is allowed."""

    column: str
    is_inclusive: bool
    limit: int

    @property
    def most(self) -> int:
        """The greatest value that meets it: all columns have whole numbers."""
        return self.limit if self.is_inclusive else self.limit - 1

    def __str__(self) -> str:
        """As the configuration and the table `slo` have it: `consumer_age_ms < 60000`."""
        return f"{self.column} {'<=' if self.is_inclusive else '<'} {self.limit}"


def parsed_objective(text: str) -> Objective:
    """The objective that a text such as `consumer_age_ms < 60000` describes. Raises ValueError."""
    found = _OBJECTIVE.fullmatch(text.strip())
    if not found or int(found[3]) >= 2**63:
        raise ValueError('must be a column and a limit, such as "consumer_age_ms < 60000"')
    if found[1] not in OBJECTIVE_COLUMNS:
        raise ValueError(f"must limit one of {', '.join(OBJECTIVE_COLUMNS)}")
    return Objective(found[1], found[2] == "<=", int(found[3]))


def _objective(text: str) -> str:
    return str(parsed_objective(text))


def _slo_name(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,64}", text):
        raise ValueError("the name of an objective is 1 to 64 letters, digits, dots, dashes or underscores")
    return text


def _share(value: float) -> float:
    if not 0 < value < 1:
        raise ValueError("must be more than 0 and less than 1, such as 0.99")
    return value


SloName = Annotated[str, AfterValidator(_slo_name)]
ObjectiveText = Annotated[str, AfterValidator(_objective)]
Share = Annotated[float, AfterValidator(_share)]


class SloConfig(Section):
    """A service-level objective: what groups must meet, and how much of the time. Its name, here X, is in the tables.

    Each group that matches has an error budget of its own. An expression may match anywhere in the first 1,024
    characters of a name.
    """

    groups: Regex
    """The groups that must meet the objective."""
    topics: Regex | None = None
    """The topics in which they must meet it; if unset, all topics that they read."""
    objective: ObjectiveText
    """What each partition must meet: `consumer_lag`, `consumer_lag_stable`, `consumer_lag_bytes`, `consumer_lag_ms` or
    `consumer_age_ms`, then `<` or `<=`, then a whole number."""
    target: Share
    """The share of the time in which the objective must be met. The rest is the error budget."""
    window_ms: DurationMs = Field(default=7 * DAY_MS, alias="window")
    """The time over which the target must be reached, always up to the newest snapshot: from 5 days to 5 days / (1 −
    `target`)."""

    @model_validator(mode="after")
    def _is_as_long_as_its_rules_need(self) -> Self:
        if self.window_ms < LEAST_WINDOW_MS:
            raise ValueError("window must be at least 5 days")
        # Rounded, because 1 - 0.99 is more than 0.01.
        if round(self.window_ms * (1 - self.target)) > LEAST_WINDOW_MS:
            raise ValueError("window must be at most 5 days / (1 - target), or no finding could ever begin")
        return self

    @property
    def limit(self) -> Objective:
        """The objective, parsed."""
        return parsed_objective(self.objective)


def too_long_a_window(slos: Mapping[str, SloConfig], kept_ms: int | None) -> str | None:
    """The name of the first objective whose window is longer than its rows are kept; None if there is none."""
    if kept_ms is None:
        return None
    return next((name for name, slo in slos.items() if slo.window_ms + DAY_MS > kept_ms), None)
