"""How long the job `maintain` keeps rows in the lake."""

from typing import Annotated, Self

from pydantic import BeforeValidator, Field, model_validator

from pipeline.common.epoch import DAY_MS
from pipeline.config.toml_file import Section
from pipeline.config.value_types import duration_ms

LEAST_ROWS_MS = 2 * DAY_MS
"""The lag of new snapshots is computed from rows of earlier ones, which must still be there."""
LONGEST_MS = 36_500 * DAY_MS


def kept_ms(text: object) -> int | None:
    """A duration in milliseconds; None for `"forever"`. Raises ValueError."""
    return None if text == "forever" else duration_ms(text, LONGEST_MS)


KeptMs = Annotated[int | None, BeforeValidator(kept_ms)]


class RetentionConfig(Section):
    """How long the job `maintain` keeps rows, by the day of their snapshot. Without that job nothing is removed.

    The tables `snapshots`, `computed`, `log_index`, `findings` and `notifications`, and histograms and roll-ups of
    days, are always kept.
    """

    bronze_ms: KeptMs = Field(default=14 * DAY_MS, alias="bronze")
    """Tables of what was read, such as `committed_offsets`, `watermarks` and `client_positions`, and `quarantine`."""
    lag_ms: KeptMs = Field(default=90 * DAY_MS, alias="lag")
    """`lag`, `partition_status`, `group_status`, `forecasts`, `group_changes`, `slo`, `client_divergence`,
    `finding_history`, and the histograms of single snapshots in `lag_histograms`."""
    hours_ms: KeptMs = Field(default=366 * DAY_MS, alias="hours")
    """The histograms of hours in `lag_histograms`, and the hours in `lag_rollup`."""
    rollup: bool = False
    """Whether hours and days of the rows that are removed from `lag` are kept in `lag_rollup`."""

    def by_name(self) -> list[tuple[str, int | None]]:
        """Each key and its milliseconds; None means for ever."""
        return [("bronze", self.bronze_ms), ("lag", self.lag_ms), ("hours", self.hours_ms)]

    @model_validator(mode="after")
    def _is_long_enough(self) -> Self:
        for name, kept in self.by_name():
            if kept is not None and kept < LEAST_ROWS_MS:
                raise ValueError(f"{name} must be at least 2 days, because new snapshots need earlier ones")
        return self
